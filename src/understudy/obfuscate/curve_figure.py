"""The figure of a trade-off. Needs `understudy[figures]`; the same numbers give the same SVG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from understudy.data.figure_file import figure_file
from understudy.types import Estimate

if TYPE_CHECKING:
    from understudy.obfuscate.curve import Point, TradeOff

__all__ = ["draw_trade_off"]

# Lines must be told apart without colour too.
_MARKS = "osD^vPX<"


def draw_trade_off(found: TradeOff, path: str | os.PathLike[str], *, attacker: str, judge: str) -> None:
    """Attackers to the right, receivers upwards, one line for each setting of the knobs beside the noise.

    Numbers at the points are the noise. A star marks the original rows; upright lines mark what an attacker reaches
    by the utility label alone and by a guess, the level one what a receiver reaches by a guess.
    """
    pairs = found.curve(attacker, judge)
    lines: dict[str, list[tuple[Point, Estimate, Estimate]]] = {}
    for point, (x, y) in zip(found.points, pairs, strict=True):
        lines.setdefault(_name(point), []).append((point, x, y))
    with figure_file(path) as axis:
        for i, (name, line) in enumerate(lines.items()):
            _draw_line(axis, name, sorted(line, key=lambda item: item[0].noise), _MARKS[i % len(_MARKS)])
        private, utility = found.original(judge)
        axis.plot(private.value, utility.value, "k*", ms=9, label="original rows")
        baseline = found.points[0].judgement
        axis.axvline(baseline.label_only.value, color="0.3", ls="--", lw=1, label="utility label alone")
        axis.axvline(baseline.majority.value, color="0.6", ls=":", lw=1, label="most frequent code")
        axis.axhline(baseline.utility_majority.value, color="0.6", ls=":", lw=1)
        axis.set_xlabel(f"accuracy of the attacker ({attacker})")
        axis.set_ylabel("accuracy of the receiver")


def _name(point: Point) -> str:
    """The line that a point belongs to: its knobs but for the noise, or its name where it has no knob."""
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
