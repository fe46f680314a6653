"""What an audit found, from its JSON to facts that a page can show; the page itself.

Two sources, one shape: `audit_facts` takes the JSON of `locum audit` and is for the holder, `entry_facts` takes
what a passport holds of it, which is rounded and lacks whatever must stay at home.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from locum._version import __version__
from locum.errors import DataError
from locum.release.passport import worst_verdict
from locum.report.charts import section_parts
from locum.report.page import pages
from locum.report.text import AUDIT_GLOSSARY, BANNER, EFFECTS, SCREENS, SENTENCES, TITLES, plain, rounded_down
from locum.types import at_least

# What a file that is not as expected can raise on the way.
_BAD = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
_CLASSES = 56
_MOST = 200
_NAMES = ("attack", "control", "baseline")
_RATES = {0.01: "TPR at 1 % FPR", 0.001: "TPR at 0.1 % FPR"}


def audit_facts(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the section shows, as a plain dict, from the JSON of an audit.

    The verdict is never better than the worst of the results, and no policy is met beside a leak, whatever the file
    says. A file of another shape is an error.
    """
    try:
        faults = [str(p["words"]) for p in audit["problems"]]
        results = [_result(r, faults) for r in audit["results"][:_MOST]]
        policy, screening = audit.get("policy"), audit.get("screening")
        facts = {
            "digits": 3,
            "fingerprint": str(audit.get("fingerprint") or ""),
            "verdict": worst_verdict(audit["verdict"], *(r["verdict"] for r in results)),
            "sentence": str(audit["sentence"]),
            "results": results,
            "classes": _classes(results),
            "policy": None if policy is None else _policy(policy["name"], audit["may_leave"], policy["findings"]),
            "problems": [
                {"words": str(p["words"]), "effect": EFFECTS[p["voids"]]} for p in audit["problems"][:_MOST]
            ],
            "skipped": [[str(name), str(reason)] for name, reason in list(audit["skipped"].items())[:_MOST]],
            "screening": None if screening is None else _screening(screening),
            "epsilon_audit": None if audit.get("epsilon_audit") is None else _epsilon_audit(audit["epsilon_audit"]),
        }
        return _finished(facts)
    except _BAD:
        # What a library says of a bad file may quote it.
        raise DataError("The audit is not as `locum audit RELEASE --json` writes it: write it again.") from None


def entry_facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The same from what a passport holds of an audit (`AuditEntry` as a dict): no classes, curves or faults."""
    results = []
    for r in entry["results"]:
        told = {name: _estimate(figure) for name, figure in r["figures"].items()}
        results.append(
            {
                "attack": r["attack"],
                "verdict": r["verdict"],
                "unit": _unit(told.get("baseline")),
                "estimates": {name: told.get(name) for name in _NAMES},
                "rates": {name: told[name] for name in _RATES.values() if name in told},
                "most_exposed": told.get("most exposed"),
                "p": None,
                "by_class": {},
                "roc": [],
                "notes": [],
            }
        )
    policy, both = entry["policy"], entry["epsilon_audit"]
    facts = {
        "digits": 2,
        "fingerprint": "",
        "verdict": entry["verdict"],
        "sentence": _without_title(SENTENCES[entry["verdict"]], TITLES[entry["verdict"]]),
        "results": results,
        "classes": _classes(results),
        "policy": None if policy is None else _policy(policy["name"], policy["met"], policy["rules"]),
        "problems": [],
        "skipped": [],
        "screening": None,
        "epsilon_audit": None
        if both is None
        else _epsilon_audit({**both, "lower": {**both, "epsilon": both["lower"]}}),
    }
    return _finished(facts)


def audit_html(facts: Mapping[str, Any]) -> str:
    """A page of its own from `audit_facts`: no script, nothing fetched. It is internal, and says so."""
    return (
        pages()
        .get_template("audit.html.jinja")
        .render(
            a=facts,
            banner=BANNER,
            glossary=AUDIT_GLOSSARY,
            written_by=f"locum {__version__}",
            written_on=datetime.now(UTC).date().isoformat(),
            **section_parts(facts),
        )
    )


def _finished(facts: dict[str, Any]) -> dict[str, Any]:
    both = facts["epsilon_audit"]
    if both is not None and both["broken"]:
        facts["verdict"] = "leak"
    if facts["policy"] is not None and facts["verdict"] == "leak":
        facts["policy"]["met"] = False
    facts["title"] = TITLES[facts["verdict"]]
    facts["rates"] = [n for n in _RATES.values() if any(n in r["rates"] for r in facts["results"])]
    facts["answer"] = "" if facts["policy"] is None else _answer(facts["policy"])
    out: dict[str, Any] = plain(facts)
    return out


def _answer(policy: Mapping[str, Any]) -> str:
    open_ones = sum(not rule["met"] for rule in policy["rules"])
    if policy["met"]:
        return f"Policy {policy['name']}: met. By its rules this release may leave; a person still decides."
    count = f"{open_ones} of {len(policy['rules'])} rules are not met" if open_ones else "no policy allows this"
    return f"Policy {policy['name']}: not met ({count}). By its rules this release must not leave."


def _result(r: Mapping[str, Any], faults: Sequence[str]) -> dict[str, Any]:
    told = {name: _estimate(r["estimates"][name]) for name in _NAMES}
    rates = {_RATES[float(k)]: _estimate(e) for k, e in r.get("tpr", {}).items() if float(k) in _RATES}
    notes = [str(note) for note in r.get("notes", [])][:20]
    because = str(r.get("inconclusive_because", ""))
    for words in faults:
        # Faults of the data have a list of their own, and are the same for every attack.
        because = because.replace(words, "")
    if because := because.strip("; "):
        notes.append(f"inconclusive because {because}")
    p = r.get("adjusted", r.get("p_value"))
    return {
        "attack": str(r["attack"]),
        "verdict": worst_verdict(r["verdict"]),
        "unit": _unit(told["baseline"]),
        "estimates": told,
        "rates": rates,
        "most_exposed": _estimate(r["most_exposed"]) if r.get("most_exposed") else None,
        "p": None if p is None else _p_text(_number(p)),
        "by_class": {str(name): _estimate(e) for name, e in r.get("by_class", {}).items()},
        "roc": [[_share(a), _share(b)] for a, b in r.get("roc", [])[:1000]],
        "notes": notes,
    }


def _classes(results: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Attacks as columns, classes as rows; the most exposed class first, by the highest lower end of its AUCs."""
    told = [r for r in results if r["by_class"]]
    if not told:
        return None
    names = list(dict.fromkeys(name for r in told for name in r["by_class"]))
    games = [r for r in told if r["unit"] == "AUC"] or told
    shown = sorted(names, key=lambda c: -max(_low(r["by_class"].get(c)) for r in games))[:_CLASSES]
    rows = [{"name": c, "cells": [r["by_class"].get(c) for r in told]} for c in shown]
    heads = [{"attack": r["attack"], "unit": r["unit"]} for r in told]
    return {"heads": heads, "rows": rows, "left_out": len(names) - len(shown)}


def _policy(name: Any, met: Any, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    told = [
        {
            "rule": str(r["rule"]),
            "met": r["met"] is True,
            "found": str(r.get("found", "")),
            "why": str(r.get("reason", "")),
        }
        for r in rules[:_MOST]
    ]
    return {"name": str(name), "met": met is True and all(r["met"] for r in told), "rules": told}


def _screening(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "members": _estimate(found[mine]),
            "strangers": None if theirs is None else _estimate(found[theirs]),
            "reading": words,
        }
        for name, mine, theirs, words in SCREENS
    ]


def _epsilon_audit(found: Mapping[str, Any]) -> dict[str, Any]:
    low, upper = found["lower"], _number(found["upper"])
    lower = _number(low["epsilon"])
    seen = (
        f"{int(low['canaries']):,} canaries refute every epsilon below {rounded_down(lower)} at delta "
        f"{_number(low['delta']):g}, with {_number(low['confidence']):.0%} confidence. "
    )
    if lower > upper:
        words = f"Broken promise: {seen}The claim is {at_least(upper)}: nothing made by this code may leave."
    else:
        words = f"No contradiction found: {seen}The claim of {at_least(upper)} stands, which is no proof of it."
    return {"lower": lower, "upper": upper, "broken": lower > upper, "words": words}


def _estimate(e: Mapping[str, Any]) -> dict[str, float | None]:
    low, high = (None if e[k] is None else _number(e[k]) for k in ("low", "high"))
    return {"value": _number(e["value"]), "low": low, "high": high}


def _unit(baseline: Mapping[str, Any] | None) -> str:
    """AUCs have the coin as their baseline; rates of success have another."""
    return "AUC" if baseline is not None and baseline["value"] == 0.5 else "share"


def _without_title(sentence: str, title: str) -> str:
    rest = sentence.removeprefix(f"{title}: ")
    return rest[0].upper() + rest[1:]


def _low(e: Mapping[str, Any] | None) -> float:
    return -1.0 if e is None or e["low"] is None else float(e["low"])


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return float(value)


def _share(value: Any) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError("not a share")
    return float(value)


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
