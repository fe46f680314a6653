"""The report of a trade-off, as a dict, Markdown and an HTML page with the curve and, for images, a grid."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from locum._version import __version__
from locum.obfuscate import ATTACKERS, Judgment, TradeOff
from locum.report import charts as svg
from locum.report.charts import _SHAPES, _chart, _text, _tick, _ticks
from locum.report.page import pages
from locum.report.text import apart_words, claim_facts, interval_text, plain
from locum.types import Estimate, PrivacyClaim

Spot = tuple[float, float]

BLIND = (
    "The attackers find no more in original records than the utility label alone reveals: either there is nothing to "
    "hide, or they learned too little to judge by. Use more records or epochs."
)
_BANNER = (
    "Contains figures measured on real records and, for images, real images: do not send it. The curve was measured; "
    "nothing is proven."
)
_READING = {
    "curve": "Each mark is one setting of the knobs. Horizontal: how often the strongest attacker guesses the "
    "private attribute. Vertical: how often a receiver, trained only on obfuscated records, predicts the utility "
    "attribute of real ones. The best place is at the top and close to the dashed line: a release carries the "
    "utility label, and that label alone takes an attacker this far. Bars are 95% intervals over test records; "
    "they do not cover other training runs, other attackers or other data.",
    "points": "Weak: trained on original records. Strong: trained on records that it obfuscated itself. Informed: "
    "also knows the utility label, which is released with each record. Averaged: also has several releases of each "
    "record. An attacker that was not tried may find more.",
    "grid": "Test images and their releases at each setting: noise grows to the right, one row per lambda. The first "
    "column shows real images.",
    "claim": "A claim is what the method guarantees against any attacker. What is not covered is not part of it.",
}
_GLOSSARY = {
    "attacker": "someone who has released records and wants to know the private attribute of each.",
    "hull AUC": "the area under such a curve, the adjustable paper's measure; more is better. It compares methods "
    "only on the same data and judges.",
    "lambda": "how clearly the utility label is written: 0 not at all, -50 fully.",
    "most frequent": "always guessing the most frequent value.",
    "noise": "how much of a record is hidden: 0 hides least.",
    "receiver": "someone who trains on released records, and uses the model on real ones.",
    "utility label alone": "an attacker who sees only the utility label: what obfuscation cannot hide.",
}


def obfuscation_report(
    found: TradeOff,
    *,
    obfuscator: Mapping[str, Any],
    claim: PrivacyClaim,
    measured: Mapping[str, Any],
    target: float | None = None,
    picked: str | None = None,
    problem: str = "",
    grid: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All that a trade-off found. It depends on private records, and shows some with `grid`: do not share it.

    Parameters
    ----------
    found
        The trade-off.
    obfuscator
        Facts to print about the obfuscator, with at least `kind` ("table" or "image"), `preset`, `utility` (what it
        keeps) and `fingerprint`.
    claim
        What the obfuscator guarantees, and what it does not.
    measured
        Facts to print about the judging, with at least `private` (what should be hidden) and `tested on`.
    target
        The highest accuracy of an attacker that was asked for; None: no point was asked for.
    picked
        Name of the point that meets `target`; None if none does.
    problem
        Why no point meets `target`; empty if one does.
    grid
        Real images and their releases as PNG bytes: `originals` and `cells` (one row per lambda), with `noises` and
        `lambdas`. None: no images.

    Returns
    -------
    dict
        Plain JSON types, apart from the bytes in `grid`.

    Examples
    --------
    >>> from locum.obfuscate import Judgment, Point, TradeOff
    >>> from locum.report import obfuscation_report
    >>> from locum.types import Estimate, PrivacyClaim
    >>> half, good = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 1.0, 100)
    >>> judged = Judgment(*4 * [{"trees": half}], *5 * [{"trees": good}], half, half, half)
    >>> found = TradeOff((Point("noise 1", {"noise": 1.0}, judged),))
    >>> claim = PrivacyClaim("none", not_covered=("what an attacker finds out",))
    >>> what = {"kind": "table", "preset": "calibrated", "utility": "diagnosis", "fingerprint": "0" * 64}
    >>> judged_on = {"private": "sex", "tested on": "100 held-out records."}
    >>> report = obfuscation_report(found, obfuscator=what, claim=claim, measured=judged_on)
    >>> report["points"][0]["attacker"]["value"], report["points"][0]["utility"]["value"]
    (0.5, 0.9)
    """
    first = found.points[0].judgment
    private, utility = found.original()
    report: dict[str, Any] = {
        "format": "locum-trade-off",
        "version": 1,
        "audience": "internal",
        "banner": _BANNER,
        "written_on": datetime.now(UTC).date().isoformat(),
        "written_by": f"locum {__version__}",
        "obfuscator": dict(obfuscator),
        "measured": dict(measured),
        "claim": claim_facts(claim),
        "points": [_point(p.name, p.knobs, p.judgment, picked) for p in found.points],
        "baselines": {
            "original attacker": private.to_dict(),
            "original utility": utility.to_dict(),
            "label alone": first.label_only.to_dict(),
            "most frequent": first.majority.to_dict(),
            "most frequent utility": first.utility_majority.to_dict(),
        },
        "hull_auc": _hull(found),
        "target": None if target is None else {"attacker_at_most": target, "picked": picked, "problem": problem},
        "caution": "" if judges_see(found) else BLIND,
        "reading": dict(_READING),
        "glossary": dict(_GLOSSARY),
    }
    report["verdict"] = _verdict(report)
    report["summary"] = _summary(report)
    return {**plain(report), "grid": None if grid is None else dict(grid)}


def obfuscation_markdown(report: Mapping[str, Any], table: str) -> str:
    """The report of a trade-off as Markdown, for internal use.

    Parameters
    ----------
    report
        What `obfuscation_report` returned.
    table
        What `TradeOff.to_markdown` returned.

    Returns
    -------
    str
        Markdown.

    Examples
    --------
    >>> from locum.obfuscate import Judgment, Point, TradeOff
    >>> from locum.report import obfuscation_markdown, obfuscation_report
    >>> from locum.types import Estimate, PrivacyClaim
    >>> half, good = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 1.0, 100)
    >>> judged = Judgment(*4 * [{"trees": half}], *5 * [{"trees": good}], half, half, half)
    >>> found = TradeOff((Point("noise 1", {"noise": 1.0}, judged),))
    >>> claim = PrivacyClaim("none", not_covered=("what an attacker finds out",))
    >>> what = {"kind": "table", "preset": "calibrated", "utility": "diagnosis", "fingerprint": "0" * 64}
    >>> judged_on = {"private": "sex", "tested on": "100 held-out records."}
    >>> report = obfuscation_report(found, obfuscator=what, claim=claim, measured=judged_on)
    >>> obfuscation_markdown(report, found.to_markdown()).splitlines()[0]
    '# Locum trade-off of an obfuscator'
    """
    from locum.report.page import _table, _text

    parts = [
        "# Locum trade-off of an obfuscator",
        f"**{report['audience'].upper()}.** {_text(report['banner'])}",
        f"**{_text(report['verdict']['title'])}.** {_text(report['verdict']['words'])}",
        *(f"**{_text(card['title'])}** {_text(card['text'])}" for card in report["summary"]),
        "## What attackers and receivers reach",
        table,
        _text(report["reading"]["points"]),
        "## What is claimed, and what is not",
        f"Claim: **{_text(report['claim']['title'])}**. {_text(report['claim']['sentence'])}",
        "\n".join(f"- {_text(item)}" for item in report["claim"]["not_covered"]),
        "## How it was measured",
        _table(["what", "value"], [*report["obfuscator"].items(), *report["measured"].items()]),
    ]
    return "\n\n".join(parts) + "\n"


def obfuscation_html(report: Mapping[str, Any]) -> str:
    """One self-contained page from the report of a trade-off; no script, nothing fetched.

    Parameters
    ----------
    report
        What `obfuscation_report` returned.

    Returns
    -------
    str
        HTML, for internal use.

    Examples
    --------
    >>> from locum.obfuscate import Judgment, Point, TradeOff
    >>> from locum.report import obfuscation_html, obfuscation_report
    >>> from locum.types import Estimate, PrivacyClaim
    >>> half, good = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 1.0, 100)
    >>> judged = Judgment(*4 * [{"trees": half}], *5 * [{"trees": good}], half, half, half)
    >>> found = TradeOff((Point("noise 1", {"noise": 1.0}, judged),))
    >>> claim = PrivacyClaim("none", not_covered=("what an attacker finds out",))
    >>> what = {"kind": "table", "preset": "calibrated", "utility": "diagnosis", "fingerprint": "0" * 64}
    >>> judged_on = {"private": "sex", "tested on": "100 held-out records."}
    >>> report = obfuscation_report(found, obfuscator=what, claim=claim, measured=judged_on)
    >>> "<script" in obfuscation_html(report)
    False
    """
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


def judges_see(found: TradeOff) -> bool:
    """Whether attackers find something in original records; if not, they say nothing about releases.

    Parameters
    ----------
    found
        The trade-off.

    Returns
    -------
    bool
        Whether the lower end of the best attacker's interval on original records lies above what the utility label
        alone reveals.

    Examples
    --------
    >>> from locum.obfuscate import Judgment, Point, TradeOff
    >>> from locum.report import judges_see
    >>> from locum.types import Estimate
    >>> half, good = Estimate(0.5, 0.4, 0.6, 100), Estimate(0.9, 0.8, 1.0, 100)
    >>> judged = Judgment(*4 * [{"trees": half}], *5 * [{"trees": good}], half, half, half)
    >>> judges_see(TradeOff((Point("noise 1", {"noise": 1.0}, judged),)))
    True
    """
    return found.original()[0].low > found.points[0].judgment.label_only.value


def _point(name: str, knobs: Mapping[str, float], judgment: Judgment, picked: str | None) -> dict[str, Any]:
    return {
        "name": name,
        # JSON has no infinity.
        "knobs": {k.strip("_"): v if math.isfinite(v) else "infinity" for k, v in knobs.items()},
        "picked": name == picked,
        "attacker": judgment.attacker.to_dict(),
        "attacker_name": judgment.attacker_name,
        "utility": judgment.utility.to_dict(),
        "utility_released": _best(judgment.utility_released).to_dict(),
        **{role: _best(getattr(judgment, role)).to_dict() for role in ATTACKERS},
        "figures": {k: e.to_dict() for k, e in judgment.figures().items()},
    }


def _summary(report: Mapping[str, Any]) -> list[dict[str, str]]:
    obfuscator, measured, baselines = report["obfuscator"], report["measured"], report["baselines"]
    ceiling, floor = baselines["original attacker"]["value"], baselines["label alone"]["value"]
    least = min(report["points"], key=lambda p: p["attacker"]["value"])
    return [
        {
            "title": "What this is",
            "text": f"Obfuscated {obfuscator['kind']}s keep {obfuscator['utility']} for the receiver. This page "
            f"shows what they still reveal about {measured['private']}, at {len(report['points'])} settings of the "
            "knobs.",
        },
        {
            "title": "What was found",
            "text": f"If nothing is hidden, an attacker guesses {measured['private']} right {apart_words(ceiling)}; "
            f"from the utility label alone, {apart_words(floor)}. The lowest at any setting was "
            f"{apart_words(least['attacker']['value'])} ({least['name']}). A receiver is then right about "
            f"{obfuscator['utility']} {apart_words(least['utility']['value'])}, compared with "
            f"{apart_words(baselines['original utility']['value'])} if nothing is hidden.",
        },
        {"title": "Which setting", "text": _chosen(report)},
        {"title": "Tested on", "text": measured["tested on"]},
    ]


def _verdict(report: Mapping[str, Any]) -> dict[str, str]:
    """What stands on top of the page: how good the setting that was picked is, or why nothing can be said."""
    target, private = report["target"], report["measured"]["private"]
    if target is None or target["picked"] is None:
        shown = min(report["points"], key=lambda p: p["attacker"]["value"])
    else:
        shown = next(p for p in report["points"] if p["picked"])
    words = (
        f"At {shown['name']}, the strongest attacker guesses {private} right "
        f"{apart_words(shown['attacker']['value'])}, and a receiver is right about "
        f"{report['obfuscator']['utility']} {apart_words(shown['utility']['value'])}."
    )
    if report["caution"]:
        return {"state": "doubt", "title": "Inconclusive", "words": report["caution"]}
    if target is None:
        return {"state": "", "title": "No limit was set for the attacker", "words": words}
    limit = f"{100 * target['attacker_at_most']:g} times out of 100"
    if target["picked"] is None:
        return {
            "state": "leak",
            "title": f"No setting keeps the attacker at {limit} or below",
            "words": f"{target['problem']} {words}",
        }
    return {"state": "clear", "title": f"Limit met: the strongest attacker stays at {limit} or below", "words": words}


def _chosen(report: Mapping[str, Any]) -> str:
    target = report["target"]
    if target is None:
        return "None was requested. --attacker-at-most picks the least noise that keeps the attacker below a limit."
    if target["picked"] is None:
        return str(target["problem"])
    return (
        f"{target['picked'].capitalize()}: the least noise that keeps the upper end of the strongest attacker's "
        f"interval at {target['attacker_at_most']:g} or below. It was chosen on these test records: measure it again "
        "on others."
    )


def _hull(found: TradeOff) -> dict[str, float] | None:
    kinds: Sequence[str] = tuple(found.points[0].judgment.strong)
    judge = "network" if "network" in kinds else kinds[0]
    return {
        "origin 0, 0": found.hull_auc(judge=judge),
        "origin 0.5, 0.5": found.hull_auc(origin=(0.5, 0.5), judge=judge),
    }


def _best(by_kind: Mapping[str, Estimate]) -> Estimate:
    return max(by_kind.values(), key=lambda e: e.value)


def curve_chart(report: Mapping[str, Any]) -> Markup:
    """Attackers to the right, receivers upwards; one line for each lambda, the noise beside each mark."""
    width, height, left, top = 380.0, 280.0, 52.0, 14.0
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
    marks = [at(p["attacker"]["value"], p["utility"]["value"]) for p in points]
    marks.append(at(base["original attacker"]["value"], base["original utility"]["value"]))
    labels: list[str] = []
    drawn = [*_segments(report, at), ((alone, top), (alone, floor)), ((common, top), (common, floor))]
    spots = svg.FreeSpots(marks, left, top, left + width, floor, drawn)
    for code, line in enumerate(_lines(report).values()):
        places = [at(p["attacker"]["value"], p["utility"]["value"]) for p in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path class="trace t{code % svg.COLORS}" d="M{path}"/>')
        for p, (x, y) in zip(line, places, strict=True):
            a, b = at(p["attacker"]["low"], y1)[0], at(p["attacker"]["high"], y1)[0]
            c, d = at(x0, p["utility"]["low"])[1], at(x0, p["utility"]["high"])[1]
            out.append(f'<path class="bars" d="M{a:.1f} {y:.1f}H{b:.1f}M{x:.1f} {c:.1f}V{d:.1f}"/>')
            title = f"{p['name']}: attacker {p['attacker']['value']:.3f}, receiver {p['utility']['value']:.3f}"
            shape = _SHAPES[code % len(_SHAPES)]
            ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="8"/>' if p["picked"] else ""
            out.append(
                f'{ring}<path class="mark k{code % svg.COLORS}" d="M{x:.1f} {y:.1f}{shape}">'
                f"<title>{Markup.escape(title)}</title></path>"
            )
            if "noise" in p["knobs"]:
                labels.append(spots.label(x, y, _number(p["knobs"]["noise"])))
    x, y = at(base["original attacker"]["value"], base["original utility"]["value"])
    out.append(f'<path class="star" d="M{x:.1f} {y:.1f}m-5-5l10 10m0-10l-10 10m5-12v14m-7-7h14"/>')
    # Last, on a halo: no line runs through a number.
    out += labels
    out.append(_text(left + width / 2, floor + 34, "accuracy of the strongest attacker", "axis middle"))
    out.append(_text(-(top + height / 2), 13, "accuracy of the receiver", "axis middle", turn=True))
    return _chart("curve", "Trade-off: accuracy of attackers and of receivers", left + width + 24, floor + 42, out)


def _segments(report: Mapping[str, Any], at: Callable[[float, float], Spot]) -> list[tuple[Spot, Spot]]:
    """Every line of the curves and every interval, from where to where."""
    out: list[tuple[Spot, Spot]] = []
    for line in _lines(report).values():
        places = [at(p["attacker"]["value"], p["utility"]["value"]) for p in line]
        out += pairwise(places)
        for p in line:
            a, u = p["attacker"], p["utility"]
            out.append((at(a["low"], u["value"]), at(a["high"], u["value"])))
            out.append((at(a["value"], u["low"]), at(a["value"], u["high"])))
    return out


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
