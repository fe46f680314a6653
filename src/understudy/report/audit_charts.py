"""Charts of an audit: attacks beside their controls, ROC curves on log axes, and epsilon from both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from understudy.report.svg import _SHAPES, COLOURS, _chart, _text, _tick, _ticks
from understudy.report.words import rounded_down
from understudy.types import at_least

__all__ = ["audit_charts", "forest", "log_roc", "sandwich_bar"]

# Marks on a curve, beside its colour.
_MARKS = 5


def audit_charts(facts: Mapping[str, Any]) -> dict[str, Markup | None]:
    """Every chart for which there are figures."""
    told = [r for r in facts["results"] if r["estimates"]["attack"] is not None]
    games, shares = ([r for r in told if r["unit"] == unit] for unit in ("AUC", "share"))
    curves = [(r["attack"], r["roc"]) for r in facts["results"] if r["roc"]]
    both = facts["sandwich"]
    return {
        "auc": forest(games, key="forest-auc", title="AUC of each attack beside its control", chance=0.5)
        if games
        else None,
        "share": forest(shares, key="forest-share", title="Share of records hit by each attack, beside its control")
        if shares
        else None,
        "roc": log_roc(curves) if curves else None,
        "sandwich": None if both is None else sandwich_bar(both["lower"], both["upper"]),
    }


def forest(results: Sequence[Mapping[str, Any]], *, key: str, title: str, chance: float | None = None) -> Markup:
    """Attacks one below the other, each above its control; a line, or a tick in each row, shows chance."""
    width, left, step, top = 400.0, 186.0, 44.0, 24.0
    ends = [e[k] for r in results for e in r["estimates"].values() if e for k in ("value", "low", "high")]
    seen = [float(v) for v in ends if v is not None]
    low, high = (0.0, max(0.1, *seen)) if chance is None else (min(0.4, *seen), max(0.6, *seen))
    pad = 0.03 * (high - low)
    low, high = max(0.0, low - pad), min(1.0, high + pad)

    def place(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * width

    bottom = top + step * len(results)
    lines = [f'<path class="grid" d="M{place(t):.1f} {top:g}V{bottom:g}"/>' for t in _ticks(low, high)]
    lines.append(f'<path class="line" d="M{left:g} {bottom:g}h{width:g}"/>')
    if chance is not None:
        lines.append(f'<path class="median" d="M{place(chance):.1f} {top - 6:g}V{bottom:g}"/>')
        lines.append(_text(place(chance), top - 11, f"chance, {chance:g}", "axis middle"))
    told = []
    for i, r in enumerate(results):
        y = top + step * (i + 0.5)
        if i % 2:
            lines.insert(
                0,
                f'<rect class="stripe" x="0" y="{y - step / 2:g}" width="{left + width + 150:g}" height="{step:g}"/>',
            )
        hot = r["verdict"] == "leak"
        lines.append(_text(left - 12, y + 4, _short(r["attack"]), "label end"))
        lines.append(_text(left + width + 14, y + 4, r["verdict"], "label hot-text" if hot else "axis"))
        attack, control, baseline = (r["estimates"][name] for name in ("attack", "control", "baseline"))
        if chance is None and baseline is not None:
            lines.append(f'<path class="median" d="M{place(baseline["value"]):.1f} {y - 17:g}v34"/>')
        if control is not None:
            lines.append(_whisker(control, place, y + 9, "whisker-real", "real", _SHAPES[0]))
        lines.append(
            _whisker(
                attack, place, y - 7, "whisker hot" if hot else "whisker", "hot" if hot else "released", _SHAPES[3]
            )
        )
        against = "" if control is None else f" against {control['value']:.2f}"
        told.append(f"{r['attack']} {attack['value']:.2f}{against}, {r['verdict']}")
    lines += [_tick(place(t), bottom, f"{t:g}") for t in _ticks(low, high)]
    unit = "AUC" if chance is not None else "share of records that were hit"
    lines.append(_text(left + width / 2, bottom + 34, unit, "axis middle"))
    return _chart(key, f"{title}: {'; '.join(told)}", left + width + 150, bottom + 42, lines)


def log_roc(curves: Sequence[tuple[str, Sequence[Sequence[float]]]]) -> Markup:
    """True positive rate by false positive rate, both on logarithmic axes; nothing found lies on the floor."""
    width, height, left, top = 430.0, 330.0, 58.0, 12.0
    first = min(x for _, points in curves for x, _ in points if x > 0)
    decades = max(1, math.ceil(-math.log10(first) - 1e-9))

    def at(x: float, y: float) -> tuple[float, float]:
        a, b = (max(0.0, 1 + math.log10(max(v, 1e-300)) / decades) for v in (x, y))
        return left + a * width, top + (1 - b) * height

    floor = top + height
    out = [f'<rect class="frame" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="4"/>']
    for k in range(decades + 1):
        x, y = at(10.0**-k, 10.0**-k)
        label = f"{100 * 10.0**-k:g} %"
        out.append(f'<path class="grid" d="M{x:.1f} {top:g}v{height:g}M{left:g} {y:.1f}h{width:g}"/>')
        out.append(_tick(x, floor, label) + _text(left - 7, y + 4, label, "axis end"))
    out.append(f'<path class="median" d="M{left:g} {floor:g}L{left + width:g} {top:g}"/>')
    for code, (name, points) in enumerate(curves):
        places = [at(x, y) for x, y in points if x > 0]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path class="trace t{code % COLOURS}" d="M{path}"><title>{Markup.escape(name)}</title></path>')
        # Each curve starts its marks elsewhere, so that curves on one another can be told apart.
        shift = (code + 1) / (len(curves) + 1)
        picked = {round((i + shift) * (len(places) - 1) / _MARKS) for i in range(_MARKS)}
        marks = "".join(
            f"M{places[i][0]:.1f} {places[i][1]:.1f}{_SHAPES[code % len(_SHAPES)]}" for i in sorted(picked)
        )
        out.append(f'<path class="mark k{code % COLOURS}" d="{marks}"/>')
    out.append(_text(left + width / 2, floor + 34, "strangers accused (false positive rate)", "axis middle"))
    out.append(_text(-(top + height / 2), 13, "members found (true positive rate)", "axis middle", turn=True))
    names = ", ".join(name for name, _ in curves)
    return _chart("audit-roc", f"ROC curves on logarithmic axes: {names}", left + width + 22, floor + 42, out)


def sandwich_bar(lower: float, upper: float) -> Markup:
    """Epsilon on one axis: refuted up to the lower bound, promised up to the claim."""
    width, left, top, height = 600.0, 14.0, 30.0, 30.0
    # Epsilons of 10,000 against 1 leave a bar without a claim: the axis is then as it is.
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
    out.append(_text(left + width + 8, floor + 12, "epsilon", "axis"))
    title = f"Epsilon: {words}, claimed to be at most {at_least(upper)}" + (
        ". The promise is broken" if broken else ""
    )
    return _chart("sandwich", title, left + width + 58, floor + 52, out)


def _whisker(e: Mapping[str, Any], place: Any, y: float, line: str, mark: str, shape: str) -> str:
    bar = ""
    if e["low"] is not None and e["high"] is not None and e["low"] < e["high"]:
        a, b = place(e["low"]), place(e["high"])
        bar = f'<path class="{line}" d="M{a:.1f} {y:g}H{b:.1f}M{a:.1f} {y - 4:g}v8M{b:.1f} {y - 4:g}v8"/>'
    return f'{bar}<path class="{mark}" d="M{place(e["value"]):.1f} {y:g}{shape}"/>'


def _kept(x: float, y: float, text: str, low: float, high: float) -> tuple[float, float, str]:
    """The middle of a text moved so that it stays on the chart."""
    half = 3.6 * len(text)
    return min(max(x, low + half), high - half), y, text


def _short(name: str) -> str:
    return name if len(name) <= 26 else name[:25] + "…"
