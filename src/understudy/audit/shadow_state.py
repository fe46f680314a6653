"""Shadows that are done, kept for after a kill and for the next attack. Private: mode 0600, beside the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from understudy.data.files import write_bytes
from understudy.errors import CheckpointError

__all__ = ["FORMAT", "ShadowState"]

Floats = npt.NDArray[np.float64]
FORMAT = "understudy-shadows-1"


@dataclass(frozen=True, slots=True, eq=False)
class ShadowState:
    """The statistic of each record under the release (`own`) and under the shadows so far (`found`).

    In a file that is replaced as a whole; in memory alone where there is no path. A file of another key is refused.
    """

    path: Path | None
    key: str
    own: Floats
    found: Floats

    @classmethod
    def read(cls, path: Path | None, key: str) -> Self | None:
        """What an earlier run left, if there was one."""
        if path is None or not path.is_file():
            return None
        try:
            with safe_open(path, framework="numpy") as f:
                meta = f.metadata() or {}
                own, found = f.get_tensor("own"), f.get_tensor("found")
        except PermissionError:
            raise CheckpointError(f"{path} may not be read by this user: change its permissions.") from None
        except (OSError, ValueError, SafetensorError):
            raise CheckpointError(f"{path} is damaged, or is no state of shadows: remove it.") from None
        if meta.get("format") != FORMAT or meta.get("key") != key:
            raise CheckpointError(
                f"{path} holds shadows of other data, settings or coins: give another path, or remove it."
            )
        if own.dtype != np.float64 or found.dtype != np.float64 or found.shape[1:] != own.shape:
            raise CheckpointError(f"{path} is damaged, or is no state of shadows: remove it.")
        return cls(path, key, own, found)

    @classmethod
    def begin(cls, path: Path | None, key: str, own: Floats) -> Self:
        """No shadow yet; written at once, so that a wrong path is told before the work."""
        return cls(path, key, own, np.empty((0, len(own))))._written()

    def with_more(self, found: Floats) -> Self:
        """These shadows and more, on disk before anything else is begun."""
        return replace(self, found=np.concatenate([self.found, found]))._written()

    def _written(self) -> Self:
        if self.path is not None:
            tensors = {"own": np.ascontiguousarray(self.own), "found": np.ascontiguousarray(self.found)}
            write_bytes(str(self.path), save(tensors, metadata={"format": FORMAT, "key": self.key}))
        return self
