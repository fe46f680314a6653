"""Shared by generators with differential privacy: guarantee, query, estimate, whitening and networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.generate.private.estimate import (
        from_sums as from_sums,
        noisy_sums as noisy_sums,
        reference_hash as reference_hash,
        reference_of as reference_of,
    )
    from locum.generate.private.gradients import (
        GRADIENT_STEP as GRADIENT_STEP,
        MOST_RECORDS as MOST_RECORDS,
        HeadQuery as HeadQuery,
        SoftmaxRule as SoftmaxRule,
    )
    from locum.generate.private.guarantee import (
        FLOATING as FLOATING,
        LOOKED as LOOKED,
        TEST as TEST,
        reference_settings as reference_settings,
        rounded_shares as rounded_shares,
        subjects as subjects,
    )
    from locum.generate.private.head import (
        FIRST as FIRST,
        Descent as Descent,
        Head as Head,
        Schedule as Schedule,
        head_spec as head_spec,
        place_means as place_means,
        read_head as read_head,
        schedule_for as schedule_for,
    )
    from locum.generate.private.networks import folded as folded
    from locum.generate.private.paid_sums import PaidSums as PaidSums
    from locum.generate.private.query import (
        COUNTS_ONLY as COUNTS_ONLY,
        MEANS as MEANS,
        MEANS_AND_PRODUCTS as MEANS_AND_PRODUCTS,
        Measured as Measured,
        Shares as Shares,
        exact_query as exact_query,
        measured as measured,
        query_sums as query_sums,
    )
    from locum.generate.private.units import recentered as recentered, unit_vectors as unit_vectors
    from locum.generate.private.whitening import Whitener as Whitener, plan_network as plan_network

__getattr__, __dir__, __all__ = lazy_exports(__name__)
