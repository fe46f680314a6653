"""Default choices: the generator for a budget, and the networks and training settings of a CVAE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from locum.errors import ConfigError
from locum.types import DP

if TYPE_CHECKING:
    from locum.generate.scaling import Scaling

# Generators that can be fitted with differential privacy, by their names in the CLI.
PRIVATE_GENERATORS = ("gaussian", "cvae", "cgan")

# What each scaling discloses about the records.
SCALING_DISCLOSES = {
    "minmax": "feature bounds: each is some record's real value",
    "zscore": "mean and spread of each feature: exact",
    "class": "class means and spread of each feature: exact, so the mean of a small class nearly shows its records",
    "public": "nothing: statistics are public",
}

Noise = Literal["none", "diagonal", "low-rank"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A generator, by its name in the CLI, and the reason in one sentence.

    Attributes
    ----------
    generator
        The name in the CLI.
    reason
        Why, in one sentence.
    """

    generator: str
    reason: str


def choose_generator(privacy: DP | None = None) -> Choice:
    """The generator for a budget, from public numbers alone; it never looks at data.

    The reasons are the results of `locum study run private-epsilon`.

    Parameters
    ----------
    privacy
        The budget; None: no guarantee.

    Returns
    -------
    Choice
        The `generator`, by its name in the CLI, and the `reason` in one sentence.

    Examples
    --------
    >>> from locum.generate import choose_generator
    >>> choose_generator(None).generator
    'gaussian'
    """
    if privacy is None:
        return Choice("gaussian", "without a guarantee it ties with the CVAE for a linear head, and is smaller")
    return Choice(
        "gaussian",
        f"at epsilon {privacy.epsilon:g} noisy sums kept more than noisy training on every data set tried",
    )


@dataclass(frozen=True, slots=True)
class Preset:
    """All settings of a CVAE; `PRESETS` holds the named ones.

    Parameters
    ----------
    hidden
        The widths of the encoder's hidden layers; the decoder mirrors them. Empty for residual networks.
    latent
        The number of latents.
    beta
        The weight of the KL divergence.
    max_epochs
        The most passes over the data.
    batch_size
        Records in a batch, under differential privacy the expected number.
    patience
        Stop after this many epochs without a better validation loss; 0 runs every epoch.
    weight_decay
        Decoupled weight decay; 0 is plain Adam.
    residual
        Whether to use the residual network of the thesis.
    scaling
        "minmax", "zscore", "class" or, under differential privacy, "public".
    decoder_noise
        "none", "diagonal" or "low-rank".
    learning_rate
        The learning rate of Adam.
    clip
        The bound on the norm of a unit's gradient; only under differential privacy.

    Examples
    --------
    >>> from locum.generate import PRESETS
    >>> PRESETS["replica"].hidden, PRESETS["replica"].latent
    ((256,), 50)
    """

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
    learning_rate: float = 1e-3
    clip: float = 1.0


# "replica" is from the replica paper, "small" and "large" from the thesis, "federated" from the federated paper.
# "private" is our own: large batches and few steps, tuned on training data. The sizes of "large" are fixed in nets/.
PRESETS: dict[str, Preset] = {
    "replica": Preset((256,), 50, beta=0.1, max_epochs=1000, batch_size=512, patience=15),
    "small": Preset((512,), 100, beta=0.01, max_epochs=500, batch_size=256, patience=0),
    "large": Preset((), 100, beta=0.01, max_epochs=500, batch_size=256, patience=0, residual=True),
    "federated": Preset((256, 256, 256), 100, beta=0.1, max_epochs=250, batch_size=256, patience=0, clip=1.5),
    "private": Preset((256,), 32, beta=1.0, max_epochs=60, batch_size=2048, patience=0, learning_rate=5e-3),
}


def preset_for(name: str | None, *, authors_compat: bool, private: bool = False) -> Preset:
    """The preset as the authors ran it, or with scaling, beta and decoder noise from our cross-validation.

    The default is "replica", or "private" under differential privacy, where there is no early stopping.

    `locum study run generator-defaults` compares the settings for the preset "replica"; the other presets use its
    result unmeasured. The kinds of decoder noise tied there: "diagonal" is smaller and discloses less.
    """
    name = name or ("private" if private else "replica")
    if name not in PRESETS:
        raise ConfigError(f"`preset` must be one of {sorted(PRESETS)}; got {name!r}.")
    preset = PRESETS[name]
    if authors_compat:
        return replace(preset, weight_decay=0.01, batch_size=512) if name in ("small", "large") else preset
    if private:
        scaling: Scaling = "public" if name == "federated" else "class"
        return replace(preset, scaling=scaling, beta=1.0, decoder_noise="low-rank", patience=0)
    return replace(preset, scaling="class", beta=1.0, decoder_noise="diagonal")


def check_settings(s: Preset, variance: float) -> None:
    """Raise a ConfigError for a setting that cannot work."""
    if s.scaling not in SCALING_DISCLOSES:
        raise ConfigError(f"`scaling` must be one of {', '.join(SCALING_DISCLOSES)}; got {s.scaling!r}.")
    if s.decoder_noise not in ("none", "diagonal", "low-rank"):
        raise ConfigError(f"`decoder_noise` must be 'none', 'diagonal' or 'low-rank'; got {s.decoder_noise!r}.")
    if not 1 <= s.latent <= 65536:
        raise ConfigError(f"`latent` must lie in 1..65536; got {s.latent!r}.")
    if not s.residual and (not s.hidden or min(s.hidden) < 1):
        raise ConfigError(f"`hidden` must name at least one layer of 1 or more units; got {s.hidden!r}.")
    if not 0 <= s.beta < np.inf:
        raise ConfigError(f"`beta` must be 0 or more; got {s.beta!r}.")
    if not 0 <= variance <= 1e6:
        raise ConfigError(f"`variance` must lie in 0..1e6; got {variance!r}. 1 is what training assumed.")
