"""Built-in samples are what their text says."""

from __future__ import annotations

import numpy as np
import pytest

from locum.data import SAMPLES, check_trainable, load_digit_images, load_sample
from locum.errors import ConfigError


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_loads_and_can_be_learned_from(name: str) -> None:
    check_trainable(load_sample(name), min_per_class=100)


def test_digits_are_pixels() -> None:
    digits = load_sample("digits")
    assert digits.X.shape == (1797, 64)
    assert (digits.X.min(), digits.X.max()) == (0, 1)
    assert digits.info.backbone == "pixels"
    assert digits.info.class_names == tuple("0123456789")


def test_breast_cancer_is_measured_and_malignant_has_the_larger_radius() -> None:
    cancer = load_sample("breast-cancer")
    assert cancer.info.backbone == "measurements"
    assert cancer.counts.tolist() == [212, 357]
    radius = [cancer.X[cancer.labels == name, 0].mean() for name in ("malignant", "benign")]
    assert radius[0] > radius[1]


def test_digit_images_are_the_digits_of_the_sample() -> None:
    images, labels = load_digit_images()
    digits = load_sample("digits")
    assert images.shape == (1797, 8, 8)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(labels, digits.y)
    np.testing.assert_allclose(images.reshape(-1, 64) / 255, digits.X, atol=0.5 / 255 + 1e-7)


def test_an_unknown_sample_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="no sample 'iris': choose 'breast-cancer' or 'digits'"):
        load_sample("iris")
