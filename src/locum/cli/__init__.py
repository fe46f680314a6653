"""The program `locum`. Thin: every verb is a recipe. Nobody imports this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.cli.main import main as main

__getattr__, __dir__, __all__ = lazy_exports(__name__)
