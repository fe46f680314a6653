"""Share a stand-in for your data instead of the data.

`import locum` is quick and does not load torch: each name below is fetched when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports
from locum._version import __version__ as __version__

if TYPE_CHECKING:
    from locum.data import ledger_for as ledger_for
    from locum.release import Release as Release, load as load
    from locum.types import (
        DP as DP,
        EmbeddingInfo as EmbeddingInfo,
        EmbeddingSet as EmbeddingSet,
        Estimate as Estimate,
        PrivacyClaim as PrivacyClaim,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
