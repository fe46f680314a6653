"""Classifiers on embeddings. Fetched when first used: a saved head predicts without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.heads.linear import LinearHead
    from understudy.heads.mlp import MLPHead
    from understudy.heads.saved import SavedHead

__all__ = ["LinearHead", "MLPHead", "SavedHead"]

_HOMES = {
    "LinearHead": "understudy.heads.linear",
    "MLPHead": "understudy.heads.mlp",
    "SavedHead": "understudy.heads.saved",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
