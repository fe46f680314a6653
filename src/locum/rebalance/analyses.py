"""Analyses of rare classes: accuracy by class and by shots, quality, diversity and latents of generated records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics import (
    FrechetByClass,
    LatentKS,
    clopper_pearson,
    coverage_by_class,
    frechet_by_class,
    latent_ks,
    ledoit_wolf,
    mean_interval,
    separability,
    sphere_by_class,
)
from locum.types import Estimate

Array = npt.NDArray[Any]
Shots = Literal["many", "medium", "few"]
# The sampling variances of the thesis.
VARIANCES = (0.25, 0.5, 0.75, 1.0, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """One class and how well it is recognized.

    Attributes
    ----------
    label
        The class.
    records
        Its number of training records. Private.
    shots
        Its group by that number; see `shot_group`.
    accuracy
        Its accuracy on the test set, with an exact interval.

    Examples
    --------
    >>> from locum.rebalance import accuracy_by_class
    >>> row = accuracy_by_class([0, 0, 1], [0, 1], [0, 0])[0]
    >>> row.label, row.records, row.shots, row.accuracy.value
    (0, 2, 'few', 1.0)
    """

    label: Any
    records: int
    shots: Shots
    accuracy: Estimate


def shot_group(records: int) -> Shots:
    """Return the group of a class by its number of training records.

    Parameters
    ----------
    records
        How many training records the class has.

    Returns
    -------
    str
        "many" above 100, "medium" from 21 to 100, "few" up to 20.

    Examples
    --------
    >>> from locum.rebalance import shot_group
    >>> [shot_group(n) for n in (101, 100, 21, 20, 0)]
    ['many', 'medium', 'medium', 'few', 'few']
    """
    if records > 100:
        return "many"
    return "medium" if records > 20 else "few"


def accuracy_by_class(y_train: npt.ArrayLike, y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> list[ClassAccuracy]:
    """Accuracy of each class of the test set, from the largest class in training to the rarest.

    Intervals are exact binomial: they cover the choice of test records, not of training records or seeds. A class
    missing in training has 0 records; one missing in the test set has no row.

    Parameters
    ----------
    y_train
        Labels of the training records.
    y_true, y_pred
        True and predicted labels of the test records. All three are text, or all are numbers.

    Returns
    -------
    list of ClassAccuracy
        One row per class. Private: it shows class sizes.

    Examples
    --------
    >>> from locum.rebalance import accuracy_by_class
    >>> table = accuracy_by_class(["a", "b", "b"], ["a", "a", "b"], ["a", "b", "b"])
    >>> [(row.label, row.records, row.accuracy.value) for row in table]
    [('b', 2, 1.0), ('a', 1, 0.5)]
    """
    sizes, truth, right = _counted(y_train, y_true, y_pred)
    rows = []
    for c in np.unique(truth).tolist():
        mine = right[truth == c]
        n = sizes.get(c, 0)
        rows.append(ClassAccuracy(c, n, shot_group(n), clopper_pearson(int(mine.sum()), len(mine))))
    return sorted(rows, key=lambda row: -row.records)


def accuracy_by_shots(y_train: npt.ArrayLike, y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> Mapping[str, Estimate]:
    """Accuracy on test records: overall, then within each group of classes that the test set has.

    Intervals as in `accuracy_by_class`. On a balanced test set a group's figure is also the mean over its classes;
    otherwise its large classes count for more.

    Parameters
    ----------
    y_train
        Labels of the training records.
    y_true, y_pred
        True and predicted labels of the test records. All three are text, or all are numbers.

    Returns
    -------
    dict of Estimate
        By name: "overall", and those of "many", "medium" and "few" that occur.

    Examples
    --------
    >>> from locum.rebalance import accuracy_by_shots
    >>> found = accuracy_by_shots([0] * 150 + [1] * 20, [0, 0, 1, 1], [0, 0, 0, 1])
    >>> {name: e.value for name, e in found.items()}
    {'overall': 0.75, 'many': 1.0, 'few': 0.5}
    """
    sizes, truth, right = _counted(y_train, y_true, y_pred)
    group = np.array([shot_group(sizes.get(c, 0)) for c in truth.tolist()])
    found = {"overall": clopper_pearson(int(right.sum()), len(right))}
    for name in ("many", "medium", "few"):
        mine = right[group == name]
        if len(mine):
            found[name] = clopper_pearson(int(mine.sum()), len(mine))
    return found


class _Sampler(Protocol):
    """A fitted generator or a release."""

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        random_state: int | None = None,
    ) -> tuple[npt.NDArray[np.float32], Array]: ...


class _Encoder(Protocol):
    """A fitted CVAE or VAE."""

    def encode(self, X: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]: ...

    def reconstruct(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Array: ...


@dataclass(frozen=True, slots=True)
class ClassDiversity:
    """By class: the share of the reference that a set covers, and the radius of its smallest enclosing ball."""

    coverage: Mapping[Any, float]
    radius: Mapping[Any, float]


@dataclass(frozen=True, slots=True, eq=False)
class LatentStudy:
    """How well latents predict the class, how far each class is from N(0, 1), and the reconstruction error."""

    separability: Estimate
    ks: LatentKS
    error: Estimate


def sample_like(
    generator: _Sampler, y: npt.ArrayLike, *, variance: float | None = None, random_state: int | None = None
) -> tuple[npt.NDArray[np.float32], Array]:
    """Draw as many generated records of each class as `y` has, so that sets of equal size are compared.

    Parameters
    ----------
    generator
        A fitted generator or a release.
    y
        Labels, as the generator names them.
    variance
        Sampling variance; None: the generator's own.
    random_state
        Seed for the sampling.

    Returns
    -------
    X : ndarray of shape (n, features)
        The generated records.
    labels : ndarray of shape (n,)
        Their classes.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.rebalance import sample_like
    >>> X, y = np.random.default_rng(0).normal(size=(60, 2)), np.repeat([0, 1], 30)
    >>> drawn, labels = sample_like(ClassGaussian().fit(X, y), [0, 1, 1], random_state=0)
    >>> sorted(labels.tolist())
    [0, 1, 1]
    """
    classes, counts = np.unique(np.asarray(y), return_counts=True)
    wanted = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    return generator.sample(per_class=wanted, variance=variance, random_state=random_state)


def frechet_over_variances(
    generator: _Sampler,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    variances: Sequence[float] = VARIANCES,
    *,
    random_state: int | None = None,
    authors_compat: bool = False,
) -> dict[float, FrechetByClass]:
    """Frechet distance by class between held-out records and as many generated ones, at each sampling variance.

    Every variance and every generator uses the same seed and the same shrinkage, so that figures differ only by
    these. If a class has no more records than features, all covariances are shrunk by what the held-out records need
    (see `frechet_distance`). Classes of one record are skipped and named.

    Parameters
    ----------
    generator
        A fitted generator or a release.
    X, y
        Held-out records and their labels, as the generator names them.
    variances
        Sampling variances; by default those of the thesis.
    random_state
        Seed for the sampling.
    authors_compat
        Standardize each set by itself, as the thesis did, and shrink nothing.

    Returns
    -------
    dict of FrechetByClass
        By variance. Private: it depends on the held-out records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.rebalance import frechet_over_variances
    >>> X, y = np.random.default_rng(0).normal(size=(400, 2)), np.repeat([0, 1], 200)
    >>> found = frechet_over_variances(ClassGaussian().fit(X, y), X, y, [1.0, 9.0], random_state=0)
    >>> bool(found[1.0].average < found[9.0].average)
    True
    """
    if not len(variances):
        raise ConfigError("`variances` must hold at least one variance; got none.")
    seed = int(np.random.default_rng(random_state).integers(2**31 - 1))
    shrinkage = 0.0 if authors_compat else _shrinkage(X, y)
    found = {}
    for variance in variances:
        drawn, labels = sample_like(generator, y, variance=variance, random_state=seed)
        found[float(variance)] = frechet_by_class(
            drawn, labels, X, y, shrinkage=shrinkage, authors_compat=authors_compat
        )
    return found


def diversity_by_class(
    sets: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    authors_compat: bool = False,
) -> dict[str, ClassDiversity]:
    """How much of a reference each named set of vectors covers, and how wide it is, by class.

    Coverage is by nearest reference record within the class. Both figures grow with the number of vectors, so pass
    sets with equal class sizes.

    Parameters
    ----------
    sets
        Pairs of vectors and labels, by name.
    X, y
        The reference: records and their labels.
    authors_compat
        Compute the radius as the thesis did.

    Returns
    -------
    dict of ClassDiversity
        By name: `coverage`, the share of the reference that is covered, and `radius`, that of the smallest enclosing
        ball, both by class. Private: it depends on the reference.

    Examples
    --------
    >>> from locum.rebalance import diversity_by_class
    >>> reference = [[0.0], [4.0], [8.0]]
    >>> diversity_by_class({"one": ([[0.1], [3.0]], [7, 7])}, reference, [7, 7, 7])["one"].radius
    {7: 1.45}
    """
    return {
        name: ClassDiversity(
            coverage_by_class(vectors, labels, X, y), sphere_by_class(vectors, labels, authors_compat=authors_compat)
        )
        for name, (vectors, labels) in sets.items()
    }


def latent_study(generator: _Encoder, X: npt.ArrayLike, y: npt.ArrayLike, rng: np.random.Generator) -> LatentStudy:
    """What the latents of held-out records reveal, for a fitted CVAE or VAE.

    Latents are drawn from each record's distribution, as in training. A tiny classifier predicts the class from them
    (with two latents it is the thesis' 2 -> 2 -> classes), and each class and dimension is tested against N(0, 1).
    All of it is private: encoders are never released.

    Parameters
    ----------
    generator
        A fitted `CVAEGenerator` or `VAEGenerator`.
    X, y
        Held-out records and their labels.
    rng
        Draws the latents, and splits them for the classifier.

    Returns
    -------
    LatentStudy
        `separability`, the accuracy of the classifier; `ks`, the tests against N(0, 1); `error`, the squared
        reconstruction error from the latent mean, summed over features and averaged over records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import CVAEGenerator
    >>> from locum.rebalance import latent_study
    >>> model = CVAEGenerator("small", random_state=0).fit(X, y)  # doctest: +SKIP
    >>> latent_study(model, X_test, y_test, np.random.default_rng(0)).separability.value  # doctest: +SKIP
    """
    mean, std = generator.encode(X, y)
    Z = mean + std * rng.standard_normal(mean.shape)
    gaps = np.asarray(X, dtype=np.float64) - generator.reconstruct(X, y)
    return LatentStudy(
        separability=separability(Z, y, rng),
        ks=latent_ks(Z, y),
        error=mean_interval(np.square(gaps).sum(axis=1)),
    )


def _counted(
    y_train: npt.ArrayLike, y_true: npt.ArrayLike, y_pred: npt.ArrayLike
) -> tuple[dict[Any, int], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Training records by class, the true labels, and which predictions are right."""
    train, truth, guess = (np.asarray(a) for a in (y_train, y_true, y_pred))
    if train.ndim != 1 or truth.ndim != 1 or truth.shape != guess.shape or not len(truth):
        raise DataError(
            f"Labels must be 1-D, with one prediction per true label; got shapes {train.shape} (training), "
            f"{truth.shape} (true) and {guess.shape} (predicted)."
        )
    # Text never equals a number: all would be wrong, and no class would have a record.
    if len({a.dtype.kind in "USO" for a in (train, truth, guess)}) > 1:
        raise DataError(
            f"Labels must be all text or all numbers; got {train.dtype} (training), {truth.dtype} (true) and "
            f"{guess.dtype} (predicted)."
        )
    classes, counts = np.unique(train, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True)), truth, truth == guess


def _shrinkage(X: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The largest Ledoit-Wolf intensity of a class that has no more records than features; 0 if there is none.

    Generated sets are not used: narrow ones would get more shrinkage, and so a smaller distance.
    """
    x, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    classes = [x[labels == c] for c in np.unique(labels)]
    few = [mine - mine.mean(axis=0) for mine in classes if 1 < len(mine) <= mine.shape[-1]]
    return max(map(ledoit_wolf, few), default=0.0)
