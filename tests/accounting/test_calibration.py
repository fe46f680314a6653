"""Noise for a budget: on the safe side, and not more than it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from locum.accounting import Event, Gaussian, Laplace, PoissonGaussian, epsilon_of, noise_for
from locum.errors import ConfigError, PrivacyError
from locum.types import Relation

PLANS: dict[str, Callable[[float], Sequence[Event]]] = {
    "one sum": lambda z: [Gaussian(z)],
    "sgd": lambda z: [PoissonGaussian(0.01, z, 1000)],
    "sgd and a count": lambda z: [PoissonGaussian(0.128, z, 79), Laplace(40.0)],
    "two sums that share the noise": lambda z: [Gaussian(z), Gaussian(2 * z)],
}


@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
@pytest.mark.parametrize("name", PLANS)
def test_safe_and_tight(name: str, epsilon: float, relation: Relation) -> None:
    events = PLANS[name]
    noise = noise_for(events, epsilon, 1e-5, relation)
    assert epsilon_of(events(noise), 1e-5, relation) <= epsilon
    assert epsilon_of(events(noise / 1.002), 1e-5, relation) > epsilon


def test_a_hundredth_of_a_percent_if_asked_for() -> None:
    noise = noise_for(PLANS["one sum"], 1.0, 1e-5, tolerance=1e-4)
    assert epsilon_of([Gaussian(noise)], 1e-5) <= 1.0 < epsilon_of([Gaussian(noise / 1.0002)], 1e-5)


def test_the_analytic_gaussian_mechanism(exact_gaussian: Callable[..., float]) -> None:
    noise = noise_for(PLANS["one sum"], 1.0, 1e-5)
    assert 0.995 < exact_gaussian(noise, 1e-5) <= 1.0


def test_few_questions_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def events(noise: float) -> list[Event]:
        asked.append(noise)
        return [PoissonGaussian(0.02, noise, 500)]

    noise_for(events, 1.0, 1e-5)
    assert len(asked) <= 10


def test_an_ample_budget_still_gets_some_noise() -> None:
    assert noise_for(PLANS["one sum"], 1e4, 1e-5) == pytest.approx(0.05)


def test_what_no_noise_can_reach_is_said() -> None:
    # The count alone costs 1.
    with pytest.raises(PrivacyError, match="No noise of a sensible size"):
        noise_for(lambda z: [Gaussian(z), Laplace(1.0)], 0.5, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_wrong_delta_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        noise_for(PLANS["one sum"], 1.0, delta)
