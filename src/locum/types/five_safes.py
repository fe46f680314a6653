"""The Five Safes of Desai, Ritchie and Welpton (2016), once: what to ask about a release, besides the figures."""

from __future__ import annotations

#: Title and question by name. `decide` and its help, the decision page and the studio ask these.
SAFES = {
    "projects": (
        "Safe projects",
        "Is the receiver's purpose lawful and appropriate, and does it need this release?",
    ),
    "people": (
        "Safe people",
        "Do you know who receives it, and may they be trusted not to try to single people out?",
    ),
    "settings": (
        "Safe settings",
        "Is it clear where the release will be kept and used, and who else can get it there?",
    ),
    "data": (
        "Safe data",
        "Is what the release protects, and what it does not, acceptable for the people in these data?",
    ),
    "outputs": (
        "Safe outputs",
        "Are you content with what will be published from it, and with every release of these data together?",
    ),
}


def safes_in_words(*names: str) -> str:
    """The questions behind these checks, each after its name.

    Parameters
    ----------
    *names
        Some of the Five Safes; none: all of them.

    Returns
    -------
    str
        One line.

    Examples
    --------
    >>> from locum.types import safes_in_words
    >>> safes_in_words("settings")
    'settings: Is it clear where the release will be kept and used, and who else can get it there?'
    """
    return " ".join(f"{name}: {SAFES[name][1]}" for name in names or SAFES)
