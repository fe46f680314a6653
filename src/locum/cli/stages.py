"""What `federate simulate` shows while it runs: a bar in a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from locum.cli import output

# Seconds between two lines of one stage where there is no terminal.
_RARELY = 5.0
# Requests of which each reply is shown; the others are counted by rounds or sums.
_SHOWN = {"join": "sites join", "train": "first round, sites", "finish": "heads of sites"}


class Stages:
    """Turns the events of a federation into progress, and keeps what the output must say at the end."""

    def __init__(self, progress: Callable[[int, int, str], None]) -> None:
        self._progress = progress
        self._lines = sys.stderr is not None and not sys.stderr.isatty()
        self._stage, self._said = "", 0.0
        self._rounds = False
        self.notes: list[str] = []

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event; those that say nothing about progress are left out."""
        kind = event["event"]
        if kind == "reply" and event["step"] in _SHOWN and not (event["step"] == "train" and self._rounds):
            self.show(_SHOWN[event["step"]], event["reply"], event["of"])
        elif kind == "joined":
            self.show(f"{len(event['sites'])} sites joined", 0, 1)
        elif kind in ("round", "sum"):
            self._rounds = True
            self.show(f"{kind}s", event[kind], event["of"])
        elif kind == "table":
            self.notes += table_notes(event)

    def show(self, stage: str, done: int, of: int) -> None:
        """Move the bar, or write a line if the stage is new or the last line is some time ago."""
        self._progress(done, of, stage)
        now = time.monotonic()
        if self._lines and (stage != self._stage or now - self._said > _RARELY):
            output.say_aside(f"{stage}: {done} of {of}" if of > 1 else stage)
            self._stage, self._said = stage, now


def table_notes(event: dict[str, Any]) -> list[str]:
    """What a table's reader did that somebody must know: nothing here holds a value of a record."""
    notes = []
    if event["ranges"] == "records":
        notes.append(
            f"The ranges of the {len(event['features'])} features were read off the records of all sites. A real run "
            "must declare them: `locum reference make --ranges FILE`."
        )
    if event["gaps"]:
        notes.append(f"{event['gaps']} missing values were replaced by the middle of their range.")
    if event["texts"]:
        notes.append(f"Columns of text became one feature per value: {', '.join(event['texts'])}.")
    return notes
