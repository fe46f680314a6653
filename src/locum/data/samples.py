"""Small real data sets that ship with scikit-learn: nothing is downloaded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.types import EmbeddingInfo, EmbeddingSet

SAMPLES = ("breast-cancer", "digits")


def load_sample(name: str) -> EmbeddingSet:
    """A small real data set by name.

    "digits": 1797 hand-written digits as 64 pixels in 0..1, ten classes.
    "breast-cancer": 569 tumors as 30 measurements in their own units, malignant or benign.
    Neither has subjects, so neither shows what happens to a subject with many records.

    Parameters
    ----------
    name
        One of `SAMPLES`.

    Returns
    -------
    EmbeddingSet
        The data; public, and shipped with scikit-learn.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> sample = load_sample("breast-cancer")
    >>> sample.X.shape, sample.info.class_names
    ((569, 30), ('malignant', 'benign'))
    """
    from sklearn import datasets

    if name == "digits":
        digits = datasets.load_digits()
        info = EmbeddingInfo("pixels", class_names=tuple(str(c) for c in range(10)))
        return EmbeddingSet(digits.data / 16.0, digits.target, info=info)
    if name == "breast-cancer":
        cancer = datasets.load_breast_cancer()
        info = EmbeddingInfo("measurements", class_names=tuple(str(c) for c in cancer.target_names))
        return EmbeddingSet(cancer.data, cancer.target, info=info)
    raise ConfigError(f"There is no sample {name!r}: choose {' or '.join(repr(s) for s in SAMPLES)}.")


def load_digit_images() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The images of the "digits" sample, 8 by 8 gray bytes from 0 to 255, and their labels.

    They are stretched from the 17 gray levels of the source, so pixels differ from those of
    `load_sample("digits")` by rounding (at most half of 1/255).

    Returns
    -------
    images : ndarray of shape (1797, 8, 8)
        The pixels, uint8.
    labels : ndarray of shape (1797,)
        The digits, 0 to 9.

    Examples
    --------
    >>> from locum.data import load_digit_images
    >>> images, labels = load_digit_images()
    >>> images.shape, labels[:3].tolist()
    ((1797, 8, 8), [0, 1, 2])
    """
    from sklearn import datasets

    digits = datasets.load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.int64)
