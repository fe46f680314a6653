"""Classifiers on embeddings. Fetched when first used: a saved head predicts without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.heads.augment import AugmentedBatches
    from understudy.heads.linear import LinearHead
    from understudy.heads.losses import LOSSES, Loss
    from understudy.heads.mlp import MLPHead
    from understudy.heads.remix import Remix
    from understudy.heads.sampling import SAMPLERS, augment_probability, class_shares
    from understudy.heads.saved import SavedHead

__all__ = [
    "LOSSES",
    "SAMPLERS",
    "AugmentedBatches",
    "LinearHead",
    "Loss",
    "MLPHead",
    "Remix",
    "SavedHead",
    "augment_probability",
    "class_shares",
]

_HOMES = {
    "LOSSES": "understudy.heads.losses",
    "SAMPLERS": "understudy.heads.sampling",
    "AugmentedBatches": "understudy.heads.augment",
    "LinearHead": "understudy.heads.linear",
    "Loss": "understudy.heads.losses",
    "MLPHead": "understudy.heads.mlp",
    "Remix": "understudy.heads.remix",
    "SavedHead": "understudy.heads.saved",
    "augment_probability": "understudy.heads.sampling",
    "class_shares": "understudy.heads.sampling",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
