"""How results look: tables for people on standard output, JSON for programs, progress on standard error."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from locum.io import printable
from locum.types import AttackResult, Estimate, PrivacyClaim

_VERDICT = {
    "leak": "leak: samples lie closer to records that were used than to others, beyond chance. Think before sending.",
    "no excess risk found": "no excess risk found by this attack. A better attack may find some.",
    "inconclusive": "inconclusive: too few records to tell. Give more that were not used (--non-members).",
}


def plain(text: str) -> str:
    """Text that cannot drive a terminal: it may come from a file that somebody else made."""
    return printable(text, keep="\n")


def console() -> Console:
    """Standard output as it is now; wide where it is no terminal, so that tables are not broken."""
    return Console(soft_wrap=False, width=None if sys.stdout.isatty() else 120, highlight=False)


def say(text: str = "", style: str = "") -> None:
    """One line for people. Text is never read as markup: class names come from outside."""
    console().print(escape(plain(text)), style=style or None, soft_wrap=True, emoji=False)


def print_json(value: Any) -> None:
    """One JSON document, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A plain table."""
    table = Table(*(escape(c) for c in columns), title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))
    console().print(table, emoji=False)


def estimate(value: Estimate | None, digits: int = 3) -> str:
    """A figure with its interval, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def short_estimate(value: Estimate | None, digits: int = 3) -> str:
    """The same for narrow columns: half the interval's width after the sign."""
    if value is None:
        return "-"
    if math.isinf(value.low) or value.low == value.high:
        return f"{value.value:.{digits}f}"
    return f"{value.value:.{digits}f} ± {(value.high - value.low) / 2:.{digits}f}"


def show_claim(claim: PrivacyClaim) -> None:
    """What is promised and what is not."""
    say(f"claim       {claim.title}", "bold")
    _indented(claim.sentence())
    for item in claim.not_covered:
        _indented(f"not covered: {item}")


def show_membership(result: AttackResult) -> None:
    """The first attack, in figures and in words."""
    style = "bold red" if result.verdict == "leak" else ""
    say(f"membership  AUC {estimate(result.attack)}, control {estimate(result.control)}, a coin gives 0.5")
    _indented(_VERDICT[result.verdict], style)


def _indented(text: str, style: str = "") -> None:
    """Under the heading of its line, also where the terminal is narrow."""
    for line in textwrap.wrap(plain(text), width=max(40, console().width - 13)):
        say(f"            {line}", style)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error, drawn on a terminal only, from the first step until all is done.

    It goes away in between, because a terminal can hold one bar at a time and training draws its own.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task(title, total=1)

    def step(done: int, total: int, what: str) -> None:
        progress.update(task, completed=done, total=max(total, 1), description=escape(f"{title}: {what}"))
        if done >= total:
            progress.stop()
        else:
            progress.start()

    try:
        yield step
    finally:
        progress.stop()
