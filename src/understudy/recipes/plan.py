"""`plan`: what a private fit would do and cost, before any record is read."""

from __future__ import annotations

import math
from typing import Any

from understudy.accounting import plan_query, plan_sgd
from understudy.accounting.holding import at_least
from understudy.errors import ConfigError
from understudy.types import DP

__all__ = ["explain", "make_plan"]


def make_plan(
    wish: DP, *, generator: str = "gaussian", batch: int = 256, epochs: float = 10, clip: float = 1.0
) -> dict[str, Any]:
    """What a fit would do and cost, from public numbers alone: one noisy sum, or noisy training steps.

    `batch` and `epochs` are for "sgd"; `clip` is how far one unit may move a sum, in either.
    """
    if generator not in ("gaussian", "sgd"):
        raise ConfigError(f"`generator` must be gaussian or sgd; got {generator!r}.")
    # Also where no step needs it: delta is checked against it.
    wish.size()
    if generator == "gaussian":
        return plan_query(wish, sensitivity=clip).to_dict()
    return plan_sgd(wish, batch=batch, epochs=epochs, clip=clip).to_dict()


def explain(wish: DP) -> list[str]:
    """What the numbers of a budget mean and how to choose them, in plain words; one paragraph each."""
    n, unit = wish.n_public, wish.unit
    one = "a person with all of their records" if unit == "subject" else "one record"
    # Who was at one to one is at exp(epsilon) to one afterwards; beyond 700 floats end, and so does the promise.
    factor = at_least(math.exp(min(wish.epsilon, 700.0)))
    sure = at_least(100 / (1 + math.exp(-wish.epsilon)))
    largest = f"1/(10 n), here {1 / (10 * n):.3g}," if n else "1/(10 n)"
    hidden = {
        "add-or-remove": f"whether {one} was among the data. The usual choice; how many there are is hidden too",
        "replace-one": f"the values of {one}. That it was there, and how many there are, counts as known; the same "
        "epsilon takes about twice the noise",
    }
    return [
        f"relation {wish.relation}: hides {hidden[wish.relation]}. Against everybody, whatever else they know.",
        f"epsilon {wish.epsilon:g}: whatever is released changes the odds of any guess about that by a factor of at "
        f"most {factor}. Who could only toss a coin before is right at most {sure} % of the time after. 1 is usual "
        "and strong; above 4 rely on measured attacks too. Releases of the same data add up.",
        f"delta {wish.delta:g}: the chance that the promise fails altogether. With n {unit}s, 1/n would allow to "
        f"show one of them outright, so at most {largest} is accepted. A smaller one costs little.",
        f"n_public {n or '?'}: about how many {unit}s there are, as a number that everybody may know. The true "
        "number is private: round it. Noise and batches come from it. A poor guess costs usefulness, never privacy.",
        f"unit {unit}: a record is one image or row; a subject is one person with all of theirs. Where people have "
        "several records take subject: a promise by record says nothing about all of them together.",
    ]
