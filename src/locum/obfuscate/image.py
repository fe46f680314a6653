"""Obfuscated images, with the same size and type as the originals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError, PrivacyError
from locum.nets import Obfuscator, image_obfuscator
from locum.obfuscate.knobs import plainness
from locum.obfuscate.labels import UtilityLabels
from locum.obfuscate.noise import SpectralNoise
from locum.obfuscate.obfuscator import BaseObfuscator, Error, Preset, squared_error
from locum.obfuscate.substitution import Substitution
from locum.train import History
from locum.types import Progress

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
SHOWS = (
    "The preset 'substitute' shows images as they are: pass `donors` that anyone may see (--donors), allow it to "
    "show one quarter of each image (show_quarters=True, --show-quarters), or use the preset 'calibrated', which "
    "shows none."
)
# What replaces a network.
NO_NETWORK = (SpectralNoise, Substitution)


class ImageObfuscator(BaseObfuscator):
    """Obfuscates square images whose side is a multiple of 16: (n, h, w) or (n, h, w, 3), uint8.

    The output has the same shape and type. Only "paper" trains a network: 9,204,032 parameters at 64 x 64 x 3.

    Releases carry the utility labels by design. Nothing is proven about the images it was fitted on, and with
    collages a quarter of each is shown as it is; `local_epsilon` is what is proven about others.

    Parameters
    ----------
    preset
        "substitute" (`Substitution`) replaces an image by one with the same labels: one of the `donors` passed to
        `fit` or, with `show_quarters`, a collage of quarters of images that it was fitted on. The less `noise`, the
        more often it is a near one. `lambda_` is how often it is chosen among those with the same labels rather than
        among all.
        "calibrated" (`SpectralNoise`) adds noise with the spectrum of the images and scales the sum back; `lambda_`
        moves the mean that an image is drawn around from that of all images to that of its label. It shows no part of
        another image. "paper" is the network and noise of the adjustable paper.
    max_epochs, batch_size
        "paper" only: passes over the data, and images per step. None: 200 and 64.
    learning_rate
        Step size of Adam.
    beta
        For tables; None for images.
    authors_compat
        "paper" only: no floor under the noise (fault F3), as the authors ran it.
    validation_share
        Share of the records held out for validation (fault F14); the weights of the best epoch are kept. 0: none.
    random_state
        Seed of the training and of the collages; None: a fresh one.
    device
        Where to train: "auto" (a GPU if there is one), "cpu", "cuda" or "mps". It is not saved.
    checkpoint
        A private file from which an interrupted fit resumes; needs `random_state`.
    progress
        Called as training proceeds.

    Attributes
    ----------
    labels_
        Names and values of the utility attributes.
    module_
        The trained network, for "paper" only.
    noise_
        The fitted noise: for "substitute" the pool of images, for "calibrated" means and a spectrum of the images.
    history_
        Losses by epoch. Private.
    shape_
        Channels, height and width of the images.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.obfuscate import ImageObfuscator
    >>> kind = np.arange(40) % 2
    >>> images = np.random.default_rng(0).integers(0, 100, (40, 16, 16)) + 100 * kind[:, None, None]
    >>> model = ImageObfuscator(random_state=0).fit(images.astype(np.uint8), kind, show_quarters=True)
    >>> out = model.transform(images.astype(np.uint8), kind, noise=5, random_state=0)
    >>> out.shape, out.dtype
    ((40, 16, 16), dtype('uint8'))
    """

    _DEFAULTS: Mapping[str, Mapping[str, Any]] = {
        "substitute": {},
        "calibrated": {},
        "paper": {"max_epochs": 200, "batch_size": 64, "betas": (0.5, 0.999), "per_batch": False},
    }

    def __init__(
        self,
        preset: Preset = "substitute",
        *,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        beta: float | None = None,
        authors_compat: bool = False,
        validation_share: float = 0.1,
        random_state: int | None = None,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(
            preset,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            beta=beta,
            authors_compat=authors_compat,
            validation_share=validation_share,
            random_state=random_state,
            device=device,
            checkpoint=checkpoint,
            progress=progress,
        )

    def fit(
        self,
        X: npt.ArrayLike,
        utility: Any,
        *,
        donors: tuple[npt.ArrayLike, Any] | None = None,
        show_quarters: bool = False,
        subject: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn from images and the attributes that must stay useful. Private attributes are not needed.

        The preset "substitute" shows images, or parts of images, as they are. Say which: `donors` are images and
        their utility labels that may be shown to anyone, such as public ones, and nothing of `X` but the values of
        its labels is kept; with `show_quarters` one quarter of each image of `X` may be shown, in collages.
        `subject` says whose each image is: all images of one person then show the same quarter.
        """
        self._check()
        if show_quarters and (donors is not None or self.preset != "substitute"):
            raise ConfigError("`show_quarters` is for the preset 'substitute' without `donors`: leave it out.")
        if subject is not None and not show_quarters:
            raise ConfigError("`subject` decides who shows which quarter: pass it with `show_quarters` only.")
        if donors is None:
            if self.preset == "substitute" and not show_quarters:
                raise PrivacyError(SHOWS)
            if not show_quarters:
                return super().fit(X, utility)
            matrix, codes = self._prepare(X, utility)
            if subject is not None and np.shape(subject) != (len(matrix),):
                raise DataError(
                    f"`subject` needs one entry for each of {len(matrix)} images; got {np.shape(subject)}."
                )
            rng, whose = np.random.default_rng(self._seed()), None if subject is None else np.asarray(subject)
            self.noise_, self.history_ = Substitution.of_collages(matrix, codes, rng, whose), History()
            return self
        if self.preset != "substitute":
            raise ConfigError(f"Only the preset 'substitute' takes `donors`; got {self.preset!r}: leave them out.")
        self._learn(X)
        self.labels_ = UtilityLabels.fit(utility)
        shown, codes = self._donated(*donors)
        self.noise_, self.history_ = Substitution.of_donors(shown, codes), History()
        missing = set(map(tuple, self.labels_.codes(utility).tolist())) - set(map(tuple, codes.tolist()))
        if missing:
            del self.noise_
            raise DataError(
                f"{len(missing)} combination(s) of utility labels have no donor: pass donors for all that occur."
            )
        return self

    def transform(
        self,
        X: npt.ArrayLike,
        utility: Any = None,
        *,
        noise: float,
        lambda_: float | None = -50.0,
        use_true_label: bool = True,
        random_state: int | np.random.Generator | None = None,
    ) -> npt.NDArray[np.uint8]:
        """One release of each image, with fresh randomness each time unless `random_state` is given.

        The knobs are those of `TableObfuscator.transform`; images under the paper's preset need a `lambda_` of -3000.
        Substitutes are then drawn with the operating system's secure generator.
        """
        images = np.asarray(X)
        matrix = self.matrix(images)
        if use_true_label and utility is None:
            raise DataError("`utility` is missing: pass each image's label, or use_true_label=False.")
        codes = self.codes(utility) if use_true_label else np.zeros((len(matrix), 1), dtype=np.int64)
        if len(codes) != len(matrix):
            raise DataError(f"Each image needs its utility label; got {len(matrix)} images, {len(codes)} labels.")
        mask = self.masking(noise=noise, lambda_=lambda_, use_true_label=use_true_label)
        if random_state is None and isinstance(self.noise_, Substitution):
            known = codes if use_true_label and lambda_ is not None else self.noise_.guess(matrix)
            out = self.noise_.apply(matrix, known, float(noise), None, plainness(self.labels_.sizes, lambda_))
        else:
            out = mask(matrix, codes, np.random.default_rng(random_state))
        pixels: npt.NDArray[np.uint8] = np.rint(out * 255).clip(0, 255).astype(np.uint8)
        return pixels[:, 0] if images.ndim == 3 else pixels.transpose(0, 2, 3, 1)

    def matrix(self, X: npt.ArrayLike) -> Array:
        """(n, channels, side, side) between 0 and 1."""
        self._fitted()
        out = _pixels(X)
        if out.shape[1:] != self.shape_:
            raise DataError(
                f"The obfuscator was fitted on images of shape {self.shape_}; got {out.shape[1:]}. Resize them."
            )
        return out

    def _learn(self, X: npt.ArrayLike) -> Array:
        out = _pixels(X)
        self.shape_ = tuple(out.shape[1:])
        return out

    def _inputs(self, matrix: Array) -> Array:
        return matrix

    def _network(self, inputs: Array) -> Obfuscator:
        return image_obfuscator(inputs.shape[1], inputs.shape[2], self.labels_.sizes)

    def _rebuilding(self) -> Error:
        return squared_error

    def _outputs(self, out: Array, rng: np.random.Generator) -> Array:
        return out

    # -- without a network -----------------------------------------------------------------------------------------
    @property
    def parameters_(self) -> int:
        """How many numbers were learned, or are in the pool."""
        self._fitted()
        return self.noise_.size if isinstance(self.noise_, NO_NETWORK) else super().parameters_

    def _train(self, matrix: Array, codes: Codes) -> None:
        if self.preset == "paper":
            super()._train(matrix, codes)
        else:
            self.noise_, self.history_ = SpectralNoise.fit(matrix, codes), History()

    def _donated(self, images: npt.ArrayLike, utility: Any) -> tuple[Array, Codes]:
        shown = _pixels(images)
        if shown.shape[1:] != self.shape_:
            raise DataError(f"Donors must have the images' shape {self.shape_}; got {shown.shape[1:]}. Resize them.")
        codes = self.labels_.codes(utility)
        if len(codes) != len(shown):
            raise DataError(f"Each donor needs its utility label; got {len(shown)} donors, {len(codes)} labels.")
        return shown, codes

    def _seen(self, matrix: Array) -> Codes:
        return self.noise_.guess(matrix) if isinstance(self.noise_, NO_NETWORK) else super()._seen(matrix)

    def _release(
        self, matrix: Array, codes: Codes | None, noise: float, lambda_: float | None, rng: np.random.Generator
    ) -> Array:
        if not isinstance(self.noise_, NO_NETWORK):
            return super()._release(matrix, codes, noise, lambda_, rng)
        known = self.noise_.guess(matrix) if codes is None or lambda_ is None else codes
        return self.noise_.apply(matrix, known, noise, rng, plainness(self.labels_.sizes, lambda_))

    def _check(self) -> None:
        super()._check()
        given = [name for name in ("max_epochs", "batch_size", "beta") if getattr(self, name) is not None]
        if self.preset != "paper" and given:
            raise ConfigError(
                f"The preset {self.preset!r} trains no network on images, so it has no {given[0]!r}: leave it out, "
                "or use preset='paper'."
            )


def _pixels(X: npt.ArrayLike) -> Array:
    images = np.asarray(X)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise DataError(
            f"Images must be (n, h, w) or (n, h, w, 3) of type uint8; got {images.dtype} of shape {images.shape}."
        )
    if len(images) == 0:
        raise DataError("There are no images: pass at least one.")
    if images.shape[1] != images.shape[2] or images.shape[1] % 16:
        raise DataError(
            f"Images must be square with a side that is a multiple of 16; got {images.shape[1]} x {images.shape[2]}. "
            "Resize them."
        )
    planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(planes, dtype=np.float32) / 255
