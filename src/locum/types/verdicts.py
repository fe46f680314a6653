"""The wording of a verdict, once: terminal, notebooks, pages, cards and passports take it from here."""

from __future__ import annotations

from dataclasses import dataclass

from locum.types.attack_result import Verdict


@dataclass(frozen=True, slots=True)
class VerdictText:
    """One verdict in words.

    Parameters
    ----------
    title
        The verdict itself.
    attack
        What it means for one attack.
    audit
        What it means for all attacks of an audit.

    Examples
    --------
    >>> from locum.types import verdict_text
    >>> verdict_text("no excess risk found").attack
    'This attack found no excess risk. A better attack may find some.'
    """

    title: str
    attack: str
    audit: str


_VERDICTS: dict[Verdict, VerdictText] = {
    "leak": VerdictText(
        title="Leak",
        attack="Records that were used lie closer to the samples than other records do, beyond chance. The release "
        "should not leave as it is.",
        audit="At least one attack tells records that were used from other records, beyond chance. The release "
        "should not leave as it is.",
    ),
    "no excess risk found": VerdictText(
        title="No excess risk found",
        attack="This attack found no excess risk. A better attack may find some.",
        audit="No attack found an excess risk. A better attack may find some.",
    ),
    "within the proven limit": VerdictText(
        title="Within the proven limit",
        attack="This attack finds no more than the guarantee allows. The guarantee limits every attack, on average.",
        audit="No attack finds more than the guarantee allows. The guarantee limits every attack, on average.",
    ),
    "inconclusive": VerdictText(
        title="Inconclusive",
        attack="The figures do not tell, most often because there are too few records. That is not a pass: try more "
        "records that were not used.",
        audit="These records cannot show whether the release is safe. That is not a pass.",
    ),
}


def verdict_text(verdict: Verdict) -> VerdictText:
    """The wording of a verdict.

    Parameters
    ----------
    verdict
        The verdict of an `AttackResult` or of an audit.

    Returns
    -------
    VerdictText
        Its title, and a text for one attack and for all.

    Examples
    --------
    >>> from locum.types import verdict_text
    >>> verdict_text("inconclusive").title
    'Inconclusive'
    """
    return _VERDICTS[verdict]
