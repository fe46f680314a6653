"""What differential privacy costs: events, their epsilon, the noise for a budget, and the ledger that remembers.

The only place where an epsilon is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.accounting.calibration import noise_for as noise_for
    from locum.accounting.cost import (
        delta_of as delta_of,
        epsilon_of as epsilon_of,
        epsilon_of_any as epsilon_of_any,
        least_delta as least_delta,
    )
    from locum.accounting.events import (
        Event as Event,
        Gaussian as Gaussian,
        Laplace as Laplace,
        PoissonGaussian as PoissonGaussian,
        events_from_json as events_from_json,
        events_to_json as events_to_json,
        joined as joined,
        worst_of as worst_of,
    )
    from locum.accounting.holding import (
        Charge as Charge,
        Holding as Holding,
        check_name as check_name,
        is_spent as is_spent,
        left_figures as left_figures,
        left_in_words as left_in_words,
        ways_out as ways_out,
    )
    from locum.accounting.ledger import Ledger as Ledger, joint_ledger as joint_ledger, joint_sites as joint_sites
    from locum.accounting.limits import (
        attack_limit as attack_limit,
        found_limit as found_limit,
        pair_limits as pair_limits,
    )
    from locum.accounting.paid_data import check_one_ledger as check_one_ledger, paying_for as paying_for
    from locum.accounting.plans import (
        HEAD_STEPS as HEAD_STEPS,
        NonPrivateSGD as NonPrivateSGD,
        PaidPlan as PaidPlan,
        PlanSteps as PlanSteps,
        QueryPlan as QueryPlan,
        SGDPlan as SGDPlan,
        plan_head as plan_head,
        plan_query as plan_query,
        plan_sgd as plan_sgd,
    )
    from locum.accounting.shown import (
        PLAN_COLUMNS as PLAN_COLUMNS,
        PLAN_NOTE as PLAN_NOTE,
        plan_rows as plan_rows,
    )
    from locum.accounting.store import (
        check_chain as check_chain,
        entries_held as entries_held,
        entries_read_only as entries_read_only,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
