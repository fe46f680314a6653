"""Membership from distances alone: the simplest check of whether a release gives its records away."""

from __future__ import annotations

import numpy.typing as npt

from understudy.metrics._checks import column
from understudy.metrics.intervals import auc_interval
from understudy.types import Estimate

__all__ = ["membership_auc"]


def membership_auc(member_distances: npt.ArrayLike, non_member_distances: npt.ArrayLike) -> Estimate:
    """Chance that a record used for the release lies closer to it than one that was not.

    0.5 says that distance tells nothing; 1 that each member stands out. DeLong's 95 % interval.
    Members and non-members must come from one population and share no subject, or the difference
    of the populations is mistaken for a leak. An AUC of 0.5 proves nothing about a better attack,
    nor about single records: a leak of one in a thousand hardly moves it.

    >>> membership_auc([0.0, 0.1, 0.0], [0.9, 1.1, 0.8]).value
    1.0
    """
    members = column("member_distances", member_distances, rows=2)
    others = column("non_member_distances", non_member_distances, rows=2)
    return auc_interval(-members, -others)
