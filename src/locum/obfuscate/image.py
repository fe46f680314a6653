"""Obfuscated images, with the same size and type as the originals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.nets import Obfuscator, image_obfuscator
from locum.obfuscate.knobs import plainness
from locum.obfuscate.noise import SpectralNoise
from locum.obfuscate.obfuscator import BaseObfuscator, Error, squared_error
from locum.train import History

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]


class ImageObfuscator(BaseObfuscator):
    """Obfuscates square images whose side is a multiple of 16: (n, h, w) or (n, h, w, 3), uint8.

    The output has the same shape and type. The paper's preset has 9,204,032 parameters at 64 x 64 x 3. The calibrated
    preset has no network (`SpectralNoise`): C is a linear discriminant, and `lambda_` moves the mean that an image is
    drawn around from that of all images to that of its label.

    Releases carry the utility labels by design. Nothing is proven about the images it was fitted on; `local_epsilon`
    is what is proven about others.

    Parameters
    ----------
    preset
        "calibrated", or "paper" for the network and noise of the adjustable paper. "calibrated" shapes the noise like
        the records' own variation and scales the sum back: whatever the noise, records look like real ones of their
        class, so a model trained on them works on real ones. It trains no network on images.
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
        Seed of the training; None: a fresh one.
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
        The trained network; none for calibrated images.
    noise_
        The fitted noise. In the calibrated preset it holds means and covariances of the records.
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
    >>> model = ImageObfuscator(random_state=0).fit(images.astype(np.uint8), kind)
    >>> out = model.transform(images.astype(np.uint8), kind, noise=5, random_state=0)
    >>> out.shape, out.dtype
    ((40, 16, 16), dtype('uint8'))
    """

    _DEFAULTS: Mapping[str, Mapping[str, Any]] = {
        "calibrated": {},
        "paper": {"max_epochs": 200, "batch_size": 64, "betas": (0.5, 0.999), "per_batch": False},
    }

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
        """
        images = np.asarray(X)
        matrix = self.matrix(images)
        if use_true_label and utility is None:
            raise DataError("`utility` is missing: pass each image's label, or use_true_label=False.")
        codes = self.codes(utility) if use_true_label else np.zeros((len(matrix), 1), dtype=np.int64)
        if len(codes) != len(matrix):
            raise DataError(f"Each image needs its utility label; got {len(matrix)} images, {len(codes)} labels.")
        mask = self.masking(noise=noise, lambda_=lambda_, use_true_label=use_true_label)
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
        """How many numbers were learned."""
        self._fitted()
        return self.noise_.size if isinstance(self.noise_, SpectralNoise) else super().parameters_

    def _train(self, matrix: Array, codes: Codes) -> None:
        if self.preset == "paper":
            super()._train(matrix, codes)
            return
        self.noise_, self.history_ = SpectralNoise.fit(matrix, codes), History()

    def _seen(self, matrix: Array) -> Codes:
        return self.noise_.guess(matrix) if isinstance(self.noise_, SpectralNoise) else super()._seen(matrix)

    def _release(
        self, matrix: Array, codes: Codes | None, noise: float, lambda_: float | None, rng: np.random.Generator
    ) -> Array:
        if not isinstance(self.noise_, SpectralNoise):
            return super()._release(matrix, codes, noise, lambda_, rng)
        known = self.noise_.guess(matrix) if codes is None or lambda_ is None else codes
        return self.noise_.apply(matrix, known, noise, rng, plainness(self.labels_.sizes, lambda_))

    def _check(self) -> None:
        super()._check()
        given = [name for name in ("max_epochs", "batch_size", "beta") if getattr(self, name) is not None]
        if self.preset == "calibrated" and given:
            raise ConfigError(
                f"The calibrated preset trains no network on images, so it has no {given[0]!r}: leave it out, "
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
