"""Losses for classes of unequal size, one file each; `LOSSES[name](counts)` builds one."""

from understudy.heads.losses.balanced_softmax import BalancedSoftmax
from understudy.heads.losses.base import Loss
from understudy.heads.losses.class_balanced import ClassBalanced
from understudy.heads.losses.cross_entropy import CrossEntropy
from understudy.heads.losses.equalization import Equalization
from understudy.heads.losses.focal import Focal
from understudy.heads.losses.ldam import LDAM

__all__ = ["LDAM", "LOSSES", "BalancedSoftmax", "ClassBalanced", "CrossEntropy", "Equalization", "Focal", "Loss"]

LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "balanced_softmax": BalancedSoftmax,
    "class_balanced": ClassBalanced,
    "focal": Focal,
    "equalization": Equalization,
    "ldam": LDAM,
}
