"""The report as one HTML file: no script, nothing fetched, readable on a phone, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy.report import svg
from understudy.report.audit_parts import section_parts
from understudy.report.words import METRICS, interval_text

__all__ = ["pages", "to_html"]

_TITLES = {
    "released": "released vector to nearest record",
    "held-out": "held-out record to nearest record",
    "among records": "record to nearest other record",
}


def pages() -> Environment:
    """The templates of this package: every text is escaped, and a name that is missing is an error."""
    return Environment(
        loader=PackageLoader("understudy.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def to_html(report: Mapping[str, Any]) -> str:
    """One self-contained page from a report's dict.

    Every text is escaped, and the page's own policy forbids scripts and requests: a class name that holds
    markup is shown, not run.
    """
    environment = pages()
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    environment.filters["thousands"] = lambda n: f"{n:,}"
    digits = report["digits"]
    return environment.get_template("report.html.jinja").render(
        r=report,
        metrics={m: name for m, name in METRICS.items() if _has(report["utility"], m)},
        figure=lambda estimate: f"{estimate['value']:.{digits}f}",
        range=lambda estimate: interval_text(estimate, digits),
        spark=_sparks(report["utility"]),
        panels=_panels(report["map"]),
        mark=svg.legend_mark,
        histogram=_histogram(report["distances"]),
        attack=_attack(report["membership"]),
        bar=svg.bar,
        largest=max(max(c["released"], c.get("share", 0.0)) for c in report["classes"]["rows"]),
        titles=_TITLES,
        **section_parts(report["audit"]),
    )


def _has(utility: Mapping[str, Any] | None, metric: str) -> bool:
    return utility is not None and metric in utility["rows"][0]["scores"]


def _sparks(utility: Mapping[str, Any] | None) -> Any:
    """A whisker for each cell; one scale a column, so that rows can be compared."""
    ends: dict[str, tuple[float, float]] = {}
    for metric in (*METRICS, "distance"):
        cells = [] if utility is None else [row["scores"].get(metric, row["distance"]) for row in utility["rows"]]
        seen = [e[k] for e in cells if e is not None for k in ("value", "low", "high") if e[k] is not None]
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
    medians = "; ".join(f"{s['title']}: median {s['quantiles']['median']:.3g}" for s in series)
    return svg.histograms(series, found["edges"], key="distances", title=f"Histograms of distances. {medians}")


def _attack(found: Mapping[str, Any] | None) -> Markup | None:
    if found is None:
        return None
    styles = {"attack": "released", "control": "real", "baseline": "real"}
    rows = [dict(found[name], name=name, style=style) for name, style in styles.items()]
    words = ", ".join(f"{row['name']} {row['value']:.2f}" for row in rows)
    return svg.intervals(
        rows, key="attack", title=f"Membership check, AUC: {words}", reference=0.5, note="a coin gives 0.5"
    )
