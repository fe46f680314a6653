"""Generated rows in place of drawn ones during training: fresh each time, made in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from torch import Tensor
from torch.utils.data import IterableDataset

from locum.errors import ConfigError, DataError
from locum.heads.sampling import augment_probability, row_batches
from locum.release import WorkerSeeds, to_space
from locum.train import seeded

# Fresh rows per call of the generator: large enough that only the decoder costs time; 1280 features take 40 MB.
BLOCK = 8192
Matrix = npt.NDArray[np.float32]
Labels = npt.NDArray[Any]


class FreshRows:
    """Rows of given classes from a generator or release: each is drawn for one use only.

    `source` needs `sample(per_class=..., random_state=...)`. An unfitted generator is cloned and fitted on `X` and
    `y`; otherwise it must know their labels and give vectors of the same kind. It must not be a fixed table. A row of
    class c is replaced with probability `p[c]`.
    """

    def __init__(self, source: Any, X: Matrix, y: Labels, classes: Labels, p: npt.ArrayLike, seed: int) -> None:
        if not hasattr(source, "sample") or isinstance(source, type):
            raise ConfigError(
                f"Fresh rows must come from a generator or a release; got {source!r}. ClassGaussian() is fast."
            )
        _check_space(source, X)
        if hasattr(source, "fit") and not any(name.endswith("_") for name in vars(source)):
            source = clone(source, safe=False)
            if getattr(source, "random_state", 0) is None:
                source.random_state = seed
            source.fit(X, y)
        self._labels = classes.tolist()
        self._place = {label: code for code, label in enumerate(self._labels)}
        self._source = source
        self._p = torch.from_numpy(np.asarray(p, dtype=np.float64))
        self._features = X.shape[1]
        _check_endless(source)
        # Find a missing class or another backbone before training starts, not in the middle of it.
        self.draw(torch.nonzero(self._p).ravel(), seeded(0))

    def mixed_in(
        self,
        x: Tensor,
        codes: Tensor,
        batches: Iterator[Tensor],
        rng: torch.Generator,
        scaled: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and positions of each of `batches`, with some rows replaced by fresh ones after `scaled`."""
        for block in self._blocks(codes, batches):
            where, rows = self.replace(codes[torch.cat(block)], rng)
            rows, start = scaled(rows), 0
            for i in block:
                low, high = torch.searchsorted(where, torch.tensor([start, start + len(i)])).tolist()
                batch = x[i]
                batch[where[low:high] - start] = rows[low:high]
                yield batch, i
                start += len(i)

    def _blocks(self, codes: Tensor, batches: Iterator[Tensor]) -> Iterator[list[Tensor]]:
        """Groups of batches that need about one block of fresh rows."""
        block, wanted, drawn = list[Tensor](), 0.0, 0
        for i in batches:
            block.append(i)
            wanted, drawn = wanted + float(self._p[codes[i]].sum()), drawn + len(i)
            # With few rows to replace, a group must still end at some point.
            if wanted >= BLOCK or drawn >= 32 * BLOCK:
                yield block
                block, wanted, drawn = [], 0.0, 0
        if block:
            yield block

    def replace(self, codes: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Positions of the rows with class `codes` that are replaced, in order, and their replacements."""
        where = torch.nonzero(torch.rand(len(codes), dtype=torch.float64, generator=rng) < self._p[codes]).ravel()
        return where, self.draw(codes[where], rng)

    def draw(self, codes: Tensor, rng: torch.Generator) -> Tensor:
        """One fresh row for each of `codes`."""
        out = torch.empty(len(codes), self._features)
        if not len(codes):
            return out
        wanted = np.bincount(codes.numpy(), minlength=len(self._labels))
        X, labels = self._source.sample(
            per_class={label: int(n) for label, n in zip(self._labels, wanted, strict=True) if n},
            random_state=int(torch.randint(2**62, (), generator=rng)),
        )
        names, where = np.unique(labels, return_inverse=True)
        got = torch.tensor([self._place.get(name, -1) for name in names.tolist()])[torch.from_numpy(where.ravel())]
        mine, order = codes.sort(stable=True)
        given, source = got.sort(stable=True)
        if X.shape != out.shape or not torch.equal(mine, given):
            raise DataError(
                f"The generator gave {X.shape[0]} rows of {X.shape[1]} features, or other classes; {len(out)} rows "
                f"of {self._features} features were requested: fit it on data like these."
            )
        out[order] = torch.from_numpy(np.require(X, np.float32, ["C", "W"]))[source]
        return out


class AugmentedBatches(IterableDataset[tuple[Tensor, Tensor]]):
    """Endless batches `(x, class code)`, balanced and partly generated: algorithm 1 of the thesis.

    Records are drawn by `sampler`, and each is replaced by a fresh sample of its class from `generator` with the
    probability that `augment_probability` gives its class.

    Already batched: give `batch_size=None` to a `DataLoader`. Every worker, and every new iteration, draws from its
    own stream. Batches hold real records: they must not leave.

    Parameters
    ----------
    X
        Finite vectors (n, d).
    y
        One label per vector.
    generator
        A generator or a release, but not a fixed table. An unfitted generator is cloned and fitted on `X` and `y`; a
        fitted one, or a release, is used as it is.
    batch_size
        Rows in a batch, 1 or more.
    sampler
        How records are drawn: "instance", "class_balanced" or "square_root"; see `class_shares`.
    p_min, p_max
        The bounds of the probability that a record is replaced; see `augment_probability`.
    random_state
        Seed; None: the operating system's entropy.

    Attributes
    ----------
    classes
        The labels, sorted: class codes index them.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.heads import AugmentedBatches
    >>> tumors = load_sample("breast-cancer")
    >>> x, code = next(iter(AugmentedBatches(tumors.X, tumors.y, ClassGaussian(), batch_size=64, random_state=0)))
    >>> tuple(x.shape), tuple(code.shape)
    ((64, 30), (64,))
    """

    def __init__(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        generator: Any,
        *,
        batch_size: int = 256,
        sampler: str = "class_balanced",
        p_min: float = 0.01,
        p_max: float = 0.7,
        random_state: int | None = None,
    ) -> None:
        rows, labels = np.array(X, dtype=np.float32), np.asarray(y)
        if rows.ndim != 2 or labels.shape != (len(rows),) or not len(rows) or not np.isfinite(rows).all():
            raise DataError(
                f"`X` must hold finite rows and `y` one label for each; got shapes {rows.shape} and {labels.shape}."
            )
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"`batch_size` must be a whole number, 1 or more; got {batch_size!r}.")
        if sampler == "progressive":
            raise ConfigError("`sampler` cannot be 'progressive' here: endless batches have no last epoch.")
        self.classes, codes = np.unique(labels, return_inverse=True)
        self._x, self._codes = torch.from_numpy(rows), torch.from_numpy(codes)
        self._size = batch_size
        self._epoch = row_batches(self._codes, len(self.classes), len(rows), sampler, epochs=1)
        self._seeds = WorkerSeeds(random_state)
        p = augment_probability(np.bincount(codes), p_min, p_max)
        seed = int(np.random.SeedSequence(self._seeds.entropy, spawn_key=(2**32 - 1,)).generate_state(1)[0])
        self._fresh = FreshRows(generator, rows, labels, self.classes, p, seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rng = seeded(int(self._seeds.next().generate_state(1, np.uint64)[0] >> np.uint64(1)))
        for x, i in self._fresh.mixed_in(self._x, self._codes, self._positions(rng), rng):
            yield x, self._codes[i]

    def _positions(self, rng: torch.Generator) -> Iterator[Tensor]:
        """Full batches: an epoch's incomplete batch is completed by the next epoch."""
        rest = torch.empty(0, dtype=torch.int64)
        while True:
            rest = torch.cat([rest, *self._epoch(rng)])
            if full := len(rest) // self._size * self._size:
                yield from rest[:full].split(self._size)
                rest = rest[full:]


def _check_endless(source: Any) -> None:
    if hasattr(source, "stream"):
        try:
            source.stream(1)
        except ConfigError as error:
            raise ConfigError(
                "Fresh rows cannot come from a fixed table such as k-Same's, which would repeat its rows: "
                "use CVAEGenerator or ClassGaussian."
            ) from error


def _check_space(source: Any, X: Matrix) -> None:
    space = getattr(getattr(source, "manifest", source), "space", "raw")
    for start in range(0, len(X) if space != "raw" else 0, BLOCK):
        rows = X[start : start + BLOCK]
        if not np.allclose(to_space(rows, space), rows, atol=1e-4):
            raise ConfigError(
                f"The generator's vectors are in the space {space!r} and these rows are not: map them with "
                "`release.transform(X)`, for training and for prediction."
            )
