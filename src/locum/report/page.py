"""A report's dict as HTML, Markdown or JSON; `pages` loads the templates for all pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from locum.errors import ConfigError
from locum.io import listed
from locum.report import charts as svg
from locum.report.charts import section_parts
from locum.report.text import FAR, MEASURES, METRICS, closest_words, interval_text, reason_words, times

_TITLES = {
    "released": "released vector to nearest record",
    "held-out": "held-out record to nearest record",
    "among records": "record to nearest other record",
}
# Characters that mean markup in Markdown, or in the HTML made from it.
_SPECIAL = frozenset("<>&|`[]*_\\#!~$")
_CODE = re.compile(r"`([\w.=/-]{1,60})`", re.ASCII)


def render(report: Mapping[str, Any], suffix: str) -> str:
    """A report on a release as text.

    Parameters
    ----------
    report
        What `internal_report` or `shareable_report` returned.
    suffix
        ".html", ".md" or ".json".

    Returns
    -------
    str
        HTML, Markdown or JSON.

    Raises
    ------
    ConfigError
        If the suffix is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.report import render, shareable_report
    >>> report = shareable_report(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True), map="pca")
    >>> render(report, ".md").splitlines()[0]
    '# Locum report on a release'
    """
    check_suffix(suffix)
    return _RENDERERS[suffix](report)


def check_suffix(suffix: str) -> None:
    """Raise an error for an unknown suffix of a report, before any work.

    Parameters
    ----------
    suffix
        ".html", ".md" or ".json".

    Raises
    ------
    ConfigError
        If it is none of these.

    Examples
    --------
    >>> from locum.report import check_suffix
    >>> check_suffix(".pdf")
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: A report ends in .html, .md or .json; got '.pdf'.
    """
    if suffix not in _RENDERERS:
        raise ConfigError(f"A report ends in {listed(SUFFIXES)}; got {suffix!r}.")


def to_json(report: Mapping[str, Any]) -> str:
    """A report's dict as JSON; the open end of an interval is `null`.

    Parameters
    ----------
    report
        A report with plain JSON types.

    Returns
    -------
    str
        JSON with sorted keys and a line break at its end.

    Examples
    --------
    >>> from locum.report import to_json
    >>> print(to_json({"low": None, "high": 1.0}), end="")
    {
     "high": 1.0,
     "low": null
    }
    """
    return json.dumps(report, indent=1, sort_keys=True, allow_nan=False) + "\n"


def to_html(report: Mapping[str, Any]) -> str:
    """One self-contained page from a report's dict.

    All text is escaped, and the content policy of the page forbids scripts and requests: markup in a class name
    is shown, not run.

    Parameters
    ----------
    report
        What `internal_report` or `shareable_report` returned.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.report import shareable_report, to_html
    >>> report = shareable_report(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True), map="pca")
    >>> to_html(report).splitlines()[0]
    '<!doctype html>'
    """
    environment = pages()
    environment.filters["percent"] = lambda share: f"{100 * share:.1f}%"
    environment.filters["thousands"] = lambda n: f"{n:,}"
    digits = report["digits"]
    return environment.get_template("report.html.jinja").render(
        r=report,
        metrics={m: name for m, name in METRICS.items() if _has(report["utility"], m)},
        figure=lambda estimate: f"{estimate['value']:.{digits}f}",
        range=lambda estimate: interval_text(estimate, digits),
        runs=lambda estimate: interval_text(estimate, digits, fixed="same in each run"),
        spark=_sparks(report["utility"]),
        panels=_panels(report["map"]),
        mark=svg.legend_mark,
        histogram=_histogram(report["distances"]),
        attack=_attack(report["membership"]),
        bar=svg.bar,
        largest=max(max(c["released"], c.get("share", 0.0)) for c in report["classes"]["rows"]),
        titles=_TITLES,
        times=times,
        far=_far_interval,
        closest=closest_words(report["distances"]),
        **section_parts(report["audit"]),
    )


def to_markdown(report: Mapping[str, Any]) -> str:
    """Markdown from a report's dict, for a mail or a ticket: without the map, and quantiles for histograms.

    Parameters
    ----------
    report
        What `internal_report` or `shareable_report` returned.

    Returns
    -------
    str
        Markdown; names that could be markup are escaped.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.report import shareable_report, to_markdown
    >>> report = shareable_report(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True), map="pca")
    >>> "Claim: **No guarantee**" in to_markdown(report)
    True
    """
    utility, distances, membership = report["utility"], report["distances"], report["membership"]
    release, digits = report["release"], report["digits"]
    parts = [
        "# Locum report on a release",
        f"**{report['audience'].upper()}.** {_text(report['banner'])}",
        *_verdict(report["audit"]),
        *(
            f"**{card['title']}{'' if card['title'].endswith('?') else '.'}** {_text(card['text'])}"
            for card in report["summary"]
        ),
        "## What is claimed, and what is not",
        f"Claim: **{_text(report['claim']['title'])}**. {_text(report['claim']['sentence'])}",
        *_assumed(report["claim"]),
        "Not covered:",
        "\n".join(f"- {_text(item)}" for item in report["claim"]["not_covered"]),
    ]
    if report["audit"] is not None:
        parts += ["## What attackers achieved", *_audit(report["audit"])]
    parts.append("## How useful it is")
    if utility is not None:
        shown = {m: name for m, name in METRICS.items() if m in utility["rows"][0]["scores"]}
        rows = [
            [row["method"], *(_figure(row["scores"][m], digits) for m in shown), *_far(row["distance"])]
            for row in utility["rows"]
        ]
        far = any(row["distance"] for row in utility["rows"])
        rows = [row if far else row[:-1] for row in rows]
        parts.append(_table(["trained on", *shown.values(), *(["nearest record"] if far else [])], rows))
        tested = f", tested on {utility['test_records']} real records" if report["audience"] == "internal" else ""
        parts.append(f"A {_text(utility['head'])} classifier, seeds: {utility['seeds']}{tested}.")
    parts += [_reading(report, "utility"), "## How close it comes to real records"]
    if distances is not None:
        levels = list(distances["series"][0]["quantiles"])
        parts.append(_text(closest_words(distances)))
        rows = [[s["name"], *(times(s["quantiles"][k]) for k in levels)] for s in distances["series"]]
        parts.append(_table(["distance to the nearest record", *levels], rows))
        parts.append(
            f"{distances['copies']} released vectors equal a record; {100 * distances['closer']:.1f}% lie closer to "
            "a record than 95% of records lie to another."
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
        parts.append(_table([membership["name"], "AUC"], rows))
    parts += [_reading(report, "membership"), "## How it was made"]
    made = {k: release[k] for k in ("generator", "kind", "space", "schema", "written_by", "fingerprint")}
    made |= {f"condition {k}": ", ".join(v) for k, v in release["conditions"].items()}
    made |= report["settings"] | report["embedding"] | {f"{k} version": v for k, v in report["versions"].items()}
    made |= {f"SHA-256 of {f['name']}": f["sha256"] for f in report["files"]}
    parts += [_table(["what", "value"], made.items()), "## Glossary"]
    parts.append("\n".join(f"- **{_text(term)}**: {_text(words)}" for term, words in report["glossary"].items()))
    parts.append(f"Written {report['written_on']}.")
    return "\n\n".join(parts) + "\n"


def _assumed(claim: Mapping[str, Any]) -> list[str]:
    """What the claim rests on, if anything."""
    lines = claim["assumptions"]
    return ["Assumed:", "\n".join(f"- {_text(item)}" for item in lines)] if lines else []


def pages() -> Environment:
    """The templates of this package: all text is escaped, names in backticks are set as code, and an undefined name
    is an error.
    """
    found = Environment(
        loader=PackageLoader("locum.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_with_code,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["reason_words"] = reason_words
    return found


def _with_code(value: Any) -> Any:
    """Text that a template shows, with `names` as code; markup is left alone."""
    if not isinstance(value, str) or isinstance(value, Markup) or "`" not in value:
        return value
    # Every other part was between two backticks; longer texts are no names, and a lone backtick stays.
    *pairs, last = re.split(r"`([^`]{1,60})`", value)
    pieces = [Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in enumerate(pairs)]
    return Markup("").join([*pieces, escape(last)])


def _has(utility: Mapping[str, Any] | None, metric: str) -> bool:
    return utility is not None and metric in utility["rows"][0]["scores"]


def _sparks(utility: Mapping[str, Any] | None) -> Any:
    """A small interval for each cell; one scale per column, so that rows can be compared."""
    ends: dict[str, tuple[float, float]] = {}
    for metric in (*METRICS, "distance"):
        cells = [] if utility is None else [row["scores"].get(metric, row["distance"]) for row in utility["rows"]]
        cells = [e for e in cells if e is not None and not (metric == "distance" and e["value"] > FAR)]
        seen = [e[k] for e in cells for k in ("value", "low", "high") if e[k] is not None]
        ends[metric] = (min(seen), max(seen)) if seen else (0.0, 1.0)
    return lambda estimate, metric: svg.interval(estimate, *ends[metric])


def _panels(found: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if found is None:
        return []
    out = []
    for i, panel in enumerate(found["panels"]):
        size = f"{len(panel['points'])} points in {len(found['classes'])} classes"
        title = f"{found['method']} map: {panel['title']}, {size}"
        chart = svg.scatter(panel["points"], found["classes"], key=f"map-{i}", title=title, axes=found["axes"])
        out.append({"title": panel["title"], "points": len(panel["points"]), "chart": chart})
    return out


def _histogram(found: Mapping[str, Any] | None) -> Markup | None:
    if found is None:
        return None
    series = [
        dict(s, title=_TITLES[s["name"]], style="released" if s["name"] == "released" else "real")
        for s in found["series"]
    ]
    medians = "; ".join(f"{s['title']}: median {times(s['quantiles']['median'])}" for s in series)
    return svg.histograms(series, found["edges"], key="distances", title=f"Histograms of distances. {medians}")


def _attack(found: Mapping[str, Any] | None) -> Markup | None:
    if found is None:
        return None
    styles = {"attack": "released", "control": "real", "baseline": "real"}
    rows = [dict(found[name], name=name, style=style) for name, style in styles.items()]
    words = ", ".join(f"{row['name']} {row['value']:.2f}" for row in rows)
    return svg.intervals(
        rows, key="attack", title=f"Membership check, AUC: {words}", reference=0.5, note="chance is 0.5"
    )


def _reading(report: Mapping[str, Any], section: str) -> str:
    """The explanation of a section, or why it is empty and what to type."""
    gap = report["missing"].get(section)
    if gap is None:
        return f"In plain words. {_text(report['reading'][section])}"
    return _text(gap["why"]) + (f" To get this, type `{gap['type']}`." if gap["type"] else "")


def _verdict(a: Mapping[str, Any] | None) -> list[str]:
    """What an audit found, and what follows for the policy."""
    if a is None:
        return []
    policy = (
        "" if a["policy"] is None else f"Policy {a['policy']['name']}: {'met' if a['policy']['met'] else 'NOT met'}. "
    )
    parts = [f"**{_text(policy)}{a['title']}.** {_text(a['sentence'] + reason_words(a['because']))}"]
    parts += [_text(a["strongest"]), _text(a["consequence"])]
    parts.append("\n".join(f"- {_text(rule['rule'])}. {_text(rule['words'])}" for rule in a["failed"]))
    return [part for part in parts if part]


def _audit(a: Mapping[str, Any]) -> list[str]:
    """The audit without its charts; the verdict stands on top of the page."""
    digits, both = a["digits"], a["epsilon_audit"]
    parts = []
    names = ("attack", "control", "baseline")
    rows = [
        [r["name"], r["verdict"], MEASURES[r["measure"]], *(_figure(r[n], digits) for n in names), r["p"] or "–"]
        for r in a["results"]
    ]
    parts.append(_table(["attack", "verdict", "in", "members", "control", "chance", "p, corrected"], rows))
    if both is not None:
        parts.append(_text(both["words"]))
    if a["policy"] is not None:
        rules = [[r["rule"], "met" if r["met"] else "NOT MET", r["found"], r["why"]] for r in a["policy"]["rules"]]
        parts.append(_table([f"policy {a['policy']['name']}", "met", "found", "why it is asked"], rules))
    if a["classes"] is not None:
        heads = [f"{head['name']}, {MEASURES[head['measure']]}" for head in a["classes"]["heads"]]
        cells = [[row["name"], *(_figure(e, digits) for e in row["cells"])] for row in a["classes"]["rows"]]
        parts.append(_table(["class", *heads], cells))
    if a["problems"]:
        parts.append("\n".join(f"- {_text(p['words'])} ({p['effect']})" for p in a["problems"]))
    if a["skipped"]:
        parts.append(_table(["not made", "why"], a["skipped"]))
    if a["screening"] is not None:
        looks = [[r["name"], *(_figure(r[k], digits) for k in ("members", "non_members"))] for r in a["screening"]]
        parts.append(_table(["screening only", "members", "non-members"], looks))
    return [part for part in parts if part]


def _figure(estimate: Mapping[str, Any] | None, digits: int) -> str:
    if estimate is None:
        return "–"
    return f"{estimate['value']:.{digits}f} ({interval_text(estimate, digits)})"


def _far(estimate: Mapping[str, Any] | None) -> list[str]:
    """A distance in units of the usual one."""
    if estimate is None:
        return ["–"]
    interval = _far_interval(estimate)
    return [f"{times(estimate['value'])} ({interval})" if interval else times(estimate["value"])]


def _far_interval(estimate: Mapping[str, Any]) -> str:
    """The interval of a distance; far away it says nothing."""
    return "" if estimate["value"] > FAR else interval_text(estimate, 2 if estimate["value"] < 1 else 1)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    first, *rest = ("| " + " | ".join(_text(cell) for cell in row) + " |" for row in (head, *rows))
    return "\n".join([first, "|" + "---|" * len(head), *rest])


def _text(value: Any) -> str:
    """Text that is safe in Markdown, in a table cell and in HTML: special characters become entities.

    A plain name in backticks stays code: nothing in it can be markup.
    """
    parts = _CODE.split(str(value))
    return "".join(f"`{part}`" if i % 2 else _escaped(part) for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    return "".join(f"&#{ord(ch)};" if ch in _SPECIAL else ch for ch in text)


_RENDERERS: dict[str, Callable[[Mapping[str, Any]], str]] = {".html": to_html, ".md": to_markdown, ".json": to_json}
SUFFIXES = tuple(_RENDERERS)
