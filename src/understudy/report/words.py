"""What the page says in words: one place, so that HTML, Markdown and JSON say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = [
    "BANNERS",
    "GLOSSARY",
    "HOLDS",
    "METRICS",
    "READING",
    "VERDICTS",
    "absent",
    "cards",
    "interval_text",
    "plain",
    "rounded_down",
    "summary",
]

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

_GIVE = "understudy report RELEASE --train DATA --test DATA"
_SHARE = "understudy report RELEASE --share --include-measured --train DATA --test DATA"
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
        return " ".join("".join(ch if ch.isprintable() else " " for ch in value).split())
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
