"""The studio: a local web page on the recipes, for the holder of the data and the privacy officer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.studio.server import serve_studio as serve_studio

__getattr__, __dir__, __all__ = lazy_exports(__name__)
