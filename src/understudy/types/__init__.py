"""Core types: frozen, numpy only, no files and no torch."""

from understudy.types.attack import AttackResult, Verdict
from understudy.types.claim import ClaimKind, PrivacyClaim, Unit
from understudy.types.embeddings import EmbeddingInfo, EmbeddingSet, encode_labels
from understudy.types.estimate import Estimate

__all__ = [
    "AttackResult",
    "ClaimKind",
    "EmbeddingInfo",
    "EmbeddingSet",
    "Estimate",
    "PrivacyClaim",
    "Unit",
    "Verdict",
    "encode_labels",
]
