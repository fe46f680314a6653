"""Names as a list in a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[str], last: str = "or") -> str:
    """Names with commas, and a word before the last one.

    Parameters
    ----------
    names
        The names, in their order.
    last
        The word before the last name.

    Returns
    -------
    str
        The list; empty if there are no names.

    Examples
    --------
    >>> from locum.io import listed
    >>> listed(["a", "b", "c"])
    'a, b or c'
    >>> listed(["a", "b"], "and")
    'a and b'
    """
    *first, end = [*names] or [""]
    return f"{', '.join(first)} {last} {end}" if first else end
