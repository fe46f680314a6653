"""The findings of an audit as facts for a page, and the page itself.

Two sources give the same facts: `audit_facts` reads the JSON of `locum audit` and is for the holder; `entry_facts`
reads the audit in a passport, which is rounded and lacks whatever must not leave. Each attack is a dict with the keys
of `AttackResult.to_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from locum._version import __version__
from locum.errors import DataError
from locum.report.charts import section_parts
from locum.report.page import pages
from locum.report.text import (
    ATTACK_WORDS,
    AUDIT_BANNER,
    AUDIT_GLOSSARY,
    COIN_FLIP,
    EFFECTS,
    SCREENS,
    apart_words,
    guess_words,
    limit_words,
    plain,
    rounded_down,
)
from locum.types import (
    ATTACKS_INCONCLUSIVE,
    AttackResult,
    at_least,
    finite_number,
    met_though_inconclusive,
    verdict_text,
    worst_verdict,
)

# What a malformed file can raise.
_BAD = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
_CLASSES = 56
# Colors by verdict, the same on every page; a policy that is not met has that of a leak.
_TONES = {"leak": "leak", "inconclusive": "doubt"}
_MOST = 200
_ESTIMATES = {"attack": "attack", "control": "control", "baseline": "baseline", "most_exposed": "most exposed"}
_RATES = {"0.01": "TPR at 1% FPR", "0.001": "TPR at 0.1% FPR"}


def audit_facts(audit: Mapping[str, Any], *, decision: str = "") -> dict[str, Any]:
    """Everything that the page of an audit shows, as a plain dict, from the JSON of an audit.

    The verdict is never better than the worst of the results, and no policy is met if there is a leak, whatever the
    file says. The facts are internal: they hold exact figures about records.

    Parameters
    ----------
    audit
        What `AuditReport.to_dict` gives, or `locum audit --json` wrote.
    decision
        What the holder decided, as `decision_sentence` says it; empty if nothing was decided yet.

    Returns
    -------
    dict
        Plain JSON types, with all text made safe for terminals and pages.

    Raises
    ------
    DataError
        If the file is malformed.

    Examples
    --------
    >>> from locum.audit import AuditReport
    >>> from locum.report import audit_facts
    >>> found = AuditReport(results=(), problems=(), skipped={}, policy="internal", findings=())
    >>> audit_facts(found.to_dict())["title"]
    'Inconclusive'
    """
    try:
        faults = [str(p["words"]) for p in audit["problems"]]
        results = [_result(r, faults) for r in audit["results"][:_MOST]]
        policy, screening = audit.get("policy"), audit.get("screening")
        facts = {
            "digits": 3,
            "fingerprint": str(audit.get("fingerprint") or ""),
            "verdict": worst_verdict(audit["verdict"], *(r["verdict"] for r in results)),
            "because": str(audit.get("because") or ""),
            "results": results,
            "classes": _classes(results),
            "policy": None if policy is None else _policy(policy["name"], audit["may_leave"], policy["findings"]),
            "problems": [
                {"words": str(p["words"]), "effect": EFFECTS[p["voids"]]} for p in audit["problems"][:_MOST]
            ],
            "skipped": [[str(name), str(reason)] for name, reason in list(audit["skipped"].items())[:_MOST]],
            "screening": None if screening is None else _screening(screening),
            "epsilon_audit": None if audit.get("epsilon_audit") is None else _epsilon_audit(audit["epsilon_audit"]),
            "limit": None if audit.get("limit") is None else _limit(audit["limit"]),
        }
        return _finished(facts, decision)
    except _BAD:
        # The message of a library may quote the file.
        raise DataError("The audit is not as `locum audit RELEASE --json` writes it: write it again.") from None


def entry_facts(entry: Mapping[str, Any], *, decision: str = "") -> dict[str, Any]:
    """The same facts from the audit in a passport (`AuditEntry` as a dict): no classes, curves or faults."""
    results = [_shown(r) for r in entry["results"]]
    policy, both = entry["policy"], entry["epsilon_audit"]
    facts = {
        "digits": 2,
        "fingerprint": "",
        "verdict": entry["verdict"],
        "because": "",
        "results": results,
        "classes": _classes(results),
        "policy": None
        if policy is None
        else _policy(policy["name"], policy["met"], [{**rule, "proven": None} for rule in policy["rules"]]),
        "problems": [],
        "skipped": [],
        "screening": None,
        "epsilon_audit": None
        if both is None
        else _epsilon_audit({**both, "lower": {**both, "epsilon": both["lower"]}}),
        "limit": None,
    }
    return _finished(facts, decision)


def audit_html(facts: Mapping[str, Any]) -> str:
    """A complete page from the facts of an audit, without scripts or links. It is internal, and says so.

    Parameters
    ----------
    facts
        What `audit_facts` returned.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> from locum.audit import AuditReport
    >>> from locum.report import audit_facts, audit_html
    >>> found = AuditReport(results=(), problems=(), skipped={}, policy="internal", findings=())
    >>> "<script" in audit_html(audit_facts(found.to_dict()))
    False
    """
    return (
        pages()
        .get_template("audit.html.jinja")
        .render(
            a=facts,
            banner=AUDIT_BANNER,
            glossary=AUDIT_GLOSSARY,
            written_by=f"locum {__version__}",
            written_on=datetime.now(UTC).date().isoformat(),
            **section_parts(facts),
        )
    )


def _finished(facts: dict[str, Any], decision: str) -> dict[str, Any]:
    both = facts["epsilon_audit"]
    if both is not None and both["broken"]:
        facts["verdict"] = "leak"
    if facts["policy"] is not None and facts["verdict"] == "leak":
        facts["policy"]["met"] = False
    refused = facts["policy"] is not None and not facts["policy"]["met"]
    facts["tone"] = "leak" if refused else _TONES.get(facts["verdict"], "clear")
    words = verdict_text(facts["verdict"])
    facts["title"], facts["sentence"] = words.title, words.audit
    if facts["verdict"] == "inconclusive" and facts["policy"] is not None and facts["policy"]["met"]:
        doubts = [r["name"] for r in facts["results"] if r["verdict"] == "inconclusive"]
        # Unknown in a passport, which does not say which rules are met by proof.
        proofs = [rule["proven"] for rule in facts["policy"]["rules"]]
        proven = None if None in proofs else any(proofs)
        facts["title"] = ATTACKS_INCONCLUSIVE
        facts["sentence"] = met_though_inconclusive(doubts, len(facts["results"]), proven=proven)
    facts["rates"] = {fpr: title for fpr, title in _RATES.items() if any(fpr in r["tpr"] for r in facts["results"])}
    policy = facts["policy"]
    facts["consequence"] = "" if policy is None else _consequence(policy, decision)
    facts["failed"], facts["notes"] = _failed(policy), _grouped(facts["results"])
    met = "" if policy is None else f"Policy {policy['name']}: {'met' if policy['met'] else 'not met'}. "
    facts["answer"] = f"{met}{facts['consequence']}"
    facts["strongest"] = _strongest(facts["results"])
    if facts["verdict"] != "inconclusive":
        facts["because"] = ""
    out: dict[str, Any] = plain(facts)
    return out


def _strongest(results: Sequence[Mapping[str, Any]]) -> str:
    """The attack with the highest AUC, in words; empty if no figure is known."""
    tried = [r for r in results if r["measure"] == "auc" and r.get("attack")]
    if not tried:
        return ""
    found = max(tried, key=lambda r: r["attack"]["value"])
    limit = "" if found["limit"] is None else f" {limit_words(found['limit'])}"
    auc = f" (AUC {found['attack']['value']:.3f})" if limit else ""
    return f"The strongest attack is {found['name']}. {guess_words(found['attack']).removesuffix('.')}{auc}.{limit}"


def _consequence(policy: Mapping[str, Any], decision: str) -> str:
    """What follows from a policy that is met, or is not, and what the holder decided."""
    open_ones = len(_failed(policy))
    if policy["met"]:
        rules = "The rules of the policy let this release leave; "
        return f"{rules}it was {decision}." if decision else f"{rules}a person still has to decide."
    are = "is" if open_ones == 1 else "are"
    count = f"{open_ones} of {len(policy['rules'])} rules {are} not met" if open_ones else "No policy allows this"
    return f"{count}. This release must not leave." + (f" It was {decision}." if decision else "")


def _failed(policy: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """The rules that are not met, each with a sentence on what was found and why it is asked, where that is known."""
    rules = [] if policy is None else [rule for rule in policy["rules"] if not rule["met"]]
    found = (rule["found"] and f"Found: {rule['found'].rstrip('.')}. " for rule in rules)
    return [
        {"rule": f"{rule['rule'][:1].upper()}{rule['rule'][1:]}", "words": f"{said}{rule['why']}".strip()}
        for rule, said in zip(rules, found, strict=True)
    ]


def _grouped(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Each note once, with the attacks that it is about: most notes are about several."""
    about: dict[str, list[str]] = {}
    for result in results:
        for note in result["notes"]:
            about.setdefault(note, []).append(result["name"])
    return [[", ".join(names), note] for note, names in about.items()]


def _result(data: Mapping[str, Any], faults: Sequence[str]) -> dict[str, Any]:
    result = AttackResult.from_dict(data)
    notes = list(result.notes)[:20]
    because = result.inconclusive_because or result.doubt
    for words in faults:
        # Faults of the data are listed once, since they are the same for every attack.
        because = because.replace(words, "")
    if because := because.strip("; "):
        notes.append(f"inconclusive because {because}")
    p = result.p_value if result.adjusted is None else result.adjusted
    out = _shown(result.to_dict()) | {"notes": notes, "p": None if p is None else _p_text(p)}
    if why := result.doubt:
        out["words"] = f"{why[:1].upper()}{why[1:]}."
    return out | {"roc": out["roc"][:1000]}


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a result that a page shows; None or empty if it lacks them."""
    out = {key: result[key] for key in ("name", "measure", "verdict")}
    out |= {key: result.get(key) for key in _ESTIMATES}
    empty: dict[str, Any] = {"tpr": {}, "by_class": {}, "roc": [], "notes": [], "limit": None}
    out |= {key: result.get(key, value) for key, value in empty.items()}
    how = ATTACK_WORDS.get(result["name"].split(":")[0], "")
    return out | {"p": None, "how": how, "said": _said(out), "words": verdict_text(result["verdict"]).attack}


def _said(result: Mapping[str, Any]) -> str:
    """The figure of an attack in words; empty if it is not known."""
    attack, baseline = result["attack"], result["baseline"]
    if attack is None:
        return ""
    if result["measure"] == "auc":
        return f"Guesses right {apart_words(attack['value'])}; {COIN_FLIP}."
    lucky = "" if baseline is None else f"; by chance, {100 * baseline['value']:.0f}"
    return f"Succeeds on {100 * attack['value']:.0f} out of 100 records{lucky}."


def figures(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The estimates that a result has, by the title of their column."""
    out = {title: result[key] for key, title in _ESTIMATES.items() if result.get(key)}
    return out | {_RATES[fpr]: estimate for fpr, estimate in result["tpr"].items() if fpr in _RATES}


def figure_titles(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of estimates that a table of these results needs."""
    present = {title for result in results for title in figures(result)}
    return [title for title in (*_ESTIMATES.values(), *_RATES.values()) if title in present]


def _classes(results: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Attacks as columns, classes as rows; first the class with the highest lower end of an AUC."""
    columns = [r for r in results if r["by_class"]]
    if not columns:
        return None
    names = list(dict.fromkeys(name for r in columns for name in r["by_class"]))
    ranked = [r for r in columns if r["measure"] == "auc"] or columns
    shown = sorted(names, key=lambda c: -max(_low(r["by_class"].get(c)) for r in ranked))[:_CLASSES]
    rows = [{"name": c, "cells": [r["by_class"].get(c) for r in columns]} for c in shown]
    heads = [{"name": r["name"], "measure": r["measure"]} for r in columns]
    return {"heads": heads, "rows": rows, "left_out": len(names) - len(shown)}


def _policy(name: Any, met: Any, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    shown = [
        {
            "rule": str(r["rule"]),
            "met": r["met"] is True,
            "found": str(r.get("found", "")),
            "why": str(r.get("reason", "")),
            "proven": None if (proven := r.get("proven", False)) is None else proven is True,
        }
        for r in rules[:_MOST]
    ]
    return {"name": str(name), "met": met is True and all(r["met"] for r in shown), "rules": shown}


def _screening(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    # A distance says nothing by itself: that to non-members is the unit.
    unit = finite_number(found["closest_non_members"]["value"]) or 1.0
    for name in ("closest", "closest_non_members"):
        values = {k: found[name].get(k) for k in ("value", "low", "high")}
        found = {**found, name: {k: None if v is None else finite_number(v) / unit for k, v in values.items()}}
    return [
        {
            "name": name,
            "members": _estimate(found[mine]),
            "non_members": None if theirs is None else _estimate(found[theirs]),
            "reading": words,
        }
        for name, mine, theirs, words in SCREENS
    ]


def _epsilon_audit(found: Mapping[str, Any]) -> dict[str, Any]:
    low, upper = found["lower"], finite_number(found["upper"])
    lower = finite_number(low["epsilon"])
    refuted = (
        f"{int(low['canaries']):,} canaries refute every epsilon below {rounded_down(lower)} at delta "
        f"{finite_number(low['delta']):g}, with {finite_number(low['confidence']):.0%} confidence. "
    )
    if lower > upper:
        words = f"Broken guarantee: {refuted}The claim is {at_least(upper)}: nothing made by this code may leave."
    else:
        words = f"No contradiction found: {refuted}The claim of {at_least(upper)} stands; that is no proof of it."
    return {"lower": lower, "upper": upper, "broken": lower > upper, "words": words}


def _limit(limit: Mapping[str, Any]) -> dict[str, Any]:
    """The proven limit; without the consent to all that it assumes it proves nothing."""
    return {
        "auc": finite_number(limit["auc"]),
        "sentence": str(limit["sentence"]),
        "open_assumptions": [str(line) for line in limit["open_assumptions"]],
    }


def _estimate(e: Mapping[str, Any]) -> dict[str, float | None]:
    low, high = (None if e[k] is None else finite_number(e[k]) for k in ("low", "high"))
    return {"value": finite_number(e["value"]), "low": low, "high": high}


def _low(e: Mapping[str, Any] | None) -> float:
    return -1.0 if e is None or e["low"] is None else float(e["low"])


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
