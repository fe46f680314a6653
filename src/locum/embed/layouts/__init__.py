"""Public image sets in the folders that they are distributed as, recognized by their own files.

A layout's patients become subjects, its lists of splits become splits, and no file of it can run code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.embed.layouts.recognition import (
        LAYOUTS as LAYOUTS,
        Layout as Layout,
        find_layout as find_layout,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
