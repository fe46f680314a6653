"""The page of an audit, from the JSON that `audit` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.data.files import write_bytes
from understudy.errors import DataError, PrivacyError
from understudy.recipes.common import check_new_file
from understudy.recipes.passport_figures import read_json
from understudy.release.whole import lies_in_release
from understudy.report.audit import audit_facts, audit_html

__all__ = ["audit_of", "make_audit_page", "write_audit_page"]


def make_audit_page(audit: Path, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the page of the audit in a JSON file, and return the facts on it. The page is internal."""
    check_new_file(out, overwrite=overwrite)
    facts = audit_facts(read_json(audit, "audit"))
    write_audit_page(out, facts, overwrite=overwrite)
    return facts


def write_audit_page(path: Path, facts: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a page from `audit_facts` that only its owner can read. A release folder, which leaves, is refused."""
    check_new_file(path, overwrite=overwrite)
    if lies_in_release(path):
        raise PrivacyError("A release is made to leave, and this page is internal: write it beside the release.")
    write_bytes(str(path), audit_html(facts).encode())


def audit_of(audit: Path, fingerprint: str | None) -> Mapping[str, Any]:
    """The JSON of an audit of the release with this fingerprint: that of another would fit any."""
    found = read_json(audit, "audit")
    if not fingerprint or found.get("fingerprint") != fingerprint:
        raise DataError("The audit is not of this release, by its `fingerprint`. Audit this one.")
    return found
