"""The two knobs."""

from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError
from locum.obfuscate.knobs import checked_lambda, checked_noise, probabilities, written


def test_g_writes_zero_for_the_label_and_lambda_elsewhere() -> None:
    out = written(np.array([[1, 0], [0, 2]]), (2, 3), -50.0)
    assert out.tolist() == [[-50, 0, 0, -50, -50], [0, -50, -50, -50, 0]]


def test_probabilities_sum_to_one_in_each_attribute() -> None:
    out = probabilities(written(np.array([[1, 0]]), (2, 3), -1.0), (2, 3))
    assert out[0, :2].sum() == pytest.approx(1)
    assert out[0, 1] == pytest.approx(1 / (1 + np.exp(-1)))
    assert probabilities(written(np.array([[1]]), (2,), 0.0), (2,)).tolist() == [[0.5, 0.5]]
    assert probabilities(written(np.array([[1]]), (2,), -10_000.0), (2,)).tolist() == [[0, 1]]


@pytest.mark.parametrize("noise", [-1, float("nan"), True, "much", None])
def test_noise_must_be_zero_or_more(noise: object) -> None:
    with pytest.raises(ConfigError, match="`noise` must be 0 or more"):
        checked_noise(noise)


@pytest.mark.parametrize("value", [1, float("nan"), float("-inf"), True, "much"])
def test_lambda_must_be_zero_or_below(value: object) -> None:
    with pytest.raises(ConfigError, match="`lambda_` must be 0 or below"):
        checked_lambda(value)
