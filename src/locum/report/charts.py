"""Charts as inline SVG, without scripts: maps, histograms and intervals of a report, then the charts of an audit.

Every chart has a title that says in words what it shows. Colors are CSS classes, defined in `report.css`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from locum.report.text import AUDIT_READING, MEASURES, interval_text, rounded_down, times
from locum.types import at_least, limit_figure

# Eleven colors and eight shapes have no common factor: 88 classes get marks that all differ.
COLORS = 11
_SHAPES = (
    # Disc, triangle, square, diamond, inverted triangle, plus, cross, bar.
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m0-3.8l3.6 6.4h-7.2z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z",
    "m0 3.8l3.6-6.4h-7.2z",
    "m-1.1-3.6h2.2v2.5h2.5v2.2h-2.5v2.5h-2.2v-2.5h-2.5v-2.2h2.5z",
    "m-3.3-1.9l1.4-1.4l1.9 1.9l1.9-1.9l1.4 1.4l-1.9 1.9l1.9 1.9l-1.4 1.4l-1.9-1.9l-1.9 1.9l-1.4-1.4l1.9-1.9z",
    "m-3.6-1.5h7.2v3h-7.2z",
)
# The mark of all other classes.
_REST = "m-1.4 0a1.4 1.4 0 1 0 2.8 0a1.4 1.4 0 1 0-2.8 0z"
# Marks along a curve, in addition to its color.
_MARKS = 5


def scatter(
    points: Sequence[Sequence[float]], names: Sequence[str], *, key: str, title: str, axes: Sequence[str]
) -> Markup:
    """Points (x, y, class) in the unit square; one path per class keeps the file small.

    Class -1 stands for all classes without a name.
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
        lines.append(f'<path class="mark {_color(code)}" d="{"".join(marks)}"><title>{escape(name)}</title></path>')
    lines.append(_text(left + size / 2, top + size + 18, axes[0], "axis middle"))
    lines.append(_text(-(top + size / 2), 13, axes[1], "axis middle", turn=True))
    return _chart(key, title, left + size + 4, top + size + 26, lines)


def histograms(series: Sequence[Mapping[str, Any]], edges: Sequence[float], *, key: str, title: str) -> Markup:
    """One panel per series, stacked on a common axis, each as high as its tallest bar."""
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
        lines.append(_text(left + width, floor - height - 8, f"median {times(s['quantiles']['median'])}", "axis end"))
    bottom = 24 + (len(series) - 1) * step + height
    for tick in _ticks(0, top):
        lines.append(_tick(left + tick / top * width, bottom, f"{tick:g}"))
    lines.append(
        _text(
            left + width / 2, bottom + 33, "distance to the nearest record; 1 is usual among records", "axis middle"
        )
    )
    return _chart(key, title, width + 2 * left, bottom + 40, lines)


def intervals(rows: Sequence[Mapping[str, Any]], *, key: str, title: str, reference: float, note: str) -> Markup:
    """Named estimates, stacked on a common axis, with a reference line."""
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
    """A small interval for a table cell; hidden from screen readers, since the figures stand next to it."""
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
    """A bar for a table cell, next to its figure."""
    width = 100 * min(share / (largest or 1.0), 1.0)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="{style}" x="0" y="0.5" width="{width:.2f}" height="7"/></svg>'
    )


def legend_mark(code: int) -> Markup:
    """The mark of a class, for the list below a map."""
    return Markup(
        '<svg class="key" viewBox="0 0 12 12" width="14" height="14" aria-hidden="true" focusable="false">'
        f'<path class="mark {_color(code)}" d="M6 6{_shape(code)}"/></svg>'
    )


def section_parts(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the template of the audit section needs besides the facts: charts and number formats."""
    if facts is None:
        return {"audit_parts": None}
    digits = facts["digits"]
    return {
        "audit_parts": {
            "charts": audit_charts(facts),
            "limit": proven_auc(facts),
            "figure": lambda e: f"{e['value']:.{digits}f}",
            "range": lambda e: interval_text(e, digits),
            # A class has few records: a third digit would say nothing.
            "short": lambda e: f"{e['value']:.2f}",
            "short_range": lambda e: interval_text(e, 2),
            "spark": lambda e: interval(e, 0.0, 1.0),
            "mark": legend_mark,
            "measures": MEASURES,
            "reading": AUDIT_READING,
        }
    }


def audit_charts(facts: Mapping[str, Any]) -> dict[str, Markup | None]:
    """All charts for which there are figures."""
    shown = [r for r in facts["results"] if r["attack"] is not None]
    games, shares = ([r for r in shown if r["measure"] == measure] for measure in ("auc", "share"))
    curves = [(r["name"], r["roc"]) for r in facts["results"] if r["roc"]]
    both = facts["epsilon_audit"]
    return {
        "auc": forest(
            games,
            key="forest-auc",
            title="AUC of each attack next to its control",
            chance=0.5,
            limit=proven_auc(facts),
        )
        if games
        else None,
        "share": forest(shares, key="forest-share", title="Share of records hit by each attack, next to its control")
        if shares
        else None,
        "roc": log_roc(curves) if curves else None,
        "epsilon_audit": None if both is None else epsilon_bar(both["lower"], both["upper"]),
    }


def proven_auc(facts: Mapping[str, Any]) -> float | None:
    """The proven limit of an audit; None if it has none, or one that rests on what nobody has accepted."""
    limit = facts["limit"]
    return None if limit is None or limit["open_assumptions"] else float(limit["auc"])


def forest(
    results: Sequence[Mapping[str, Any]],
    *,
    key: str,
    title: str,
    chance: float | None = None,
    limit: float | None = None,
) -> Markup:
    """Attacks stacked, each above its control; a line, or a tick in each row, shows chance, another a proven limit.

    Name and verdict stand above the marks, not beside them: the chart fits on a phone.
    """
    # The limit's label has a line of its own: chance lies close to it.
    width, left, step, top = 424.0, 8.0, 56.0, 26.0 if limit is None else 44.0
    drawn = [r[name] for r in results for name in ("attack", "control", "baseline") if r[name]]
    ends = [e[k] for e in drawn for k in ("value", "low", "high")]
    seen = [float(v) for v in ends if v is not None]
    seen += [] if limit is None else [limit]
    low, high = (0.0, max(0.1, *seen)) if chance is None else (min(0.4, *seen), max(0.6, *seen))
    pad = 0.03 * (high - low)
    low, high = max(0.0, low - pad), min(1.0, high + pad)

    def place(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * width

    bottom = top + step * len(results)

    def upright(kind: str, value: float, above: float) -> str:
        """A line through all rows that leaves out the text at the top of each."""
        x, tops = place(value), [top + step * i for i in range(len(results))]
        rows = "".join(f"M{x:.1f} {y + 24:g}V{y + step:g}" for y in tops)
        return f'<path class="{kind}" d="M{x:.1f} {top - above:g}V{top:g}{rows}"/>'

    lines = [f'<path class="grid" d="M{place(t):.1f} {top:g}V{bottom:g}"/>' for t in _ticks(low, high)]
    lines.append(f'<path class="line" d="M{left:g} {bottom:g}h{width:g}"/>')
    if chance is not None:
        lines.append(upright("median", chance, 6))
        lines.append(_text(*_kept(place(chance), top - 11, f"chance, {chance:g}", left, left + width), "axis middle"))
    words = []
    if limit is not None:
        words.append(f"proven limit {limit_figure(limit)}")
        lines.append(upright("limit", limit, 24))
        label = f"proven limit, {limit_figure(limit)}"
        lines.append(_text(*_kept(place(limit), top - 29, label, left, left + width), "axis middle"))
    for i, r in enumerate(results):
        y = top + step * i
        if i:
            lines.append(f'<path class="grid" d="M{left:g} {y:g}h{width:g}"/>')
        hot = r["verdict"] == "leak"
        lines.append(_text(left, y + 17, _short(r["name"]), "label tag"))
        lines.append(_text(left + width, y + 17, r["verdict"], f"{'label hot-text' if hot else 'axis'} tag end"))
        attack, control, baseline = r["attack"], r["control"], r["baseline"]
        if chance is None and baseline is not None:
            lines.append(f'<path class="median" d="M{place(baseline["value"]):.1f} {y + 24:g}v28"/>')
        if control is not None:
            lines.append(_whisker(control, place, y + 45, "whisker-real", "real", _SHAPES[0]))
        lines.append(
            _whisker(
                attack, place, y + 31, "whisker hot" if hot else "whisker", "hot" if hot else "released", _SHAPES[3]
            )
        )
        against = "" if control is None else f" against {control['value']:.2f}"
        words.append(f"{r['name']} {attack['value']:.2f}{against}, {r['verdict']}")
    lines += [_tick(place(t), bottom, f"{t:g}") for t in _ticks(low, high)]
    unit = "AUC" if chance is not None else "share of records that were hit"
    lines.append(_text(left + width / 2, bottom + 36, unit, "axis middle"))
    return _chart(key, f"{title}: {'; '.join(words)}", width + 2 * left, bottom + 44, lines)


def log_roc(curves: Sequence[tuple[str, Sequence[Sequence[float]]]]) -> Markup:
    """True positive rate by false positive rate on logarithmic axes; a rate of 0 lies on the axis."""
    width, height, left, top = 340.0, 280.0, 62.0, 12.0
    first = min(x for _, points in curves for x, _ in points if x > 0)
    decades = max(1, math.ceil(-math.log10(first) - 1e-9))

    def at(x: float, y: float) -> tuple[float, float]:
        a, b = (max(0.0, 1 + math.log10(max(v, 1e-300)) / decades) for v in (x, y))
        return left + a * width, top + (1 - b) * height

    floor = top + height
    out = [f'<rect class="frame" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="4"/>']
    for k in range(decades + 1):
        x, y = at(10.0**-k, 10.0**-k)
        label = f"{100 * 10.0**-k:g}%"
        out.append(f'<path class="grid" d="M{x:.1f} {top:g}v{height:g}M{left:g} {y:.1f}h{width:g}"/>')
        # The lowest lies above its line: below it stands the first number of the other axis.
        out.append(_tick(x, floor, label) + _text(left - 7, y if k == decades else y + 4, label, "axis end"))
    out.append(f'<path class="median" d="M{left:g} {floor:g}L{left + width:g} {top:g}"/>')
    for code, (name, points) in enumerate(curves):
        places = [at(x, y) for x, y in points if x > 0]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path class="trace t{code % COLORS}" d="M{path}"><title>{Markup.escape(name)}</title></path>')
        # Each curve has its marks in different places, so that overlapping curves can be told apart.
        shift = (code + 1) / (len(curves) + 1)
        picked = {round((i + shift) * (len(places) - 1) / _MARKS) for i in range(_MARKS)}
        marks = "".join(
            f"M{places[i][0]:.1f} {places[i][1]:.1f}{_SHAPES[code % len(_SHAPES)]}" for i in sorted(picked)
        )
        out.append(f'<path class="mark k{code % COLORS}" d="{marks}"/>')
    out.append(_text(left + width / 2, floor + 34, "non-members accused (false positive rate)", "axis middle"))
    out.append(_text(-(top + height / 2), 13, "members found (true positive rate)", "axis middle", turn=True))
    names = ", ".join(name for name, _ in curves)
    return _chart("audit-roc", f"ROC curves on logarithmic axes: {names}", left + width + 22, floor + 42, out)


def epsilon_bar(lower: float, upper: float) -> Markup:
    """Epsilon on one axis: refuted up to the lower bound, and the claim as upper bound."""
    width, left, top, height = 400.0, 10.0, 30.0, 30.0
    # With very different values, such as 10,000 and 1, one of them is too small to be seen.
    end = 1.12 * max(lower, upper)

    def place(value: float) -> float:
        return left + value / end * width

    low, claim, floor = place(lower), place(upper), top + height
    broken = lower > upper
    out = [
        f'<rect class="frame" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"/>',
        f'<rect class="open" x="{left:g}" y="{top:g}" width="{claim - left:.1f}" height="{height:g}"/>',
        f'<rect class="released" x="{left:g}" y="{top:g}" width="{min(low, claim) - left:.1f}" height="{height:g}"/>',
    ]
    if broken:
        out.append(f'<rect class="hot" x="{claim:.1f}" y="{top:g}" width="{low - claim:.1f}" height="{height:g}"/>')
    out.append(f'<path class="claim-line" d="M{claim:.1f} {top - 8:g}V{floor + 8:g}"/>')
    out.append(
        _text(*_kept(claim, top - 13, f"claim: at most {at_least(upper)}", left, left + width), "label middle")
    )
    out.append(f'<path class="line" d="M{left:g} {floor + 8:g}h{width:g}"/>')
    out += [_tick(place(t), floor + 8, f"{t:g}") for t in _ticks(0, end)]
    words = f"refuted below {rounded_down(lower)}"
    out.append(
        _text(
            *_kept(low, floor + 44, words, left, left + width), "label hot-text middle" if broken else "label middle"
        )
    )
    out.append(f'<path class="line" d="M{low:.1f} {floor + 28:g}v4"/>')
    out.append(_text(left, top - 13, "epsilon", "axis tag"))
    title = f"Epsilon: {words}, claimed to be at most {at_least(upper)}" + (
        ". The guarantee is broken" if broken else ""
    )
    return _chart("epsilon_audit", title, 2 * left + width, floor + 52, out)


def _shape(code: int) -> str:
    return _SHAPES[code % len(_SHAPES)] if code >= 0 else _REST


def _color(code: int) -> str:
    return f"k{code % COLORS}" if code >= 0 else "rest"


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


def _whisker(e: Mapping[str, Any], place: Any, y: float, line: str, mark: str, shape: str) -> str:
    bar = ""
    if e["low"] is not None and e["high"] is not None and e["low"] < e["high"]:
        a, b = place(e["low"]), place(e["high"])
        bar = f'<path class="{line}" d="M{a:.1f} {y:g}H{b:.1f}M{a:.1f} {y - 4:g}v8M{b:.1f} {y - 4:g}v8"/>'
    return f'{bar}<path class="{mark}" d="M{place(e["value"]):.1f} {y:g}{shape}"/>'


def _kept(x: float, y: float, text: str, low: float, high: float) -> tuple[float, float, str]:
    """Position of a centered text, moved so that it stays on the chart."""
    half = 3.6 * len(text)
    return min(max(x, low + half), high - half), y, text


class FreeSpots:
    """Finds places for short labels beside marks, where no label covers another, a mark or a line.

    Parameters
    ----------
    marks
        Centers of all marks.
    left, top, right, bottom
        The frame that labels stay in.
    lines
        Start and end of each line of the chart.
    """

    # Right above first, then around the mark, then further away.
    _AROUND = ((6, -6), (6, 14), (-6, -6), (-6, 14), (9, 4), (-9, 4), (6, -18), (6, 26), (-6, -18), (-6, 26))

    def __init__(
        self,
        marks: Sequence[tuple[float, float]],
        left: float,
        top: float,
        right: float,
        bottom: float,
        lines: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
    ) -> None:
        self._taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in marks]
        self._frame = left, top, right, bottom
        self._lines = lines

    def label(self, x: float, y: float, text: str) -> str:
        """The label of the mark at x, y; empty if there is no room: the mark's title and the table say it too."""
        # Letters of the widest size that a page uses.
        wide, high = 7.5 * len(text), 12.0
        left, top, right, bottom = self._frame
        for dx, dy in self._AROUND:
            a, b = (x + dx if dx > 0 else x + dx - wide), y + dy
            box = (a, b - high + 2, a + wide, b + 2)
            inside = left <= box[0] and box[2] <= right and top <= box[1] and box[3] <= bottom
            covers = any(_overlap(box, other) for other in self._taken) or any(_cuts(box, *ab) for ab in self._lines)
            if inside and not covers:
                self._taken.append(box)
                return _text(a, b, text, "axis tag")
        return ""


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _cuts(box: tuple[float, ...], start: tuple[float, float], end: tuple[float, float]) -> bool:
    """Whether the line from `start` to `end` runs through the inside of a box."""
    first, last = 0.0, 1.0
    for axis in (0, 1):
        a, way = start[axis], end[axis] - start[axis]
        low, high = box[axis], box[axis + 2]
        if way == 0:
            if not low < a < high:
                return False
            continue
        one, other = sorted(((low - a) / way, (high - a) / way))
        first, last = max(first, one), min(last, other)
    return first < last


def _short(name: str) -> str:
    return name if len(name) <= 26 else name[:25] + "…"
