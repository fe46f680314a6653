"""From a report's dict to the text of a file; the suffix says which."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from understudy.errors import ConfigError
from understudy.report.html import to_html
from understudy.report.markdown import to_markdown

__all__ = ["SUFFIXES", "check_suffix", "render", "to_json"]


def to_json(report: Mapping[str, Any]) -> str:
    """The dict itself; an interval's open end is `null`."""
    return json.dumps(report, indent=1, sort_keys=True, allow_nan=False) + "\n"


_RENDERERS: dict[str, Callable[[Mapping[str, Any]], str]] = {".html": to_html, ".md": to_markdown, ".json": to_json}
SUFFIXES = tuple(_RENDERERS)


def check_suffix(suffix: str) -> None:
    """Complain about a suffix that nothing can write, before any work."""
    if suffix not in _RENDERERS:
        raise ConfigError(f"A report ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; got {suffix!r}.")


def render(report: Mapping[str, Any], suffix: str) -> str:
    """HTML for ".html", Markdown for ".md", JSON for ".json"."""
    check_suffix(suffix)
    return _RENDERERS[suffix](report)
