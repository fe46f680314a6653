"""`evaluate --by`: the scores of each group of test records, and the gap between the best and the worst group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.metrics import auc_macro, clopper_pearson
from locum.types import EmbeddingSet, Estimate

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

MOST_GROUPS = 20
# Of fewer, a score says next to nothing.
LEAST = 20
# The calibration error is left out: in a small group it is mostly chance, and more so the smaller the group.
METRICS = ("auc", "accuracy", "balanced_accuracy", "f1_macro")
_DRAWS = 300
_TAIL = 0.025


@dataclass(frozen=True, slots=True)
class Group:
    """The test records with one value of an attribute: their scores, or the reason why they have none."""

    value: str
    records: int
    subjects: int | None
    scores: dict[str, Estimate]
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "value": self.value,
            "records": self.records,
            "subjects": self.subjects,
            "scores": {name: score.to_dict() for name, score in self.scores.items()},
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class Gap:
    """The score of the best group minus that of the worst; the interval allows for their choice among all pairs."""

    best: str
    worst: str
    difference: Estimate

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"best": self.best, "worst": self.worst, "difference": self.difference.to_dict()}


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Scores per group of an attribute of the test records. Internal: it holds exact counts.

    Intervals cover seeds and test records, drawn by subject where subjects are known.

    Attributes
    ----------
    attribute
        Name of the attribute.
    method
        What the heads were trained on.
    groups
        One per value: `value`, `records`, `subjects`, `scores`, and the `reason` if there are no scores.
    gaps
        By score: the `best` and the `worst` group, and their `difference`. Empty with fewer than two scored groups.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import evaluate_release
    >>> found = evaluate_release(Path("release"), "data.npz", by=["view"])  # doctest: +SKIP
    >>> found.groups[0].gaps["auc"].difference.low > 0  # doctest: +SKIP
    """

    attribute: str
    method: str
    groups: tuple[Group, ...]
    gaps: dict[str, Gap]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "attribute": self.attribute,
            "method": self.method,
            "groups": [group.to_dict() for group in self.groups],
            "gaps": {name: gap.to_dict() for name, gap in self.gaps.items()},
        }


def check_attributes(test: EmbeddingSet, names: Sequence[str]) -> None:
    """Refuse an attribute that the test data do not have, or that has too many values to form groups."""
    for name in names:
        if name not in test.attributes:
            there = ", ".join(test.attributes)
            raise ConfigError(
                f"The test data have no attribute {name!r}: "
                + (f"they have {there}." if there else "they have none, so leave --by out.")
            )
        values = len(np.unique(test.attributes[name]))
        if values > MOST_GROUPS:
            raise ConfigError(
                f"The attribute {name!r} has {values} values in the test data, and --by takes at most {MOST_GROUPS}: "
                "put it into bins first, such as ranges, and give the bins as an attribute."
            )


def break_down(
    attribute: str, method: str, test: EmbeddingSet, y: Codes, probas: Sequence[Floats], rng: np.random.Generator
) -> Breakdown:
    """Scores per group of heads that were trained on one source, one per seed.

    `y` holds columns of `probas`, in the order of the test records. A group of under 20 records (or 20 subjects,
    where they are known) or of one class gets no score.
    """
    values, code = np.unique(test.attributes[attribute].astype(np.str_), return_inverse=True)
    code = code.reshape(-1)
    unit = np.arange(len(y)) if test.subject is None else np.unique(test.subject, return_inverse=True)[1].reshape(-1)
    reasons = [_reason(y[code == g], unit[code == g], test.subject is not None) for g in range(len(values))]
    usable = [g for g, reason in enumerate(reasons) if not reason]
    # Axes: draw (the records as they are come first), seed, group, metric.
    found = np.stack([_scores(y, code, probas, usable, rows) for rows in _draws(y, code, unit, rng)])
    as_they_are, drawn = found[0], found[1:]
    groups = []
    room = {g: _least_room(y[code == g], unit[code == g]) for g in usable}
    for g, value in enumerate(values.tolist()):
        inside = code == g
        subjects = None if test.subject is None else len(np.unique(unit[inside]))
        scores: dict[str, Estimate] = {}
        if g in usable:
            at = usable.index(g)
            for m, name in enumerate(METRICS):
                e = _estimate(as_they_are[:, at, m], drawn[:, :, at, m].mean(axis=1), int(inside.sum()), room[g])
                scores[name] = e.clipped(0.0, 1.0) if len(probas) > 1 else e
        groups.append(Group(value, int(inside.sum()), subjects, scores, reasons[g]))
    gaps = {}
    pairs = len(usable) * (len(usable) - 1) // 2
    for m, name in enumerate(METRICS if pairs else ()):
        means = as_they_are[:, :, m].mean(axis=0)
        best, worst = int(means.argmax()), int(means.argmin())
        runs = as_they_are[:, best, m] - as_they_are[:, worst, m]
        draws = (drawn[:, :, best, m] - drawn[:, :, worst, m]).mean(axis=1)
        two = [usable[best], usable[worst]]
        e = _estimate(runs, draws, int(np.isin(code, two).sum()), max(room[g] for g in two), pairs)
        gaps[name] = Gap(str(values[two[0]]), str(values[two[1]]), e)
    return Breakdown(attribute, method, tuple(groups), gaps)


def _reason(y: Codes, unit: Codes, by_subject: bool) -> str:
    if len(y) < LEAST:
        return f"under {LEAST} records"
    if by_subject and len(np.unique(unit)) < LEAST:
        return f"under {LEAST} subjects"
    return "one class only" if len(np.unique(y)) < 2 else ""


def _draws(y: Codes, code: Codes, unit: Codes, rng: np.random.Generator) -> list[Codes]:
    """All records, then records drawn anew: a subject's together, within group and class of its first record.

    One draw serves all groups, because a subject can have records in several.
    """
    rows = np.argsort(unit, kind="stable")
    members = np.split(rows, np.flatnonzero(np.diff(unit[rows])) + 1)
    first = np.array([rows[0] for rows in members])
    strata = np.unique(np.stack([code[first], y[first]]), axis=1, return_inverse=True)[1].reshape(-1)
    blocks = [np.flatnonzero(strata == s) for s in range(strata.max() + 1)]
    out = [np.arange(len(y))]
    for _ in range(_DRAWS):
        picked = np.concatenate([block[rng.integers(len(block), size=len(block))] for block in blocks])
        out.append(np.concatenate([members[i] for i in picked]))
    return out


def _scores(y: Codes, code: Codes, probas: Sequence[Floats], usable: Sequence[int], rows: Codes) -> Floats:
    """Scores by seed, group and metric; NaN where a draw left a group with one class."""
    out = np.full((len(probas), len(usable), len(METRICS)), np.nan)
    c = probas[0].shape[1]
    for at, g in enumerate(usable):
        here = rows[code[rows] == g]
        true = y[here]
        if len(np.unique(true)) < 2:
            continue
        for seed, proba in enumerate(probas):
            p = proba[here]
            # The other three follow from one table of counts: this runs for every draw, group and seed.
            table = np.bincount(true * c + p.argmax(axis=1), minlength=c * c).reshape(c, c)
            right, there, told = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
            present, either = there > 0, there + told > 0
            out[seed, at] = (
                auc_macro(true, p, np.arange(c)),
                right.sum() / len(here),
                (right[present] / there[present]).mean(),
                (2 * right[either] / (there + told)[either]).mean(),
            )
    return out


def _least_room(y: Codes, unit: Codes) -> float:
    """The exact interval of a perfect score in the smallest class: no draw differs, which is no certainty."""
    smallest = min(len(np.unique(unit[y == c])) for c in np.unique(y))
    return 1 - clopper_pearson(smallest, smallest).low


def _estimate(runs: Floats, draws: Floats, n: int, room: float, pairs: int = 1) -> Estimate:
    """Mean over seeds with an interval for seeds and records: variances add up, with Satterthwaite's t.

    Of several `pairs` the widest is shown: Bonferroni's level keeps the interval honest. `room` stands in where no
    draw differs.
    """
    from scipy.special import stdtrit

    value, seeds = float(runs.mean()), len(runs)
    if seeds < 2:
        return Estimate(value, -math.inf, math.inf, n)
    of_records = float(np.nanvar(draws, ddof=1)) or (room / 1.96) ** 2
    of_seeds = float(runs.var(ddof=1)) / seeds
    total = of_records + of_seeds
    freedom = min(1e6, (seeds - 1) * (total / of_seeds) ** 2) if of_seeds else 1e6
    half = float(stdtrit(freedom, 1 - _TAIL / pairs)) * math.sqrt(total)
    return Estimate(value, value - half, value + half, n)
