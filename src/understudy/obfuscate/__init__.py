"""Obfuscation: keep what the receiver needs of each record, hide the rest, by two knobs that are turned at use.

Imports torch; `import understudy` does not come here.
"""

from understudy.obfuscate.curve import Point, TradeOff
from understudy.obfuscate.hull import hull_auc
from understudy.obfuscate.image import ImageObfuscator
from understudy.obfuscate.judging import Judgement, judge
from understudy.obfuscate.labelled import Labelled, Masking
from understudy.obfuscate.labels import UtilityLabels
from understudy.obfuscate.rivals import RIVALS, strengths
from understudy.obfuscate.saved import SavedObfuscator, load_obfuscator, open_obfuscator, save_obfuscator
from understudy.obfuscate.table import TableObfuscator
from understudy.obfuscate.tradeoff import sweep, trade_off

__all__ = [
    "RIVALS",
    "ImageObfuscator",
    "Judgement",
    "Labelled",
    "Masking",
    "Point",
    "SavedObfuscator",
    "TableObfuscator",
    "TradeOff",
    "UtilityLabels",
    "hull_auc",
    "judge",
    "load_obfuscator",
    "open_obfuscator",
    "save_obfuscator",
    "strengths",
    "sweep",
    "trade_off",
]
