"""Text that somebody else chose, made safe to show: class names, file names and reasons come from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Signs that mean something in Markdown or HTML; an ampersand only where an entity would begin.
_SPECIAL = re.compile(r"[<>|`\[\]*\\]|&(?=#?\w+;)")
# A plain name set as code: nothing in it can be markup.
_CODE = re.compile(r"`([\w.=/-]{1,60})`", re.ASCII)


def printable(text: str, *, instead: str = "?", keep: str = "") -> str:
    """Text that cannot drive a terminal.

    Parameters
    ----------
    text
        Text from outside.
    instead
        What replaces each character that is not printable.
    keep
        Characters that stay although they are not printable, such as line breaks.

    Returns
    -------
    str
        The text without control characters.

    Examples
    --------
    >>> from locum.io import printable
    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    return "".join(ch if ch.isprintable() or ch in keep else instead for ch in text)


def one_line(text: str) -> str:
    """Printable text on one line, with single spaces.

    Parameters
    ----------
    text
        Text from outside.

    Returns
    -------
    str
        The text without line breaks, control characters and repeated spaces.

    Examples
    --------
    >>> from locum.io import one_line
    >>> one_line(" two\\n lines ")
    'two lines'
    """
    return " ".join(printable(text, instead=" ").split())


def markdown_text(text: str) -> str:
    """Text made safe for Markdown, for a table cell, and for the HTML made from it.

    Each character that means something there becomes an entity. Not for code spans, which show entities literally.

    Parameters
    ----------
    text
        Text from outside.

    Returns
    -------
    str
        One line of Markdown that shows the text and nothing else.

    Examples
    --------
    >>> from locum.io import markdown_text
    >>> markdown_text("a|b")
    'a&#124;b'
    """
    return _escaped(one_line(text))


def markdown_sentence(text: str) -> str:
    """The same for a sentence that sets names in backticks, such as `classes`: a plain name stays code.

    Parameters
    ----------
    text
        A sentence, which may quote text from outside.

    Returns
    -------
    str
        One line of Markdown that shows the sentence and nothing else.

    Examples
    --------
    >>> from locum.io import markdown_sentence
    >>> markdown_sentence("labels from `classes` & a|b")
    'labels from `classes` & a&#124;b'
    """
    parts = _CODE.split(one_line(text))
    return "".join(f"`{part}`" if i % 2 else _escaped(part) for i, part in enumerate(parts))


def markdown_list(names: Iterable[str], most: int = 40) -> str:
    """Names from outside, separated by commas and made safe for Markdown; beyond `most`, how many more there are.

    Parameters
    ----------
    names
        Text from outside.
    most
        How many to show.

    Returns
    -------
    str
        One line of Markdown.

    Examples
    --------
    >>> from locum.io import markdown_list
    >>> markdown_list(["age", "a|b", "job"], most=2)
    'age, a&#124;b, and 1 more'
    """
    shown = [markdown_text(name) for name in names]
    more = [f"and {len(shown) - most} more"] if len(shown) > most else []
    return ", ".join(shown[:most] + more)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", text)
