"""Before any attack: can these members and non-members judge a release at all?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import needed_for
from locum.audit.view import one_per_subject, principal_axes, spread
from locum.errors import ConfigError, DataError
from locum.metrics import auc_interval, nearest
from locum.types import AttackResult, EmbeddingSet, Estimate

Kind = Literal["repeated records", "shared records", "near duplicates", "too few", "shift"]
# Distance, as a share of what is usual between neighbours, under which two records are taken for one.
_NEAR = 0.05
_MANY = 0.05
_SHIFT_LEVEL = 0.01
_SHIFT_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about the data that a reader of a result must know.

    `voids` says what it takes away: "nothing", "reassurance" (a result must not say that there is no risk), or
    "all" (what looks like a leak could come from it alone). `estimate` is the figure behind it, where there is one.
    """

    kind: Kind
    words: str
    count: int
    voids: Literal["nothing", "reassurance", "all"]
    estimate: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        out = {"kind": self.kind, "words": self.words, "count": self.count, "voids": self.voids}
        return out if self.estimate is None else out | {"estimate": self.estimate.to_dict()}


def check_sets(
    members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator, *, fpr: float = 0.01
) -> list[Problem]:
    """All that stands between these sets and a fair verdict; an empty list where nothing does.

    Sets that share a subject, or of which one holds more than a twentieth of the other, are an error. `fpr` is the
    false positive rate at which the reader wants to be sure. Data of another population that only looks alike in
    the 32 widest directions is not noticed.
    """
    if not 0 < fpr < 1:
        raise ConfigError(f"`fpr` must lie between 0 and 1; got {fpr!r}.")
    if members.dim != non_members.dim:
        raise DataError(f"Members have {members.dim} features and non-members {non_members.dim}: embed both alike.")
    if members.subject is not None and non_members.subject is not None:
        subjects = len(np.intersect1d(members.subject, non_members.subject))
        if subjects:
            raise DataError(f"{subjects} subjects are both members and non-members: an audit needs other people.")
    out = []
    repeats = len(members) + len(non_members) - len(_keys(members.X)[1]) - len(_keys(non_members.X)[1])
    if repeats:
        words = f"{repeats} records repeat another one of their own set exactly; each counts as if it were new"
        out.append(Problem("repeated records", words, repeats, "nothing"))
    kept, others = without_shared(members, non_members)
    shared = len(non_members) - len(others)
    if shared:
        words = f"{shared} non-members equal a member exactly; they and their twins are left out of all attacks"
        out.append(Problem("shared records", words, shared, "nothing"))
    out += _near_duplicates(kept, others)
    subjects = len(one_per_subject(others, rng))
    if subjects < needed_for(fpr):
        words = (
            f"{subjects:,} independent non-members cannot show what happens at a false positive rate of {fpr:.2g}: "
            f"that takes {needed_for(fpr):,}"
        )
        out.append(Problem("too few", words, subjects, "reassurance"))
    estimate, p = shift(kept, others, rng)
    if p <= _SHIFT_LEVEL:
        words = (
            f"members and non-members differ as populations: a classifier tells them apart without the release "
            f"(AUC {estimate:.3f}, p = {p:.2g}), and an attack might do no more"
        )
        out.append(Problem("shift", words, estimate.n, "all", estimate))
    return out


def without_shared(members: EmbeddingSet, non_members: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Both sets without the records that the other one holds too: those are neither in nor out."""
    inside, outside = not_shared(members, non_members)
    return members.take(inside), non_members.take(outside)


def not_shared(
    members: EmbeddingSet, non_members: EmbeddingSet
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of each set that the other one does not hold.

    More than a twentieth of all non-members is an error: then they are not other records.
    """
    mine, known = _keys(members.X)
    theirs, others = _keys(non_members.X)
    twins = known & others
    inside = np.array([key not in twins for key in mine])
    outside = np.array([key not in twins for key in theirs])
    if (~outside).sum() > _MANY * len(non_members):
        raise DataError(
            f"{int((~outside).sum())} of {len(non_members)} non-members equal a member: they are not other records. "
            "Give records that the fit did not use."
        )
    if not inside.any():
        raise DataError("Every member is also a non-member: there is nothing to compare.")
    return np.flatnonzero(inside), np.flatnonzero(outside)


def shift(members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator) -> tuple[Estimate, float]:
    """How well a classifier tells both sets apart without any release: AUC and p-value of "one population".

    A logistic regression on 32 principal components, their squares and the label is trained on one half and tested
    on the other, both ways round: the test is exact, whatever the classifier. It uses one record a person, and at
    most 2,000 of each set.
    """
    from scipy.stats import mannwhitneyu
    from sklearn.linear_model import LogisticRegression

    parts = []
    for data in (members, non_members):
        one = one_per_subject(data, rng)
        parts.append(data.take(rng.permutation(one)[:_SHIFT_ROWS]))
    X = np.concatenate([part.X for part in parts])
    inside = np.repeat([True, False], [len(part) for part in parts])
    if min(inside.sum(), (~inside).sum()) < 8:
        return Estimate(0.5, 0.0, 1.0, len(X)), 1.0
    mean, axes = principal_axes(X / spread(X), min(32, len(X) // 10), rng)
    z = np.clip((X / spread(X) - mean) @ axes, -5, 5)
    labels = np.concatenate([part.labels for part in parts])
    features = np.hstack([z, z**2, labels[:, None] == np.unique(labels)])
    half = np.empty(len(X), dtype=np.int64)
    for side in (True, False):
        half[inside == side] = rng.permutation(np.arange((inside == side).sum()) % 2)
    found, p_values = [], []
    for test in (0, 1):
        model = LogisticRegression(C=0.03, max_iter=300).fit(features[half != test], inside[half != test])
        values = model.decision_function(features[half == test])
        a, b = values[inside[half == test]], values[~inside[half == test]]
        found.append(auc_interval(a, b))
        p_values.append(float(mannwhitneyu(a, b, alternative="greater").pvalue) if np.ptp(values) else 1.0)
    value, low, high = (float(np.mean([getattr(e, k) for e in found])) for k in ("value", "low", "high"))
    return Estimate(value, low, high, len(X)), min(1.0, 2 * min(p_values))


def with_problems(result: AttackResult, problems: Sequence[Problem]) -> AttackResult:
    """The result as the state of the data allows: it cannot reassure, or accuse, beyond what they carry.

    Shift voids a leak unless the attack is better than the classifier that knows no release, or found what no
    shift gives: exact copies (p = 0).
    """
    reasons = [p.words for p in problems if p.voids != "nothing"]
    if not reasons:
        return result
    voided = False
    for problem in problems:
        if problem.voids == "all":
            beaten = (
                problem.estimate is not None
                and result.baseline.value == 0.5
                and result.attack.low > problem.estimate.high
            )
            voided |= not beaten and result.p_value != 0
    known = [result.inconclusive_because] if result.inconclusive_because else []
    return replace(result, inconclusive_because="; ".join(known + reasons), voided=voided or result.voided)


def _keys(X: npt.NDArray[np.float32]) -> tuple[list[bytes], set[bytes]]:
    """The bytes of each vector, and those that occur; adding 0 makes one zero of both."""
    keys = [row.tobytes() for row in X + np.float32(0)]
    return keys, set(keys)


def _near_duplicates(members: EmbeddingSet, non_members: EmbeddingSet) -> list[Problem]:
    """Non-members much closer to a member than neighbours among members are."""
    if len(members) < 3:
        return []
    scale = spread(np.concatenate([members.X, non_members.X]))
    inside = members.X / scale
    usual = float(np.median(nearest(inside, inside, exclude_self=True)[0]))
    count = int((nearest(non_members.X / scale, inside)[0] < _NEAR * usual).sum())
    if not count:
        return []
    words = f"{count} non-members nearly equal a member: other shots of one thing make a leak look smaller"
    return [
        Problem("near duplicates", words, count, "reassurance" if count > _MANY * len(non_members) else "nothing")
    ]
