"""The baselines by name, and the strengths to sweep for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from locum.errors import ConfigError
from locum.obfuscate.baselines.base import Baseline
from locum.obfuscate.baselines.emb_g_filter import EmbGFilter
from locum.obfuscate.baselines.gap import GAP
from locum.obfuscate.baselines.gaussian import GaussianNoise
from locum.obfuscate.baselines.learned_noise import LearnedNoise
from locum.obfuscate.baselines.lmifr import LMIFR
from locum.obfuscate.baselines.pupet import AEPupet, BetaVAEPupet, UAEPupet, VAEPupet
from locum.obfuscate.baselines.sanitizer import Sanitizer
from locum.obfuscate.baselines.tiprdc import TIPRDC
from locum.obfuscate.baselines.vfae import VFAE

_BUILT: tuple[type[Baseline], ...] = (
    GaussianNoise, LearnedNoise, GAP,
    AEPupet, UAEPupet, VAEPupet, BetaVAEPupet,
    VFAE, LMIFR, EmbGFilter, TIPRDC, Sanitizer,
)  # fmt: skip
BASELINES: MappingProxyType[str, type[Baseline]] = MappingProxyType({baseline.name: baseline for baseline in _BUILT})

NOT_BUILT: MappingProxyType[str, str] = MappingProxyType(
    {
        "sanitizer for images": "its encoder and decoder are networks of another size than those of the other "
        "baselines for images; for tables it is built",
    }
)

# From none to where little of the private attribute or of the rows is left, found on Adult and CIFAR-10.
_TABLE: Mapping[str, tuple[float, ...]] = {
    "gaussian": (0.0, 0.1, 0.3, 0.5, 1.0, 2.0),
    "learned-noise": (0.0, 0.1, 0.3, 1.0, 3.0, 10.0),
    "gap": (0.0, 0.1, 0.2, 0.4, 0.8, 1.5),
    "vfae": (0.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    "lmifr": (0.0, 1.0, 2.0, 3.0, 5.0, 8.0),
    "emb-g-filter": (0.0, 0.05, 0.1, 0.2, 0.4, 0.8),
    "tiprdc": (0.0, 1.0, 3.0, 10.0, 30.0, 100.0),
    "sanitizer": (0.0, 1.0, 3.0, 10.0, 30.0, 100.0),
} | dict.fromkeys(("ae-pupet", "uae-pupet", "vae-pupet", "beta-vae-pupet"), (0.0, 1.0, 3.0, 10.0, 30.0, 100.0))
_IMAGE: Mapping[str, tuple[float, ...]] = {
    "gaussian": (0.0, 0.2, 0.5, 1.0),
    "learned-noise": (0.0, 0.1, 0.3, 1.0),
    "gap": (0.0, 0.1, 0.3, 1.0),
    "tiprdc": (0.0, 1.0, 10.0, 100.0),
}


def strengths(name: str, kind: Literal["table", "image"]) -> tuple[float, ...]:
    """Strengths to sweep for a baseline, ascending from 0: six for tables and four for images.

    Parameters
    ----------
    name
        Name of the baseline, a key of `BASELINES`.
    kind
        "table" or "image".

    Returns
    -------
    tuple of float
        The strengths.

    Examples
    --------
    >>> from locum.obfuscate.baselines import strengths
    >>> strengths("gap", "image")
    (0.0, 0.1, 0.3, 1.0)
    """
    grid = {"table": _TABLE, "image": _IMAGE}[kind]
    if name not in grid:
        raise ConfigError(f"There is no baseline {name!r} for {kind}s: choose from {', '.join(grid)}.")
    return grid[name]
