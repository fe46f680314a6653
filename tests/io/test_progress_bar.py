from __future__ import annotations

import contextlib
import io

import pytest
from rich.console import Console

from locum.io import ProgressBar
from locum.types import Progress


def terminal() -> tuple[io.StringIO, Console]:
    stream = io.StringIO()
    return stream, Console(file=stream, force_terminal=True, width=100)


def last_line(stream: io.StringIO) -> str:
    """What is left on the line of the bar once it is erased."""
    return stream.getvalue().rsplit("\x1b[2K", 1)[-1]


def test_a_bar_is_drawn_from_the_first_step_and_gone_after_the_last() -> None:
    stream, console = terminal()
    bar: Progress = ProgressBar("fitting", console=console)
    assert stream.getvalue() == ""
    bar(1, 3, "loss [0.5]")
    bar(3, 3, "loss 0.25")
    assert "fitting" in stream.getvalue()
    assert last_line(stream) == ""
    assert "\x1b[?25h" in stream.getvalue(), "the cursor is back"


def test_a_bar_is_gone_after_an_error() -> None:
    stream, console = terminal()
    with contextlib.suppress(RuntimeError), ProgressBar("fitting", console=console) as bar:
        bar(1, 3)
        raise RuntimeError
    assert last_line(stream) == ""


def test_a_finished_bar_can_start_again() -> None:
    stream, console = terminal()
    with ProgressBar("demo", console=console) as bar:
        bar(2, 2, "first")
        bar(0, 5, "second part")
        bar(5, 5)
    assert "second part" in stream.getvalue()
    assert last_line(stream) == ""


@pytest.mark.parametrize("show", [True, False])
def test_nothing_is_drawn_off_a_terminal_or_if_not_wanted(show: bool) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=not show)
    with ProgressBar("fitting", show=show, console=console) as bar:
        bar(1, 2, "loss 1")
        bar(2, 2)
    assert stream.getvalue() == ""
