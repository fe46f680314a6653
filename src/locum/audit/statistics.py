"""From scores and hits to attack results with intervals and p-values, corrected for the number of attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from locum.audit.view import LEAST_NON_MEMBERS, one_per_subject
from locum.errors import DataError
from locum.metrics import auc_interval, clopper_pearson, feature_scale, squared_distances
from locum.types import AttackResult, EmbeddingSet, Estimate

Floats = npt.NDArray[np.float64]
# False positive rates at which true positive rates are reported.
FPRS = (0.01, 0.001)
# Rates that fewer non-members can show, where there are too few for the first of the others.
COARSE_FPRS = (0.02, 0.05, 0.1)
# A rate is reported only if it leaves this many non-members above the threshold.
LEAST_TAIL = 5
# The AUC of a part of the records is reported only with this many of each kind.
LEAST_IN_PART = 10
_NEIGHBORS = 10
_FIRST_TOP = 4
_ROWS = 1024
_ROC_POINTS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One score for each member and each non-member, in the order of their sets.

    Larger means "member". Only the order counts, and a score must not depend on which set a record is in.

    Parameters
    ----------
    inside
        Scores of the members.
    outside
        Scores of the non-members.
    notes
        Remarks for the reader of a report.

    Raises
    ------
    DataError
        If there is not one number per record; infinity is allowed, NaN is not.

    Examples
    --------
    >>> from locum.audit import Scores
    >>> Scores([0.9, 0.4], [0.1]).inside.tolist()
    [0.9, 0.4]
    """

    inside: Floats
    outside: Floats
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("inside", "outside"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not len(values) or np.isnan(values).any():
                raise DataError(f"An attack must give one number per record; `{name}` holds something else.")
            object.__setattr__(self, name, values)


def evaluate_scores(
    name: str,
    scores: Scores,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    rng: np.random.Generator,
    *,
    material: float = 0.05,
) -> AttackResult:
    """The AUC of the scores with DeLong's interval, a control among non-members, and one p-value.

    The p-value is one-sided, and exact if records are exchangeable when nothing leaks. It is twice the smaller of two
    p-values: that of the Mann-Whitney test, for a leak that moves many records a little, and that of a test on the
    highest scores, for a leak that moves few records far and hardly changes the AUC. If a subject has several
    records, one of them, drawn at random, is used. `most_exposed` is the AUC within the tenth of all records where
    the attack does best, found on one half of the records and tested on the other, in both directions. It misses a
    record that is exposed unlike its neighbors. Parts of the records are not corrected for their number.
    """
    if len(scores.inside) != len(members) or len(scores.outside) != len(non_members):
        raise DataError(
            f"Attack {name!r} gave {len(scores.inside)} and {len(scores.outside)} scores for "
            f"{len(members)} members and {len(non_members)} non-members; it must give one per record."
        )
    mine, theirs = one_per_subject(members, rng), one_per_subject(non_members, rng)
    notes = list(scores.notes)
    if len(mine) < len(members) or len(theirs) < len(non_members):
        notes.append("one record per subject was attacked: several records of one subject are not independent")
    if len(mine) < 2 or len(theirs) < LEAST_NON_MEMBERS:
        raise DataError(
            f"An attack needs at least 2 members and {LEAST_NON_MEMBERS} non-members, each from a different subject; "
            f"got {len(mine)} and {len(theirs)}."
        )
    members, non_members = members.take(mine), non_members.take(theirs)
    inside, outside = _ranked(scores.inside[mine], scores.outside[theirs])
    half = rng.permutation(len(outside))
    p, note = _p_value(inside, outside)
    if note:
        notes.append(note)
    for fpr in FPRS:
        if len(outside) < needed_for(fpr):
            notes.append(f"TPR at {fpr:.1%} FPR needs {needed_for(fpr):,} non-members; there are {len(outside):,}")
    return AttackResult(
        name=name,
        measure="auc",
        attack=auc_interval(inside, outside),
        control=auc_interval(outside[half[::2]], outside[half[1::2]]),
        baseline=Estimate.exact(0.5),
        material=material,
        p_value=p,
        tpr={fpr: _rate_at(inside, outside, fpr) for fpr in rates_of(len(outside))},
        by_class=_by_class(inside, outside, members, non_members),
        most_exposed=_most_exposed(inside, outside, members, non_members, rng),
        roc=_roc(inside, outside),
        notes=tuple(notes),
    )


def needed_for(fpr: float) -> int:
    """How many non-members a false positive rate needs.

    >>> needed_for(0.01)
    500
    """
    return round(LEAST_TAIL / fpr)


def rates_of(non_members: int) -> tuple[float, ...]:
    """False positive rates that so many non-members can show; the finest coarse one if 1 % is not among them.

    >>> rates_of(5000), rates_of(387), rates_of(40)
    ((0.01, 0.001), (0.02,), ())
    """
    fine = tuple(fpr for fpr in FPRS if non_members >= needed_for(fpr))
    coarse = [fpr for fpr in COARSE_FPRS if non_members >= needed_for(fpr)]
    return fine or tuple(coarse[:1])


def more_often(hits: int, n: int, other_hits: int, m: int) -> float:
    """One-sided p-value of Fisher's exact test that `n` records have more hits than `m` others.

    >>> more_often(2, 2, 0, 2)
    0.16666666666666666
    """
    from scipy.stats import hypergeom

    return float(min(1.0, hypergeom.sf(hits - 1, n + m, n, hits + other_hits)))


def _ranked(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """Ranks among all scores, equal for ties: only the order counts, and a score may be infinite."""
    _, place = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    first, second = np.split(place.astype(np.float64), [len(inside)])
    return first, second


def _p_value(inside: Floats, outside: Floats) -> tuple[float, str]:
    """The p-value of both tests together, and a note on the highest scores if they decided."""
    from scipy.stats import mannwhitneyu

    n, m = len(inside), len(outside)
    ordered = np.sort(np.concatenate([inside, outside]))[::-1]
    if ordered[0] == ordered[-1]:
        return 1.0, ""
    many = float(mannwhitneyu(inside, outside, alternative="greater").pvalue)
    tops = [_FIRST_TOP * 2**j for j in range(30) if _FIRST_TOP * 2**j <= (n + m) / 4]
    few, note = 1.0, ""
    for top in tops:
        # Cut at a score, not at a count, so that the cut does not depend on who is a member.
        bar = ordered[top - 1]
        hits, others = int((inside >= bar).sum()), int((outside >= bar).sum())
        p = more_often(hits, n, others, m) * len(tops)
        if p < few:
            share = f"{hits} of the {hits + others} highest scores ({hits / (hits + others):.0%}) belong to members"
            few, note = p, f"{share}, who are {n / (n + m):.0%} of all records attacked"
    return min(1.0, 2 * min(many, few)), note if few < many else ""


def _rate_at(inside: Floats, outside: Floats, fpr: float) -> Estimate:
    """Share of members above the threshold that a share `fpr` of non-members passes.

    The interval also covers the uncertainty of the threshold.
    """
    from scipy.special import betaincinv
    from scipy.stats import binom

    n, m, tail = len(inside), len(outside), 0.0125
    ordered = np.append(np.sort(outside)[::-1], -np.inf)

    def found(k: float) -> int:
        return int((inside > ordered[min(int(k), m)]).sum())

    least, most = found(binom.ppf(tail, m, fpr)), found(binom.ppf(1 - tail, m, fpr))
    low = float(betaincinv(least, n - least + 1, tail)) if least else 0.0
    high = float(betaincinv(most + 1, n - most, 1 - tail)) if most < n else 1.0
    return Estimate(found(fpr * m) / n, low, high, n)


def _roc(inside: Floats, outside: Floats) -> tuple[tuple[float, float], ...]:
    """True positive rates at false positive rates that are evenly spaced on a logarithmic axis."""
    m = len(outside)
    ordered = np.append(np.sort(outside)[::-1], -np.inf)
    counts = np.unique(np.round(np.geomspace(1, m, _ROC_POINTS)).astype(int))
    return tuple((float(k / m), float((inside > ordered[k]).mean())) for k in counts)


def _by_class(
    inside: Floats, outside: Floats, members: EmbeddingSet, non_members: EmbeddingSet
) -> dict[str, Estimate]:
    """AUC within each class that has enough records in both sets."""
    mine, theirs = members.labels, non_members.labels
    out = {}
    for name in members.info.class_names:
        a, b = inside[mine == name], outside[theirs == name]
        if min(len(a), len(b)) >= LEAST_IN_PART:
            out[name] = auc_interval(a, b)
    return out


def _most_exposed(
    inside: Floats,
    outside: Floats,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    rng: np.random.Generator,
) -> Estimate | None:
    """AUC within the tenth of the records whose neighbors in the other half were told apart best."""
    if min(len(inside), len(outside)) < 2 * _NEIGHBORS:
        return None
    scale = feature_scale(np.concatenate([members.X, non_members.X]))
    sets = tuple(
        ((data.X / scale).astype(np.float64), values) for data, values in ((members, inside), (non_members, outside))
    )
    halves = [np.arange(len(values)) % 2 for _, values in sets]
    halves = [rng.permutation(half) for half in halves]
    picked: tuple[list[Floats], list[Floats]] = ([], [])
    for test in (0, 1):
        gains = []
        for (X, _), half in zip(sets, halves, strict=True):
            means = []
            for (other, values), other_half in zip(sets, halves, strict=True):
                known = other_half != test
                means.append(_around(X[half == test], other[known], values[known]))
            gains.append(means[0] - means[1])
        bar = np.quantile(np.concatenate(gains), 0.9)
        for kept, (_, values), half, gain in zip(picked, sets, halves, gains, strict=True):
            kept.append(values[half == test][gain >= bar])
    a, b = (np.concatenate(kept) for kept in picked)
    return auc_interval(a, b) if min(len(a), len(b)) >= LEAST_IN_PART else None


def _around(X: Floats, others: Floats, values: Floats) -> Floats:
    """Mean of the `values` of the ten nearest of `others`; ties are broken arbitrarily."""
    out = np.empty(len(X))
    mean = others.mean(axis=0)
    for start in range(0, len(X), _ROWS):
        part = slice(start, start + _ROWS)
        close = np.argpartition(squared_distances(X[part] - mean, others - mean), _NEIGHBORS - 1, axis=1)
        out[part] = values[close[:, :_NEIGHBORS]].mean(axis=1)
    return out


Bools = npt.NDArray[np.bool_]


def evaluate_shares(
    name: str,
    inside: Bools,
    outside: Bools,
    *,
    baseline: Estimate,
    members: EmbeddingSet | None = None,
    material: float = 0.05,
    tests: int = 1,
    notes: tuple[str, ...] = (),
) -> AttackResult:
    """Share of members that were hit and that of non-members (the control), with exact intervals.

    The p-value is Fisher's, one-sided, times the number of `tests` from which this one was chosen. Entries must be
    independent: one per subject. `members`, in the order of `inside`, adds shares by class.
    """
    if not len(inside) or not len(outside):
        raise DataError(f"Attack {name!r} needs a member and a non-member; got {len(inside)} and {len(outside)}.")
    hits, others = int(inside.sum()), int(outside.sum())
    by_class: dict[str, Estimate] = {}
    if members is not None:
        labels = members.labels
        parts = {label: inside[labels == label] for label in members.info.class_names}
        by_class = {
            label: clopper_pearson(int(part.sum()), len(part))
            for label, part in parts.items()
            if len(part) >= LEAST_IN_PART
        }
    return AttackResult(
        name=name,
        measure="share",
        attack=clopper_pearson(hits, len(inside)),
        control=clopper_pearson(others, len(outside)),
        baseline=baseline,
        material=material,
        p_value=min(1.0, tests * more_often(hits, len(inside), others, len(outside))),
        by_class=by_class,
        notes=notes,
    )


def holm(results: Sequence[AttackResult]) -> tuple[AttackResult, ...]:
    """The results in their order, with p-values `adjusted` by Holm's method.

    The probability that any attack accuses a harmless release is then at most its `level`, however the attacks are
    correlated. Results without a p-value stay as they are and do not count.
    """
    tested = [i for i, result in enumerate(results) if result.p_value is not None]
    adjusted = dict(zip(tested, holm_p_values([results[i].p_value or 0.0 for i in tested]), strict=True))
    return tuple(replace(r, adjusted=adjusted[i]) if i in adjusted else r for i, r in enumerate(results))


def holm_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the smallest of n is multiplied by n, the next one by n - 1, and so on.

    >>> holm_p_values([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(v) for v in out]
