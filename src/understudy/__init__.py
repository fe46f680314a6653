"""Share a stand-in for your data instead of the data.

`import understudy` is quick and does not load torch: each name below is fetched when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from understudy._version import __version__

if TYPE_CHECKING:
    from understudy.release import Release, load
    from understudy.types import EmbeddingInfo, EmbeddingSet, Estimate, PrivacyClaim

__all__ = [
    "EmbeddingInfo",
    "EmbeddingSet",
    "Estimate",
    "PrivacyClaim",
    "Release",
    "__version__",
    "load",
]

_HOME = {
    "EmbeddingInfo": "understudy.types",
    "EmbeddingSet": "understudy.types",
    "Estimate": "understudy.types",
    "PrivacyClaim": "understudy.types",
    "Release": "understudy.release",
    "load": "understudy.release",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'understudy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
