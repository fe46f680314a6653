"""Networks and training of the seeds, and the settings that we measured to be better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from understudy.errors import ConfigError
from understudy.generate.scaling import Scaling

__all__ = ["PRESETS", "Preset", "preset_for"]

Noise = Literal["none", "diagonal", "low-rank"]


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything that a preset decides; `patience` 0 means that every epoch is run."""

    hidden: tuple[int, ...]
    latent: int
    beta: float
    max_epochs: int
    batch_size: int
    patience: int
    weight_decay: float = 0.0
    residual: bool = False
    scaling: Scaling = "minmax"
    decoder_noise: Noise = "none"


# As the seeds' texts have it. The large network's sizes are fixed in nets/.
PRESETS: dict[str, Preset] = {
    "replica": Preset((256,), 50, beta=0.1, max_epochs=1000, batch_size=512, patience=15),
    "small": Preset((512,), 100, beta=0.01, max_epochs=500, batch_size=256, patience=0),
    "large": Preset((), 100, beta=0.01, max_epochs=500, batch_size=256, patience=0, residual=True),
    "federated": Preset((256, 256, 256), 100, beta=0.1, max_epochs=250, batch_size=256, patience=0),
}


def preset_for(name: str, *, authors_compat: bool) -> Preset:
    """The preset as the authors ran it, or with scaling, beta and decoder noise by our cross-validation.

    `understudy study run generator-defaults` compares them for the preset `replica`; the others take them over
    unmeasured. Kinds of decoder noise tied there: "diagonal" is the smaller one, and tells less.
    """
    if name not in PRESETS:
        raise ConfigError(f"`preset` must be one of {sorted(PRESETS)}; got {name!r}.")
    preset = PRESETS[name]
    if authors_compat:
        return replace(preset, weight_decay=0.01, batch_size=512) if name in ("small", "large") else preset
    return replace(preset, scaling="class", beta=1.0, decoder_noise="diagonal")
