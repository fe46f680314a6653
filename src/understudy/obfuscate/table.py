"""Obfuscated tables: valid records of the same columns and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.table_codec import TableCodec
from understudy.errors import DataError
from understudy.nets import Obfuscator, table_obfuscator
from understudy.obfuscate.base import CHUNK, BaseObfuscator
from understudy.obfuscate.bins import NumberBins

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableObfuscator"]

Array = npt.NDArray[Any]
_BINS = 16


class TableObfuscator(BaseObfuscator):
    """Obfuscates records of mixed columns; what comes out are valid records of the same columns and types.

    A column that is in the table is obfuscated and released: leave out what must not appear at all, such as the
    utility attribute itself or an identifier. Categories, and ends of ranges of numbers, are those of the records it
    was fitted on; `TableCodec` says how to give public ones.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.integers(20, 70, 200), "job": rng.choice(["cook", "nurse"], 200)})
    >>> smoker = rng.choice(["no", "yes"], 200)
    >>> model = TableObfuscator(max_epochs=1, random_state=0).fit(people, smoker)
    >>> out = model.transform(people, smoker, noise=5, lambda_=-50, random_state=0)
    >>> out.columns.tolist(), len(out), out["age"].between(20, 69).all().item()
    (['age', 'job'], 200, True)
    """

    codec_: TableCodec
    bins_: NumberBins

    _DEFAULTS: Mapping[str, Mapping[str, Any]] = {
        "calibrated": {"max_epochs": 30, "batch_size": 256, "beta": 0.06, "betas": (0.9, 0.999)},
        "seed": {"max_epochs": 200, "batch_size": 64, "betas": (0.5, 0.999), "per_batch": True},
    }

    def fit(self, X: pd.DataFrame, utility: Any, *, codec: TableCodec | None = None) -> TableObfuscator:
        """Learn from a table; `codec` brings public categories and bounds, else those of the records are taken."""
        self._given = codec
        return super().fit(X, utility)

    def transform(
        self,
        X: pd.DataFrame,
        utility: Any = None,
        *,
        noise: float,
        lambda_: float | None = -50.0,
        use_true_label: bool = True,
        random_state: int | np.random.Generator | None = None,
    ) -> pd.DataFrame:
        """One release of each record, with new coins each time unless `random_state` is given.

        `noise`: 0 hides least; `lambda_`: how plainly the utility label is written, 0 not at all and -50 surely, None
        as C sees it. Without the true labels, C's own guess is written (`use_true_label=False`).
        """
        mask = self.masking(noise=noise, lambda_=lambda_, use_true_label=use_true_label)
        codes = self._known(utility, len(X), use_true_label)
        rng, chunks = np.random.default_rng(random_state), (slice(i, i + CHUNK) for i in range(0, len(X), CHUNK))
        parts = (mask(self.codec_.encode(X.iloc[rows]), codes[rows], rng) for rows in chunks)
        return self.codec_.decode_parts(parts, index=X.index)

    def matrix(self, X: pd.DataFrame) -> Array:
        """One-hot blocks and numbers, as `codec_` writes them."""
        self._fitted()
        return self.codec_.encode(X)

    def _known(self, utility: Any, n: int, asked: bool) -> Array:
        if not asked:
            return np.zeros((n, 1), dtype=np.int64)
        if utility is None:
            raise DataError("`utility` is missing: give each record's label, or use_true_label=False.")
        codes = self.codes(utility)
        if len(codes) != n:
            raise DataError(f"Each record needs its utility label; got {n} records, {len(codes)} labels.")
        return codes

    def _learn(self, X: pd.DataFrame) -> Array:
        given = getattr(self, "_given", None)
        self.codec_ = TableCodec.fit(X) if given is None else given
        matrix = self.codec_.encode(X)
        self.bins_ = NumberBins.fit(matrix, self.codec_.blocks, _BINS)
        return matrix

    @property
    def _blocks(self) -> tuple[slice, ...]:
        """One-hot blocks of what the network works on."""
        if self.preset == "seed":
            return self.codec_.blocks
        numbers = np.asarray(self.bins_.columns)
        moved = [slice(b.start - int((numbers < b.start).sum()), b.stop - int((numbers < b.start).sum()))
                 for b in self.codec_.blocks]  # fmt: skip
        return (*moved, *self.bins_.blocks)

    @property
    def _ends(self) -> Literal["seed", "linear"]:
        return "seed" if self.preset == "seed" else "linear"

    def _inputs(self, matrix: Array) -> Array:
        return matrix if self.preset == "seed" else self.bins_.split(matrix)

    def _network(self, inputs: Array) -> Obfuscator:
        return table_obfuscator(inputs.shape[1], self.labels_.sizes, ends=self._ends)

    def _rebuilding(self, out: Tensor, x: Tensor) -> Tensor:
        if self.preset == "seed":
            return (out - x).square().mean(dim=1)
        parts = [functional.cross_entropy(out[:, b], x[:, b], reduction="none") for b in self._blocks]
        return torch.stack(parts).sum(dim=0)

    def _outputs(self, out: Array, rng: np.random.Generator) -> Array:
        if self.preset == "seed":
            return self.codec_.snap(out)
        drawn = np.zeros_like(out)
        for block in self._blocks:
            # The largest of log-odds plus Gumbel noise is a draw by those odds.
            place = (out[:, block] + rng.gumbel(size=out[:, block].shape)).argmax(axis=1)
            drawn[np.arange(len(out)), block.start + place] = 1
        return self.codec_.snap(self.bins_.join(drawn, rng))
