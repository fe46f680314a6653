"""A release on one page: the facts as a plain dict, and HTML, Markdown or JSON made from it.

Two builders, because two kinds of people read: `internal_report` for whoever holds the records, and
`shareable_report`, which no real vector can reach. `obfuscation_report` is of a trade-off, and internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.report.audit import audit_facts, audit_html, entry_facts
    from understudy.report.facts import internal_report, shareable_report
    from understudy.report.formats import SUFFIXES, render, to_json
    from understudy.report.html import to_html
    from understudy.report.maps import METHODS, FlatMap, flat_map
    from understudy.report.markdown import to_markdown
    from understudy.report.obfuscation import obfuscation_markdown, obfuscation_report
    from understudy.report.obfuscation_page import obfuscation_html
    from understudy.report.passport import passport_facts, passport_html, passport_markdown

__all__ = [
    "METHODS",
    "SUFFIXES",
    "FlatMap",
    "audit_facts",
    "audit_html",
    "entry_facts",
    "flat_map",
    "internal_report",
    "obfuscation_html",
    "obfuscation_markdown",
    "obfuscation_report",
    "passport_facts",
    "passport_html",
    "passport_markdown",
    "render",
    "shareable_report",
    "to_html",
    "to_json",
    "to_markdown",
]

_HOMES = {
    "METHODS": "understudy.report.maps",
    "SUFFIXES": "understudy.report.formats",
    "FlatMap": "understudy.report.maps",
    "audit_facts": "understudy.report.audit",
    "audit_html": "understudy.report.audit",
    "entry_facts": "understudy.report.audit",
    "flat_map": "understudy.report.maps",
    "internal_report": "understudy.report.facts",
    "obfuscation_html": "understudy.report.obfuscation_page",
    "obfuscation_markdown": "understudy.report.obfuscation",
    "obfuscation_report": "understudy.report.obfuscation",
    "passport_facts": "understudy.report.passport",
    "passport_html": "understudy.report.passport",
    "passport_markdown": "understudy.report.passport",
    "render": "understudy.report.formats",
    "shareable_report": "understudy.report.facts",
    "to_html": "understudy.report.html",
    "to_json": "understudy.report.formats",
    "to_markdown": "understudy.report.markdown",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
