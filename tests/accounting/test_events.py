"""Events say what was done; wrong ones do not exist, and they survive a trip through JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.accounting import Event, Gaussian, Laplace, PoissonGaussian, events_from_json, events_to_json
from understudy.errors import ConfigError

NOISE = st.floats(0.01, 1e9)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Gaussian, NOISE),
    st.builds(Laplace, NOISE),
    st.builds(PoissonGaussian, st.floats(0, 1, exclude_min=True), NOISE, st.integers(1, 10**9)),
)


@given(st.lists(EVENTS, max_size=4))
def test_json_gives_the_same_events_back(events: list[Event]) -> None:
    assert events_from_json(json.loads(json.dumps(events_to_json(events)))) == tuple(events)


@pytest.mark.parametrize("noise", [0, -1, math.nan, math.inf, 0.009, True, "1", None])
def test_noise_must_be_a_number_that_hides_something(noise: Any) -> None:
    for make in (Gaussian, Laplace, lambda z: PoissonGaussian(0.1, z, 10)):
        with pytest.raises(ConfigError, match="noise_multiplier"):
            make(noise)


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, math.nan, True, None])
def test_rate_is_a_probability(rate: Any) -> None:
    with pytest.raises(ConfigError, match="rate"):
        PoissonGaussian(rate, 1.0, 10)


@pytest.mark.parametrize("steps", [0, -1, 1.5, math.nan, math.inf, True, "3"])
def test_steps_are_counted(steps: Any) -> None:
    with pytest.raises(ConfigError, match="steps"):
        PoissonGaussian(0.1, 1.0, steps)


def test_numbers_of_other_libraries_become_plain_ones() -> None:
    event = PoissonGaussian(np.float32(0.5), np.float64(2.0), np.int64(3))  # type: ignore[arg-type]
    assert event == PoissonGaussian(0.5, 2.0, 3)
    assert {type(v) for v in events_to_json([event])[0].values()} == {str, float, int}


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "exponential", "noise_multiplier": 1.0},
        {"noise_multiplier": 1.0},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": 1.0, "steps": 2},
    ],
)
def test_an_unknown_event_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not known"):
        events_from_json([data])


def test_events_in_words() -> None:
    assert str(PoissonGaussian(0.128, 4.25, 79)) == "79 noisy steps, sampling rate 0.128, noise 4.25"
    assert "normal noise 3" in str(Gaussian(3.0))
    assert "Laplace noise 10" in str(Laplace(10.0))
