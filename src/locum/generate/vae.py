"""The unconditional VAE of the thesis: a control that shows what the label adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.generate.base import Attributes
from locum.generate.cvae import UNLABELED, CVAEGenerator


class VAEGenerator(CVAEGenerator):
    """A VAE that never sees a label; all its samples have the class "unlabeled".

    It serves to study latents (`encode`, `reconstruct`), not to train a classifier.

    Parameters
    ----------
    preset, hidden, latent, beta, scaling, decoder_noise, variance
        As in `CVAEGenerator`. There is one class, so the scaling "class" is "zscore".
    max_epochs, batch_size, learning_rate, weight_decay, patience
        As in `CVAEGenerator`.
    space, authors_compat, device, checkpoint, verbose, random_state
        As in `CVAEGenerator`.
    condition_on
        Must be empty: a VAE sees vectors alone.
    privacy
        Must be None: this generator does not support differential privacy.
    clip, classes, reference, ledger, holding, insecure_seed
        Not used.

    Attributes
    ----------
    settings_
        The settings in use: the preset, with what was set by hand.
    history_
        Losses by epoch. Private.
    module_
        Both networks. Private: the encoder is never released.
    claim_
        What a release claims.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import VAEGenerator
    >>> s = load_sample("breast-cancer")
    >>> vae = VAEGenerator(hidden=(16,), latent=4, max_epochs=2, random_state=0).fit(s.X)
    >>> mean, deviation = vae.encode(s.X, s.y)
    >>> mean.shape
    (569, 4)
    """

    _conditional = False
    _SUPPORTS_DP = False

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        subject: npt.ArrayLike | None = None,
        *,
        attributes: Attributes | None = None,
        validation: Sequence[npt.ArrayLike] | None = None,
    ) -> Self:
        """Learn from vectors alone; labels are ignored."""
        if self.condition_on:
            raise ConfigError("A VAE sees only vectors: leave `condition_on` out, or use CVAEGenerator.")
        if validation is not None:
            validation = (validation[0], _unlabeled(validation[0]))
        return super().fit(X, _unlabeled(X), subject, attributes=attributes, validation=validation)

    def _codes(self, y: npt.ArrayLike) -> npt.NDArray[np.int64]:
        return np.zeros((len(np.asarray(y)), 1), dtype=np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def _unlabeled(X: Any) -> npt.NDArray[np.str_]:
    shape = getattr(X, "shape", None)
    n = shape[0] if shape else len(X)
    return np.full(n, UNLABELED)
