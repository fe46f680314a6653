"""Core types: frozen, numpy only, no files and no torch."""

from understudy.types.attack import AttackResult, Verdict
from understudy.types.claim import ClaimKind, DPClaim, PrivacyClaim, Unit
from understudy.types.digits import at_least, at_most
from understudy.types.dp import DP, Relation
from understudy.types.embeddings import EmbeddingInfo, EmbeddingSet, encode_labels
from understudy.types.estimate import Estimate

__all__ = [
    "DP",
    "AttackResult",
    "ClaimKind",
    "DPClaim",
    "EmbeddingInfo",
    "EmbeddingSet",
    "Estimate",
    "PrivacyClaim",
    "Relation",
    "Unit",
    "Verdict",
    "at_least",
    "at_most",
    "encode_labels",
]
