"""What the template of the audit section needs beside the facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.report import svg
from understudy.report.audit_charts import audit_charts
from understudy.report.audit_words import AUDIT_READING
from understudy.report.words import interval_text

__all__ = ["section_parts"]


def section_parts(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the template of the section needs beside the facts: charts, and how figures are written."""
    if facts is None:
        return {"audit_parts": None}
    digits = facts["digits"]
    return {
        "audit_parts": {
            "charts": audit_charts(facts),
            "figure": lambda e: f"{e['value']:.{digits}f}",
            "range": lambda e: interval_text(e, digits),
            "spark": lambda e: svg.interval(e, 0.0, 1.0),
            "mark": svg.legend_mark,
            "reading": AUDIT_READING,
        }
    }
