"""Over-sampling with a generator: a drop-in for SMOTE in imbalanced-learn's pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from imblearn.over_sampling.base import BaseOverSampler
from sklearn.base import clone
from sklearn.utils import check_random_state

from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import BaseGenerator, ClassGaussian, KSame, VAEGenerator
from locum.rebalance.means import shrunk_means
from locum.release import Release, RowsSpec, to_space


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Something to sample, what it calls each class, and by how much to move what it gives for a class."""

    origin: BaseGenerator | Release
    labels: Sequence[Any]
    shifts: npt.NDArray[np.float32] | None = None

    @property
    def variance(self) -> float:
        """The sampling variance that it has by itself."""
        owner: Any = self.origin.manifest.decoder if isinstance(self.origin, Release) else self.origin
        return float(getattr(owner, "variance", 1.0))

    def draw(self, code: int, n: int, variance: float | None, seed: int) -> npt.NDArray[np.float32]:
        """`n` fresh records of the class with this code."""
        X, _ = self.origin.sample(per_class={self.labels[code]: n}, variance=variance, random_state=seed)
        if self.shifts is None or isinstance(self.origin, Release):
            return X
        return to_space(X + self.shifts[code], self.origin.space)


def fitted_source(
    generator: Any, X: npt.NDArray[Any], codes: npt.NDArray[np.int64], seed: int, *, shrink_means: bool
) -> Source:
    """A copy of `generator` (None: a class Gaussian), fitted on all records; `seed` serves if it has none."""
    if generator is not None and not isinstance(generator, BaseGenerator):
        raise ConfigError(
            f"`generator` must be None, a generator or an opened release; got {type(generator).__name__}. "
            "locum.load(path) opens one."
        )
    if isinstance(generator, KSame | VAEGenerator):
        why = "gives each of its rows once" if isinstance(generator, KSame) else "knows no classes"
        raise ConfigError(
            f"{type(generator).__name__} cannot fill up a class: it {why}. Use ClassGaussian or CVAEGenerator."
        )
    copy: BaseGenerator = ClassGaussian() if generator is None else clone(generator)
    if copy.privacy is not None:
        raise PrivacyError(
            "A promise of privacy would be paid for and lost, since the result holds the real records: leave "
            "`privacy` out, or give a release that was made with it."
        )
    _check_space(X, copy.space, "`generator`")
    if copy.random_state is None:
        copy.set_params(random_state=seed)
    # Codes stand in for labels: generators take whole numbers and text alone.
    shifts = shrunk_means(X, codes).shifts.astype(np.float32) if shrink_means else None
    return Source(copy.fit(X, codes), range(int(codes.max()) + 1), shifts)


def release_source(
    release: Release, X: npt.NDArray[Any], classes: npt.NDArray[Any], needed: npt.NDArray[np.bool_]
) -> Source:
    """`release`, if its vectors fit X and it has each class that is needed, by label or by name.

    That a label means the same on both sides is taken on trust.
    """
    manifest = release.manifest
    if isinstance(manifest.decoder, RowsSpec):
        raise ConfigError("This release holds fixed rows and cannot fill up a class: give one that holds a decoder.")
    if manifest.embedding.dim != X.shape[1]:
        raise DataError(
            f"The release's vectors have {manifest.embedding.dim} features and X has {X.shape[1]}: embed X with the "
            "backbone that the release names, or choose another release."
        )
    _check_space(X, manifest.space, "the release")
    by_name = dict(zip(manifest.class_names, manifest.classes, strict=True))
    labels: list[Any] = []
    for c, budget in zip(classes.tolist(), needed, strict=True):
        # True and 1.0 are the class 1, as for a generator.
        key = int(c) if isinstance(c, bool | float) else c
        label = key if key in manifest.classes else by_name.get(str(key))
        if budget and label is None:
            raise DataError(
                f"The release has no class {key!r}; it has {list(manifest.classes)[:10]}. Choose another release, or "
                "leave the class out of `sampling_strategy`."
            )
        labels.append(label)
    return Source(release, labels)


def _check_space(X: npt.NDArray[Any], space: str, owner: str) -> None:
    """Generated records must live where the real ones do."""
    # Half precision rounds to about a thousandth.
    if space != "raw" and not np.allclose(to_space(X.astype(np.float32), space), X, rtol=1e-2, atol=1e-6):
        raise DataError(f"Vectors of {owner} live in the space {space!r} and those of X do not: bring X there first.")


Strategy = str | float | Mapping[Any, int] | Callable[[Any], Mapping[Any, int]]


class GenerativeOverSampler(BaseOverSampler):
    """Fill up rare classes with generated records; the real ones come first, untouched.

    The result holds real records and what was learnt from them: it is made to train on at home, and promises no
    privacy. A class of one to five records works: `ClassGaussian`, the default, has all classes share one
    covariance, so that such a class varies as the others do, and `shrink_means` makes up for a mean that so few
    records cannot tell. (A release of such a class may be refused; sampling at home is not.)

    Parameters
    ----------
    generator
        An unfitted generator of `locum.generate`, which is cloned and fitted on all classes; or an opened
        release (`locum.load(path)`), to fill up with somebody else's decoder: it must have the features and
        the classes that are asked of it, by label or by class name. None is `ClassGaussian()`.
    sampling_strategy
        Which classes grow, and to what size: imbalanced-learn's own setting.
    amount
        How far to go, from 0 (nothing) to 1 (all that `sampling_strategy` says): a class of n records that would
        grow to m grows to n ** (1 - amount) * m ** amount.
    variance
        Sampling variance; None is the generator's own.
    adaptive_variance
        A class of n records is sampled with variance * (n_max / n) ** adaptive_variance: above 0 rarer classes
        vary more, below 0 less.
    shrink_means
        Move what is generated for a class as `shrunk_means` moves its mean: far for a class of a few records, hardly
        for one of hundreds. Without it, a linear classifier on embeddings takes most records of so small a class for
        others. Not with a release, whose means are its own.
    random_state
        Seeds the sampling, and a generator that has no seed of its own.

    Attributes
    ----------
    generated_
        For each row of the result, whether it was generated.
    generator_
        What was sampled; None if nothing was needed. Private, like the records.
    sampling_strategy_
        How many records were generated, by class.

    Notes
    -----
    Columns of whole numbers or booleans are rounded and kept within the range that the real ones have. Sparse
    matrices are refused: generated records are dense.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, make_long_tail
    >>> data = make_long_tail(load_sample("digits"), ratio=10, rng=np.random.default_rng(0))
    >>> X, y = GenerativeOverSampler(random_state=0).fit_resample(data.X, data.y)
    >>> set(np.bincount(y).tolist())
    {178}
    """

    generated_: npt.NDArray[np.bool_]
    generator_: BaseGenerator | Release | None

    def __init__(
        self,
        generator: BaseGenerator | Release | None = None,
        *,
        sampling_strategy: Strategy = "auto",
        amount: float = 1.0,
        variance: float | None = None,
        adaptive_variance: float = 0.0,
        shrink_means: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(sampling_strategy=sampling_strategy)
        self.generator = generator
        self.amount = amount
        self.variance = variance
        self.adaptive_variance = adaptive_variance
        self.shrink_means = shrink_means
        self.random_state = random_state

    def _check_X_y(self, X: Any, y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], bool]:  # noqa: N802
        checked: tuple[npt.NDArray[Any], npt.NDArray[Any], bool] = super()._check_X_y(X, y, accept_sparse=False)
        self._whole = _whole_columns(X, checked[0])
        return checked

    def _fit_resample(self, X: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        self._check_settings()
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        wanted = self._wanted(classes, counts)
        n = len(X)
        out = np.empty((n + int(wanted.sum()), X.shape[1]), dtype=X.dtype)
        out[:n] = X
        self.generator_ = None
        if wanted.any():
            self._fill(out[n:], X, codes, classes, wanted)
        self.sampling_strategy_ = {c: int(k) for c, k in zip(classes, wanted, strict=True) if k}
        self.generated_ = np.arange(len(out)) >= n
        return out, np.concatenate([y, np.repeat(classes, wanted)])

    def _fill(
        self,
        out: npt.NDArray[Any],
        X: npt.NDArray[Any],
        codes: npt.NDArray[np.int64],
        classes: npt.NDArray[Any],
        wanted: npt.NDArray[np.int64],
    ) -> None:
        """Write what is generated into `out`, class by class."""
        rng = check_random_state(self.random_state)
        if isinstance(self.generator, Release):
            source = release_source(self.generator, X, classes, wanted > 0)
        else:
            source = fitted_source(self.generator, X, codes, _seed(rng), shrink_means=self.shrink_means)
        self.generator_ = source.origin
        counts = np.bincount(codes)
        start = 0
        for c in np.flatnonzero(wanted):
            variance = self.variance
            if self.adaptive_variance:
                own = source.variance if variance is None else variance
                variance = float(own * (counts.max() / counts[c]) ** self.adaptive_variance)
            drawn = source.draw(int(c), int(wanted[c]), variance, _seed(rng))
            out[start : start + len(drawn)] = _like(X, drawn, self._whole)
            start += len(drawn)

    def _check_settings(self) -> None:
        if not _number(self.amount) or not 0 <= self.amount <= 1:
            raise ConfigError(f"`amount` must lie in 0..1; got {self.amount!r}. 1 balances fully.")
        if self.variance is not None and (not _number(self.variance) or not 0 <= self.variance < np.inf):
            raise ConfigError(f"`variance` must be 0 or more; got {self.variance!r}. 1 is what training assumed.")
        if not _number(self.adaptive_variance) or not np.isfinite(self.adaptive_variance):
            raise ConfigError(
                f"`adaptive_variance` must be a number; got {self.adaptive_variance!r}. 0 treats all classes alike."
            )

    def _wanted(self, classes: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many records to generate, class by class."""
        full = counts + np.array([int(self.sampling_strategy_.get(c, 0)) for c in classes])
        target = np.rint(counts ** (1 - self.amount) * full**self.amount).astype(np.int64)
        wanted: npt.NDArray[np.int64] = target - counts
        return wanted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.non_deterministic = self.random_state is None
        return tags


def _whole_columns(X: Any, checked: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which columns hold whole numbers or booleans."""
    types = getattr(X, "dtypes", None)
    kinds = [checked.dtype.kind] * checked.shape[1] if types is None else [getattr(t, "kind", "O") for t in types]
    return np.isin(kinds, list("iub"))


def _like(X: npt.NDArray[Any], drawn: npt.NDArray[np.float32], whole: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Generated records with the types of the real ones."""
    if not whole.any():
        return drawn
    out = drawn.astype(np.float64)
    out[:, whole] = np.clip(np.rint(out[:, whole]), X[:, whole].min(axis=0), X[:, whole].max(axis=0))
    return out


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _seed(rng: np.random.RandomState) -> int:
    return int(rng.randint(2**31 - 1))
