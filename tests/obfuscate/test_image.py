"""Obfuscated images."""

from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError, DataError, PrivacyError
from locum.obfuscate import ImageObfuscator


def squares(n: int = 160, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A bright square at the left or at the right, over a background of any gray."""
    rng = np.random.default_rng(seed)
    side, gray = rng.integers(0, 2, n), rng.integers(0, 120, n)
    images = np.repeat(gray, 256).reshape(n, 16, 16).astype(np.uint8)
    for image, right in zip(images, side, strict=True):
        image[4:12, 9 * right : 9 * right + 7] = 250
    return images, np.where(side, "right", "left")


X, SIDE = squares()


@pytest.fixture(scope="module", params=["substitute", "calibrated", "paper"])
def fitted(request: pytest.FixtureRequest) -> ImageObfuscator:
    training = {"max_epochs": 15, "batch_size": 32} if request.param == "paper" else {}
    return ImageObfuscator(request.param, **training, random_state=0).fit(
        X, SIDE, show_quarters=request.param == "substitute"
    )


def test_images_come_out_as_they_went_in(fitted: ImageObfuscator) -> None:
    out = fitted.transform(X, SIDE, noise=1, random_state=0)
    assert (out.shape, out.dtype) == (X.shape, np.uint8)
    assert np.array_equal(out, fitted.transform(X, SIDE, noise=1, random_state=0))
    assert not np.array_equal(out, fitted.transform(X, SIDE, noise=1))


@pytest.mark.parametrize("preset", ["substitute", "calibrated"])
def test_what_is_needed_is_kept_under_much_noise(preset: str) -> None:
    model = ImageObfuscator(preset, random_state=0).fit(X, SIDE, show_quarters=preset == "substitute")
    out = model.transform(X, SIDE, noise=1000, random_state=0).astype(float)
    right = out[:, 4:12, 9:].mean(axis=(1, 2)) > out[:, 4:12, :7].mean(axis=(1, 2))
    assert (right == (SIDE == "right")).mean() > 0.9
    gray = [np.corrcoef(a[:, 0, 8], X[:, 0, 8])[0, 1] for a in (out, model.transform(X, SIDE, noise=0))]
    assert gray[0] < 0.25 < gray[1]


def test_colors_and_single_planes() -> None:
    color = np.repeat(X[..., None], 3, axis=3)
    model = ImageObfuscator().fit(color, SIDE, show_quarters=True)
    assert model.transform(color, SIDE, noise=1).shape == color.shape
    plane = ImageObfuscator().fit(X[..., None], SIDE, show_quarters=True)
    assert plane.transform(X[..., None], SIDE, noise=1).shape == (*X.shape, 1)


def test_labels_can_be_guessed(fitted: ImageObfuscator) -> None:
    guessed = fitted.predict(X)["utility"]
    assert (guessed == SIDE).mean() > 0.8
    a = fitted.transform(X, noise=1, use_true_label=False, random_state=0)
    assert np.array_equal(a, fitted.transform(X, guessed, noise=1, random_state=0))


def test_without_noise_images_come_back() -> None:
    out = ImageObfuscator("calibrated").fit(X, SIDE).transform(X, SIDE, noise=0).astype(int)
    assert np.abs(out - X).max() <= 1


def test_nothing_of_an_image_is_shown_unless_that_is_allowed() -> None:
    model = ImageObfuscator()
    with pytest.raises(PrivacyError, match=r"pass `donors`.*--show-quarters.*'calibrated'"):
        model.fit(X, SIDE)
    assert not hasattr(model, "noise_")
    for preset, donors in (("calibrated", None), ("substitute", (X, SIDE))):
        with pytest.raises(ConfigError, match="show_quarters"):
            ImageObfuscator(preset).fit(X, SIDE, donors=donors, show_quarters=True)


def test_what_is_not_trained_has_no_epochs() -> None:
    with pytest.raises(ConfigError, match=r"trains no network on images.*'max_epochs'"):
        ImageObfuscator(max_epochs=3).fit(X, SIDE)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (X.astype(float), "uint8"),
        (X[:, :, :8], "square"),
        (X[:, :8, :8], "multiple of 16"),
        (X[:0], "no images"),
        (X[0], "uint8|shape"),
    ],
)
def test_other_images_are_refused(images: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ImageObfuscator().fit(images, SIDE[: len(images)], show_quarters=True)


def test_another_size_is_refused_at_use(fitted: ImageObfuscator) -> None:
    with pytest.raises(DataError, match="was fitted on images of shape"):
        fitted.transform(np.zeros((2, 32, 32), np.uint8), ["left", "right"], noise=1)
    with pytest.raises(DataError, match="`utility` is missing"):
        fitted.transform(X, noise=1)
