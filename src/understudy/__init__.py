"""Share a stand-in for your data instead of the data.

`import understudy` is quick and does not load torch: each name below is fetched when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names
from understudy._version import __version__

if TYPE_CHECKING:
    from understudy.release import Release, load
    from understudy.types import DP, EmbeddingInfo, EmbeddingSet, Estimate, PrivacyClaim

__all__ = [
    "DP",
    "EmbeddingInfo",
    "EmbeddingSet",
    "Estimate",
    "PrivacyClaim",
    "Release",
    "__version__",
    "load",
]

_HOMES = {
    "DP": "understudy.types",
    "EmbeddingInfo": "understudy.types",
    "EmbeddingSet": "understudy.types",
    "Estimate": "understudy.types",
    "PrivacyClaim": "understudy.types",
    "Release": "understudy.release",
    "load": "understudy.release",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
