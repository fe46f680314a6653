"""The figure of a trade-off. Needs `understudy[figures]`; the same numbers give the same SVG."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.data.files import write_bytes
from understudy.errors import ConfigError
from understudy.types import Estimate

if TYPE_CHECKING:
    from understudy.obfuscate.curve import Point, TradeOff

__all__ = ["draw_trade_off"]

FORMATS = (".svg", ".png", ".pdf")
# Lines must be told apart without colour too.
_MARKS = "osD^vPX<"


def draw_trade_off(found: TradeOff, path: str | os.PathLike[str], *, attacker: str, judge: str) -> None:
    """Attackers to the right, receivers upwards, one line for each setting of the knobs beside the noise.

    Numbers at the points are the noise. A star marks the original rows; upright lines mark what an attacker reaches
    by the utility label alone and by a guess, the level one what a receiver reaches by a guess.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"A figure ends in {', '.join(FORMATS)}; got {os.fspath(path)!r}.")
    pairs = found.curve(attacker, judge)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("Figures need matplotlib: pip install 'understudy[figures]'.") from None
    lines: dict[str, list[tuple[Point, Estimate, Estimate]]] = {}
    for point, (x, y) in zip(found.points, pairs, strict=True):
        lines.setdefault(_name(point), []).append((point, x, y))
    # A fixed salt and no date: the same figures give the same file.
    with rc_context({"svg.hashsalt": "understudy", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axis = figure.add_subplot()
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
        # Beside the axes: on them it would hide what it names.
        figure.legend(fontsize=8, loc="outside right upper")
        image = io.BytesIO()
        figure.savefig(image, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)
    write_bytes(os.fspath(path), image.getvalue())


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
