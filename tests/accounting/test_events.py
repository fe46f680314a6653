"""Events say what was done; wrong ones do not exist, and they survive a trip through JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.accounting import (
    Event,
    Gaussian,
    Laplace,
    PoissonGaussian,
    events_from_json,
    events_to_json,
    joined,
    worst_of,
)
from locum.errors import ConfigError

NOISE = st.floats(0.01, 1e9)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Gaussian, NOISE),
    st.builds(Laplace, NOISE),
    st.builds(PoissonGaussian, st.floats(1e-12, 1), NOISE, st.integers(1, 10**7)),
)


@given(st.lists(EVENTS, max_size=4))
def test_json_gives_the_same_events_back(events: list[Event]) -> None:
    assert events_from_json(json.loads(json.dumps(events_to_json(events)))) == tuple(events)


@pytest.mark.parametrize("noise", [0, -1, math.nan, math.inf, 0.009, 1e10, True, "1", None])
def test_noise_must_be_a_number_that_hides_something(noise: Any) -> None:
    for make in (Gaussian, Laplace, lambda z: PoissonGaussian(0.1, z, 10)):
        with pytest.raises(ConfigError, match="noise_multiplier"):
            make(noise)


@pytest.mark.parametrize("rate", [0, 1e-13, -0.1, 1.01, math.nan, True, None])
def test_rate_is_a_probability(rate: Any) -> None:
    with pytest.raises(ConfigError, match="rate"):
        PoissonGaussian(rate, 1.0, 10)


@pytest.mark.parametrize("steps", [0, -1, 1.5, 10**7 + 1, math.nan, math.inf, True, "3"])
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


# Together they must not have less noise than an event may have.
MILD = st.floats(0.1, 1e4)
LISTS: st.SearchStrategy[list[Event]] = st.lists(
    st.one_of(
        st.builds(Gaussian, MILD),
        st.builds(Laplace, MILD),
        st.builds(
            PoissonGaussian, st.sampled_from([0.1, 0.2, 1.0]), st.sampled_from([1.0, 2.0]), st.integers(1, 100)
        ),
    ),
    min_size=1,
    max_size=5,
)


@given(LISTS, LISTS)
def test_joining_keeps_steps_and_precision(one: list[Event], two: list[Event]) -> None:
    """And nothing hangs on the order in which things were done."""
    together = joined([*one, *two])
    assert sum(e.steps for e in together if isinstance(e, PoissonGaussian)) == sum(
        e.steps for e in (*one, *two) if isinstance(e, PoissonGaussian)
    )
    assert _precision(together) == pytest.approx(_precision(one) + _precision(two))
    assert [e for e in joined(two + one) if isinstance(e, Laplace)] == [e for e in together if isinstance(e, Laplace)]
    assert len(together) <= len(one) + len(two)
    assert sum(isinstance(e, Gaussian) for e in together) <= 1


def _precision(events: Sequence[Event]) -> float:
    return sum(e.noise_multiplier**-2 for e in events if isinstance(e, Gaussian))


@given(EVENTS)
def test_a_single_event_stays_as_it_is(event: Event) -> None:
    assert joined([event]) == worst_of([event]) == (event,)


@given(st.lists(LISTS, min_size=1, max_size=3))
def test_the_worst_is_worse_than_each_place_by_place(lists: list[list[Event]]) -> None:
    worst = worst_of(*lists)
    for events in map(joined, lists):
        for kind in (Gaussian, Laplace):
            mine, theirs = ([e.noise_multiplier for e in x if isinstance(e, kind)] for x in (events, worst))
            assert all(a <= b for a, b in zip(theirs, mine, strict=False))
            assert len(theirs) >= len(mine)
        for event in (e for e in events if isinstance(e, PoissonGaussian)):
            covers = [w for w in worst if isinstance(w, PoissonGaussian)]
            assert any(
                w.rate >= event.rate and w.noise_multiplier <= event.noise_multiplier and w.steps >= event.steps
                for w in covers
            )


def test_the_worst_of_ordered_lists_is_the_first() -> None:
    bad = [PoissonGaussian(0.2, 1.0, 100), Gaussian(3.0)]
    mild = [Gaussian(4.0), PoissonGaussian(0.1, 1.5, 50)]
    assert worst_of(bad, mild) == worst_of(mild, bad) == joined(bad)
    assert worst_of(bad[:1], mild[:1]) == (PoissonGaussian(0.2, 1.0, 100), Gaussian(4.0))
    assert worst_of([PoissonGaussian(0.2, 2.0, 10)], [PoissonGaussian(0.1, 1.0, 20)]) == (
        PoissonGaussian(0.2, 1.0, 20),
    )
