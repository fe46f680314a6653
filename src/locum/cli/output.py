"""Output of the command line: tables or JSON on standard output, progress on standard error."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from locum.io import printable
from locum.report import verdict_text
from locum.types import AttackResult, Estimate, PrivacyClaim

if TYPE_CHECKING:
    from locum.io import ProgressBar


def plain(text: str) -> str:
    """Text without control characters: it can come from a file from an unknown source."""
    return printable(text, keep="\n")


def console() -> Console:
    """The current standard output; wide if it is not a terminal, so that tables are not broken."""
    return Console(soft_wrap=False, width=None if sys.stdout.isatty() else 120, highlight=False)


def say(text: str = "", style: str = "") -> None:
    """Print one line. Text is never read as markup: class names come from outside."""
    console().print(escape(plain(text)), style=style or None, soft_wrap=True, emoji=False)


def print_json(value: Any) -> None:
    """Print one JSON document, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table."""
    table = Table(*(escape(c) for c in columns), title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))
    console().print(table, emoji=False)


def estimate(value: Estimate | None, digits: int = 3) -> str:
    """A number with its interval, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def short_estimate(value: Estimate | None, digits: int = 3) -> str:
    """The same for narrow columns: the number ± half the width of its interval."""
    if value is None:
        return "-"
    if math.isinf(value.low) or value.low == value.high:
        return f"{value.value:.{digits}f}"
    return f"{value.value:.{digits}f} ± {(value.high - value.low) / 2:.{digits}f}"


def show_claim(claim: PrivacyClaim) -> None:
    """The claim, what it assumes and what it does not cover; a test stands out."""
    say(f"claim       {claim.title}", "bold red" if claim.test else "bold")
    _indented(claim.sentence())
    for item in claim.assumptions:
        _indented(f"assumed: {item}")
    for item in claim.not_covered:
        _indented(f"not covered: {item}")


def show_membership(result: AttackResult) -> None:
    """Print the result of the membership check."""
    style = "bold red" if result.verdict == "leak" else ""
    say(f"membership  AUC {estimate(result.attack)}, control {estimate(result.control)}, chance is 0.5")
    _indented(f"{result.verdict}: {verdict_text(result.verdict).attack}", style)


def _indented(text: str, style: str = "") -> None:
    """Print text under its line's heading, wrapped to the terminal."""
    for line in textwrap.wrap(plain(text), width=max(40, console().width - 13)):
        say(f"            {line}", style)


def progress_bar(title: str) -> ProgressBar:
    """A progress bar on standard error; use it in a `with` statement."""
    from locum.io import ProgressBar

    return ProgressBar(title)
