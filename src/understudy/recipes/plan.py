"""`plan`: what a private fit will do and cost, before any record is read."""

from __future__ import annotations

import math
from typing import Literal

from understudy.accounting import QueryPlan, SGDPlan, plan_query, plan_sgd
from understudy.accounting.holding import at_least
from understudy.types import DP

__all__ = ["explain", "make_plan"]


def make_plan(
    privacy: DP,
    generator: Literal["gaussian", "cvae"] = "gaussian",
    *,
    batch: int = 256,
    epochs: float = 10,
    clip: float = 1.0,
) -> QueryPlan | SGDPlan:
    """The plan of a generator: one noisy sum for the class Gaussian, noisy steps for the CVAE.

    Batch and epochs are for the CVAE; `clip` is how far one unit may move a sum, in either.
    """
    # Both need it, so that delta is checked against it.
    privacy.size()
    if generator == "gaussian":
        return plan_query(privacy, sensitivity=clip)
    return plan_sgd(privacy, batch=batch, epochs=epochs, clip=clip)


def explain(plan: QueryPlan | SGDPlan) -> list[str]:
    """How to choose epsilon, delta, n_public and unit, in plain words, with this plan's numbers."""
    wish, n = plan.privacy, plan.privacy.size()
    one = "a person, with all records of theirs," if wish.unit == "subject" else "a record"
    certain = 100 / (1 + math.exp(-wish.epsilon))
    hidden = (
        f"whether {one} was among the data"
        if wish.relation == "add-or-remove"
        else f"what the values of {one} were; that it was there counts as known"
    )
    unit = (
        "A subject is hidden with all records at once; that costs utility where people have many records."
        if wish.unit == "subject"
        else "A record is hidden by itself. If one person has several, take --unit subject: nothing is promised for "
        "all of them together."
    )
    return [
        f"What is hidden: {hidden}. This holds against everybody, whatever else they know.",
        f"epsilon {wish.epsilon:g}: what anybody learns changes the odds of a guess about it by a factor of at most "
        f"{at_least(math.exp(wish.epsilon))}. Who would have tossed a coin is right at most {at_least(certain)} % of "
        "the time. 1 or less is a strong promise, above 8 it says little. Each release of the same data adds to it.",
        f"delta {wish.delta:g}: the chance that this fails altogether. With {n} {wish.unit}s, 1/n would allow to show "
        f"one of them outright, so at most 1/(10 n) = {1 / (10 * n):.3g} is accepted; smaller costs little.",
        f"n_public {n}: about how many {wish.unit}s there are, as a number that everybody may know. The true count is "
        "private: round it. The promise holds whatever the true count is; a poor guess costs utility, not privacy.",
        f"unit {wish.unit}: {unit}",
        f"relation {wish.relation}: neighbours differ by "
        + (
            "one more or one fewer, the usual choice; the number itself is hidden too."
            if wish.relation == "add-or-remove"
            else "the values of one. It takes about twice the noise for the same epsilon."
        ),
    ]
