"""DP-SGD: sampling, clipping, noise and payment in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.train.dp.assumptions import ASSUMPTIONS as ASSUMPTIONS
    from locum.train.dp.clipping import ClippedNetwork as ClippedNetwork
    from locum.train.dp.engine import PrivateHistory as PrivateHistory, PrivateRun as PrivateRun
    from locum.train.dp.initial_query import InitialQuery as InitialQuery

__getattr__, __dir__, __all__ = lazy_exports(__name__)
