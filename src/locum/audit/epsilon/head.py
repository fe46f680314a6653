"""Canaries of a private head: they contribute to every draw, from the first query to the last gradient step.

The run uses the code of a fit: `HeadQuery`, `Descent` and `PaidSums`. A canary has a feature to itself, so that its
contribution to each draw has a direction of its own; the attacker knows that direction from the results before the
draw. Weights hardly move, as in the runs of `canaries.py`: a record that a rule classifies well has a short gradient,
and a canary shall contribute as much as a unit may. The attacker knows the other records.

How long contributions are is also computed without noise, for units that are alone, and set against the noise that
was drawn: a bound that is lost shows at once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from locum.accounting import QueryPlan
from locum.audit.epsilon.cast import OVERLONG, SIZES, CanaryRun, Cast
from locum.audit.epsilon.exact import Noise, Noises, Shift
from locum.audit.shadows.draws import HeadDraws, Units, next_query
from locum.data import Reference
from locum.generate.private import FIRST, Descent, HeadQuery, PaidSums, Schedule

Floats = npt.NDArray[np.float64]

# Canaries in one run, each with a feature to itself; and classes, which they share with the other records.
_AT_ONCE, _CLASSES = 250, 4
_STEPS = 8
# The learning rate, and the size of initial weights relative to class means: so small that all classes stay likely.
_STILL = 0.01
_FIRST_SHARE = Descent(1.0, _CLASSES, 2).share
# Canaries share counts and lengths of the first query with others: this part of the precision shows them.
HEAD_SEEN = 1 - _FIRST_SHARE * (1 - FIRST.sums)


def run_head(
    plan: QueryPlan, included: npt.NDArray[np.bool_], records: int, rng: np.random.Generator, insecure_seed: int
) -> CanaryRun:
    """Scores and evidence from heads that are learned from made-up records and canaries.

    Each canary is in one of them, so several are as private for it as one.
    """
    scores, kept = [], _Noise()
    for k, start in enumerate(range(0, len(included), _AT_ONCE)):
        cast = Cast(plan.privacy, included[start : start + _AT_ONCE], records)
        scores.append(_learn(plan, cast, rng, insecure_seed + k, kept))
    total = np.concatenate(scores)
    # Relative to a unit's whole contribution, of which only a part is seen here.
    evidence = (Shift("canaries in all draws", total, included), *kept.evidence())
    return CanaryRun(total, included, evidence)


def _learn(plan: QueryPlan, cast: Cast, rng: np.random.Generator, insecure_seed: int, kept: _Noise) -> Floats:
    """Learn one head; return the log odds of each canary, and keep the noise."""
    d, canary, noise = max(cast.canaries, 2), np.arange(cast.canaries), plan.noise_multiplier
    plain, overlong = Reference.plain(d), OVERLONG * math.sqrt(d)
    vectors = np.zeros((cast.canaries, d), dtype=np.float32)
    vectors[canary, canary] = overlong
    X = rng.standard_normal((cast.records + len(cast.who), d)).astype(np.float32)
    X[cast.records :] = vectors[cast.who] * cast.sign[:, None]
    # Canaries of all sizes are in every class.
    label = canary // len(SIZES) % _CLASSES
    codes = np.concatenate([rng.integers(_CLASSES, size=cast.records), label[cast.who]])
    everyone = HeadQuery(X, codes, cast.subject, _CLASSES, plain)
    known = None if cast.subject is None else cast.subject[: cast.records]
    others = HeadQuery(X[: cast.records], codes[: cast.records], known, _CLASSES, plain)
    # What a canary contributes if it is included, and what stands in its place if it is not.
    alone = Units(canary)
    sides = [
        HeadDraws(sign * vectors, label, alone, _CLASSES, plain) for sign in ((1, -1) if cast.replaced else (1,))
    ]
    sizes = (1,) if cast.subject is None else SIZES
    lone = [HeadQuery(*_unit(vectors[i], label[i], size, cast), _CLASSES, plain) for i, size in enumerate(sizes)]
    paid = PaidSums(plan, None, "canaries", "a test with canaries", insecure_seed=insecure_seed)
    descent, scores = Descent(noise, _CLASSES, d, _schedule(plan)), np.zeros(cast.canaries)
    while not descent.done:
        number, std = descent.taken, noise / math.sqrt(descent.share)
        exact = next_query(everyone, descent)
        noisy = paid.draw(lambda exact=exact: exact, descent.share)  # type: ignore[misc]
        squares = [float(np.square(next_query(query, descent).to_array()).sum()) for query in lone]
        kept.add(number, noisy - exact.to_array(), max(squares), d)
        # Less the other records, and less half of all canaries: what is left is log odds.
        rest = noisy - next_query(others, descent).to_array()
        asked = [next_query(side, descent) for side in sides]
        rest -= sum(query.sums(np.ones(cast.canaries, dtype=bool)) for query in asked) / 2
        if number == 0:
            for shared in FIRST.parts(rest, _CLASSES, d)[1:]:
                shared[:] = 0.0
        for sign, query in zip((1, -1), asked, strict=False):
            scores += sign * query.products(rest) / std**2
        descent.take(noisy)
    return scores


def _unit(
    vector: npt.NDArray[np.float32], label: int, size: int, cast: Cast
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
    """The records of one canary alone: vectors, classes and subject."""
    subject = None if cast.subject is None else np.zeros(size, np.int64)
    return np.repeat(vector[None], size, axis=0), np.full(size, label), subject


def _schedule(plan: QueryPlan) -> Schedule:
    """Steps of equal shares, with weights that hardly move; class sums alone if no step is planned.

    No guarantee depends on these numbers.
    """
    steps = min(_STEPS, plan.sums - 2)
    return Schedule(
        start=0.1 if steps else 1 - _FIRST_SHARE,
        steps=steps,
        learning_rate=_STILL,
        momentum=0.7,
        decay=0.001,
        clip=0.5,
        scale=_STILL,
        averaged=0.15,
    )


class _Noise:
    """The noise of several runs by stage, and the squared length of what a unit contributes to each draw."""

    def __init__(self) -> None:
        self._noise: dict[str, list[Floats]] = {}
        self._squares: dict[str, list[float]] = {}
        self._shared: dict[str, list[Floats]] = {"counts": [], "lengths": []}

    def add(self, number: int, noise: Floats, square: float, d: int) -> None:
        """Keep one draw."""
        stage = "first query" if number == 0 else "class sums" if number == 1 else "steps"
        self._noise.setdefault(stage, []).append(noise)
        self._squares.setdefault(stage, []).append(square)
        if number == 0:
            _, counts, lengths, _ = FIRST.parts(noise, _CLASSES, d)
            self._shared["counts"].append(counts)
            self._shared["lengths"].append(lengths)

    def evidence(self) -> tuple[Noise | Noises, ...]:
        """Each draw by itself has noise to spare; all draws together have not."""
        runs = len(self._noise["first query"])
        parts = tuple(
            Noise(f"noise of the {stage}", np.concatenate(drawn), sum(self._squares[stage]) / runs)
            for stage, drawn in self._noise.items()
        )
        shares = {"counts": FIRST.counts, "lengths": FIRST.lengths}
        few = (Noise(f"noise of {name}", np.concatenate(drawn), shares[name]) for name, drawn in self._shared.items())
        return (Noises("noise and lengths of all draws", parts), *few)
