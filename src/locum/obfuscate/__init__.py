"""Obfuscation: keep what a receiver needs of each record and hide the rest, with two knobs set at each use.

Imports torch, so `import locum` does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.obfuscate.curve import Point as Point, TradeOff as TradeOff, hull_auc as hull_auc
    from locum.obfuscate.evaluation import ATTACKERS as ATTACKERS, Judgment as Judgment, judge as judge
    from locum.obfuscate.image import ImageObfuscator as ImageObfuscator
    from locum.obfuscate.labels import Labeled as Labeled, Masking as Masking
    from locum.obfuscate.manifest import written_by as written_by
    from locum.obfuscate.saved import (
        SavedObfuscator as SavedObfuscator,
        load_obfuscator as load_obfuscator,
        open_obfuscator as open_obfuscator,
        save_obfuscator as save_obfuscator,
    )
    from locum.obfuscate.table import TableObfuscator as TableObfuscator
    from locum.obfuscate.tradeoff import sweep as sweep, trade_off as trade_off

__getattr__, __dir__, __all__ = lazy_exports(__name__)
