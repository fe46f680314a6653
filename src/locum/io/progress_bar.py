"""A progress bar on standard error; standard output is for results."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class ProgressBar:
    """A `locum.types.Progress` that draws a bar in a terminal or a notebook, and nothing elsewhere.

    The bar appears with the first call and disappears when the work is done, so that the next bar can be drawn: a
    terminal holds only one at a time. Use it in a `with` statement, so that it also disappears after an error.

    Parameters
    ----------
    title
        Text before the bar.
    show
        False draws nothing.
    console
        A rich console to draw on; None: standard error.

    Examples
    --------
    >>> from locum.io import ProgressBar
    >>> with ProgressBar("fit", show=False) as progress:
    ...     for epoch in range(3):
    ...         progress(epoch + 1, 3, "loss 0.1")
    """

    def __init__(self, title: str, *, show: bool = True, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._title = title
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (show and (console.is_terminal or console.is_jupyter)),
        )
        self._task = self._bar.add_task(escape(title), total=1)

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Move the bar; `done >= total` removes it."""
        text = f"{self._title}: {note}" if note else self._title
        self._bar.update(self._task, completed=done, total=max(total, 1), description=escape(text))
        if done >= total:
            self._bar.stop()
        else:
            self._bar.start()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
