"""Over-sampling with a generator or a release: a drop-in for SMOTE in imbalanced-learn pipelines."""

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

Strategy = str | float | Mapping[Any, int] | Callable[[Any], Mapping[Any, int]]


class GenerativeOverSampler(BaseOverSampler):
    """Fill up rare classes with generated records; the real ones come first, untouched.

    The result holds real records and what was learned from them: it is for local training, and guarantees no privacy.
    A class of one to five records works: with `ClassGaussian`, the default, all classes share one covariance, so such
    a class varies like the others, and `shrink_means` corrects a mean that so few records do not determine. (A
    release of such a class may be refused; local sampling is not.)

    Parameters
    ----------
    generator
        An unfitted generator of `locum.generate`, which is cloned and fitted on all classes; or an opened release
        (`locum.load(path)`), to sample another data holder's decoder: it must have the same features and the needed
        classes, by label or by class name. None: `ClassGaussian()`.
    sampling_strategy
        Which classes grow, and to what size, as in imbalanced-learn.
    amount
        How far to go, from 0 (nothing) to 1 (all that `sampling_strategy` says): a class of n records that would
        grow to m grows to n ** (1 - amount) * m ** amount.
    variance
        Sampling variance; None: the generator's own.
    adaptive_variance
        A class of n records is sampled with variance * (n_max / n) ** adaptive_variance: above 0 rarer classes
        vary more, below 0 less.
    shrink_means
        Shift the generated records of a class as `shrunk_means` shifts its mean: far for a class of a few records,
        hardly for one of hundreds. Without it, a linear classifier on embeddings assigns most records of so small a
        class to others. Not used with a release.
    random_state
        Seed for the sampling, and for a generator that has none.

    Attributes
    ----------
    generated_
        For each row of the result, whether it was generated.
    generator_
        What was sampled from; None if nothing was needed. Private, like the records.
    sampling_strategy_
        How many records were generated, by class.

    Notes
    -----
    Columns of integers or booleans are rounded and clipped to the range of the real ones. Sparse matrices are
    refused: generated records are dense.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, make_long_tail
    >>> from locum.rebalance import GenerativeOverSampler
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
        """Write generated records into `out`, class by class."""
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
            raise ConfigError(f"`amount` must be in 0..1; got {self.amount!r}. 1 balances fully.")
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


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What to sample from, its label for each class, and the shift of each class's samples."""

    origin: BaseGenerator | Release
    labels: Sequence[Any]
    shifts: npt.NDArray[np.float32] | None = None

    @property
    def variance(self) -> float:
        """Its default sampling variance."""
        owner: Any = self.origin.manifest.decoder if isinstance(self.origin, Release) else self.origin
        return float(getattr(owner, "variance", 1.0))

    def draw(self, code: int, n: int, variance: float | None, seed: int) -> npt.NDArray[np.float32]:
        """`n` generated records of the class with this code."""
        wanted = {self.labels[code]: n}
        X, _ = self.origin.sample(per_class=wanted, variance=variance, random_state=seed, as_frame=False)
        if self.shifts is None or isinstance(self.origin, Release):
            return X
        return to_space(X + self.shifts[code], self.origin.space)


def fitted_source(
    generator: Any, X: npt.NDArray[Any], codes: npt.NDArray[np.int64], seed: int, *, shrink_means: bool
) -> Source:
    """A clone of `generator` (None: a class Gaussian), fitted on all records; `seed` is used if it has none."""
    if generator is not None and not isinstance(generator, BaseGenerator):
        raise ConfigError(
            f"`generator` must be None, a generator or an opened release; got {type(generator).__name__}. "
            "locum.load(path) opens one."
        )
    if isinstance(generator, KSame | VAEGenerator):
        why = "returns each of its rows once" if isinstance(generator, KSame) else "has no classes"
        raise ConfigError(
            f"{type(generator).__name__} cannot fill up a class: it {why}. Use ClassGaussian or CVAEGenerator."
        )
    copy: BaseGenerator = ClassGaussian() if generator is None else clone(generator)
    if copy.privacy is not None:
        raise PrivacyError(
            "A privacy guarantee would be paid for and lost, because the result holds the real records: leave "
            "`privacy` out, or pass a release that was made with it."
        )
    _check_space(X, copy.space, "`generator`")
    if copy.random_state is None:
        copy.set_params(random_state=seed)
    # Codes instead of labels: generators take only integers and text.
    shifts = shrunk_means(X, codes).shifts.astype(np.float32) if shrink_means else None
    return Source(copy.fit(X, codes), range(int(codes.max()) + 1), shifts)


def release_source(
    release: Release, X: npt.NDArray[Any], classes: npt.NDArray[Any], needed: npt.NDArray[np.bool_]
) -> Source:
    """`release`, if its vectors fit X and it has each class that is needed, by label or by name.

    A label is assumed to mean the same in both.
    """
    manifest = release.manifest
    if isinstance(manifest.decoder, RowsSpec):
        raise ConfigError("This release holds fixed rows and cannot fill up a class: pass one that holds a decoder.")
    if manifest.embedding.dim != X.shape[1]:
        raise DataError(
            f"The release's vectors have {manifest.embedding.dim} features and X has {X.shape[1]}: embed X with the "
            "backbone that the release names, or choose another release."
        )
    _check_space(X, manifest.space, "the release")
    by_name = dict(zip(manifest.class_names, manifest.classes, strict=True))
    labels: list[Any] = []
    for c, wanted in zip(classes.tolist(), needed, strict=True):
        # True and 1.0 are class 1, as in a generator.
        key = int(c) if isinstance(c, bool | float) else c
        label = key if key in manifest.classes else by_name.get(str(key))
        if wanted and label is None:
            raise DataError(
                f"The release has no class {key!r}; it has {list(manifest.classes)[:10]}. Choose another release, or "
                "leave the class out of `sampling_strategy`."
            )
        labels.append(label)
    return Source(release, labels)


def _check_space(X: npt.NDArray[Any], space: str, owner: str) -> None:
    """Generated records must be in the same space as the real ones."""
    # Half precision rounds to about a thousandth.
    if space != "raw" and not np.allclose(to_space(X.astype(np.float32), space), X, rtol=1e-2, atol=1e-6):
        raise DataError(f"Vectors of {owner} are in the space {space!r} and those of X are not: transform X first.")


def _whole_columns(X: Any, checked: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which columns hold integers or booleans."""
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
