"""Canaries of a private table: each has cells of its own in the first draw, and all draws' noise is measured.

The run uses the code of a fit: `TableLearner`, `CountQuery`, `row_weights` and `PaidSums`. In the first draw a canary
is alone in a cell of every table, so an attacker who knows the other records sees it as well as anyone can. Later
draws merge rare cells, canaries among them; there the noise that was drawn is set against the length of what lone
units contribute, with as many records as canaries have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum.accounting import QueryPlan
from locum.audit.epsilon.cast import SIZES, CanaryRun, Cast
from locum.audit.epsilon.exact import Evidence, Noise, Noises, Shift
from locum.generate.private import PaidSums
from locum.generate.table import CategoryColumn, CountQuery, TableDomain, TableLearner, row_weights

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

# Canaries in one run, each with a value of every column to itself; and values that the other records have.
_AT_ONCE, _COMMON = 250, 8
_COLUMNS = 3


def run_table(
    plan: QueryPlan, included: npt.NDArray[np.bool_], records: int, rng: np.random.Generator, insecure_seed: int
) -> CanaryRun:
    """Scores and evidence from tables that are learned from made-up records and canaries.

    Each canary is in one of them, so several are as private for it as one.
    """
    scores: list[Floats] = []
    noises: dict[int, list[Floats]] = {}
    squares: dict[int, list[float]] = {}
    for k, start in enumerate(range(0, len(included), _AT_ONCE)):
        cast = Cast(plan.privacy, included[start : start + _AT_ONCE], records)
        scores.append(_learn(plan, cast, rng, insecure_seed + k, noises, squares))
    total = np.concatenate(scores)
    parts = tuple(
        Noise(f"noise of draw {number + 1}", np.concatenate(drawn), float(np.mean(squares[number])))
        for number, drawn in noises.items()
    )
    evidence: tuple[Evidence, ...] = (
        Shift("canaries in the first draw", total, included),
        Noises("noise and lengths of all draws", parts),
        *parts,
    )
    return CanaryRun(total, included, evidence)


def _learn(
    plan: QueryPlan,
    cast: Cast,
    rng: np.random.Generator,
    insecure_seed: int,
    noises: dict[int, list[Floats]],
    squares: dict[int, list[float]],
) -> Floats:
    """Learn one table; return the log odds of each canary, and keep the noise and the lengths of all draws."""
    values = tuple(range(_COMMON + 2 * cast.canaries))
    names = [f"column {i}" for i in range(_COLUMNS)]
    domain = TableDomain((CategoryColumn("label", (0, 1)), *(CategoryColumn(name, values) for name in names)))
    canary = np.arange(cast.canaries)
    # What stands in the place of a canary that is not included, if units are replaced, has a cell of its own too.
    codes = np.concatenate(
        [
            np.column_stack(
                [rng.integers(2, size=cast.records), rng.integers(_COMMON, size=(cast.records, _COLUMNS))]
            ),
            _canary_rows(cast.who, cast.sign > 0),
        ]
    )
    known = codes[: cast.records]
    rows = _weights(codes, cast.subject)
    known_rows = _weights(known, None if cast.subject is None else cast.subject[: cast.records])
    sizes = (1,) if cast.subject is None else SIZES
    paid = PaidSums(plan, None, "canaries", "a test with canaries", insecure_seed=insecure_seed)
    learner = TableLearner(domain, "label", plan.noise_multiplier)
    scores = np.zeros(cast.canaries)
    while not learner.done:
        query, share = learner.query, learner.share
        exact = query.sums(codes, rows)
        noisy = paid.draw(lambda exact=exact: exact, share)  # type: ignore[misc]
        number = learner.taken
        noises.setdefault(number, []).append(noisy - exact.to_array())
        squares.setdefault(number, []).append(max(_square(query, size, cast) for size in sizes))
        if number == 0:
            rest = query.tables_of(noisy - query.sums(known, known_rows).to_array())
            variance = plan.noise_multiplier**2 / share
            scores += _seen(query, rest, _canary_rows(canary, np.ones(len(canary), bool))) / variance
            if cast.replaced:
                scores -= _seen(query, rest, _canary_rows(canary, np.zeros(len(canary), bool))) / variance
        learner.take(noisy)
    # Less half of what an included canary adds: then it is log odds.
    return scores if cast.replaced else scores - 0.5 * learner.shares[0] / plan.noise_multiplier**2


def _canary_rows(who: Codes, included: npt.NDArray[np.bool_]) -> Codes:
    """The rows of canaries: a value of every column that nobody else has."""
    value = _COMMON + 2 * who + ~included
    return np.column_stack([who % 2, *[value] * _COLUMNS])


def _weights(codes: Codes, subject: Codes | None) -> Codes:
    return row_weights(len(codes), subject)


def _square(query: CountQuery, size: int, cast: Cast) -> float:
    """The squared length of what a canary with so many records adds to a draw, alone."""
    rows = np.repeat(_canary_rows(np.zeros(1, np.int64), np.ones(1, bool)), size, axis=0)
    subject = None if cast.subject is None else np.zeros(size, np.int64)
    return float(np.square(query.sums(rows, _weights(rows, subject)).to_array()).sum())


def _seen(query: CountQuery, tables: list[Floats], rows: Codes) -> Floats:
    """The product of each canary's contribution with the rest of the sums."""
    out = np.zeros(len(rows))
    for columns, share, table in zip(query.tables, query.shares, tables, strict=True):
        out += share * table[tuple(query.groups[i][rows[:, i]] for i in columns)]
    return out
