"""Classifiers on embeddings."""

from understudy.heads.linear import LinearHead
from understudy.heads.mlp import MLPHead

__all__ = ["LinearHead", "MLPHead"]
