"""Small charts as SVG, written by hand: nothing is fetched, nothing runs, colour never speaks alone.

Colours come from the page's style sheet by class name, so that one chart serves light, dark and paper.
Every chart has a title for screen readers. All text is escaped: class names come from strangers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

__all__ = ["COLOURS", "bar", "histograms", "interval", "intervals", "legend_mark", "scatter"]

# Eleven colours and eight shapes have no common factor: 88 classes get marks that all differ.
COLOURS = 11
_SHAPES = (
    # Disc, triangle, square, diamond, triangle on its head, plus, cross, bar.
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m0-3.8l3.6 6.4h-7.2z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z",
    "m0 3.8l3.6-6.4h-7.2z",
    "m-1.1-3.6h2.2v2.5h2.5v2.2h-2.5v2.5h-2.2v-2.5h-2.5v-2.2h2.5z",
    "m-3.3-1.9l1.4-1.4l1.9 1.9l1.9-1.9l1.4 1.4l-1.9 1.9l1.9 1.9l-1.4 1.4l-1.9-1.9l-1.9 1.9l-1.4-1.4l1.9-1.9z",
    "m-3.6-1.5h7.2v3h-7.2z",
)
# For whatever has no mark of its own.
_REST = "m-1.4 0a1.4 1.4 0 1 0 2.8 0a1.4 1.4 0 1 0-2.8 0z"


def scatter(
    points: Sequence[Sequence[float]], names: Sequence[str], *, key: str, title: str, axes: Sequence[str]
) -> Markup:
    """Points (x, y, class) of the unit square; one path a class, so that a thousand marks stay small.

    Class -1 stands for all that have no name.
    """
    size, left, top = 360.0, 22.0, 6.0
    paths: dict[int, list[str]] = {}
    for x, y, code in points:
        at = f"M{left + 10 + x * (size - 20):.1f} {top + 10 + (1 - y) * (size - 20):.1f}"
        paths.setdefault(int(code), []).append(at + _shape(int(code)))
    lines = [f'<rect class="frame" x="{left:g}" y="{top:g}" width="{size:g}" height="{size:g}" rx="4"/>']
    for share in (0.25, 0.5, 0.75):
        x, y = left + share * size, top + share * size
        lines.append(f'<path class="grid" d="M{x:g} {top:g}v{size:g}M{left:g} {y:g}h{size:g}"/>')
    for code, marks in sorted(paths.items()):
        name = names[code] if code >= 0 else "other classes"
        lines.append(f'<path class="mark {_colour(code)}" d="{"".join(marks)}"><title>{escape(name)}</title></path>')
    lines.append(_text(left + size / 2, top + size + 18, axes[0], "axis middle"))
    lines.append(_text(-(top + size / 2), 13, axes[1], "axis middle", turn=True))
    return _chart(key, title, left + size + 4, top + size + 26, lines)


def histograms(series: Sequence[Mapping[str, Any]], edges: Sequence[float], *, key: str, title: str) -> Markup:
    """One panel a series, one below the other on a common axis, each as high as its tallest bar."""
    width, height, left, step = 420.0, 62.0, 8.0, 92.0
    top = edges[-1] or 1.0
    lines = []
    for i, s in enumerate(series):
        floor, tallest = 24 + i * step + height, max(s["shares"]) or 1.0
        lines.append(_text(left, floor - height - 8, s["title"], "label"))
        bars = []
        for share, a, b in zip(s["shares"], edges[:-1], edges[1:], strict=True):
            if share > 0:
                x, w, h = left + a / top * width, (b - a) / top * width - 1, max(share / tallest * height, 0.8)
                bars.append(f"M{x:.1f} {floor:.1f}v-{h:.1f}h{w:.1f}v{h:.1f}z")
        lines.append(f'<path class="{s["style"]}" d="{"".join(bars)}"/>')
        lines.append(f'<path class="line" d="M{left:g} {floor:g}h{width:g}"/>')
        middle = left + min(s["quantiles"]["median"] / top, 1) * width
        lines.append(f'<path class="median" d="M{middle:.1f} {floor - height - 4:g}v{height + 4:g}"/>')
        lines.append(_text(left + width, floor - height - 8, f"median {s['quantiles']['median']:.3g}", "axis end"))
    bottom = 24 + (len(series) - 1) * step + height
    for tick in _ticks(0, top):
        lines.append(_tick(left + tick / top * width, bottom, f"{tick:g}"))
    lines.append(_text(left + width / 2, bottom + 33, "distance to the nearest record", "axis middle"))
    return _chart(key, title, width + 2 * left, bottom + 40, lines)


def intervals(rows: Sequence[Mapping[str, Any]], *, key: str, title: str, reference: float, note: str) -> Markup:
    """Named estimates, one below the other on a common axis, with a reference line."""
    width, left, step = 280.0, 96.0, 34.0
    values = [v for r in rows for v in (r["value"], r["low"], r["high"]) if v is not None]
    low, high = float(min(0.4, *values)), float(max(0.6, *values))
    pad = 0.04 * (high - low)
    low, high = max(low - pad, 0.0), min(high + pad, 1.0)

    def place(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * width

    bottom = 26 + step * len(rows)
    at = place(reference)
    lines = [
        f'<path class="median" d="M{at:.1f} 16V{bottom:g}"/>',
        _text(at, 11, note, "axis middle"),
        f'<path class="line" d="M{left:g} {bottom:g}h{width:g}"/>',
    ]
    for i, row in enumerate(rows):
        y = 26 + step * (i + 0.5)
        lines.append(_text(left - 10, y + 4, row["name"], "label end"))
        if row["low"] is not None and row["high"] is not None:
            a, b = place(row["low"]), place(row["high"])
            lines.append(
                f'<path class="whisker" d="M{a:.1f} {y:g}H{b:.1f}M{a:.1f} {y - 5:g}v10M{b:.1f} {y - 5:g}v10"/>'
            )
        lines.append(f'<path class="{row["style"]}" d="M{place(row["value"]):.1f} {y:g}{_SHAPES[3]}"/>')
    lines += [_tick(place(tick), bottom, f"{tick:g}") for tick in _ticks(low, high)]
    return _chart(key, title, left + width + 24, bottom + 22, lines)


def interval(estimate: Mapping[str, Any], low: float, high: float) -> Markup:
    """A whisker for a table's cell; the figures stand beside it, so that it says nothing of its own."""
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return 2 + (min(max(value, low), high) - low) / span * 76

    middle = place(estimate["value"])
    whisker = ""
    if estimate["low"] is not None and estimate["high"] is not None:
        a, b = place(estimate["low"]), place(estimate["high"])
        whisker = f'<path class="whisker" d="M{a:.1f} 6H{b:.1f}"/>'
    return Markup(
        '<svg class="spark" viewBox="0 0 80 12" width="80" height="12" aria-hidden="true" focusable="false">'
        f'<path class="grid" d="M2 6h76"/>{whisker}<path class="dot" d="M{middle:.1f} 2v8"/></svg>'
    )


def bar(share: float, largest: float, style: str) -> Markup:
    """A bar for a table's cell; its figure stands beside it."""
    width = 100 * min(share / (largest or 1.0), 1.0)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="{style}" x="0" y="0.5" width="{width:.2f}" height="7"/></svg>'
    )


def legend_mark(code: int) -> Markup:
    """The mark of a class, for the list below a map."""
    return Markup(
        '<svg class="key" viewBox="0 0 12 12" width="14" height="14" aria-hidden="true" focusable="false">'
        f'<path class="mark {_colour(code)}" d="M6 6{_shape(code)}"/></svg>'
    )


def _shape(code: int) -> str:
    return _SHAPES[code % len(_SHAPES)] if code >= 0 else _REST


def _colour(code: int) -> str:
    return f"k{code % COLOURS}" if code >= 0 else "rest"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between `low` and `high`, three to six of them."""
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _tick(x: float, y: float, text: str) -> str:
    return f'<path class="line" d="M{x:.1f} {y:g}v4"/>{_text(x, y + 16, text, "axis middle")}'


def _text(x: float, y: float, text: str, style: str, *, turn: bool = False) -> str:
    turned = ' transform="rotate(-90)"' if turn else ""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{turned}>{escape(text)}</text>'


def _chart(key: str, title: str, width: float, height: float, lines: Sequence[str]) -> Markup:
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{key}-title">'
        f'<title id="{key}-title">{escape(title)}</title>{"".join(lines)}</svg>'
    )
