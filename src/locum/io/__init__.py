"""Files and folders that are written completely or not at all, and the rules for paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.io.atomic import (
        SUFFIXES as SUFFIXES,
        reading as reading,
        write_atomically as write_atomically,
        write_bytes as write_bytes,
        write_private_table as write_private_table,
    )
    from locum.io.figures import FORMATS as FORMATS, figure_file as figure_file

__getattr__, __dir__, __all__ = lazy_exports(__name__)
