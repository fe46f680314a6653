"""Core types: frozen, numpy only, no files and no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.types.attack_result import AttackResult as AttackResult, Verdict as Verdict
    from locum.types.budget import DP as DP, Relation as Relation
    from locum.types.claim import (
        ClaimKind as ClaimKind,
        DPClaim as DPClaim,
        PrivacyClaim as PrivacyClaim,
        Unit as Unit,
    )
    from locum.types.embeddings import (
        EmbeddingInfo as EmbeddingInfo,
        EmbeddingSet as EmbeddingSet,
        encode_labels as encode_labels,
    )
    from locum.types.estimate import Estimate as Estimate
    from locum.types.progress import ProgressBar as ProgressBar, RichBar as RichBar
    from locum.types.rounding import at_least as at_least, at_most as at_most

__getattr__, __dir__, __all__ = lazy_exports(__name__)
