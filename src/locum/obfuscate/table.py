"""Obfuscated tables: valid records with the same columns and types. Numbers become ranges for the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from locum.data import TableCodec
from locum.errors import DataError
from locum.nets import Obfuscator, table_obfuscator
from locum.obfuscate.obfuscator import CHUNK, BaseObfuscator, Error, squared_error
from locum.train import BlockCrossEntropy

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
# Ranges per number, at most about.
_BINS = 16


class TableObfuscator(BaseObfuscator):
    """Obfuscates records with mixed columns; the output is valid records with the same columns and types.

    Every column of the table is obfuscated and released: leave out what must not appear at all, such as the utility
    attribute itself or an identifier. Categories and range limits are those of the records it was fitted on;
    `TableCodec` says how to pass public ones.

    Releases carry the utility labels by design. Nothing is proven about the records it was fitted on; `local_epsilon`
    is what is proven about others.

    Parameters
    ----------
    preset
        "calibrated", or "paper" for the network and noise of the adjustable paper. "calibrated" shapes the noise like
        the records' own variation and scales the sum back: whatever the noise, records look like real ones of their
        class, so a model trained on them works on real ones. It has the paper's layers, trained with noise, and its
        decoder gets labels as probabilities.
    max_epochs, batch_size
        Passes over the data, and records per step. None: 30 and 256, or 200 and 64 for "paper".
    learning_rate
        Step size of Adam.
    beta
        "calibrated" only: how strongly training keeps the rest short. A larger value hides more at each noise and
        rebuilds records less well. None: 0.06.
    authors_compat
        "paper" only: no floor under the noise (fault F3), as the authors ran it.
    validation_share
        Share of the records held out for validation (fault F14); the weights of the best epoch are kept. 0: none.
    random_state
        Seed of the training; None: a fresh one.
    device
        Where to train: "auto" (a GPU if there is one), "cpu", "cuda" or "mps". It is not saved.
    checkpoint
        A private file from which an interrupted fit resumes; needs `random_state`.
    progress
        Called as training proceeds.

    Attributes
    ----------
    labels_
        Names and values of the utility attributes.
    module_
        The trained network; none for calibrated images.
    noise_
        The fitted noise. In the calibrated preset it holds means and covariances of the records.
    history_
        Losses by epoch. Private.
    codec_
        How columns become numbers.
    bins_
        Ranges of the numbers; their limits are values of records.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from locum.obfuscate import TableObfuscator
    >>> rng = np.random.default_rng(0)
    >>> patients = pd.DataFrame({"age": rng.integers(20, 70, 200), "job": rng.choice(["cook", "nurse"], 200)})
    >>> smoker = rng.choice(["no", "yes"], 200)
    >>> model = TableObfuscator(max_epochs=1, random_state=0).fit(patients, smoker)
    >>> out = model.transform(patients, smoker, noise=5, lambda_=-50, random_state=0)
    >>> out.columns.tolist(), len(out), out["age"].between(20, 69).all().item()
    (['age', 'job'], 200, True)
    """

    codec_: TableCodec
    bins_: NumberBins

    _DEFAULTS: Mapping[str, Mapping[str, Any]] = {
        "calibrated": {"max_epochs": 30, "batch_size": 256, "beta": 0.06, "betas": (0.9, 0.999)},
        "paper": {"max_epochs": 200, "batch_size": 64, "betas": (0.5, 0.999), "per_batch": True},
    }

    def fit(self, X: pd.DataFrame, utility: Any, *, codec: TableCodec | None = None) -> TableObfuscator:
        """Learn from a table; `codec` holds public categories and bounds (default: those of the records)."""
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
        """One release of each record, with fresh randomness each time unless `random_state` is given.

        `noise`: 0 hides least. `lambda_`: how clearly the utility label is written; 0 not at all, -50 fully, None as
        C scores it. With `use_true_label=False` C's prediction is written instead of the true label.
        """
        mask = self.masking(noise=noise, lambda_=lambda_, use_true_label=use_true_label)
        codes = self._known(utility, len(X), use_true_label)
        rng, chunks = np.random.default_rng(random_state), (slice(i, i + CHUNK) for i in range(0, len(X), CHUNK))
        parts = (mask(self.codec_.encode(X.iloc[rows]), codes[rows], rng) for rows in chunks)
        return self.codec_.decode_parts(parts, index=X.index)

    def matrix(self, X: pd.DataFrame) -> Array:
        """One-hot blocks and numbers, as `codec_` encodes them."""
        self._fitted()
        return self.codec_.encode(X)

    def _known(self, utility: Any, n: int, wanted: bool) -> Array:
        if not wanted:
            return np.zeros((n, 1), dtype=np.int64)
        if utility is None:
            raise DataError("`utility` is missing: pass each record's label, or use_true_label=False.")
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
        """One-hot blocks of the network's input."""
        if self.preset == "paper":
            return self.codec_.blocks
        numbers = np.asarray(self.bins_.columns)
        moved = [slice(b.start - int((numbers < b.start).sum()), b.stop - int((numbers < b.start).sum()))
                 for b in self.codec_.blocks]  # fmt: skip
        return (*moved, *self.bins_.blocks)

    @property
    def _ends(self) -> Literal["paper", "linear"]:
        return "paper" if self.preset == "paper" else "linear"

    def _inputs(self, matrix: Array) -> Array:
        return matrix if self.preset == "paper" else self.bins_.split(matrix)

    def _network(self, inputs: Array) -> Obfuscator:
        return table_obfuscator(inputs.shape[1], self.labels_.sizes, ends=self._ends)

    def _rebuilding(self) -> Error:
        if self.preset == "paper":
            return squared_error
        return BlockCrossEntropy([block.stop - block.start for block in self._blocks])

    def _outputs(self, out: Array, rng: np.random.Generator) -> Array:
        if self.preset == "paper":
            return self.codec_.snap(out)
        drawn = np.zeros_like(out)
        for block in self._blocks:
            drawn[np.arange(len(out)), block.start + draw_columns(out[:, block], rng)] = 1
        return self.codec_.snap(self.bins_.join(drawn, rng))


@dataclass(frozen=True, slots=True, eq=False)
class NumberBins:
    """Replaces each number in a table's matrix by a one-hot block of ranges, and back.

    Ranges hold about equally many records; a frequent value is a range by itself. On the way back, a number is drawn
    uniformly from its range. The limits of the ranges are values of some records.
    `columns` are the columns with numbers, `low` and `high` the limits of their ranges, one array per column.
    """

    width: int
    columns: tuple[int, ...]
    low: tuple[Floats, ...]
    high: tuple[Floats, ...]

    @classmethod
    def fit(cls, Z: Floats, blocks: Sequence[slice], most: int) -> NumberBins:
        """At most about `most` ranges per number, from the rows of a matrix."""
        taken = {j for block in blocks for j in range(block.start, block.stop)}
        columns = tuple(j for j in range(Z.shape[1]) if j not in taken)
        ends = [_ranges(Z[:, j], most) for j in columns]
        return cls(Z.shape[1], columns, tuple(low for low, _ in ends), tuple(high for _, high in ends))

    @property
    def blocks(self) -> tuple[slice, ...]:
        """Where the ranges of each number are, after the other columns."""
        stops = self.width - len(self.columns) + np.cumsum([0, *(len(low) for low in self.low)])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(stops))

    def split(self, Z: Floats) -> Floats:
        """The other columns first, in their order, then a block for each number."""
        kept = np.delete(Z, self.columns, axis=1)
        parts = [kept]
        for j, low in zip(self.columns, self.low, strict=True):
            block = np.zeros((len(Z), len(low)), dtype=np.float32)
            place = np.clip(np.searchsorted(low, Z[:, j], side="right") - 1, 0, None)
            block[np.arange(len(Z)), place] = 1
            parts.append(block)
        return np.concatenate(parts, axis=1)

    def join(self, Q: Floats, rng: np.random.Generator) -> Floats:
        """Undo `split`, each number drawn from its range."""
        out = np.empty((len(Q), self.width), dtype=np.float32)
        others = [j for j in range(self.width) if j not in set(self.columns)]
        out[:, others] = Q[:, : len(others)]
        for j, block, low, high in zip(self.columns, self.blocks, self.low, self.high, strict=True):
            place = Q[:, block].argmax(axis=1)
            out[:, j] = low[place] + rng.random(len(Q), dtype=np.float32) * (high[place] - low[place])
        return out


def draw_columns(logits: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A column for each row, drawn with the probabilities whose logarithms, up to a constant, are `logits`."""
    # Columns as rows of memory: sums over them are then sums of whole vectors. One random number per row, where the
    # largest of logits plus Gumbel noise needs one per column.
    sums = np.array(logits.T, order="C")
    np.exp(sums - sums.max(axis=0), out=sums)
    # Much faster than np.cumsum, which goes down one column after the other.
    for before, row in pairwise(sums):
        row += before
    wanted = rng.random(len(logits), dtype=np.float32) * sums[-1]
    place = (sums <= wanted).sum(axis=0, dtype=np.int32)
    # Rounding can make a number just below 1 the whole sum.
    out: npt.NDArray[np.int64] = np.minimum(place, len(sums) - 1).astype(np.int64)
    return out


def _ranges(values: Floats, most: int) -> tuple[Floats, Floats]:
    found, counts = np.unique(values, return_counts=True)
    starts = np.searchsorted(found, np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[:-1])))
    # A value that many records share must come back unchanged.
    often = np.flatnonzero(counts > len(values) / most)
    cuts = np.unique(np.concatenate([[0], starts, often, often + 1]))
    cuts = cuts[cuts < len(found)]
    stops = np.append(cuts[1:], len(found)) - 1
    return found[cuts].astype(np.float32), found[stops].astype(np.float32)
