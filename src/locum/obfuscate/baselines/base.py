"""The interface of all baselines: a strength, `fit`, and `masking`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.errors import ConfigError, DataError, NotFittedError
from locum.nets import ColumnTypes
from locum.obfuscate.baselines._loop import Rows
from locum.obfuscate.labels import Masking
from locum.train import seeded
from locum.types import Progress

Array = npt.NDArray[Any]
# Rows passed through a network at once.
_CHUNK = 4096


class Baseline(ABC):
    """A published method that hides one attribute of rows and keeps another.

    The unit of strength differs between baselines: compare curves, not strengths. Nothing is proven about a release:
    judge it by attackers. Most baselines learn from the private attribute (`needs_private`); none gets the utility
    attribute of the rows that it releases. `BASELINES` holds the baselines by name.

    Parameters
    ----------
    strength
        How much it hides, 0 or more; 0 hides least.

    Attributes
    ----------
    released_
        The network that makes releases; learned from private attributes.
    helpers_
        The networks that were trained with it, such as an attacker. Private.
    shape_, types_
        Shape of a row, and its one-hot blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.obfuscate.baselines import BASELINES
    >>> X = np.random.default_rng(0).random((50, 3), dtype=np.float32)
    >>> model = BASELINES["gaussian"](0.0).fit(X, np.arange(50) % 2, None)
    >>> bool((model.masking()(X, None, np.random.default_rng(0)) == X).all())
    True
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ("table", "image")
    needs_private: ClassVar[bool] = True
    default_epochs: ClassVar[dict[str, int]] = {"table": 40, "image": 10}

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def fit(
        self,
        X: npt.ArrayLike,
        utility: npt.ArrayLike,
        private: npt.ArrayLike | None,
        *,
        blocks: Sequence[slice] = (),
        seed: int = 0,
        epochs: int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from rows between 0 and 1 with their codes; `blocks` are the one-hot columns of a table, in order.

        With `blocks`, a release has exactly one category in each, in training too; without, all columns are numbers
        (what PUPET's authors call data type ignorant). The same seed gives the same release. Default epochs: 40 for
        tables, 10 for images.
        """
        if not 0 <= self.strength < math.inf:
            raise ConfigError(f"`strength` must be 0 or more; got {self.strength!r}. 0 hides least.")
        rows = Rows.of(X, utility, private, blocks)
        if rows.kind not in self.kinds:
            raise DataError(f"The baseline {self.name!r} does not take {rows.kind}s: choose one that does.")
        if self.needs_private and private is None:
            raise DataError(f"The baseline {self.name!r} learns from the private attribute: pass `private`.")
        self.shape_, self.types_ = rows.shape, ColumnTypes(rows.shape[0], rows.blocks)
        # Initial weights use torch's global rng: seed it here, and restore it afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.released_, self.helpers_ = self._networks(rows)
            self._learn(rows, epochs or self.default_epochs[rows.kind], seeded(seed), progress)
        self.released_.eval()
        return self

    def masking(self) -> Masking:
        """One release of rows; it takes utility codes, as every masking does, and ignores them."""
        if not hasattr(self, "released_"):
            raise NotFittedError(f"The baseline {self.name!r} has not been fitted: call `fit` first.")

        def mask(X: Array, _: Array, rng: np.random.Generator) -> Array:
            torch_rng = seeded(int(rng.integers(2**63)))
            if X.shape[1:] != self.shape_:
                raise DataError(f"Rows must have the shape {self.shape_} of the training rows; got {X.shape[1:]}.")
            x = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
            with torch.no_grad():
                parts = [self._release(chunk, torch_rng).numpy() for chunk in x.split(_CHUNK)]
            return np.concatenate(parts) if parts else x.numpy()

        return mask

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the network that makes releases, and of all networks that are trained."""
        if not hasattr(self, "released_"):
            raise NotFittedError(f"The baseline {self.name!r} has not been fitted: call `fit` first.")
        released, helpers = (sum(p.numel() for p in m.parameters()) for m in (self.released_, self.helpers_))
        return {"released": released, "trained": released + helpers}

    @abstractmethod
    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        """The network that makes releases, and those trained with it."""

    @abstractmethod
    def _learn(self, rows: Rows, epochs: int, torch_rng: torch.Generator, progress: Progress | None) -> None:
        """Train the networks in place."""

    @abstractmethod
    def _release(self, x: Tensor, torch_rng: torch.Generator) -> Tensor:
        """One release of rows."""
