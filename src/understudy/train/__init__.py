"""Training loops. Plain here; DP-SGD joins it, and shares nothing that could get out of step."""

from understudy.train.checkpoint import Checkpoint, fingerprint
from understudy.train.loop import History, LoopSettings, run_loop, seeded, shuffled_batches
from understudy.train.progress import ProgressBar, RichBar

__all__ = [
    "Checkpoint",
    "History",
    "LoopSettings",
    "ProgressBar",
    "RichBar",
    "fingerprint",
    "run_loop",
    "seeded",
    "shuffled_batches",
]
