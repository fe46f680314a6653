from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError
from locum.metrics import auc_macro, noise_robustness


def test_scores_fall_with_noise_and_sigma_zero_is_exact(rng) -> None:
    y = np.tile([0, 1], 300)
    x = rng.standard_normal((600, 5)) + 2.0 * y[:, None]

    def score(z: np.ndarray) -> float:
        s = z.sum(axis=1)
        return auc_macro(y, np.column_stack([-s, s]), [0, 1])

    curve = noise_robustness(score, x, rng)
    assert list(curve) == [0.0, 1.0, 2.0, 3.0]
    values = [e.value for e in curve.values()]
    assert values == sorted(values, reverse=True)
    assert curve[0.0].low == curve[0.0].high == pytest.approx(score(x.astype(np.float32)))
    assert curve[1.0].n == 3
    assert curve[3.0].low < curve[3.0].value < curve[3.0].high


def test_agrees_with_plain_loops(rng) -> None:
    x = rng.standard_normal((20, 3)).astype(np.float32)
    curve = noise_robustness(
        lambda z: float(np.abs(z).mean()), x, np.random.default_rng(3), sigmas=(0.5, 2), repeats=4
    )
    draw = np.random.default_rng(3)
    noises = [draw.standard_normal(x.shape, dtype=np.float32) for _ in range(4)]
    for s in (0.5, 2.0):
        assert curve[s].value == pytest.approx(np.mean([np.abs(x + np.float32(s) * e).mean() for e in noises]))


def test_the_data_given_stay_as_they_are(rng) -> None:
    x = rng.standard_normal((10, 2)).astype(np.float32)
    before = x.copy()
    noise_robustness(lambda z: float(z.sum()), x, rng)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("options", [{"sigmas": ()}, {"sigmas": (-1,)}, {"sigmas": (1, 1.0)}, {"repeats": 1}])
def test_wrong_settings_are_named(rng, options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        noise_robustness(lambda z: 0.0, np.zeros((3, 2)), rng, **options)
