"""A small card of HTML for notebooks: escaped, self-contained, and readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

Tone = Literal["plain", "good", "doubt", "bad"]
# Mid tones with enough contrast on white and on black; the colors of text and page are the notebook's own.
_TONES: dict[str, str] = {"plain": "#8a8a8a", "good": "#2e9e5b", "doubt": "#b8860b", "bad": "#d1495b"}
_MOST = 600
# A notebook is saved with what it shows.
_LONGEST = 2000


def html_text(text: object) -> str:
    """Text from outside as HTML: nothing in it is markup, and it has no control characters.

    Parameters
    ----------
    text
        Text, or something that becomes text.

    Returns
    -------
    str
        Escaped HTML on one line, cut at 2000 characters.

    Examples
    --------
    >>> from locum.types import html_text
    >>> html_text("<script>alert('x')</script>")
    '&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;'
    """
    plain = " ".join("".join(ch if ch.isprintable() else " " for ch in str(text)).split())
    return escape(plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]} ...", quote=True)


def html_card(
    lines: Sequence[tuple[str, str]],
    *,
    table: Sequence[Sequence[str]] = (),
    columns: Sequence[str] = (),
    notes: Sequence[str] = (),
    tone: Tone = "plain",
) -> str:
    """Lines with a heading each, a table and notes, as one HTML fragment.

    It has no script, no link, no class and no id; everything given is escaped.

    Parameters
    ----------
    lines
        A heading and its text, as the program prints them; an empty heading continues the line above.
    table
        Rows of a table; at most 600 are shown.
    columns
        Headings of the table.
    notes
        Sentences below, in smaller type.
    tone
        The color of the bar at the left: "good", "doubt", "bad" or "plain". It never says more than the words do.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> from locum.types import html_card
    >>> "&lt;b&gt;" in html_card([("claim", "<b>none</b>")])
    True
    """
    cell = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;border:0;background:none"
    parts = [
        f'<div style="border-left:4px solid {_TONES[tone]};padding:4px 12px;margin:4px 0;max-width:64em;'
        'font-family:system-ui,sans-serif;font-size:14px;line-height:1.45;color:inherit">',
        '<table style="border-collapse:collapse;border:0;margin:0;color:inherit" role="presentation">',
    ]
    for i, (heading, text) in enumerate(lines):
        weight = ";font-weight:600" if i == 0 else ""
        parts.append(
            f'<tr style="background:none"><td style="{cell};opacity:.75;white-space:nowrap">{html_text(heading)}</td>'
            f'<td style="{cell}{weight}">{html_text(text)}</td></tr>'
        )
    parts.append("</table>")
    if table:
        rule = "border-bottom:1px solid rgba(128,128,128,.4)"
        parts.append('<table style="border-collapse:collapse;border:0;margin:8px 0 4px;color:inherit"><thead><tr>')
        parts += [f'<th scope="col" style="{cell};{rule};font-weight:600">{html_text(name)}</th>' for name in columns]
        parts.append("</tr></thead><tbody>")
        for row in table[:_MOST]:
            cells = "".join(f'<td style="{cell}">{html_text(value)}</td>' for value in row)
            parts.append(f'<tr style="background:none">{cells}</tr>')
        parts.append("</tbody></table>")
        if len(table) > _MOST:
            parts.append(f"<div>and {len(table) - _MOST} more rows</div>")
    parts += [f'<div style="font-size:12px;opacity:.8">{html_text(note)}</div>' for note in notes]
    return "".join([*parts, "</div>"])
