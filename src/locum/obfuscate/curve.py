"""A trade-off curve: the accuracy of attackers and receivers at each setting, its table, its area and its figure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from locum.errors import ConfigError, DataError
from locum.io import figure_file
from locum.obfuscate.evaluation import ATTACKERS, Judgment
from locum.types import Estimate

if TYPE_CHECKING:
    import pandas as pd

Pair = tuple[float, float]
# Lines must differ without color too.
_MARKS = "osD^vPX<"


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of the knobs and what judges found there.

    Parameters
    ----------
    name
        Name of the setting.
    knobs
        Its values by name, such as `noise` and `lambda_`; empty for a method without knobs.
    judgment
        The accuracy of attackers and receivers.

    Examples
    --------
    >>> from locum.obfuscate import Judgment, Point, TradeOff
    >>> from locum.types import Estimate
    >>> half, most = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 0.95, 100)
    >>> found = Judgment(*[{"trees": half}] * 4, *[{"trees": most}] * 5, half, half, half)
    >>> point = Point("noise 5", {"noise": 5.0}, found)
    >>> point.noise, point.judgment.attacker.value
    (5.0, 0.5)
    """

    name: str
    knobs: Mapping[str, float]
    judgment: Judgment

    @property
    def noise(self) -> float:
        """The knob `noise`; 0 if the method has none."""
        return self.knobs.get("noise", 0.0)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"name": self.name, "knobs": dict(self.knobs), "judgment": self.judgment.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return cls(data["name"], data["knobs"], Judgment.from_dict(data["judgment"]))


@dataclass(frozen=True, slots=True)
class TradeOff:
    """Points of one method on one data set, in the order in which they were requested.

    The figures depend on private test rows: they stay local unless you decide to share them.

    Parameters
    ----------
    points
        One or more points, as `trade_off` and `sweep` return them.

    Examples
    --------
    >>> from locum.obfuscate import Judgment, Point, TradeOff
    >>> from locum.types import Estimate
    >>> half, most = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 0.95, 100)
    >>> found = Judgment(*[{"trees": half}] * 4, *[{"trees": most}] * 5, half, half, half)
    >>> curve = TradeOff((Point("noise 5", {"noise": 5.0}, found), Point("noise 9", {"noise": 9.0}, found)))
    >>> curve.pick(attacker_at_most=0.6).name
    'noise 5'
    """

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise DataError("A trade-off needs at least one point; got none.")

    def pick(self, *, attacker_at_most: float, attacker: str = "strongest") -> Point:
        """The point of the smallest noise where the upper end of the attacker's interval is low enough.

        Among points of equal noise, the one with the best utility; likewise for a method without the knob `noise`.
        The strongest attacker may be the averaging one: use `attacker="informed"` only if no record is ever released
        twice. The choice was made on these test rows: measure its leak again on others.
        """
        if not 0 < attacker_at_most <= 1:
            raise ConfigError(f"`attacker_at_most` is an accuracy above 0, at most 1; got {attacker_at_most!r}.")
        leaks = [(leak, p) for p, (leak, _) in zip(self.points, self.curve(attacker), strict=True)]
        # An attacker worse than the label alone was badly trained: any attacker can use the label.
        good = [p for leak, p in leaks if max(leak.high, p.judgment.label_only.high) <= attacker_at_most]
        if good:
            return min(good, key=lambda p: (p.noise, -p.judgment.utility.value))
        least, where = min(leaks, key=lambda item: item[0].high)
        raise ConfigError(
            f"No point keeps the attacker at {attacker_at_most:g} or below: the least leak reached is {least:.3f}, "
            f"at {where.name}, and the utility label alone gives {where.judgment.label_only.value:.3f}. Sweep other "
            "settings, or allow more."
        )

    def curve(self, attacker: str = "strongest", judge: str = "best") -> list[tuple[Estimate, Estimate]]:
        """Pairs (attacker, receiver), one per point.

        `attacker` is `weak`, `strong`, `informed`, `averaged` or `strongest`; `judge` is a kind, for both, or `best`.
        """
        if attacker not in (*ATTACKERS, "strongest"):
            raise ConfigError(f"`attacker` must be one of {', '.join(ATTACKERS)}, strongest; got {attacker!r}.")
        roles = ATTACKERS if attacker == "strongest" else (attacker,)
        return [
            (
                _best([e for role in roles for e in _of(getattr(p.judgment, role), judge)]),
                _best(_of(p.judgment.utility_original, judge)),
            )
            for p in self.points
        ]

    def original(self, attacker: str = "strongest", judge: str = "best") -> tuple[Estimate, Estimate]:
        """What attacker and receiver reach on the original rows: the same at every point.

        A `weak` or `strong` attacker reads the rows alone, the others know the utility label too.
        """
        found = self.points[0].judgment
        private = _of(found.original_private, judge)
        if attacker not in ("weak", "strong"):
            private += _of(found.original_informed, judge)
        return _best(private), _best(_of(found.original_utility, judge))

    def hull_auc(
        self, *, origin: tuple[float, float] = (0.0, 0.0), attacker: str = "strong", judge: str = "network"
    ) -> float:
        """The adjustable paper's area under the hull of the curve: see `locum.obfuscate.hull_auc`.

        Its corner is what attacker and receiver reach on the original rows, the same for every method, so areas can
        be compared for the same data, judges and seeds. Repeat over seeds for an interval.
        """
        points = [(x.value, y.value) for x, y in self.curve(attacker, judge)]
        private, utility = self.original(attacker, judge)
        return hull_auc(points, origin, corner=(private.value, utility.value))

    def table(self) -> pd.DataFrame:
        """One row per point: knobs, strongest attacker, best receiver, and every figure with its interval."""
        import pandas as pd

        rows = []
        for p in self.points:
            figures = {"attacker": p.judgment.attacker, "utility": p.judgment.utility, **p.judgment.figures()}
            row: dict[str, Any] = {"point": p.name, **p.knobs, "attacker_is": p.judgment.attacker_name}
            for name, e in figures.items():
                row |= {name: e.value, f"{name}_low": e.low, f"{name}_high": e.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_markdown(self) -> str:
        """A Markdown table: for each point the best of all kinds of judge, and the baselines."""
        found = self.points[0].judgment
        header = ["point", *(f"{role} attacker" for role in ATTACKERS), "utility", "utility on released rows"]
        rows = [
            [
                p.name,
                *(f"{_best(getattr(p.judgment, role).values()):.3f}" for role in ATTACKERS),
                f"{p.judgment.utility:.3f}",
                f"{_best(p.judgment.utility_released.values()):.3f}",
            ]
            for p in self.points
        ]
        private, utility = self.original()
        rows.append(["original rows", *[f"{private:.3f}"] * len(ATTACKERS), *[f"{utility:.3f}"] * 2])
        rows.append(["utility label alone", *[f"{found.label_only:.3f}"] * len(ATTACKERS), "", ""])
        guesses = [f"{found.utility_majority:.3f}"] * 2
        rows.append(["most frequent code", *[f"{found.majority:.3f}"] * len(ATTACKERS), *guesses])
        lines = [" | ".join(cells) for cells in (header, *rows)]
        lines.insert(1, "|".join(["---"] * len(header)))
        return "\n".join(f"| {line} |" for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"points": [p.to_dict() for p in self.points]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return cls(tuple(Point.from_dict(p) for p in data["points"]))

    def plot(self, path: str | os.PathLike[str], *, attacker: str = "strongest", judge: str = "best") -> None:
        """Draw the curve into a file, atomically: attackers on the x axis, receivers on the y axis.

        Needs `locum[figures]`; the suffix selects SVG, PNG or PDF.
        """
        draw_trade_off(self, path, attacker=attacker, judge=judge)


def hull_auc(points: Iterable[Sequence[float]], origin: Pair = (0.0, 0.0), corner: Pair | None = None) -> float:
    """Area under the convex hull of a trade-off curve; more is better.

    A point is (accuracy of the attacker, accuracy of the receiver). In this order:

    1. `corner`, if given, is added to the points: what both reach where nothing is hidden.
    2. `origin` is subtracted from every point; negative coordinates become 0.
    3. x_max and y_max are the largest coordinates, possibly of different points.
    4. The area is that of the convex hull of (0, 0), all points, (x_max, y_max) and (x_max, 0).

    Points below the hull and the order of points do not matter; a single point gives a triangle. The area is not
    normalized: for accuracies it is at most 1, and at most 0.25 with the origin (0.5, 0.5). A method whose points all
    hide much has a small x_max and so a small area: compare methods with the same `corner`.

    Parameters
    ----------
    points
        One or more pairs (attacker, receiver).
    origin
        What both reach by guessing.
    corner
        What both reach on original rows; None: not added.

    Returns
    -------
    float
        The area.

    Examples
    --------
    >>> from locum.obfuscate import hull_auc
    >>> hull_auc([(1.0, 1.0)])
    0.5
    >>> hull_auc([(0.5, 1.0), (1.0, 1.0)])
    0.75
    >>> hull_auc([(0.5, 1.0), (1.0, 1.0)], origin=(0.5, 0.5))
    0.25
    """
    rows = [tuple(p) for p in points]
    if not rows:
        raise DataError("A hull needs at least one point (attacker, receiver); got none.")
    if corner is not None:
        rows.append(tuple(corner))
    if any(len(row) != 2 for row in rows):
        raise DataError("Each point of a hull is a pair (attacker, receiver); got one of another length.")
    curve = np.maximum(np.asarray(rows, dtype=np.float64) - np.asarray(origin, dtype=np.float64), 0.0)
    if not np.isfinite(curve).all():
        raise DataError("Points of a hull must be finite numbers; one is not.")
    # Shares are never that small, and products of such numbers are rounded to 0, which turns corners the wrong way.
    curve[curve < 1e-100] = 0.0
    x_max, y_max = curve.max(axis=0).tolist()
    # All y are 0 or more, and (0, 0) and (x_max, 0) are in the set: the hull is the area under its upper edge.
    upper: list[Pair] = []
    for x, y in sorted({(0.0, 0.0), (x_max, y_max), *map(tuple, curve.tolist())}):
        while len(upper) > 1 and not _turns_right(upper[-2], upper[-1], (x, y)):
            upper.pop()
        upper.append((x, y))
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(upper))


def draw_trade_off(found: TradeOff, path: str | os.PathLike[str], *, attacker: str, judge: str) -> None:
    """Draw attackers on the x axis and receivers on the y axis, with one line per setting of the other knobs.

    Numbers at the points are the noise. A star marks the original rows. Vertical lines mark what an attacker reaches
    from the utility label alone and by guessing, the horizontal line what a receiver reaches by guessing.
    """
    pairs = found.curve(attacker, judge)
    lines: dict[str, list[tuple[Point, Estimate, Estimate]]] = {}
    for point, (x, y) in zip(found.points, pairs, strict=True):
        lines.setdefault(_name(point), []).append((point, x, y))
    with figure_file(path) as axis:
        for i, (name, line) in enumerate(lines.items()):
            _draw_line(axis, name, sorted(line, key=lambda item: item[0].noise), _MARKS[i % len(_MARKS)])
        private, utility = found.original(attacker, judge)
        axis.plot(private.value, utility.value, "k*", ms=9, label="original rows")
        baseline = found.points[0].judgment
        axis.axvline(baseline.label_only.value, color="0.3", ls="--", lw=1, label="utility label alone")
        axis.axvline(baseline.majority.value, color="0.6", ls=":", lw=1, label="most frequent code")
        axis.axhline(baseline.utility_majority.value, color="0.6", ls=":", lw=1)
        axis.set_xlabel(f"accuracy of the attacker ({attacker})")
        axis.set_ylabel("accuracy of the receiver")


def _turns_right(a: Pair, b: Pair, c: Pair) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) < 0


def _name(point: Point) -> str:
    """The line that a point belongs to: its knobs except the noise, or its name if it has no knobs."""
    if not point.knobs:
        return point.name.replace("$", r"\$")
    return ", ".join(f"{k.strip('_')} {v:g}" for k, v in point.knobs.items() if k != "noise") or "over noise"


def _draw_line(axis: Any, name: str, line: Sequence[tuple[Point, Estimate, Estimate]], mark: str) -> None:
    xs, ys = [x for _, x, _ in line], [y for _, _, y in line]
    axis.errorbar(
        [x.value for x in xs],
        [y.value for y in ys],
        xerr=_bars(xs),
        yerr=_bars(ys),
        fmt=f"{mark}-",
        ms=4,
        lw=1,
        elinewidth=0.6,
        capsize=2,
        label=name,
    )
    for point, x, y in line:
        if "noise" in point.knobs:
            at = (x.value, y.value)
            axis.annotate(f"{point.noise:g}", at, xytext=(4, 4), textcoords="offset points", fontsize=7)


def _bars(estimates: Sequence[Estimate]) -> list[list[float]]:
    return [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]


def _of(by_kind: Mapping[str, Estimate], judge: str) -> list[Estimate]:
    if judge == "best":
        return list(by_kind.values())
    if judge not in by_kind:
        raise ConfigError(f"`judge` must be one of {', '.join(by_kind)}, best; got {judge!r}.")
    return [by_kind[judge]]


def _best(estimates: Iterable[Estimate]) -> Estimate:
    return max(estimates, key=lambda e: e.value)
