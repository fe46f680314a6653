"""A bar on standard error: results own standard output."""

from __future__ import annotations

from typing import Protocol


class ProgressBar(Protocol):
    """Told after each epoch; shows what it likes."""

    def step(self, done: int, total: int, loss: float) -> None:
        """`done` of `total` epochs are over."""
        ...

    def close(self) -> None:
        """The fit is over."""
        ...


class RichBar:
    """Epochs, loss and time left, drawn only on a terminal. The loss depends on records: screen only."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.completed:.0f}/{task.total:.0f}  loss {task.fields[loss]:.4g}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None, loss=float("nan"), visible=False)
        self._progress.start()

    def step(self, done: int, total: int, loss: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=total, loss=loss, visible=True)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()
