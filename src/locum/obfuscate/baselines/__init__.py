"""Published obfuscators in one interface, for comparison: `BASELINES` by name, `strengths` to sweep.

Every baseline gets the same number of strengths: the same tuning budget. Imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.obfuscate.baselines.base import Baseline as Baseline
    from locum.obfuscate.baselines.catalog import (
        BASELINES as BASELINES,
        NOT_BUILT as NOT_BUILT,
        strengths as strengths,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
