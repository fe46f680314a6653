"""Training loops: the plain one, and DP-SGD with sampling, clipping, noise and payment in one object."""

from understudy.train.checkpoint import Checkpoint, fingerprint
from understudy.train.clipping import ClippedNetwork, Subjects
from understudy.train.coins import Coins
from understudy.train.loop import History, LoopSettings, run_loop, seeded, shuffled_batches
from understudy.train.losses import CVAELoss, RowLoss, RowLossByAutograd
from understudy.train.opening import Opening
from understudy.train.part import PaidPlan, Part
from understudy.train.private import PrivateHistory, PrivateRun
from understudy.train.progress import ProgressBar, RichBar

__all__ = [
    "CVAELoss",
    "Checkpoint",
    "ClippedNetwork",
    "Coins",
    "History",
    "LoopSettings",
    "Opening",
    "PaidPlan",
    "Part",
    "PrivateHistory",
    "PrivateRun",
    "ProgressBar",
    "RichBar",
    "RowLoss",
    "RowLossByAutograd",
    "Subjects",
    "fingerprint",
    "run_loop",
    "seeded",
    "shuffled_batches",
]
