"""Output of the command line: results on standard output, progress and logs on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from locum.io import printable

if TYPE_CHECKING:
    from locum.io import ProgressBar
    from locum.types import AttackResult, Estimate, PrivacyClaim, Progress, Tone

# Set by --quiet and --verbose, for the verb that runs.
_quiet = False
# What to do after Ctrl-C, if the work can be resumed.
stop_hint = ""

_STYLES: dict[str, dict[str, Any]] = {
    "bold": {"bold": True},
    "dim": {"dim": True},
    "red": {"bold": True, "fg": "red"},
    "green": {"fg": "green"},
    "yellow": {"fg": "yellow"},
}
TONE_STYLES: dict[Tone, str] = {"plain": "", "good": "green", "doubt": "yellow", "bad": "red"}


def set_level(*, quiet: bool, verbose: bool) -> None:
    """Say nothing but errors and asked-for data, or also say what is being done."""
    global _quiet
    _quiet = quiet
    if not verbose and "logging" not in sys.modules:
        return
    import logging

    logger = logging.getLogger("locum")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    if verbose and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)


def plain(text: str) -> str:
    """Text without control characters: it can come from a file from an unknown source."""
    return printable(text, keep="\n")


def width() -> int:
    """Columns of the terminal; 120 if there is none, so that tables are not broken."""
    if sys.stdout.isatty():
        import shutil

        return shutil.get_terminal_size().columns
    return 120


def say(text: str = "", style: str = "") -> None:
    """Print one line, unless --quiet."""
    if _quiet:
        return
    words = plain(text)
    if style and "NO_COLOR" not in os.environ:
        words = click.style(words, **_STYLES[style])
    click.echo(words)


def say_aside(text: str) -> None:
    """Print one line on standard error, because standard output holds a table of data."""
    if not _quiet:
        click.echo(plain(text), err=True)


def print_json(value: Any) -> None:
    """Print one JSON document, and nothing else, on standard output."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def show(result: Any, as_json: bool, in_words: Callable[[Any], None]) -> None:
    """Print a result as JSON, or in words."""
    if as_json:
        print_json(result if isinstance(result, dict | list) else result.to_dict())
    else:
        in_words(result)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table."""
    if _quiet:
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*(escape(c) for c in columns), title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))
    Console(soft_wrap=False, width=width(), highlight=False).print(table, emoji=False)


def estimate(value: Estimate | None, digits: int = 3) -> str:
    """A number with its interval, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def short_estimate(value: Estimate | None, digits: int = 3) -> str:
    """The same for narrow columns: the number ± half the width of its interval."""
    return "-" if value is None else value.short(digits)


def show_guarantee(claim: PrivacyClaim) -> None:
    """The claim, and first what it assumes; a test stands out."""
    _show_lines(claim.lines(limits=False), claim.test)


def show_claim(claim: PrivacyClaim) -> None:
    """The claim, what it assumes and what it does not cover."""
    _show_lines(claim.lines(), claim.test)


def _show_lines(lines: Sequence[tuple[str, str]], test: bool) -> None:
    for heading, text in lines:
        if heading:
            say(f"{heading:11s} {text}", "red" if test else "bold")
        else:
            say_indented(text)


def show_audit(sentence: str, refused: bool, override: str | None) -> None:
    """What attackers found, before anything else; a leak, or a policy that is not met, stands out."""
    say(f"audit       {sentence}", "red" if refused else "bold")
    if override is not None:
        say_indented(f"signed nevertheless, because: {override}", "red")


def show_decision(sentence: str, refused: bool) -> None:
    """What the holder decided."""
    say(f"decision    {sentence}", "red" if refused else "bold")


def show_membership(result: AttackResult) -> None:
    """Print the result of the membership check."""
    from locum.types import verdict_text

    say(f"membership  AUC {estimate(result.attack)}, control {estimate(result.control)}, chance is 0.5")
    why = result.doubt
    words = f"{why[:1].upper()}{why[1:]}." if why else verdict_text(result.verdict).attack
    say_indented(f"{result.verdict}: {words}", "red" if result.verdict == "leak" else "")


def say_indented(text: str, style: str = "") -> None:
    """Print text under its line's heading, wrapped to the terminal."""
    import textwrap

    for line in textwrap.wrap(plain(text), width=max(40, width() - 13), break_on_hyphens=False):
        say(f"            {line}", style)


def progress_bar(title: str) -> ProgressBar:
    """A progress bar on standard error, unless --quiet; use it in a `with` statement."""
    from locum.io import ProgressBar

    return ProgressBar(title, show=not _quiet)


def in_lines(bar: ProgressBar) -> Progress:
    """The bar in a terminal; where there is none, one line per step on standard error, so that a log tells it too."""
    if sys.stderr.isatty():
        return bar

    def line(done: int, total: int, note: str = "") -> None:
        if note not in ("started", "writing"):
            say_aside(f"{done}/{total} {note}")

    return line


@contextmanager
def resumable(kept: bool = True, starts_over: str = "") -> Iterator[None]:
    """Work that goes on where it was stopped: the last line after Ctrl-C says so.

    `starts_over` is an option of this run that would throw away what is kept.
    """
    global stop_hint
    again = f"without {starts_over}" if starts_over else "again"
    stop_hint = f"run the same command {again} to resume" if kept else "nothing was kept"
    yield
    stop_hint = ""


def confirm(meaning: str, consent: str) -> None:
    """Ask whether to go on; `consent` is the option that answers where nobody can."""
    if sys.stdin is None:
        from locum.errors import ConfigError

        raise ConfigError(
            f"{plain(meaning)} There is no standard input to confirm this with: add {consent} if you mean it."
        )
    click.confirm(f"{plain(meaning)} Go on?", abort=True, err=True)


def can_ask() -> bool:
    """Whether somebody sits at a terminal who can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def is_quiet() -> bool:
    """Whether --quiet was given, for work that draws its own bar."""
    return _quiet
