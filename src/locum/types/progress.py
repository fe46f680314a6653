"""How long work reports its progress: to a terminal, a notebook or a web page."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called after each piece of work: `done` of `total` pieces are finished, and `note` says more in a few words.

    The last call of finished work has `done == total`. A note can depend on records (a training loss): show it on the
    screen, and never write it to a file that leaves.
    """

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report `done` of `total`."""
        ...


def no_progress(done: int, total: int, note: str = "") -> None:
    """Show nothing: the `Progress` of callers that want none.

    Parameters
    ----------
    done, total
        How many pieces of work are finished, and how many there are.
    note
        More about the work in a few words.

    Examples
    --------
    >>> from locum.types import no_progress
    >>> no_progress(1, 10, "loss 0.3")
    """
