"""A progress bar on standard error, lines in a log, or a bar in a notebook's cell; standard output is for results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from html import escape as escape_html
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text


class ProgressBar:
    """A `locum.types.Progress` that draws a bar in a terminal or a notebook, and writes a line to a log now and then.

    The bar appears with the first call and disappears when the work is done, so that the next bar can be drawn: a
    terminal holds only one at a time. Use it in a `with` statement, so that it also disappears after an error.

    Time left is what the pieces finished so far took on average, times those to come. Pieces that an earlier run
    finished do not count: the number done in the first call is the start. A call that only changes the note, to say
    what is at work, leaves the average as it is.

    Parameters
    ----------
    title
        Text before the bar.
    show
        False draws nothing.
    console
        A rich console to draw on; None: standard error.
    clock
        Seconds since some moment.

    Examples
    --------
    >>> from locum.io import ProgressBar
    >>> with ProgressBar("fit", show=False) as progress:
    ...     for epoch in range(3):
    ...         progress(epoch + 1, 3, "loss 0.1")
    """

    def __init__(
        self,
        title: str,
        *,
        show: bool = True,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Rich would need widgets there, which many notebooks do not have.
        self._cell = _Cell(clock) if show and console is None and _in_notebook() else None
        console = console or Console(stderr=True)
        self._title = title
        self._pace = _Pace(clock)
        self._log = _Log(console, clock) if show and self._cell is None and not console.is_terminal else None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            _TimeLeft(self._pace),
            console=console,
            transient=True,
            get_time=clock,
            disable=not (show and self._cell is None and console.is_terminal),
        )
        self._task = self._bar.add_task(escape(title), total=1)

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Move the bar; `done >= total` removes it."""
        text = f"{self._title}: {note}" if note else self._title
        self._pace.update(done, total)
        if self._cell is not None:
            self._cell.show(bar_html(text, done, total, self._pace.left()), last=done >= total)
            return
        if self._log is not None:
            self._log.show(self._title, done, total, self._pace.left())
            return
        self._bar.update(self._task, completed=done, total=max(total, 1), description=escape(text))
        if done >= total:
            self._bar.stop()
        else:
            self._bar.start()

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the average pace so far; None until a piece is finished."""
        return self._pace.left()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()
        if self._cell is not None:
            self._cell.show("", last=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bar_html(text: str, done: int, total: int, left: float | None) -> str:
    """The bar as HTML that a browser draws in the colors of its page; text is escaped.

    Parameters
    ----------
    text
        Title and note.
    done, total
        How many pieces are finished, and how many there are.
    left
        Seconds to the end; None: not known yet.

    Returns
    -------
    str
        HTML without scripts.

    Examples
    --------
    >>> from locum.io import bar_html
    >>> bar_html("fit: <b>", 1, 4, None)
    '<div><progress value="1" max="4"></progress> fit: &lt;b&gt; 1/4</div>'
    """
    most = max(total, 1)
    rest = "" if left is None else f", {timedelta(seconds=round(left))} left"
    bar = f'<progress value="{min(done, most)}" max="{most}"></progress>'
    return f"<div>{bar} {escape_html(text)} {done}/{most}{rest}</div>"


def _in_notebook() -> bool:
    """Whether cells of a notebook show our output; a terminal's IPython is a terminal."""
    python = sys.modules.get("IPython")
    shell = None if python is None else python.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class _Cell:
    """One output of a notebook's cell that is replaced as the work goes on, and empty at the end.

    What was shown last is saved with the notebook: a note can depend on records, so nothing is left.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._handle: Any = None
        self._drawn = float("-inf")

    def show(self, html: str, *, last: bool) -> None:
        """Draw, at most four times a second."""
        from IPython.display import HTML, display

        if last:
            if self._handle is not None:
                self._handle.update(HTML(""))
                self._handle = None
        elif self._clock() - self._drawn >= 0.25:
            self._drawn = self._clock()
            if self._handle is None:
                self._handle = display(HTML(html), display_id=True)
            else:
                self._handle.update(HTML(html))


class _Log:
    """A line every half a minute, for pipes and log files; none for work that is done before.

    Notes are left out: they can depend on records, and a log may be kept or sent.
    """

    _EVERY = 30.0

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._written: float | None = None

    def show(self, title: str, done: int, total: int, left: float | None) -> None:
        """Write, if it is time and the work is not done."""
        if self._written is None:
            self._written = self._clock()
        if done < total and self._clock() - self._written >= self._EVERY:
            self._written = self._clock()
            rest = "" if left is None else f", {timedelta(seconds=round(left))} left"
            self._console.print(f"{title}: {done}/{total}{rest}", markup=False, highlight=False, soft_wrap=True)


class _Pace:
    """Time per piece since the first call.

    Rich's own estimate forgets what is older than 30 seconds: it has none for pieces that take longer.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first: tuple[int, float] | None = None
        self._last, self._total = (0, 0.0), 0

    def update(self, done: int, total: int) -> None:
        """`done` of `total` pieces are finished; fewer than before, or another total: other work has begun."""
        if self._first is None or done < self._last[0] or total != self._total:
            self._first = self._last = (done, self._clock())
        elif done > self._last[0]:
            self._last = (done, self._clock())
        self._total = total

    def left(self) -> float | None:
        """Seconds to the end; None until a piece is finished."""
        if self._first is None or self._last[0] == self._first[0]:
            return None
        each = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        # The piece at work has taken some time already, at most all that it should.
        begun = min(each, self._clock() - self._last[1])
        return max(0.0, each * (self._total - self._last[0]) - begun)


class _TimeLeft(ProgressColumn):
    """The time left, such as `0:12:30 left`."""

    def __init__(self, pace: _Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """Nothing until there is an estimate."""
        left = self._pace.left()
        return Text("" if left is None else f"{timedelta(seconds=round(left))} left", style="progress.remaining")
