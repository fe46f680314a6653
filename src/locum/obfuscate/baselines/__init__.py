"""Published obfuscators in one interface, for comparison: `BASELINES` by name, `strengths` to sweep.

Every baseline gets the same number of strengths: the same tuning budget. Imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.obfuscate.baselines.base import Array as Array, Baseline as Baseline
    from locum.obfuscate.baselines.catalog import (
        BASELINES as BASELINES,
        NOT_BUILT as NOT_BUILT,
        BaselineFactory as BaselineFactory,
        strengths as strengths,
    )
    from locum.obfuscate.baselines.emb_g_filter import (
        EmbGFilter as EmbGFilter,
        FilteredAutoencoder as FilteredAutoencoder,
    )
    from locum.obfuscate.baselines.gap import GAP as GAP
    from locum.obfuscate.baselines.gaussian import GaussianNoise as GaussianNoise
    from locum.obfuscate.baselines.learned_noise import LearnedNoise as LearnedNoise
    from locum.obfuscate.baselines.lmifr import LMIFR as LMIFR
    from locum.obfuscate.baselines.pupet import (
        AEPupet as AEPupet,
        BetaVAEPupet as BetaVAEPupet,
        UAEPupet as UAEPupet,
        VAEPupet as VAEPupet,
    )
    from locum.obfuscate.baselines.tiprdc import TIPRDC as TIPRDC
    from locum.obfuscate.baselines.vfae import VFAE as VFAE

__getattr__, __dir__, __all__ = lazy_exports(__name__)
