"""Methods for rare classes in one interface: what each does to the records, and to the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from imblearn.over_sampling import ADASYN, SMOTE, RandomOverSampler
from sklearn.base import clone
from sklearn.utils import check_X_y

from locum.generate import ClassGaussian, CVAEGenerator
from locum.rebalance.over_sampler import GenerativeOverSampler

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """What a head learns from, after a method has resampled the records.

    Attributes
    ----------
    X, y
        Records and labels.
    sample_weight
        A weight per record, if the method sets them.
    note
        What the method did instead, if it had to fall back.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.rebalance import METHODS
    >>> found = METHODS["weights"].resample(np.zeros((3, 1)), np.array([0, 0, 1]), np.random.default_rng(0))
    >>> found.sample_weight.tolist()
    [0.75, 0.75, 1.5]
    """

    X: Array
    y: Array
    sample_weight: npt.NDArray[np.float64] | None = None
    note: str = ""


Resampler = Callable[[Array, Array, np.random.Generator], Resampled]


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A method for rare classes: how it resamples the records, and the settings of its `LinearHead`.

    `LinearHead(**method.head).fit(found.X, found.y, found.sample_weight)`, with `found` from `resample`, is all that
    a comparison needs. If `head` is empty, any classifier will do.

    Parameters
    ----------
    resample
        Takes records, labels and an rng, and returns a `Resampled`.
    head
        Settings of the head, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.rebalance import METHODS
    >>> found = METHODS["random"].resample(np.zeros((3, 1)), np.array([0, 0, 1]), np.random.default_rng(0))
    >>> found.y.tolist()
    [0, 0, 1, 1]
    """

    resample: Resampler
    head: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def unchanged(X: Array, y: Array, rng: np.random.Generator) -> Resampled:
    """The records as they are."""
    return Resampled(X, y)


def balanced_weights(X: Array, y: Array, rng: np.random.Generator) -> Resampled:
    """The records as they are, weighted so that all classes have the same total weight; the mean weight is 1.

    >>> balanced_weights(np.zeros((3, 1)), np.array([0, 0, 1]), np.random.default_rng(0)).sample_weight.tolist()
    [0.75, 0.75, 1.5]
    """
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    return Resampled(X, y, len(y) / (len(classes) * counts[codes]))


@dataclass(frozen=True, slots=True, eq=False)
class BySampler:
    """A sampler of imbalanced-learn, or ours, as a method: a fresh clone with a fresh seed each time.

    Parameters
    ----------
    sampler
        An unfitted sampler with `random_state` and `fit_resample`.

    Examples
    --------
    >>> import numpy as np
    >>> from imblearn.over_sampling import RandomOverSampler
    >>> from locum.rebalance import BySampler
    >>> method = BySampler(RandomOverSampler())
    >>> method(np.zeros((3, 1)), np.array([0, 0, 1]), np.random.default_rng(0)).y.tolist()
    [0, 0, 1, 1]
    """

    sampler: Any

    def __call__(self, X: Array, y: Array, rng: np.random.Generator) -> Resampled:
        """`sampler.fit_resample`, seeded by `rng`."""
        return Resampled(*clone(self.sampler).set_params(random_state=_seed(rng)).fit_resample(X, y))


def smote(X: Array, y: Array, rng: np.random.Generator) -> Resampled:
    """SMOTE to full balance, with k = min(n_min - 1, 5) neighbors, where n_min is the size of the smallest class.

    A class of one record has no neighbor: it is repeated and does not count for n_min, and the note says so.
    """
    X, y = check_X_y(X, y, dtype=None)
    targets, k, lone = _plan(y)
    note = ""
    if targets:
        sampler = SMOTE(sampling_strategy=targets, k_neighbors=k, random_state=_seed(rng))
        X, y = sampler.fit_resample(X, y)
    if lone:
        X, y = RandomOverSampler(sampling_strategy=lone, random_state=_seed(rng)).fit_resample(X, y)
        note = f"{len(lone)} of the classes had one record, which was repeated."
    return Resampled(X, y, note=note)


def adasyn(X: Array, y: Array, rng: np.random.Generator) -> Resampled:
    """ADASYN, with k as in `smote`. It rounds per record, so classes end near full balance, not at it.

    It fails for a class whose neighbors all belong to that class, and for one so small that each share rounds to 0;
    SMOTE is used there, and the note says so. A class of one record is repeated.
    """
    X, y = check_X_y(X, y, dtype=None)
    targets, k, lone = _plan(y)
    parts_x, parts_y, replaced = [X], [y], 0
    for c, size in targets.items():
        # Class by class, so that one failure does not affect the others.
        one, seed = {c: size}, _seed(rng)
        try:
            grown = ADASYN(sampling_strategy=one, n_neighbors=k, random_state=seed).fit_resample(X, y)
        except (RuntimeError, ValueError):
            grown = SMOTE(sampling_strategy=one, k_neighbors=k, random_state=seed).fit_resample(X, y)
            replaced += 1
        parts_x.append(grown[0][len(X) :])
        parts_y.append(grown[1][len(X) :])
    X, y = np.concatenate(parts_x), np.concatenate(parts_y)
    notes = [f"SMOTE was used for {replaced} of the classes."] if replaced else []
    if lone:
        X, y = RandomOverSampler(sampling_strategy=lone, random_state=_seed(rng)).fit_resample(X, y)
        notes.append(f"{len(lone)} of the classes had one record, which was repeated.")
    return Resampled(X, y, note=" ".join(notes))


def _plan(y: Array) -> tuple[dict[Any, int], int, dict[Any, int]]:
    """Target sizes of the classes with several records, the number of neighbors, target sizes of the others."""
    classes, counts = np.unique(y, return_counts=True)
    largest = int(counts.max())
    small = [(c, int(n)) for c, n in zip(classes, counts, strict=True) if n < largest]
    k = min([n - 1 for _, n in small if n > 1] + [5])
    return {c: largest for c, n in small if n > 1}, k, {c: largest for c, n in small if n == 1}


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31 - 1))


def _head(**settings: Any) -> Method:
    """The records as they are, for a head with these settings."""
    return Method(unchanged, MappingProxyType(settings))


# The first ones resample the records once; the others act in the head, batch by batch. Algorithm 1 is the thesis'.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "none": Method(unchanged),
        "weights": Method(balanced_weights),
        "random": Method(BySampler(RandomOverSampler())),
        "smote": Method(smote),
        "adasyn": Method(adasyn),
        "gaussian": Method(BySampler(GenerativeOverSampler(ClassGaussian()))),
        "cvae-small": Method(BySampler(GenerativeOverSampler(CVAEGenerator("small")))),
        "cvae-large": Method(BySampler(GenerativeOverSampler(CVAEGenerator("large")))),
        "class-balanced-sampling": _head(sampler="class_balanced"),
        "remix": _head(remix=True),
        "algorithm-1": _head(sampler="class_balanced", augment=CVAEGenerator("large")),
        "algorithm-1-remix": _head(sampler="class_balanced", augment=CVAEGenerator("large"), remix=True),
        "balanced-softmax": _head(loss="balanced_softmax"),
        "balanced-softmax-gaussian": _head(loss="balanced_softmax", augment=ClassGaussian()),
        "class-balanced-loss": _head(loss="class_balanced"),
        "focal": _head(loss="focal"),
        "equalization": _head(loss="equalization"),
        "ldam": _head(loss="ldam"),
        "logit-adjustment": _head(prior="uniform"),
    }
)
