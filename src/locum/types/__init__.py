"""Core types: frozen, numpy only, no files and no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.types.attack_result import (
        AttackResult as AttackResult,
        EpsilonVerdict as EpsilonVerdict,
        Measure as Measure,
        Verdict as Verdict,
        worst_verdict as worst_verdict,
    )
    from locum.types.batches import (
        PIECE as PIECE,
        Batches as Batches,
        Facts as Facts,
        SetBatches as SetBatches,
    )
    from locum.types.budget import (
        DEFAULT_DELTA as DEFAULT_DELTA,
        DEFAULT_EPSILON as DEFAULT_EPSILON,
        DP as DP,
    )
    from locum.types.claim import (
        ClaimKind as ClaimKind,
        DPClaim as DPClaim,
        PrivacyClaim as PrivacyClaim,
        Relation as Relation,
        Unit as Unit,
    )
    from locum.types.embeddings import (
        EmbeddingInfo as EmbeddingInfo,
        EmbeddingSet as EmbeddingSet,
        encode_labels as encode_labels,
    )
    from locum.types.estimate import Estimate as Estimate, finite_number as finite_number
    from locum.types.five_safes import SAFES as SAFES, safes_in_words as safes_in_words
    from locum.types.html import Tone as Tone, html_card as html_card, html_text as html_text
    from locum.types.progress import Progress as Progress, no_progress as no_progress
    from locum.types.rounding import (
        GRID_GAP as GRID_GAP,
        at_least as at_least,
        at_most as at_most,
        limit_figure as limit_figure,
    )
    from locum.types.subjects import SUBJECT_COLUMNS as SUBJECT_COLUMNS, seems_subject as seems_subject
    from locum.types.verdicts import (
        ATTACKS_INCONCLUSIVE as ATTACKS_INCONCLUSIVE,
        CHANCE_ABOVE as CHANCE_ABOVE,
        VerdictText as VerdictText,
        met_though_inconclusive as met_though_inconclusive,
        verdict_text as verdict_text,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
