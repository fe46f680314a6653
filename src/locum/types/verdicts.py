"""The wording of a verdict, once: terminal, notebooks, pages, cards and passports take it from here."""

from __future__ import annotations

from collections.abc import Sequence
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


# Wherever a measured figure stands next to its proven limit.
CHANCE_ABOVE = "A single measured figure can lie above the limit, by chance."

# The title of an inconclusive verdict where the policy is met nevertheless.
ATTACKS_INCONCLUSIVE = "Attacks inconclusive"

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
        attack="This attack is not above the proven limit by more than chance explains. The guarantee limits every "
        "attack, on average.",
        audit="No attack is above the proven limit by more than chance explains. The guarantee limits every attack, "
        "on average.",
    ),
    "inconclusive": VerdictText(
        title="Inconclusive",
        attack="The figures show neither a leak nor that there is none, most often because there are too few "
        "records. That is not a pass: try more records that were not used.",
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


def met_though_inconclusive(doubts: Sequence[str], attacks: int, *, proven: bool | None) -> str:
    """What to say where a policy is met and the attacks are inconclusive: "not a pass" would contradict it.

    Parameters
    ----------
    doubts
        The names of the attacks that are inconclusive.
    attacks
        How many were run.
    proven
        Whether the guarantee meets the limits of the policy by proof; None: not known.

    Returns
    -------
    str
        Two sentences.

    Examples
    --------
    >>> from locum.types import met_though_inconclusive
    >>> met_though_inconclusive(["LiRA", "nearest distance"], 5, proven=True).split(". ")[1]
    'By themselves, 2 of 5 attacks gave no clear answer (LiRA, nearest distance).'
    """
    by_themselves = f"{len(doubts)} of {attacks} attacks gave no clear answer ({', '.join(doubts)})"
    if not doubts:
        by_themselves = "the attacks cannot show whether the release is safe"
    why = "" if proven is None else ": its rules do not need a clear answer from every attack"
    if proven:
        why = " by proof: the guarantee limits every attack"
    return f"The policy is met{why}. By themselves, {by_themselves}."
