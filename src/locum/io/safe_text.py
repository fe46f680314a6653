"""Text that somebody else chose, made safe to show: class names, file names and reasons come from outside."""

from __future__ import annotations

# Signs that mean something in Markdown or HTML.
_SPECIAL = frozenset("<>&|`[]*\\")


def printable(text: str, *, instead: str = "?", keep: str = "") -> str:
    """Text that cannot drive a terminal; each sign that is not printable becomes `instead`, but for those in `keep`.

    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    return "".join(ch if ch.isprintable() or ch in keep else instead for ch in text)


def one_line(text: str) -> str:
    """Printable text on one line, with single spaces.

    >>> one_line(" two\\n lines ")
    'two lines'
    """
    return " ".join(printable(text, instead=" ").split())


def markdown_text(text: str) -> str:
    """Safe as Markdown text, in a table cell, and in the HTML made from it: every special sign as an entity.

    Not for code spans, which show entities as they stand.
    """
    return "".join(f"&#{ord(ch)};" if ch in _SPECIAL else ch for ch in one_line(text))
