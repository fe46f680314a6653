"""Attacks on a release, each with a control and a baseline."""

from understudy.audit.attack import Attack
from understudy.audit.nearest_distance import LEAST_NON_MEMBERS, NearestDistance

__all__ = ["LEAST_NON_MEMBERS", "Attack", "NearestDistance"]
