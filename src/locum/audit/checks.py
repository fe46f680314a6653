"""Checks before any attack: can a release be judged with these members and non-members?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum._threads import one_thread
from locum.audit.statistics import needed_for, rates_of
from locum.audit.view import one_per_subject, principal_axes
from locum.data import copies_of, find_duplicates
from locum.errors import ConfigError, DataError
from locum.metrics import auc_interval, feature_scale, nearest
from locum.types import AttackResult, EmbeddingSet, Estimate

Kind = Literal["repeated records", "shared records", "near duplicates", "too few", "shift"]
# Two records closer than this share of the usual distance between neighbors count as near duplicates.
_NEAR = 0.05
_MANY = 0.05
_SHIFT_LEVEL = 0.01
_SHIFT_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of the data that a reader of the results must know.

    Parameters
    ----------
    kind
        "repeated records", "shared records", "near duplicates", "too few" or "shift".
    words
        The fault in words.
    count
        How many records it concerns.
    voids
        What it invalidates: "nothing", "reassurance" (no result may say that there is no risk), or "all" (it could
        look like a leak by itself).
    estimate
        The figure behind it; None if there is none.

    Examples
    --------
    >>> from locum.audit import Problem
    >>> Problem("too few", "50 non-members are too few", 50, "reassurance").to_dict()["voids"]
    'reassurance'
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
    """Faults of members and non-members that limit what an audit can say.

    A different population that looks the same in its 32 widest directions is not detected.

    Parameters
    ----------
    members
        The records that a release was made from.
    non_members
        Other records of the same population.
    rng
        Draws one record per subject, and halves.
    fpr
        The false positive rate at which the audit has to be reliable, between 0 and 1: it needs 5 / `fpr`
        non-members.

    Returns
    -------
    list of Problem
        Empty if there are none.

    Raises
    ------
    DataError
        If the sets share a subject, if more than a twentieth of the non-members are members too, or if the numbers of
        features differ.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import check_sets
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> [problem.kind for problem in check_sets(members, others, rng)], check_sets(members, others, rng, fpr=0.1)
    (['too few'], [])
    """
    if not 0 < fpr < 1:
        raise ConfigError(f"`fpr` must lie between 0 and 1; got {fpr!r}.")
    if members.dim != non_members.dim:
        raise DataError(
            f"Members have {members.dim} features and non-members {non_members.dim}: embed both in the same way."
        )
    if members.subject is not None and non_members.subject is not None:
        subjects = len(np.intersect1d(members.subject, non_members.subject))
        if subjects:
            raise DataError(
                f"{subjects} subjects are both members and non-members. Give non-members of other subjects."
            )
    out = []
    repeats = sum(int((find_duplicates(data.X) != np.arange(len(data))).sum()) for data in (members, non_members))
    if repeats:
        words = f"{repeats} records are exact copies of another record in the same set; each counts as a new record"
        out.append(Problem("repeated records", words, repeats, "nothing"))
    kept, others = without_shared(members, non_members)
    shared = len(non_members) - len(others)
    if shared:
        words = f"{shared} non-members equal a member exactly; both copies are left out of all attacks"
        out.append(Problem("shared records", words, shared, "nothing"))
    out += _near_duplicates(kept, others)
    subjects = len(one_per_subject(others, rng))
    if subjects < needed_for(fpr):
        words = (
            f"{subjects:,} independent non-members cannot show what happens at a false positive rate of {fpr:.2g}: "
            f"that needs {needed_for(fpr):,}"
        )
        # With fewer, the policy asks about a coarser rate; with too few for any, nothing can reassure.
        shown = rates_of(subjects)
        if shown:
            words += f"; they show {max(shown):.0%}"
        out.append(Problem("too few", words, subjects, "nothing" if shown else "reassurance"))
    return out + shift_problem(kept, others, rng)


def shift_problem(members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator) -> list[Problem]:
    """The fault that the two sets come from different populations, if a classifier can tell; see `shift`."""
    estimate, p = shift(members, non_members, rng)
    if p > _SHIFT_LEVEL:
        return []
    words = (
        f"members and non-members come from different populations: a classifier tells them apart without the "
        f"release (AUC {estimate:.3f}, p = {p:.2g}), and an attack might do no more than that; take non-members "
        f"from the data that the members come from, as locum publish does"
    )
    return [Problem("shift", words, estimate.n, "all", estimate)]


def without_shared(members: EmbeddingSet, non_members: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Both sets without the records that they share."""
    inside, outside = not_shared(members, non_members)
    return members.take(inside), non_members.take(outside)


def not_shared(
    members: EmbeddingSet, non_members: EmbeddingSet
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of each set that are not in the other one.

    Sharing more than a twentieth of all non-members is an error.
    """
    inside, outside = ~copies_of(members, non_members), ~copies_of(non_members, members)
    if (~outside).sum() > _MANY * len(non_members):
        raise DataError(
            f"{int((~outside).sum())} of {len(non_members)} non-members equal a member. "
            "Give records that the fit did not use, or leave the copies out with --drop-duplicates (in Python with "
            "`locum.data.copies_of`)."
        )
    if not inside.any():
        raise DataError("Every member is also a non-member. Give records that the fit did not use.")
    return np.flatnonzero(inside), np.flatnonzero(outside)


def shift(members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator) -> tuple[Estimate, float]:
    """How well a classifier tells the two sets apart without any release: AUC and p-value of "one population".

    A logistic regression on 32 principal components, their squares and the label is trained on one half and tested
    on the other, in both directions: the test is exact for any classifier. It uses one record per subject and at most
    2,000 of each set.
    """
    # Loaded first: the limit holds for libraries that are there.
    import scipy.stats  # noqa: F401
    import sklearn.linear_model  # noqa: F401

    with one_thread():
        return _shift(members, non_members, rng)


def _shift(members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator) -> tuple[Estimate, float]:
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
    scaled = X / feature_scale(X)
    mean, axes = principal_axes(scaled, min(32, len(X) // 10), rng)
    z = np.clip((scaled - mean) @ axes, -5, 5)
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
    """The result, limited by the faults of the data: it may neither reassure nor accuse beyond what they allow.

    A shift voids a leak, unless the attack beats the classifier that does not use the release, or found exact copies
    (p = 0), which no shift produces.
    """
    reasons = [p.words for p in problems if p.voids != "nothing"]
    if not reasons:
        return result
    voided = False
    for problem in problems:
        if problem.voids == "all":
            beaten = (
                problem.estimate is not None and result.measure == "auc" and result.attack.low > problem.estimate.high
            )
            voided |= not beaten and result.p_value != 0
    known = [result.inconclusive_because] if result.inconclusive_because else []
    return replace(result, inconclusive_because="; ".join(known + reasons), voided=voided or result.voided)


def _near_duplicates(members: EmbeddingSet, non_members: EmbeddingSet) -> list[Problem]:
    """Non-members that are much closer to a member than members are to each other."""
    if len(members) < 3:
        return []
    scale = feature_scale(np.concatenate([members.X, non_members.X]))
    inside = members.X / scale
    usual = float(np.median(nearest(inside, inside, exclude_self=True)[0]))
    count = int((nearest(non_members.X / scale, inside)[0] < _NEAR * usual).sum())
    if not count:
        return []
    words = f"{count} non-members nearly equal a member: near duplicates make a leak look smaller"
    return [
        Problem("near duplicates", words, count, "reassurance" if count > _MANY * len(non_members) else "nothing")
    ]
