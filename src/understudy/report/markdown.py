"""The report as Markdown: the same facts for a mail or a ticket, without the pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from understudy.report.words import METRICS, interval_text

__all__ = ["to_markdown"]

# Signs that would turn text into markup, in Markdown or in the HTML that is made from it.
_SPECIAL = frozenset("<>&|`[]*_\\#!~$")


def to_markdown(report: Mapping[str, Any]) -> str:
    """Markdown from a report's dict; the map is left out, histograms become quantiles."""
    utility, distances, membership = report["utility"], report["distances"], report["membership"]
    release, digits = report["release"], report["digits"]
    parts = [
        "# Understudy report on a release",
        f"**{report['audience'].upper()}.** {_text(report['banner'])}",
        *(
            f"**{card['title']}{'' if card['title'].endswith('?') else '.'}** {_text(card['text'])}"
            for card in report["summary"]
        ),
        "## What is claimed, and what is not",
        f"Claim: **{_text(report['claim']['title'])}**. {_text(report['claim']['sentence'])}",
        "Not covered:",
        "\n".join(f"- {_text(item)}" for item in report["claim"]["not_covered"]),
    ]
    if report["audit"] is not None:
        parts += ["## What attackers achieved", *_audit(report["audit"])]
    parts.append("## How useful it is")
    if utility is not None:
        shown = {m: name for m, name in METRICS.items() if m in utility["rows"][0]["scores"]}
        rows = [
            [row["method"], *(_figure(row["scores"][m], digits) for m in shown), _figure(row["distance"], digits)]
            for row in utility["rows"]
        ]
        parts.append(_table(["trained on", *shown.values(), "D"], rows))
        tested = f", tested on {utility['test_records']} real records" if report["audience"] == "internal" else ""
        parts.append(f"A {_text(utility['head'])} classifier, seeds: {utility['seeds']}{tested}.")
    parts += [_reading(report, "utility"), "## How close it comes to real records"]
    if distances is not None:
        levels = list(distances["series"][0]["quantiles"])
        rows = [[s["name"], *(f"{s['quantiles'][k]:.3g}" for k in levels)] for s in distances["series"]]
        parts.append(_table(["distance to the nearest record", *levels], rows))
        parts.append(
            f"{distances['copies']} released vectors equal a record; {100 * distances['closer']:.1f} % lie nearer to "
            "a record than 95 % of records lie to another."
        )
    parts += [_reading(report, "distances"), "## Classes"]
    counted = "records" in report["classes"]["rows"][0]
    parts.append(
        _table(
            ["class", "released", *(("records", "number") if counted else ())],
            [
                [c["name"], _percent(c["released"]), *((_percent(c["share"]), c["records"]) if counted else ())]
                for c in report["classes"]["rows"]
            ],
        )
    )
    if report["classes"]["left_out"]:
        parts.append(f"The {report['classes']['left_out']} rarest classes are not shown.")
    parts += [_reading(report, "classes"), "## Membership check"]
    if membership is not None:
        parts.append(f"**{_text(membership['words'])}**")
        names = ("attack", "control", "baseline")
        rows = [[n, _figure(membership[n], digits)] for n in names]
        parts.append(_table([membership["attack_name"], "AUC"], rows))
    parts += [_reading(report, "membership"), "## How it was made"]
    made = {k: release[k] for k in ("generator", "kind", "space", "schema", "written_by", "fingerprint")}
    made |= {f"condition {k}": ", ".join(v) for k, v in release["conditions"].items()}
    made |= report["settings"] | report["embedding"] | {f"{k} version": v for k, v in report["versions"].items()}
    made |= {f"SHA-256 of {f['name']}": f["sha256"] for f in report["files"]}
    parts += [_table(["what", "value"], made.items()), "## Glossary"]
    parts.append("\n".join(f"- **{_text(term)}**: {_text(words)}" for term, words in report["glossary"].items()))
    parts.append(f"Written {report['written_on']}.")
    return "\n\n".join(parts) + "\n"


def _reading(report: Mapping[str, Any], section: str) -> str:
    """The words below a figure, or why there is none and what to type."""
    gap = report["missing"].get(section)
    if gap is None:
        return f"In plain words. {_text(report['reading'][section])}"
    return _text(gap["why"]) + (f" To get this, type `{gap['type']}`." if gap["type"] else "")


def _audit(a: Mapping[str, Any]) -> list[str]:
    """The audit without its pictures: the verdict first, then what it rests on."""
    digits, both = a["digits"], a["sandwich"]
    parts = [f"**{a['title']}.** {_text(a['sentence'])}", _text(a["answer"])]
    names = ("attack", "control", "baseline")
    rows = [
        [r["attack"], r["verdict"], r["unit"], *(_figure(r["estimates"][n], digits) for n in names), r["p"] or "–"]
        for r in a["results"]
    ]
    parts.append(_table(["attack", "verdict", "in", "members", "control", "chance", "p, corrected"], rows))
    if both is not None:
        parts.append(_text(both["words"]))
    if a["policy"] is not None:
        rules = [[r["rule"], "met" if r["met"] else "NOT MET", r["found"], r["why"]] for r in a["policy"]["rules"]]
        parts.append(_table([f"policy {a['policy']['name']}", "met", "found", "why it is asked"], rules))
    if a["classes"] is not None:
        heads = [f"{head['attack']}, {head['unit']}" for head in a["classes"]["heads"]]
        cells = [[row["name"], *(_figure(e, digits) for e in row["cells"])] for row in a["classes"]["rows"]]
        parts.append(_table(["class", *heads], cells))
    if a["problems"]:
        parts.append("\n".join(f"- {_text(p['words'])} ({p['effect']})" for p in a["problems"]))
    if a["skipped"]:
        parts.append(_table(["not made", "why"], a["skipped"]))
    if a["screening"] is not None:
        looks = [[r["name"], *(_figure(r[k], digits) for k in ("members", "strangers"))] for r in a["screening"]]
        parts.append(_table(["screening only", "members", "strangers"], looks))
    return [part for part in parts if part]


def _figure(estimate: Mapping[str, Any] | None, digits: int) -> str:
    if estimate is None:
        return "–"
    return f"{estimate['value']:.{digits}f} ({interval_text(estimate, digits)})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    first, *rest = ("| " + " | ".join(_text(cell) for cell in row) + " |" for row in (head, *rows))
    return "\n".join([first, "|" + "---|" * len(head), *rest])


def _text(value: Any) -> str:
    """Safe as Markdown, in a table's cell, and in the HTML made from it: every special sign as an entity."""
    return "".join(f"&#{ord(ch)};" if ch in _SPECIAL else ch for ch in str(value))
