"""The page of a trade-off: the curve, the table and, for images, what comes out at each setting of the knobs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from understudy.report import svg
from understudy.report.html import pages
from understudy.report.svg import _SHAPES, _chart, _text, _tick, _ticks
from understudy.report.words import interval_text

__all__ = ["curve_chart", "obfuscation_html"]


def obfuscation_html(report: Mapping[str, Any]) -> str:
    """One self-contained page from the dict of `obfuscation_report`; no script, nothing fetched."""
    lines = _lines(report)
    return (
        pages()
        .get_template("obfuscation.html.jinja")
        .render(
            r=report,
            figure=lambda estimate: f"{estimate['value']:.3f}",
            range=lambda estimate: interval_text(estimate, 3),
            chart=curve_chart(report),
            lines=list(lines),
            mark=svg.legend_mark,
            image=_image,
        )
    )


def curve_chart(report: Mapping[str, Any]) -> Markup:
    """Attackers to the right, receivers upwards; one line for each lambda, the noise beside each mark."""
    width, height, left, top = 430.0, 300.0, 52.0, 14.0
    points, base = report["points"], report["baselines"]
    xs = [p["attacker"][k] for p in points for k in ("low", "high")]
    ys = [p["utility"][k] for p in points for k in ("low", "high")]
    xs += [base[name]["value"] for name in ("original attacker", "label alone", "most frequent")]
    ys += [base[name]["value"] for name in ("original utility", "most frequent utility")]
    x0, x1 = _ends(xs)
    y0, y1 = _ends(ys)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (x - x0) / (x1 - x0) * width, top + (y1 - y) / (y1 - y0) * height

    floor = top + height
    out = [f'<rect class="frame" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="4"/>']
    for tick in _ticks(x0, x1):
        out.append(_tick(at(tick, y0)[0], floor, f"{tick:g}"))
    for tick in _ticks(y0, y1):
        y = at(x0, tick)[1]
        out.append(
            f'<path class="grid" d="M{left:g} {y:.1f}h{width:g}"/>{_text(left - 6, y + 4, f"{tick:g}", "axis end")}'
        )
    alone, common = at(base["label alone"]["value"], y0)[0], at(base["most frequent"]["value"], y0)[0]
    out.append(f'<path class="median" d="M{alone:.1f} {top:g}V{floor:g}"/>')
    out.append(f'<path class="dotted" d="M{common:.1f} {top:g}V{floor:g}"/>')
    level = at(x0, base["most frequent utility"]["value"])[1]
    out.append(f'<path class="dotted" d="M{left:g} {level:.1f}h{width:g}"/>')
    for code, line in enumerate(_lines(report).values()):
        places = [at(p["attacker"]["value"], p["utility"]["value"]) for p in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path class="trace t{code % svg.COLOURS}" d="M{path}"/>')
        for p, (x, y) in zip(line, places, strict=True):
            a, b = at(p["attacker"]["low"], y1)[0], at(p["attacker"]["high"], y1)[0]
            c, d = at(x0, p["utility"]["low"])[1], at(x0, p["utility"]["high"])[1]
            out.append(f'<path class="bars" d="M{a:.1f} {y:.1f}H{b:.1f}M{x:.1f} {c:.1f}V{d:.1f}"/>')
            title = f"{p['name']}: attacker {p['attacker']['value']:.3f}, receiver {p['utility']['value']:.3f}"
            shape = _SHAPES[code % len(_SHAPES)]
            ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="8"/>' if p["picked"] else ""
            out.append(
                f'{ring}<path class="mark k{code % svg.COLOURS}" d="M{x:.1f} {y:.1f}{shape}">'
                f"<title>{Markup.escape(title)}</title></path>"
            )
            if "noise" in p["knobs"]:
                out.append(_text(x + 6, y - 6, _number(p["knobs"]["noise"]), "axis"))
    x, y = at(base["original attacker"]["value"], base["original utility"]["value"])
    out.append(f'<path class="star" d="M{x:.1f} {y:.1f}m-5-5l10 10m0-10l-10 10m5-12v14m-7-7h14"/>')
    out.append(_text(left + width / 2, floor + 34, "accuracy of the strongest attacker", "axis middle"))
    out.append(_text(-(top + height / 2), 13, "accuracy of the receiver", "axis middle", turn=True))
    return _chart("curve", "Trade-off: accuracy of attackers and of receivers", left + width + 24, floor + 42, out)


def _lines(report: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Points by what they share beside the noise, in the order of noise."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for p in report["points"]:
        name = ", ".join(f"{k} {_number(v)}" for k, v in p["knobs"].items() if k != "noise") or "over noise"
        found.setdefault(name, []).append(p)
    return {name: sorted(line, key=lambda p: float(str(p["knobs"].get("noise", 0)))) for name, line in found.items()}


def _ends(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = 0.06 * (high - low) or 0.05
    return max(0.0, low - pad), min(1.0, high + pad)


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _image(raw: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(raw).decode()
