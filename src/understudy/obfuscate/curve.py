"""A trade-off curve: what attackers and receivers reach at each setting of the knobs, as table, choice and figure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from understudy.errors import ConfigError, DataError
from understudy.obfuscate.hull import hull_auc
from understudy.obfuscate.judging import ATTACKERS, Judgement
from understudy.types import Estimate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Point", "TradeOff"]


@dataclass(frozen=True, slots=True)
class Point:
    """One setting and what was found out there; `knobs` are by name, such as `noise` and `lambda_`."""

    name: str
    knobs: Mapping[str, float]
    judgement: Judgement

    @property
    def noise(self) -> float:
        """The knob `noise`; 0 where a method has none."""
        return self.knobs.get("noise", 0.0)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"name": self.name, "knobs": dict(self.knobs), "judgement": self.judgement.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        return cls(data["name"], data["knobs"], Judgement.from_dict(data["judgement"]))


@dataclass(frozen=True, slots=True)
class TradeOff:
    """Points of one method on one data set, in the order in which they were asked for.

    Figures are of test rows: they depend on records, and stay local until somebody decides that they may leave.
    """

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise DataError("A trade-off needs at least one point; got none.")

    def pick(self, *, attacker_at_most: float, attacker: str = "strongest") -> Point:
        """The point of the smallest noise where the upper end of the attacker's interval is low enough.

        Among points of equal noise the one of the best utility; so too for a method without the knob `noise`. The
        strongest attacker may be the averaging one: `attacker="strong"` is right only where no record is ever
        released twice. The choice was made on these test rows: what it leaks is to be measured again on others.
        """
        if not 0 < attacker_at_most <= 1:
            raise ConfigError(f"`attacker_at_most` is an accuracy above 0, at most 1; got {attacker_at_most!r}.")
        leaks = [(leak, p) for p, (leak, _) in zip(self.points, self.curve(attacker), strict=True)]
        # An attacker worse than the label alone was badly trained: anybody can use the label.
        good = [p for leak, p in leaks if max(leak.high, p.judgement.label_only.high) <= attacker_at_most]
        if good:
            return min(good, key=lambda p: (p.noise, -p.judgement.utility.value))
        least, where = min(leaks, key=lambda item: item[0].high)
        raise ConfigError(
            f"No point keeps the attacker at {attacker_at_most:g} or below: the least leak reached is {least:.3f}, "
            f"at {where.name}, and the utility label alone gives {where.judgement.label_only.value:.3f}. Sweep other "
            "knobs, or allow more."
        )

    def curve(self, attacker: str = "strongest", judge: str = "best") -> list[tuple[Estimate, Estimate]]:
        """Pairs (attacker, receiver), one a point.

        `attacker` is `weak`, `strong`, `averaged` or `strongest`; `judge` a kind of learner, for both, or `best`.
        """
        if attacker not in (*ATTACKERS, "strongest"):
            raise ConfigError(f"`attacker` must be one of {', '.join(ATTACKERS)}, strongest; got {attacker!r}.")
        roles = ATTACKERS if attacker == "strongest" else (attacker,)
        return [
            (
                _best([e for role in roles for e in _of(getattr(p.judgement, role), judge)]),
                _best(_of(p.judgement.utility_original, judge)),
            )
            for p in self.points
        ]

    def original(self, judge: str = "best") -> tuple[Estimate, Estimate]:
        """What attacker and receiver reach where nothing is hidden: the same at every point."""
        found = self.points[0].judgement
        return _best(_of(found.original_private, judge)), _best(_of(found.original_utility, judge))

    def hull_auc(
        self, *, origin: tuple[float, float] = (0.0, 0.0), attacker: str = "strong", judge: str = "network"
    ) -> float:
        """The seed's area under the hull of the curve: see `understudy.obfuscate.hull.hull_auc`.

        Its corner is what attacker and receiver reach on the original rows, which is the same for every method: areas
        can be compared where data, judges and seeds are the same. Repeat over seeds for an interval.
        """
        points = [(x.value, y.value) for x, y in self.curve(attacker, judge)]
        private, utility = self.original(judge)
        return hull_auc(points, origin, corner=(private.value, utility.value))

    def table(self) -> pd.DataFrame:
        """One row a point: knobs, strongest attacker, best receiver, and every figure with its interval."""
        import pandas as pd

        rows = []
        for p in self.points:
            figures = {"attacker": p.judgement.attacker, "utility": p.judgement.utility, **p.judgement.figures()}
            row: dict[str, Any] = {"point": p.name, **p.knobs, "attacker_is": p.judgement.attacker_name}
            for name, e in figures.items():
                row |= {name: e.value, f"{name}_low": e.low, f"{name}_high": e.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_markdown(self) -> str:
        """A table to read: for each point the best of all kinds of judges, and what they are measured against."""
        found = self.points[0].judgement
        header = ["point", *(f"{role} attacker" for role in ATTACKERS), "utility", "utility on released rows"]
        rows = [
            [
                p.name,
                *(f"{_best(getattr(p.judgement, role).values()):.3f}" for role in ATTACKERS),
                f"{p.judgement.utility:.3f}",
                f"{_best(p.judgement.utility_released.values()):.3f}",
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
        """Draw the curve into a file, whole or not at all: attackers to the right, receivers upwards.

        Needs `understudy[figures]`; the suffix picks SVG, PNG or PDF.
        """
        from understudy.obfuscate.curve_figure import draw_trade_off

        draw_trade_off(self, path, attacker=attacker, judge=judge)


def _of(by_kind: Mapping[str, Estimate], judge: str) -> list[Estimate]:
    if judge == "best":
        return list(by_kind.values())
    if judge not in by_kind:
        raise ConfigError(f"`judge` must be one of {', '.join(by_kind)}, best; got {judge!r}.")
    return [by_kind[judge]]


def _best(estimates: Iterable[Estimate]) -> Estimate:
    return max(estimates, key=lambda e: e.value)
