"""A release on one page: the facts as a plain dict, and HTML, Markdown or JSON made from it.

There are two builders, for two kinds of readers: `internal_report` for the holder of the records, and
`shareable_report`, which no real vector can reach. `obfuscation_report` describes a trade-off, and is internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.report.audit import audit_facts as audit_facts, audit_html as audit_html
    from locum.report.decision import SAFES as SAFES, decision_facts as decision_facts
    from locum.report.facts import internal_report as internal_report, shareable_report as shareable_report
    from locum.report.maps import FlatMap as FlatMap, check_method as check_method, flat_map as flat_map
    from locum.report.measured import shareable_figures as shareable_figures
    from locum.report.obfuscation import (
        BLIND as BLIND,
        judges_see as judges_see,
        obfuscation_html as obfuscation_html,
        obfuscation_markdown as obfuscation_markdown,
        obfuscation_report as obfuscation_report,
    )
    from locum.report.page import (
        SUFFIXES as SUFFIXES,
        check_suffix as check_suffix,
        render as render,
        to_html as to_html,
        to_json as to_json,
        to_markdown as to_markdown,
    )
    from locum.report.passport import render_passport_files as render_passport_files
    from locum.report.publish import publish_facts as publish_facts, publish_html as publish_html
    from locum.report.text import AUDIT_GLOSSARY as AUDIT_GLOSSARY, GLOSSARY as GLOSSARY

__getattr__, __dir__, __all__ = lazy_exports(__name__)
