"""Attacks on a release, each with a control and a baseline."""

from understudy.audit.attack import Attack
from understudy.audit.nearest_distance import NearestDistance

__all__ = ["Attack", "NearestDistance"]
