"""What differential privacy costs: events, their epsilon, the noise for a budget, and the ledger that remembers.

The only place where an epsilon is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.accounting.calibrate import noise_for
    from understudy.accounting.chain import check_chain
    from understudy.accounting.cost import delta_of, epsilon_curve, epsilon_of, least_delta
    from understudy.accounting.events import (
        Event,
        Gaussian,
        Laplace,
        PoissonGaussian,
        events_from_json,
        events_to_json,
    )
    from understudy.accounting.holding import Charge, Holding
    from understudy.accounting.ledger import Ledger, default_ledger
    from understudy.accounting.plan import QueryPlan, SGDPlan, plan_query, plan_sgd

__all__ = [
    "Charge",
    "Event",
    "Gaussian",
    "Holding",
    "Laplace",
    "Ledger",
    "PoissonGaussian",
    "QueryPlan",
    "SGDPlan",
    "check_chain",
    "default_ledger",
    "delta_of",
    "epsilon_curve",
    "epsilon_of",
    "events_from_json",
    "events_to_json",
    "least_delta",
    "noise_for",
    "plan_query",
    "plan_sgd",
]

_HOMES = {
    "Charge": "understudy.accounting.holding",
    "Event": "understudy.accounting.events",
    "Gaussian": "understudy.accounting.events",
    "Holding": "understudy.accounting.holding",
    "Laplace": "understudy.accounting.events",
    "Ledger": "understudy.accounting.ledger",
    "PoissonGaussian": "understudy.accounting.events",
    "QueryPlan": "understudy.accounting.plan",
    "SGDPlan": "understudy.accounting.plan",
    "check_chain": "understudy.accounting.chain",
    "default_ledger": "understudy.accounting.ledger",
    "delta_of": "understudy.accounting.cost",
    "epsilon_curve": "understudy.accounting.cost",
    "epsilon_of": "understudy.accounting.cost",
    "events_from_json": "understudy.accounting.events",
    "events_to_json": "understudy.accounting.events",
    "least_delta": "understudy.accounting.cost",
    "noise_for": "understudy.accounting.calibrate",
    "plan_query": "understudy.accounting.plan",
    "plan_sgd": "understudy.accounting.plan",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
