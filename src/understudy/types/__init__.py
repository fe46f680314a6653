"""Core types: frozen, numpy only, no files and no torch."""

from understudy.types.attack import Attack, AttackResult, Samplable, Verdict
from understudy.types.claim import ClaimKind, PrivacyClaim, Unit
from understudy.types.embeddings import EmbeddingInfo, EmbeddingSet, encode_labels
from understudy.types.estimate import Estimate

__all__ = [
    "Attack",
    "AttackResult",
    "ClaimKind",
    "EmbeddingInfo",
    "EmbeddingSet",
    "Estimate",
    "PrivacyClaim",
    "Samplable",
    "Unit",
    "Verdict",
    "encode_labels",
]
