"""What the audit section says in words, for a reader who has to decide and to defend it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from locum.io import one_line

# Shown in the table, in this order; the JSON of an internal report holds all.
METRICS = {"auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "f1_macro": "F1"}

HOLDS = {
    "network": "a decoder network that turns noise and a class into a fresh vector",
    "gaussian": "class means and one shared covariance, from which fresh vectors are drawn",
    "mixture": "the decoders of several sites side by side; each vector is drawn by one of them",
    "rows": "a fixed table of vectors, each the mean of a group or a draw made once",
}

BANNERS = {
    "internal": "Shows real points and exact counts of the data given: do not send it. For sending there is --share.",
    "shareable": "Holds no real point and no exact count.",
}

VERDICTS = {
    "leak": "Leak: records that were used lie closer to the samples than others do, beyond chance. "
    "Think before sending.",
    "no excess risk found": "No excess risk found by this attack. A better attack may find some.",
    "inconclusive": "Inconclusive: the figures do not tell, most often because records are few. That is not a pass.",
}

READING = {
    "claim": "A claim is what the method promises, whoever attacks. What is not covered lies outside of it.",
    "utility": "Each row is a classifier that learnt from something else; all were tested on the same real records. "
    "The nearer the release comes to “real data”, the less was lost. Intervals (95 %) cover repeated draws and "
    "trainings. They do not cover another test set or another hospital.",
    "map": "Each mark is one vector; colour and shape tell its class. Vectors that are alike lie near each other. "
    "If the release is good, each class lies where it lies among the real ones. Two marks at one place are no sign "
    "of a copy: a flat map drops most of what vectors hold.",
    "map_alone": "Each mark is one vector drawn from the release; colour and shape tell its class. No real vector is "
    "shown, and none was used to draw the map.",
    "distances": "How far away is the nearest record? Features are put on one scale first. Records that were held "
    "out show what strangers look like. Released vectors that lie clearly closer than strangers do are near copies. "
    "Vectors far from everything give nobody away, and teach nobody anything.",
    "classes": "The share of each class that samples will have. The release rounds shares to three digits, so that "
    "they do not give counts away.",
    "membership": "An attacker guesses that a record was used if a sample lies close to it. 0.5 is a coin, 1 is "
    "always right. The control plays the same game between strangers, and shows what chance does. One attack that "
    "finds nothing proves nothing about a better one.",
    "settings": "What was chosen when the release was made, as its manifest says. Vectors that are to be compared "
    "with it must be made in the same way.",
}

GLOSSARY = {
    "accuracy": "share of test records that get the right class.",
    "attack": "what the attacker of the membership check reached, as an AUC.",
    "AUC": "chance that a record of a class is ranked above one of another class; 0.5 is a coin, 1 is perfect.",
    "balanced accuracy": "accuracy in each class, then averaged: a rare class counts as much as a common one.",
    "baseline": "what a coin would reach.",
    "control": "what the attacker's game gives between strangers: anything beyond 0.5 is chance.",
    "D": "mean distance from a vector to the nearest record, with all features on one scale. 0 would be a copy.",
    "F1": "balance of finding all records of a class and of naming no others, averaged over classes.",
    "fingerprint": "SHA-256 of the manifest, which holds the hashes of all other files. Compare it by telephone.",
    "held-out records": "real records that had no part in making the release.",
    "interval": "made so that it holds the true value in 95 of 100 such experiments.",
    "k-Same": "each record replaced by the mean of a group of k: an older method, shown for comparison.",
    "record": "one real row: a patient's image or measurements, as a vector.",
    "release": "the folder that stands in for the records: what would be handed over.",
    "vector": "a row of numbers that stands for an image or a person.",
}

_GIVE = "locum report RELEASE --train DATA --test DATA"
_SHARE = "locum report RELEASE --share --include-measured --train DATA --test DATA"
_HOLDBACK = "Measured figures come from records, so that a shareable page holds them only where they are asked for."
_ABSENT = {
    ("internal", "utility"): ("No real test data were given.", _GIVE),
    ("internal", "map_real"): ("No real data were given, so that the map shows the release alone.", _GIVE),
    ("internal", "distances"): ("The records behind the release were not given.", _GIVE),
    ("internal", "membership"): ("The check needs the records, and records that were not used.", _GIVE),
    ("shareable", "utility"): (_HOLDBACK, _SHARE),
    ("shareable", "membership"): (_HOLDBACK, _SHARE),
    ("shareable", "distances"): ("A histogram shows single records, so that it is never on a shareable page.", ""),
    ("shareable", "map"): ("This release has one row for each record: a map of them would tell their number.", ""),
}


def absent(audience: str, section: str) -> dict[str, str]:
    """Why a section is empty, and what to type to fill it ("" where nothing can)."""
    why, command = _ABSENT[audience, section]
    return {"why": why, "type": command}


def summary(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The four cards at the top: what this is, what is claimed, what was measured, and who decides."""
    measured = {"title": "What was measured", "text": _measured(report) + _audited(report["audit"])}
    return cards(report["release"], report["claim"], measured)


def cards(release: Mapping[str, Any], claim: Mapping[str, Any], found: dict[str, str]) -> list[dict[str, str]]:
    """What this is and what is claimed; then what was found out; then who decides."""
    return [
        {
            "title": "What this is",
            "text": f"A stand-in for records that stayed at home: {HOLDS.get(release['holds'], release['holds'])}. "
            f"It has {_count(release['classes'], 'class', 'classes')}, and vectors of "
            f"{_count(release['features'], 'number', 'numbers')}.",
        },
        {"title": "What is claimed", "text": _claimed(claim)},
        found,
        {
            "title": "May it leave?",
            "text": "Not decided here. A person decides, who knows the receiver, the law and what is already public. "
            "Read what is not covered first.",
        },
    ]


def interval_text(estimate: Mapping[str, Any], digits: int) -> str:
    """The 95 % interval in words."""
    if estimate["low"] is None or estimate["high"] is None:
        return "one run"
    if estimate["low"] == estimate["high"]:
        return "exact"
    return f"{estimate['low']:.{digits}f} to {estimate['high']:.{digits}f}"


def rounded_down(value: float) -> str:
    """Two digits: a lower bound must not grow by rounding.

    >>> rounded_down(3.468), rounded_down(1.5)
    ('3.46', '1.50')
    """
    return f"{math.floor(round(100 * value, 6)) / 100:.2f}"


def plain(value: Any) -> Any:
    """The same facts with text that can neither drive a terminal nor turn lines around: names come from strangers."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {plain(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def _claimed(claim: Mapping[str, Any]) -> str:
    if claim["kind"] == "none":
        return str(claim["sentence"])
    return f"{claim['title']}. {claim['sentence']}"


def _measured(report: Mapping[str, Any]) -> str:
    utility, membership, digits = report["utility"], report["membership"], report["digits"]
    audited = report["audit"] is not None
    if utility is None:
        if report["audience"] == "shareable":
            return f"{'No usefulness' if audited else 'Nothing'} that was measured on records is on this page."
        return f"No classifier was tested{'' if audited else ' and no attack was made'}: no test data were given."
    auc = {row["method"]: _figure(row["scores"]["auc"], digits) for row in utility["rows"]}
    ours = next(iter(auc.values()))
    text = f"On real data, a {utility['head']} classifier that saw only the release has an AUC of {ours}"
    text += f"; one trained on the records has {auc['real data']}." if "real data" in auc else "."
    if membership is None:
        return text if audited else f"{text} No attack was made."
    return f"{text} Membership check: {membership['verdict']}."


def _audited(audit: Mapping[str, Any] | None) -> str:
    return "" if audit is None else f" Audit: {audit['verdict']}. {audit['answer']}".rstrip()


def _figure(estimate: Mapping[str, Any], digits: int) -> str:
    return f"{estimate['value']:.{digits}f} ({interval_text(estimate, digits)})"


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


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
    "epsilon_audit": "The proof promises that epsilon is at most the claim. Planted canaries refute every epsilon "
    "below the lower bound. Between the two, nobody knows. A lower bound above the claim means that the guarantee is "
    "broken.",
    "classes": "The same attacks on one class at a time. Rare classes are often the exposed ones, and have the "
    "widest intervals. These figures are not corrected for their number, and have no say in the verdict.",
    "screening": "Distances as other tools report them. They have no verdict: data that leak can pass them, and "
    "harmless data can fail.",
    "policy": "A policy is what the holder asks of a release before it may leave. That it is met decides nothing: "
    "a person does, who knows the receiver, the law and what is already public.",
}

# Rows of the screening table: the figure to members, the one to strangers (if any), and how to read it.
SCREENS = (
    ("distance to the closest record, median", "closest", "closest_non_members", "about equal where nothing leaks"),
    ("ratio to the second closest, median", "ratio", "ratio_non_members", "about equal where nothing leaks"),
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
