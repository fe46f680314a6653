"""Classifiers on embeddings. Imported on first use: a saved head predicts without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.heads.augment import AugmentedBatches as AugmentedBatches
    from locum.heads.bayes import bayes_head as bayes_head, carries_head as carries_head
    from locum.heads.head import LinearHead as LinearHead, MLPHead as MLPHead, TorchHead as TorchHead
    from locum.heads.losses import LOSSES as LOSSES, Loss as Loss
    from locum.heads.onnx_head import head_to_onnx as head_to_onnx
    from locum.heads.remix import Remix as Remix
    from locum.heads.sampling import (
        SAMPLERS as SAMPLERS,
        augment_probability as augment_probability,
        class_shares as class_shares,
    )
    from locum.heads.saved import SavedHead as SavedHead
    from locum.heads.temperature import fit_temperature as fit_temperature

__getattr__, __dir__, __all__ = lazy_exports(__name__)
