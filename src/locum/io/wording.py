"""Names in a sentence: as a list, and the ones that a mistyped name may mean."""

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


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The question which of the known names was meant by a mistyped one.

    Parameters
    ----------
    name
        What was typed.
    known
        The names that there are.
    otherwise
        What to say if none of them is alike.

    Returns
    -------
    str
        A sentence, or `otherwise`.

    Examples
    --------
    >>> from locum.io import did_you_mean
    >>> did_you_mean("smaple", ["fit", "sample"])
    'Did you mean sample?'
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known))
    return f"Did you mean {listed(near)}?" if near else otherwise
