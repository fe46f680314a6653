"""Judging a masking: what a receiver and several attackers learn from its releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.obfuscate.judges import Judge, Predict, accuracy, label_only, majority_guess, make_judges
from locum.obfuscate.labels import Labeled, Masking
from locum.types import Estimate

Array = npt.NDArray[Any]
Estimates = Mapping[str, Estimate]

ATTACKERS = ("weak", "strong", "averaged")
# Numbers passed to a masking at once: a network inside it needs many times their memory.
_AT_ONCE = 2**23
# One random stream per party and use, so that no two releases share noise.
_PUBLISHED_TRAIN, _PUBLISHED_TEST, _ATTACKER, _COPIES_TRAIN, _COPIES_TEST = range(5)


@dataclass(frozen=True, slots=True)
class Judgment:
    """What judges found for one masking: accuracies on test rows, most of them by kind of judge.

    Intervals cover the choice of test rows, not the randomness of training. This is a measurement, not a proof: an
    attacker that was not tried may find more.

    Attributes
    ----------
    weak
        Attackers trained on original rows, tested on released ones.
    strong
        Attackers trained on releases that they made themselves.
    averaged
        Attackers who have several releases of each record, and take their mean.
    utility_original
        Receivers trained on released rows, tested on original ones.
    utility_released
        The same receivers, tested on released rows.
    original_private, original_utility
        Attackers and receivers where nothing is hidden.
    label_only
        An attacker who sees the utility label alone.
    majority, utility_majority
        Always guessing the most frequent private code, or utility code.

    Examples
    --------
    >>> from locum.obfuscate import Judgment
    >>> from locum.types import Estimate
    >>> half, most = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 0.95, 100)
    >>> found = Judgment(*[{"trees": half}] * 3, *[{"trees": most}] * 4, half, half, half)
    >>> found.attacker.value, found.utility.value
    (0.5, 0.9)
    """

    weak: Estimates
    strong: Estimates
    averaged: Estimates
    utility_original: Estimates
    utility_released: Estimates
    original_private: Estimates
    original_utility: Estimates
    label_only: Estimate
    majority: Estimate
    utility_majority: Estimate

    @property
    def attacker_name(self) -> str:
        """The most accurate attacker, such as `strong trees`."""
        role, kind = max(self._attackers(), key=lambda who: self._attackers()[who].value)
        return f"{role} {kind}"

    @property
    def attacker(self) -> Estimate:
        """Accuracy of the most accurate attacker: weak, strong or averaging, over all kinds of judge."""
        return max(self._attackers().values(), key=lambda e: e.value)

    @property
    def utility(self) -> Estimate:
        """Accuracy of the best receiver: trained on released rows, tested on original ones."""
        return max(self.utility_original.values(), key=lambda e: e.value)

    def figures(self) -> dict[str, Estimate]:
        """All figures by name, such as `strong_trees`."""
        flat: dict[str, Estimate] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            flat |= {field.name: value} if isinstance(value, Estimate) else _named(field.name, value)
        return flat

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            field.name: value.to_dict() if isinstance(value, Estimate) else {k: e.to_dict() for k, e in value.items()}
            for field in fields(self)
            for value in [getattr(self, field.name)]
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        read: dict[str, Any] = {
            name: Estimate.from_dict(value)
            if "value" in value
            else {kind: Estimate.from_dict(e) for kind, e in value.items()}
            for name, value in data.items()
        }
        return cls(**read)

    def _attackers(self) -> dict[tuple[str, str], Estimate]:
        return {(role, kind): e for role in ATTACKERS for kind, e in getattr(self, role).items()}


@dataclass(frozen=True, slots=True, eq=False)
class Originals:
    """What judges find in the original rows: the same for every masking, so a sweep learns it once."""

    judges: Mapping[str, Judge]
    seed: int
    train: Labeled
    test: Labeled
    attackers: Mapping[str, Predict]
    private: Estimates
    utility: Estimates

    @classmethod
    def learn(
        cls,
        train: Labeled,
        test: Labeled,
        judges: Sequence[str] | None = None,
        seed: int = 0,
        epochs: int | None = None,
    ) -> Self:
        """Train each judge on the private and on the utility codes of `train`, and test both on `test`.

        `judges` names kinds of judge (see `make_judges`); None: all that can read the rows.
        """
        if train.X.shape[1:] != test.X.shape[1:] or not len(test):
            raise DataError(
                f"Test rows must have the shape of the training rows, and be 1 or more; got {test.X.shape} for "
                f"{train.X.shape}."
            )
        made = make_judges(judges, train.X, epochs)
        attackers = {kind: learner.fit(train.X, train.private, seed) for kind, learner in made.items()}
        return cls(
            judges=made,
            seed=seed,
            train=train,
            test=test,
            attackers=attackers,
            private={kind: accuracy(attack, test.X, test.private) for kind, attack in attackers.items()},
            utility={
                kind: accuracy(learner.fit(train.X, _needed(train), seed), test.X, _needed(test))
                for kind, learner in made.items()
            },
        )

    def judge(self, masking: Masking, copies: int = 10) -> Judgment:
        """What each judge finds in the releases of `masking`."""
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise ConfigError(f"`copies` must be a whole number, 1 or more; got {copies!r}. 10 is usual.")
        train, test = self.train, self.test
        released = self._release(masking, test, _PUBLISHED_TEST)
        weak = {kind: accuracy(attack, released, test.private) for kind, attack in self.attackers.items()}
        # One after the other: each copy of the training rows may be as large as memory allows.
        strong = self._attack(self._release(masking, train, _ATTACKER), released)
        averaged = strong
        if copies > 1:
            means = self._release(masking, test, _COPIES_TEST, copies)
            averaged = self._attack(self._release(masking, train, _COPIES_TRAIN, copies), means)
        published = self._release(masking, train, _PUBLISHED_TRAIN)
        users = {kind: learner.fit(published, _needed(train), self.seed) for kind, learner in self.judges.items()}
        return Judgment(
            weak=weak,
            strong=strong,
            averaged=averaged,
            utility_original={kind: accuracy(user, test.X, _needed(test)) for kind, user in users.items()},
            utility_released={kind: accuracy(user, released, _needed(test)) for kind, user in users.items()},
            original_private=self.private,
            original_utility=self.utility,
            label_only=label_only(train, test),
            majority=majority_guess(train.private, test.private),
            utility_majority=majority_guess(_needed(train), _needed(test)),
        )

    def _release(self, masking: Masking, rows: Labeled, whose: int, copies: int = 1) -> Array:
        return mean_release(masking, rows, np.random.default_rng([self.seed, whose]), copies)

    def _attack(self, own: Array, released: Array) -> dict[str, Estimate]:
        """Train on releases that the attacker made itself, and test on `released`."""
        return {
            kind: accuracy(learner.fit(own, self.train.private, self.seed), released, self.test.private)
            for kind, learner in self.judges.items()
        }


def judge(
    masking: Masking,
    train: Labeled,
    test: Labeled,
    *,
    judges: Sequence[str] | None = None,
    seed: int = 0,
    copies: int = 10,
    epochs: int | None = None,
    originals: Originals | None = None,
) -> Judgment:
    """Accuracies of attackers and receivers with `masking`, and without it for comparison.

    Attackers train on `train` (original rows; their own releases of it; means of `copies` of these) and are tested
    on releases of `test`. The receiver trains on a release of `train` and is tested on the original rows of `test`,
    and on released ones.

    Parameters
    ----------
    masking
        Takes rows, utility codes and an rng, and returns released rows of the same shape.
    train
        Rows that judges train on.
    test
        Rows that judges are tested on; the masking did not learn from them.
    judges
        Kinds of judges: for tables "network" and "trees", for images "network" and "patches". None: both.
    seed
        Seed of judges and releases.
    copies
        How many releases of each row the averaging attacker has; with 1 it is the strong one.
    epochs
        Passes over the data of judges that are networks; None: the default.
    originals
        To judge many maskings on the same rows: what `Originals.learn` found in them. Its `judges`, `seed` and
        `epochs` are used.

    Returns
    -------
    Judgment
        The accuracies. Private: they depend on the test rows.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.obfuscate import Labeled, judge
    >>> rng = np.random.default_rng(0)
    >>> def rows(n):
    ...     X = rng.random((n, 3), dtype=np.float32)
    ...     return Labeled(X, (X[:, 0] > 0.5).astype(int), (X[:, 1] > 0.5).astype(int))
    >>> hide_one = lambda X, utility, rng: X * np.float32([1, 0, 1])
    >>> found = judge(hide_one, rows(400), rows(200), judges=["trees"], copies=2)
    >>> bool(found.utility.value > 0.95), bool(found.attacker.value < 0.65)
    (True, True)
    """
    if originals is None:
        originals = Originals.learn(train, test, judges, seed, epochs)
    elif originals.train is not train or originals.test is not test:
        raise ConfigError("`originals` were learned on rows other than `train` and `test`: learn them on these.")
    elif judges is not None and sorted(judges) != sorted(originals.judges):
        raise ConfigError(
            f"`originals` hold {', '.join(originals.judges)}, not {', '.join(judges)}: learn them again."
        )
    return originals.judge(masking, copies)


def mean_release(masking: Masking, rows: Labeled, rng: np.random.Generator, copies: int = 1) -> Array:
    """The mean of `copies` independent releases of each row, computed a few rows at a time."""
    out = np.empty(rows.X.shape, dtype=np.float32)
    at_once = max(1, _AT_ONCE // max(1, rows.X[:1].size))
    for start in range(0, len(rows), at_once):
        part = slice(start, start + at_once)
        X, utility = rows.X[part], rows.utility[part]
        total = np.zeros(X.shape, dtype=np.float32)
        for _ in range(copies):
            released = np.asarray(masking(X, utility, rng))
            if released.shape != X.shape:
                raise DataError(f"A masking must keep the shape of rows; got {released.shape} for {X.shape}.")
            total += released
        out[part] = total / copies
    return out


def _needed(rows: Labeled) -> Array:
    """The utility code that the receiver is tested on: the first, if there are several."""
    return rows.utility if rows.utility.ndim == 1 else rows.utility[:, 0]


def _named(name: str, by_kind: Estimates) -> dict[str, Estimate]:
    return {f"{name}_{kind}": e for kind, e in by_kind.items()}
