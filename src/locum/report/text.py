"""The wording of pages, cards and verdicts, each once: constants first, then the functions that fill them in.

It is for a reader who has to decide whether a release may leave, and to defend that decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from locum.io import one_line
from locum.types import CHANCE_ABOVE, PrivacyClaim, at_least, limit_figure

# Above this many times the usual distance a figure says no more than "far"; above the other, nothing looks alike.
FAR, APART = 100, 10

COIN_FLIP = "a coin flip would be right 50 times"

MEASURES = {"auc": "AUC", "share": "share"}
# Shown in tables, in this order; the JSON of an internal report holds all metrics.
METRICS = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_macro": "F1",
    "calibration_error": "calibration error",
}

HOLDS = {
    "network": "a decoder network that turns noise and a class into a fresh vector",
    "gaussian": "class means and one shared covariance, from which fresh vectors are drawn",
    "mixture": "the decoders of several sites; each vector is drawn by one of them",
    "rows": "a fixed table of vectors, each the mean of a group or drawn once",
}

BANNERS = {
    "internal": "This page shows real points and exact counts: do not send it. For a page to send, use --share.",
    "internal with audit": "This page shows exact figures of an audit: do not send it. For a page to send, use "
    "--share.",
    "internal without records": "No records were given, so this page shows no real point and no figure measured on "
    "records. It is still internal: for a page to send, use --share.",
    "shareable": "This page holds no real point and no exact count.",
}

READING = {
    "claim": "The claim is what the method guarantees against any attacker. It does not extend to what is listed as "
    "not covered.",
    "utility": "Each row is a classifier trained on different data; all were tested on the same real records. The "
    "closer the release comes to “real data”, the less was lost. The 95% intervals cover repeated draws and "
    "trainings. They do not cover another test set or another hospital.",
    "map": "Each mark is one vector; color and shape show its class. Similar vectors lie close together. If a "
    "release is faithful, each class lies where the real class lies; with much noise it does not, but samples "
    "can still train a classifier. Two marks in the same place do not mean a copy: a two-dimensional map drops "
    "most of what the vectors hold.",
    "map_alone": "Each mark is one vector drawn from the release; color and shape show its class. No real vector is "
    "shown, and none was used to draw the map.",
    "distances": "How far away is the nearest record? All features are first put on one scale. Held-out records show "
    "what is normal for records that were not used. Released vectors that lie clearly closer than that are near "
    "copies. Vectors far from all records are no copies; the scores above show how useful they are.",
    "classes": "The share of each class among samples. The release rounds shares to three digits, so that they do "
    "not reveal counts.",
    "membership": "The attacker guesses that a record was used if a sample lies close to it. An AUC of 0.5 is a coin "
    "flip, 1 is always right. The control is the same attack between records that were not used, and shows the "
    "effect of chance. An attack that finds nothing proves nothing about a better one.",
    "settings": "The settings of the release, from its manifest. Vectors that are compared with it must be made in "
    "the same way.",
}

GLOSSARY = {
    "accuracy": "share of test records that get the right class.",
    "attack": "the result of the membership attack, as an AUC.",
    "AUC": "chance that a record of a class is ranked above one of another class; 0.5 is a coin flip, 1 is perfect.",
    "balanced accuracy": "accuracy in each class, then averaged: a rare class counts as much as a common one.",
    "baseline": "what a coin flip would give.",
    "calibration error": "mean gap between a classifier's confidence and the share that it gets right (expected "
    "calibration error, 15 bins); 0 is best, and a small test set raises it.",
    "control": "the same attack between records that were not used: whatever it gives beyond 0.5 is chance.",
    "nearest record": "mean distance from a vector to the nearest record, in units of the usual distance between a "
    "record and its nearest neighbor, with all features on one scale. 0 would be a copy.",
    "F1": "balance of precision and recall, averaged over classes.",
    "fingerprint": "SHA-256 of the manifest, which holds the hashes of all other files. Compare it over another "
    "channel, such as a phone call.",
    "held-out records": "real records that were not used to make the release.",
    "interval": "in 95 out of 100 such experiments it contains the true value.",
    "k-Same": "each record replaced by the mean of a group of k: an older method, shown for comparison.",
    "record": "one real row: a patient's image or measurements, as a vector.",
    "release": "the folder that stands in for the records: what would be handed over.",
    "vector": "a row of numbers that describes an image or a record.",
}

AUDIT_BANNER = (
    "This page shows exact figures about records, members and non-members: do not send it. The passport holds what "
    "may leave."
)

PUBLISH_BANNER = (
    "This page holds counts of records and measured figures: do not send it. Only the folder `release` is "
    "for receivers, once a person has approved it."
)

# What to do after `publish` found that a policy is not met.
AFTER_REFUSAL = (
    "What can change the result: more records, which make the intervals of the attacks narrower, or a smaller "
    "epsilon, which lowers the proven limit. Either makes another release, in another folder, and is paid for again."
)
AFTER_LEAK = "An attack found a leak: find out why before you make another release of these data."
POLICY_FIRST = "A policy is chosen before the result is known, by whoever decides what may leave."

# What a problem of the data means for the verdict.
EFFECTS = {
    "nothing": "no effect on the verdict",
    "reassurance": "no result can be reassuring",
    "all": "could look like a leak by itself: no result can be reassuring, and few can show a leak",
}

AUDIT_READING = {
    "forest": "A filled mark is the result of an attack on records that were used, a hollow mark the same attack "
    "between non-members; bars are 95% intervals. What counts is how far a filled mark lies to the right of chance "
    "and of its hollow mark. Verdicts are corrected for the number of attacks, so a single mark may be far from "
    "chance without being a leak.",
    "roc": "How many of the records that were used does the attacker find, for a given share of non-members wrongly "
    "accused? The left end matters most: being right about a few subjects with hardly any false alarm is a leak even "
    "if the average shows none. On the dashed line members are found no more often than non-members are accused.",
    "epsilon_audit": "The claim says that epsilon is at most this. Planted canaries refute every epsilon below the "
    "lower bound. The truth lies between the two. A lower bound above the claim means that the guarantee is broken.",
    "classes": "The same attacks on one class at a time. Rare classes are often the most exposed, and have the "
    "widest intervals. These figures are not corrected for their number and do not affect the verdict.",
    "screening": "Distances as other tools report them. They give no verdict: data that leak can pass, and harmless "
    "data can fail.",
    "policy": "A policy is what the holder requires of a release before it may leave. Meeting it does not decide: "
    "a person does, who knows the receiver, the law and what is already public.",
}

# What each attacker does, in one sentence for a reader who has to judge it.
ATTACK_WORDS = {
    "nearest distance": "Guesses that a record was used if a sample lies close to it.",
    "closest record": "Looks for samples that lie closer to a record than chance explains: copies and near copies.",
    "density ratio": "Guesses that a record was used if samples crowd around it more than other records do.",
    "record linkage": "Two parties who each know half of a record link the halves through the samples.",
    "singling out": "Looks for a description, taken from a sample, that fits exactly one record.",
    "attribute inference": "Knows part of a record, and guesses its class or another attribute from the samples.",
    "re-identification": "Has one record of a person, and finds another of the same person through the samples.",
    "hole": "Looks for places that the samples avoid because a record lies there.",
    "likelihood ratio": "Computes whether the release makes a record more likely than the population does.",
    "latent search": "Searches the decoder for the code that comes closest to a record.",
    "ELBO": "Computes how likely the decoder makes a record.",
    "LiRA on sums": "Reads every noisy sum in the release, and computes whether it contains what a record would have "
    "added to it.",
    "LiRA": "Trains many generators with and without a record, and compares the release with both.",
    "RMIA": "Trains many generators, and compares a record with others of the population.",
}

# Rows of the screening table: name, figure for members, figure for non-members (if any), and how to read it.
SCREENS = (
    (
        "median distance to the closest record (the one to non-members is 1)",
        "closest",
        "closest_non_members",
        "1 if nothing leaks",
    ),
    ("ratio to the second closest, median", "ratio", "ratio_non_members", "about equal if nothing leaks"),
    ("share that lies closer to a member", "closer", None, "one half if nothing leaks"),
    ("share that equals a member exactly", "copies", None, "0 if nothing is copied"),
)

AUDIT_GLOSSARY = {
    "AUC of an attack": "chance that the attacker ranks a record that was used above one that was not; 0.5 is a coin "
    "flip, 1 is always right.",
    "attack": "a way to find out which records were used, tried on records that were used and on others.",
    "canary": "an invented record, planted in a separate run; an attacker then guesses which ones were included.",
    "chance": "what an attacker without the release would reach: an AUC of 0.5, or the share of lucky hits.",
    "control": "the same attack between non-members. What it reaches beyond chance is not a leak.",
    "epsilon": "the budget of differential privacy: how much one record may change what anyone can conclude. Less is "
    "safer.",
    "excess risk": "the risk of members beyond that of non-members, from the same release.",
    "false positive rate": "share of non-members that the attacker takes for members.",
    "inconclusive": "the figures show neither a leak nor that there is none, most often because there are too few "
    "records.",
    "interval": "in 95 out of 100 such experiments it contains the true value.",
    "leak": "the attacker tells members from non-members more often than chance explains.",
    "member": "a record that the release was made from.",
    "most exposed tenth": "the attack on the records where it works best, found on one half of them and tested on "
    "the other.",
    "non-member": "a record of the same population that was not used to make the release.",
    "p, corrected": "probability of such a result by chance, corrected for the number of attacks (Holm); a leak at "
    "0.01 or less.",
    "screening only": "a figure that is often reported, but gives no verdict.",
    "true positive rate": "share of members that the attacker finds.",
}

_GIVE = "locum report RELEASE --train DATA --test DATA"
_SHARE = "locum report RELEASE --share --include-measured --train DATA --test DATA"
_WITHHELD = "Measured figures depend on records, so a shareable page holds them only on request."
_ABSENT = {
    ("internal", "utility"): ("No real test data were given.", _GIVE),
    ("internal", "map_real"): ("No real data were given, so the map shows the release alone.", _GIVE),
    ("internal", "distances"): ("The records behind the release were not given.", _GIVE),
    ("internal", "membership"): ("The check needs the records, and records that were not used.", _GIVE),
    ("shareable", "utility"): (_WITHHELD, _SHARE),
    ("shareable", "membership"): (_WITHHELD, _SHARE),
    ("shareable", "distances"): ("A histogram shows single records, so a shareable page never has one.", ""),
    ("shareable", "map"): ("This release has one row per record: a map would show their number.", ""),
}


def absent(audience: str, section: str) -> dict[str, str]:
    """Why a section is empty, and the command that fills it ("" if there is none)."""
    why, command = _ABSENT[audience, section]
    return {"why": why, "type": command}


def summary(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The four cards at the top: what this is, what is claimed, what was measured, and who decides."""
    measured = {"title": "What was measured", "text": _measured(report) + _audited(report["audit"])}
    out = cards(report["release"], report["claim"], measured)
    return [*out[:-1], decided_card(report["decision"])] if report["decision"] else out


def cards(release: Mapping[str, Any], claim: Mapping[str, Any], found: dict[str, str]) -> list[dict[str, str]]:
    """What this is, what is claimed, what was found, and who decides."""
    return [
        {
            "title": "What this is",
            "text": f"A stand-in for records that stay with their holder: "
            f"{HOLDS.get(release['holds'], release['holds'])}. "
            f"It has {_count(release['classes'], 'class', 'classes')} and vectors of "
            f"{_count(release['features'], 'number', 'numbers')}.",
        },
        {"title": "What is claimed", "text": _claimed(claim)},
        found,
        {
            "title": "May it leave?",
            "text": "This page does not decide. A person does, who knows the receiver, the law and what is already "
            "public. Read first what is not covered.",
        },
    ]


def decided_card(decision: str) -> dict[str, str]:
    """The card that takes the place of the last one where the holder decided; `decision_sentence` says what."""
    return {
        "title": "May it leave?",
        "text": f"{decision[0].upper()}{decision[1:]}. Who decided, and why, stays with the holder.",
    }


def interval_text(estimate: Mapping[str, Any], digits: int, *, fixed: str = "exact") -> str:
    """The 95% interval in words; `fixed` if it is a single point."""
    if estimate["low"] is None or estimate["high"] is None:
        return "one run"
    if estimate["low"] == estimate["high"]:
        return fixed
    return f"{estimate['low']:.{digits}f} to {estimate['high']:.{digits}f}"


def reason_words(why: str) -> str:
    """Why a result is inconclusive, as a sentence that follows another; empty if nothing is known.

    >>> reason_words("there are too few records")
    ' Reason: there are too few records.'
    """
    return f" Reason: {why}." if why else ""


def apart_words(auc: float) -> str:
    """An AUC in words: how often of two records the right one is picked. Nearly always is not always.

    >>> apart_words(0.9712), apart_words(0.9963)
    ('97 times out of 100', 'more than 99 times out of 100')
    """
    whole = round(100 * auc)
    if whole in (0, 100) and 0 < auc < 1:
        return "more than 99 times out of 100" if whole else "less than once in 100 times"
    return f"{whole} times out of 100"


def guess_words(auc: Mapping[str, Any]) -> str:
    """An attacker's AUC in words.

    >>> guess_words({"value": 0.512, "low": 0.47, "high": 0.55}).split(", the ")[1]
    'attacker guesses right 51 times out of 100; a coin flip would be right 50 times.'
    """
    return (
        "Shown a record that was used and one that was not, the attacker guesses right "
        f"{apart_words(auc['value'])}; {COIN_FLIP}."
    )


def proven_words(auc: float) -> str:
    """A proven limit in words; rounded up, since a limit must not look lower than it is.

    >>> proven_words(0.5664).split("right at ")[1]
    'most 57 times out of 100, on average; a coin flip would be right 50 times.'
    """
    return (
        "Asked whether a given record was used, even an attacker who knows all the other records guesses right at "
        f"most {math.ceil(100 * auc - 1e-9)} times out of 100, on average; {COIN_FLIP}."
    )


def limit_words(auc: float) -> str:
    """What a proven limit says about a measured figure next to it.

    >>> limit_words(0.5662).split(": ")[0]
    'The proven limit is 0.567'
    """
    return (
        f"The proven limit is {limit_figure(auc)}: averaged over the noise, no attack gets above it. {CHANCE_ABOVE}"
    )


def claim_facts(claim: PrivacyClaim) -> dict[str, Any]:
    """A claim as pages show it: a title, and a sentence that does not repeat the title."""
    sentence = claim.sentence().removeprefix("Differential privacy: ")
    return {**claim.to_dict(), "title": claim_title(claim), "sentence": f"{sentence[:1].upper()}{sentence[1:]}"}


def claim_title(claim: PrivacyClaim) -> str:
    """The kind of a claim as a reader would call it, with its numbers.

    >>> claim_title(PrivacyClaim("none", not_covered=("membership",)))
    'No guarantee'
    """
    if claim.dp is not None:
        numbers = f"epsilon {at_least(claim.dp.epsilon)}, delta {at_least(claim.dp.delta)}"
        return f"Differential privacy: {numbers}, per {claim.unit}"
    return "No guarantee" if claim.kind == "none" and not claim.test else claim.title


def times(distance: float) -> str:
    """A distance as a multiple of the usual one. Far away is far away: more digits would say nothing.

    >>> times(0.482), times(1.26), times(739.4)
    ('0.48 ×', '1.3 ×', '> 100 ×')
    """
    if distance > FAR:
        return f"> {FAR} ×"
    digits = 2 if distance < 1 else 1 if distance < 10 else 0
    return f"{distance:,.{digits}f} ×"


def closest_words(distances: Mapping[str, Any] | None) -> str:
    """How close released vectors come to records, in words; empty if nobody knows."""
    if distances is None:
        return ""
    medians = {s["name"]: s["quantiles"]["median"] for s in distances["series"]}
    near = {name: times(far).replace(" ×", " times").replace(">", "more than") for name, far in medians.items()}
    words = f"A typical released vector lies {near['released']} as far from the nearest record as records lie from "
    words += "each other"
    words += f"; a record that was not used lies {near['held-out']} as far." if "held-out" in near else "."
    if medians["released"] > APART:
        words += " These vectors do not look like records. They can still show what separates the classes."
    return words


def rounded_down(value: float) -> str:
    """A lower bound with two digits: rounding must not raise it.

    >>> rounded_down(3.468), rounded_down(1.5)
    ('3.46', '1.50')
    """
    return f"{math.floor(round(100 * value, 6)) / 100:.2f}"


def plain(value: Any) -> Any:
    """The same facts with all text made safe for terminals and pages: names may come from untrusted files."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {plain(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def with_audit_terms(glossary: Mapping[str, str]) -> dict[str, str]:
    """A page's glossary plus the terms of an audit, sorted."""
    terms = {**glossary, **AUDIT_GLOSSARY}
    return {term: terms[term] for term in sorted(terms, key=str.casefold)}


def _claimed(claim: Mapping[str, Any]) -> str:
    if claim["kind"] == "none":
        return str(claim["sentence"])
    return f"{claim['title']}. {claim['sentence']}"


def _measured(report: Mapping[str, Any]) -> str:
    utility, membership, digits = report["utility"], report["membership"], report["digits"]
    audited = report["audit"] is not None
    if utility is None:
        if report["audience"] == "shareable":
            return f"This page holds no {'scores' if audited else 'figures'} that were measured on records."
        return f"No classifier was tested{'' if audited else ' and no attack was run'}: no test data were given."
    auc = {row["method"]: row["scores"]["auc"] for row in utility["rows"]}
    ours = next(iter(auc.values()))
    text = (
        f"A {utility['head']} classifier that saw only the release tells two real records of different classes apart "
        f"{apart_words(ours['value'])} (AUC {_auc(ours, digits)})"
    )
    if "real data" in auc:
        real = auc["real data"]
        text += f"; one trained on the records, {apart_words(real['value'])} (AUC {_auc(real, digits)})"
    text += "."
    if membership is None:
        return text if audited else f"{text} No attack was run."
    return f"{text} Membership check: {membership['verdict']}."


def _audited(audit: Mapping[str, Any] | None) -> str:
    return "" if audit is None else f" Audit: {audit['verdict']}."


def _auc(estimate: Mapping[str, Any], digits: int) -> str:
    return f"{estimate['value']:.{digits}f}, {interval_text(estimate, digits, fixed='same in each run')}"


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"
