"""What a privacy officer needs in order to decide about a release, on one page: as a plain dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locum.release import Release
from locum.report.text import (
    apart_words,
    claim_facts,
    guess_words,
    interval_text,
    limit_words,
    plain,
    reason_words,
)
from locum.types import SAFES as SAFES, Estimate


def decision_facts(
    release: Release, *, audit: Mapping[str, Any] | None = None, evaluation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Everything on the page of a decision: verdict, guarantee, strongest attack, usefulness lost, what is open.

    The page is internal: its figures depend on records.

    Parameters
    ----------
    release
        The release.
    audit
        What `audit_facts` returned; None if no attack was run.
    evaluation
        An evaluation as plain JSON, as `locum evaluate --json` gives it; None if usefulness was not measured.

    Returns
    -------
    dict
        Plain JSON types, with all text made safe for pages.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.report import decision_facts
    >>> facts = decision_facts(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True))
    >>> facts["verdict"]["state"], facts["claim"]["kind"]
    ('open', 'none')
    """
    claim = release.claim
    facts = {
        "verdict": _verdict(audit),
        "claim": claim_facts(claim) | {"warning": claim.warning},
        "limit": None if audit is None or audit["limit"] is None else audit["limit"]["sentence"],
        "strongest": None if audit is None else _strongest(audit),
        "usefulness": None if evaluation is None else _usefulness(evaluation),
        "not_covered": list(claim.not_covered),
        "safes": [{"name": name, "title": title, "question": ask} for name, (title, ask) in SAFES.items()],
        "fingerprint": release.fingerprint,
    }
    out: dict[str, Any] = plain(facts)
    return out


def _verdict(audit: Mapping[str, Any] | None) -> dict[str, Any]:
    """Whether the policy is met, not met, or open because nobody has attacked the release."""
    if audit is None or audit["policy"] is None:
        none = "No attack was run on this release: run the attacks first."
        return {
            "state": "open",
            "tone": "doubt",
            "title": "No policy was checked",
            "sentence": none if audit is None else audit["sentence"],
            "rules": [],
        }
    policy = audit["policy"]
    found = audit["sentence"] + reason_words(audit["because"])
    return {
        "state": "met" if policy["met"] else "not met",
        "tone": audit["tone"],
        "title": f"Policy {policy['name']}: {'met' if policy['met'] else 'NOT met'}",
        "sentence": f"{found} {audit['consequence']}",
        "rules": policy["rules"],
    }


def _strongest(audit: Mapping[str, Any]) -> dict[str, Any] | None:
    """The attack with the highest AUC, and what that means for one person."""
    tried = [result for result in audit["results"] if result["measure"] == "auc"]
    if not tried:
        return None
    found = max(tried, key=lambda result: result["attack"]["value"])
    limit = "" if found["limit"] is None else f" {limit_words(found['limit'])}"
    return {
        "name": found["name"],
        "how": found["how"],
        "verdict": found["verdict"],
        "auc": found["attack"],
        "limit": found["limit"],
        "words": f"{guess_words(found['attack'])} AUC {found['attack']['value']:.3f}, 95% interval "
        f"{interval_text(found['attack'], 3)}.{limit}",
        "tried": len(audit["results"]),
    }


def _usefulness(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """AUC of a classifier from the release beside one from real data, and how much was lost."""
    rows = {row["method"]: Estimate.from_dict(row["scores"]["auc"]) for row in evaluation["rows"]}
    ours, real = next(iter(rows.values())), rows.get("real data")
    words = (
        f"A {evaluation['head']} classifier from the release tells two real records of different classes apart "
        f"{apart_words(ours.value)} (AUC {ours.value:.3f})."
    )
    if real is not None:
        lost = real.value - ours.value
        words += f" One from the records does so {apart_words(real.value)} (AUC {real.value:.3f}): "
        words += f"{100 * lost:.1f} points are lost." if lost > 0.0005 else "nothing is lost."
    return {
        "words": words,
        "released": ours.to_dict(),
        "real": None if real is None else real.to_dict(),
        "lost": None if real is None else real.value - ours.value,
        "records": evaluation["test_records"],
    }
