"""What the audit section says in words, for a reader who has to decide and to defend it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "AUDIT_GLOSSARY",
    "AUDIT_READING",
    "BANNER",
    "EFFECTS",
    "SCREENS",
    "SENTENCES",
    "TITLES",
    "with_audit_terms",
]

BANNER = (
    "Tells of records, members and others, with exact figures: do not send it. The passport holds what may leave."
)

TITLES = {
    "leak": "Leak",
    "no excess risk found": "No excess risk found",
    "inconclusive": "Inconclusive",
}

# For a reader who has not seen the records; an audit's own JSON has a sentence for the holder.
SENTENCES = {
    "leak": "Leak: at least one attack tells records that were used from others, beyond chance.",
    "no excess risk found": "No attack found an excess risk. A better attack may find some.",
    "inconclusive": "Inconclusive: the figures of at least one attack do not tell. That is not a pass.",
}

# What a fault of the data takes away from the verdict.
EFFECTS = {
    "nothing": "takes nothing away",
    "reassurance": "no result may reassure",
    "all": "could look like a leak by itself: no result may reassure, and few may accuse",
}

AUDIT_READING = {
    "forest": "A filled mark is what the attacker reached on records that were used, a hollow one the same game "
    "between strangers; bars are 95 % intervals. What counts is how far a filled mark lies right of chance and "
    "of its hollow twin. Verdicts are corrected for the number of attacks, so that one mark may stray "
    "without being a leak.",
    "roc": "How many of the records that were used does the attacker find, if so many strangers may be accused "
    "wrongly? The left end matters most: to be right about a few people with hardly a false alarm is a leak even "
    "where the average shows none. On the dashed line members are found no more often than strangers are accused.",
    "sandwich": "The proof promises that epsilon is at most the claim. Planted canaries refute every epsilon below "
    "the lower bound. Between the two, nobody knows. A lower bound above the claim means that the promise is broken.",
    "classes": "The same attacks on one class at a time. Rare classes are often the exposed ones, and have the "
    "widest intervals. These figures are not corrected for their number, and have no say in the verdict.",
    "screening": "Distances as other tools report them. They have no verdict: data that leak can pass them, and "
    "harmless data can fail.",
    "policy": "A policy is what the holder asks of a release before it may leave. That it is met decides nothing: "
    "a person does, who knows the receiver, the law and what is already public.",
}

# Rows of the screening table: the figure to members, the one to strangers (if any), and how to read it.
SCREENS = (
    ("distance to the closest record, median", "closest", "closest_strangers", "about equal where nothing leaks"),
    ("ratio to the second closest, median", "ratio", "ratio_strangers", "about equal where nothing leaks"),
    ("share that lies closer to a member", "closer", None, "one half where nothing leaks"),
    ("share that equals a member exactly", "copies", None, "0 where nothing is copied"),
)

AUDIT_GLOSSARY = {
    "AUC of an attack": "chance that the attacker ranks a record that was used above one that was not; 0.5 is a "
    "coin, 1 is sure.",
    "attack": "one way to find out who was among the records, tried on records that were used and on others.",
    "canary": "a made-up record, planted in a run of its own; an attacker then guesses which ones were in.",
    "chance": "what somebody reaches who has no release: a coin's AUC, or the share of lucky hits.",
    "control": "the same game between strangers. What it reaches beyond chance is luck, or nature, but no leak.",
    "epsilon": "the budget of differential privacy: how much one record may change what anybody can conclude. Less "
    "is safer.",
    "excess risk": "what members suffer beyond what strangers suffer from the same release.",
    "false positive rate": "share of strangers that the attacker takes for members.",
    "inconclusive": "the figures allow neither a warning nor an all-clear; most often, records are too few.",
    "interval": "made so that it holds the true value in 95 of 100 such experiments.",
    "leak": "members are told from strangers more often than chance explains.",
    "member": "a record that the release was made from.",
    "most exposed tenth": "the attack among the records that lie where it does best, found on one half of them and "
    "tested on the other.",
    "p, corrected": "chance to see so much by luck, after correction for all attacks (Holm); a leak at 0.01 or less.",
    "screening only": "a figure that is often reported, but carries no verdict.",
    "stranger": "a record of the same population that had no part in the release; also called non-member.",
    "true positive rate": "share of members that the attacker finds.",
}


def with_audit_terms(glossary: Mapping[str, str]) -> dict[str, str]:
    """A page's glossary with the terms of an audit, in order."""
    terms = {**glossary, **AUDIT_GLOSSARY}
    return {term: terms[term] for term in sorted(terms, key=str.casefold)}
