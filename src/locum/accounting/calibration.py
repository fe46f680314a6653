"""How much noise a budget takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from locum.accounting.cost import TooLargeError, epsilon_of
from locum.accounting.events import Event
from locum.errors import PrivacyError
from locum.types import Relation

_LOWEST, _HIGHEST = 0.05, 1e6


def noise_for(
    events: Callable[[float], Sequence[Event]],
    epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove",
    *,
    tolerance: float = 1e-3,
) -> float:
    """The least noise multiplier, within `tolerance` of itself, at which `events(noise)` cost at most `epsilon`.

    The search ends on the safe side: the cost of the returned noise was computed, and is within the budget.

    Parameters
    ----------
    events
        What would be done with a given noise multiplier; more noise must not cost more.
    epsilon, delta
        The budget.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).
    tolerance
        How far the result may lie above the least noise, relative to it.

    Returns
    -------
    float
        A noise multiplier, never below 0.05.

    Raises
    ------
    PrivacyError
        If no noise multiplier up to a million is enough.

    Examples
    --------
    >>> from locum.accounting import Gaussian, epsilon_of, noise_for
    >>> noise = noise_for(lambda z: [Gaussian(z)], epsilon=1.0, delta=1e-5)
    >>> round(noise, 2), epsilon_of([Gaussian(noise)], delta=1e-5) <= 1.0
    (3.73, True)
    """
    cost: dict[float, float] = {}

    def fits(noise: float) -> bool:
        try:
            cost[noise] = epsilon_of(events(noise), delta, relation)
        except TooLargeError:
            # Many steps with little noise spread over a very wide range: far above any budget.
            cost[noise] = math.inf
        return cost[noise] <= epsilon

    low, high = 1.0, 1.0
    while not fits(high):
        low, high = high, high * 2
        if high > _HIGHEST:
            raise PrivacyError(
                f"No noise of a sensible size reaches epsilon {epsilon:g} at delta {delta:g} with this plan: "
                "take fewer steps, smaller batches, or a larger budget."
            )
    while low >= high and high > _LOWEST:
        low = max(_LOWEST, high / 2)
        if fits(low):
            high = low
    # Epsilon is near to a power of the noise, so a guess lands close; a little beside it, now above and now below,
    # both ends close in. Where guesses are poor, halving takes over.
    for turn in range(200):
        if high <= low * (1 + tolerance):
            return high
        middle = math.sqrt(low * high)
        if turn % 3 < 2 and 0 < cost[high] < cost[low] < math.inf:
            share = math.log(cost[low] / epsilon) / math.log(cost[low] / cost[high])
            nudge = (1 + tolerance) ** (0.3 if turn % 3 == 0 else -0.3)
            guess = low * (high / low) ** share * nudge
            middle = guess if low < guess < high else middle
        if fits(middle):
            high = middle
        else:
            low = middle
    return high
