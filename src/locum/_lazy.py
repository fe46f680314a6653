"""A folder's public names, listed once and fetched when first used, so that starting stays quick."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from locum.errors import missing_extra


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that lists its names under `if TYPE_CHECKING:`.

    Type checkers read that block and never run it; here it is read as text, so that there is no second list.
    """
    homes = _listed(package)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(homes)

    return get, names, sorted(homes)


def _listed(package: str) -> dict[str, str]:
    spec = sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:
        raise ImportError(f"{package} was installed without its source, which lists its names: reinstall it.")
    block = re.search(r"^if TYPE_CHECKING:\n((?:[ \t]+.*\n|\n)+)", source, re.MULTILINE)
    return {
        name: module
        for module, names in re.findall(r"from (\S+) import (\([^)]*\)|.*)", block[1] if block else "")
        for name in re.findall(r"(\w+) as \w+", names)
    }
