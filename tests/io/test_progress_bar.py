from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings, strategies as st
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


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("before", [0, 5])
def test_time_left_counts_pieces_of_this_run_only(before: int) -> None:
    stream, console = terminal()
    clock = Clock()
    with ProgressBar("judging", console=console, clock=clock) as bar:
        bar(before, before + 4, "started")
        assert bar.seconds_left is None
        clock.now += 100
        bar(before, before + 4, "noise 1: trees")
        assert bar.seconds_left is None
        clock.now += 200
        bar(before + 1, before + 4, "noise 1")
        assert bar.seconds_left == 900
        clock.now += 60
        bar(before + 1, before + 4, "noise 2: network")
        assert bar.seconds_left == 840, "time passes inside a piece; a note changes nothing"
        clock.now += 1000
        assert bar.seconds_left == 600, "a piece that takes too long: those after it"
        clock.now += 140
        bar(before + 2, before + 4, "noise 2")
        assert bar.seconds_left == 1500, "the mean of 300 and 1200 seconds, twice"
    assert "0:25:00 left" in stream.getvalue()
    assert last_line(stream) == ""


def test_other_work_has_its_own_time_left() -> None:
    _, console = terminal()
    clock = Clock()
    with ProgressBar("demo", console=console, clock=clock) as bar:
        bar(0, 2)
        clock.now += 50
        bar(2, 2)
        assert bar.seconds_left == 0
        clock.now += 7
        bar(0, 2, "second part")
        assert bar.seconds_left is None
        clock.now += 3
        bar(1, 2)
        assert bar.seconds_left == 3


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.integers(1, 10**6), min_size=1, max_size=30), more=st.integers(0, 30), at=st.integers(0, 9))
def test_time_left_is_the_mean_piece_times_the_pieces_to_come(steps: list[int], more: int, at: int) -> None:
    clock, total = Clock(), at + len(steps) + more
    bar = ProgressBar("fitting", show=False, clock=clock)
    bar(at, total)
    for i, step in enumerate(steps):
        clock.now += step
        bar(at + i + 1, total)
    assert bar.seconds_left == pytest.approx(sum(steps) / len(steps) * more)


@pytest.mark.parametrize("show", [True, False])
def test_nothing_is_drawn_off_a_terminal_or_if_not_wanted(show: bool) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=not show)
    with ProgressBar("fitting", show=show, console=console) as bar:
        bar(1, 2, "loss 1")
        bar(2, 2)
    assert stream.getvalue() == ""


def test_a_log_gets_a_line_every_half_a_minute_and_no_note() -> None:
    stream, clock = io.StringIO(), Clock()
    with ProgressBar("embed", console=Console(file=stream, force_terminal=False), clock=clock) as bar:
        for done in range(10):
            bar(done, 10, "patient [7]")
            clock.now += 11
        bar(10, 10)
    assert stream.getvalue() == "embed: 3/10, 0:01:17 left\nembed: 6/10, 0:00:44 left\nembed: 9/10, 0:00:11 left\n"


def test_short_work_leaves_no_line_in_a_log() -> None:
    stream, clock = io.StringIO(), Clock()
    with ProgressBar("embed", console=Console(file=stream, force_terminal=False), clock=clock) as bar:
        bar(0, 2)
        clock.now += 29
        bar(1, 2)
        clock.now += 100
        bar(2, 2)
    assert stream.getvalue() == ""
