"""The curves of a dial for epsilon: expected usefulness and proven limit, from public numbers alone.

Quick to import and to run: a page asks for them while somebody types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from locum.accounting import attack_limit, plan_head
from locum.errors import ConfigError
from locum.recipes.forecasting import REAL_AUC, forecast
from locum.types import DP, Relation, Unit

LEAST_EPSILON, MOST_EPSILON = 0.1, 10.0


def dial_curves(
    *,
    units: float,
    classes: int,
    features: int = 1280,
    real_auc: float = REAL_AUC,
    delta: float,
    unit: Unit = "record",
    relation: Relation = "add-or-remove",
    points: int = 41,
) -> dict[str, Any]:
    """Expected usefulness and proven limit over epsilon, from public numbers alone; nothing is read or spent.

    Parameters
    ----------
    units
        About how many records, or subjects if they are the unit.
    classes, features
        The numbers of classes and of features of the vectors.
    real_auc
        What a classifier trained on the real data reaches, as far as you know.
    delta, unit, relation
        Of the budget.
    points
        How many epsilons, in equal ratios from 0.1 to 10.

    Returns
    -------
    dict
        As plain JSON: what was given, and `steps`, each with `epsilon`, `auc` and `kept` (the share of what real data
        give above chance) as estimates, `limit` (no attack has a higher AUC on average) and `noise_multiplier`.

    Examples
    --------
    >>> from locum.recipes import dial_curves
    >>> found = dial_curves(units=5000, classes=2, delta=1e-6, points=3)
    >>> [(round(step["epsilon"], 3), round(step["limit"], 3)) for step in found["steps"]]
    [(0.1, 0.508), (1.0, 0.566), (10.0, 0.904)]
    """
    steps = []
    for epsilon in epsilons_of(None, points):
        budget = DP(epsilon, delta, unit, None, relation)
        expected = forecast(budget, units=units, classes=classes, features=features, real_auc=real_auc)
        steps.append(
            {
                "epsilon": epsilon,
                "auc": expected.auc.to_dict(),
                "kept": expected.kept.to_dict(),
                "limit": limit_of(budget),
                "noise_multiplier": plan_head(budget).noise_multiplier,
            }
        )
    return {
        "units": units,
        "classes": classes,
        "features": features,
        "real_auc": real_auc,
        "delta": delta,
        "unit": unit,
        "relation": relation,
        "steps": steps,
    }


def limit_of(budget: DP) -> float:
    """The highest AUC of any attack on a release with this budget, averaged over the noise."""
    return attack_limit(plan_head(replace(budget, n_public=None)).events, budget.relation)


def epsilons_of(given: Sequence[float] | None, count: int) -> list[float]:
    """The epsilons of a dial, smallest first: those given, or so many in equal ratios."""
    if given is not None:
        if not given:
            raise ConfigError("A preview needs at least one epsilon; got none.")
        return sorted({float(epsilon) for epsilon in given})
    if isinstance(count, bool) or not 2 <= count <= 1000:
        raise ConfigError(f"`points` must be a whole number from 2 to 1000; got {count!r}. 41 make a smooth curve.")
    ratio = math.log(MOST_EPSILON / LEAST_EPSILON) / (count - 1)
    return [round(LEAST_EPSILON * math.exp(ratio * i), 4) for i in range(count)]
