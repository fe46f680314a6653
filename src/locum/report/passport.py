"""A passport to read: an HTML page and a Markdown text, made from `passport.json` and nothing else."""

from __future__ import annotations

from typing import Any

from locum.accounting import events_from_json
from locum.errors import ConfigError
from locum.release import Manifest
from locum.release.passport import (
    CROISSANT,
    PAGE,
    REGISTRY,
    SHEET,
    AuditEntry,
    Passport,
    parse_passport,
    render_croissant,
    render_registry,
)
from locum.report.audit import entry_facts, figure_titles, figures
from locum.report.charts import section_parts
from locum.report.page import _figure, _table, _text, pages
from locum.report.text import (
    GLOSSARY,
    METRICS,
    cards,
    claim_facts,
    decided_card,
    interval_text,
    plain,
    rounded_down,
    with_audit_terms,
)
from locum.types import at_least

BANNER = "The passport of a release. It holds no real point and no exact count."
_THREATS = {
    "attacker": "The attacker",
    "proven": "What is proven",
    "not_proven": "What is not proven",
    "assumes": "What the proof assumes",
    "not_considered": "What is not considered",
}
_TERMS = ("attack", "AUC", "baseline", "control", "fingerprint", "interval", "record", "release", "vector")
_CHECK = "locum verify RELEASE --key SENDER.pub"
_NONE = {
    "audit": "No attack is reported. The sender may have run some: ask.",
    "utility": "The usefulness of the release is not reported: such figures depend on records.",
}


def passport_facts(passport: Passport) -> dict[str, Any]:
    """The content of page and text as a plain dict, with all text made safe for terminals.

    The same passport gives the same dict, whether it was just built or read from a file.
    """
    passport = parse_passport(passport.dumps().encode())
    claim = passport.claim
    release = passport.release
    decision = "" if passport.decision is None else passport.decision.sentence()
    audit = None if passport.audit is None else passport.audit.model_dump()
    utility = None if passport.utility is None else passport.utility.model_dump()
    attacks = None if audit is None else entry_facts(audit, decision=decision)
    facts: dict[str, Any] = {
        "banner": BANNER,
        "written_on": passport.written_on,
        "written_by": passport.written_by,
        "release": release.model_dump() | {"features": release.embedding.dim},
        "claim": claim_facts(claim),
        "ledger": None if claim.dp is None else _ledger(passport),
        "audit": audit,
        "audit_words": _NONE["audit"] if attacks is None else f"{attacks['title']}. {attacks['sentence']}",
        "attacks": attacks,
        "audit_facts": [] if passport.audit is None else _audit_facts(passport.audit),
        "figures": [] if audit is None else figure_titles(audit["results"]),
        "decision": "",
        "utility": utility,
        "utility_words": "" if utility else _NONE["utility"],
        "metrics": [m for m in METRICS if utility and any(m in row["scores"] for row in utility["rows"])],
        "threats": {title: list(getattr(passport.threat_model, k)) for k, title in _THREATS.items()},
        "versions": passport.versions,
        "check": _CHECK,
        "glossary": {term: GLOSSARY[term] for term in _TERMS if term in GLOSSARY},
    }
    if audit is not None:
        facts["glossary"] = with_audit_terms(facts["glossary"])
    found = {"title": "What attackers achieved", "text": facts["audit_words"]}
    facts["summary"] = cards(facts["release"], facts["claim"], found)
    if passport.decision is not None:
        facts["decision"] = f"{decision}; SHA-256 of the decision: {passport.decision.sha256}"
        facts["summary"][-1] = decided_card(decision)
    out: dict[str, Any] = plain(facts)
    return out


def render_passport_files(manifest: Manifest, passport: Passport) -> dict[str, str]:
    """The files that are made from a passport: the same passport always gives the same text.

    Parameters
    ----------
    manifest
        The manifest of a saved release, which lists its files.
    passport
        Its passport.

    Returns
    -------
    dict of str to str
        The text of each file, by name: page, Markdown, Croissant and, with a claim of kind "dp", the registry entry.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import load
    >>> from locum.release.passport import build_passport
    >>> from locum.report import render_passport_files
    >>> release = load(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("release"))
    >>> passport = build_passport(release.manifest, release.fingerprint, written_on="2025-01-31")
    >>> list(render_passport_files(release.manifest, passport))
    ['passport.html', 'passport.md', 'croissant.json']
    """
    files = {
        PAGE: passport_html(passport),
        SHEET: passport_markdown(passport),
        CROISSANT: render_croissant(manifest, passport),
    }
    if passport.claim.dp is not None:
        files[REGISTRY] = render_registry(manifest, passport)
    return files


def passport_html(passport: Passport) -> str:
    """One self-contained page: its content policy forbids scripts and requests."""
    facts = passport_facts(passport)
    return (
        pages()
        .get_template("passport.html.jinja")
        .render(
            p=facts,
            titles=METRICS,
            figure=lambda estimate: f"{estimate['value']:.2f}",
            range=lambda estimate: interval_text(estimate, 2),
            **section_parts(facts["attacks"]),
        )
    )


def passport_markdown(passport: Passport) -> str:
    """The same facts as Markdown, for a mail, a ticket or a catalog."""
    p = passport_facts(passport)
    parts = ["# Passport of a release", f"**{_text(p['banner'])}**"]
    parts += [f"**{c['title']}{'' if c['title'].endswith('?') else '.'}** {_text(c['text'])}" for c in p["summary"]]
    parts += ["## What is claimed, and what is not", f"Claim: **{_text(p['claim']['title'])}**."]
    parts.append(_text(p["claim"]["sentence"]))
    if p["claim"]["assumptions"]:
        parts += ["Assumed:", _list(p["claim"]["assumptions"])]
    parts += ["Not covered:", _list(p["claim"]["not_covered"])]
    if p["ledger"] is not None:
        parts += ["## What the ledger was charged", _table(["what", "value"], p["ledger"]["rows"])]
        parts.append(_list(p["ledger"]["events"]))
    parts += ["## What attackers achieved", _text(p["audit_words"])]
    if p["audit"] is not None:
        rows = [
            [r["name"], r["verdict"], *(_figure(figures(r).get(name), 2) for name in p["figures"])]
            for r in p["audit"]["results"]
        ]
        parts.append(_table(["attack on the release", "verdict", *p["figures"]], rows))
        if p["audit_facts"]:
            parts.append(_table(["what", "found"], p["audit_facts"]))
    parts.append("## How useful it is")
    if p["utility"] is None:
        parts.append(_text(p["utility_words"]))
    else:
        rows = [
            [row["method"], *(_figure(row["scores"].get(m), 2) for m in p["metrics"])] for row in p["utility"]["rows"]
        ]
        parts.append(_table(["trained on", *(METRICS[m] for m in p["metrics"])], rows))
        parts.append(f"A {_text(p['utility']['head'])} classifier, seeds: {p['utility']['seeds']}.")
    parts.append("## Threat model")
    for title, sentences in p["threats"].items():
        parts += [f"### {title}", _list(sentences)]
    parts += ["## How to check it", f"`{_CHECK}`", _table(["what", "value"], _rows(p))]
    parts.append(f"Written {p['written_on']} by {_text(p['written_by'])}.")
    return "\n\n".join(parts) + "\n"


def _audit_facts(audit: AuditEntry) -> list[list[str]]:
    """The policy with its rules, and the epsilon audit, as rows of two cells."""
    rows = []
    if audit.policy is not None:
        rows.append([f"policy {audit.policy.name}", "met" if audit.policy.met else "NOT MET"])
        rows += [[rule.rule, "met" if rule.met else "NOT MET"] for rule in audit.policy.rules]
    if audit.epsilon_audit is not None:
        both = audit.epsilon_audit
        rows.append(
            [
                f"lower bound on epsilon, at delta {both.delta:g}",
                f"{both.verdict}: {both.canaries:,} canaries refute every epsilon below {rounded_down(both.lower)} "
                f"with {both.confidence:.0%} confidence; the claim is {at_least(both.upper)}",
            ]
        )
    return rows


def _ledger(passport: Passport) -> dict[str, Any]:
    dp = passport.claim.dp
    assert dp is not None
    try:
        events = [str(event) for event in events_from_json(dp.events)]
    except ConfigError:
        # An unknown event: `verify` refuses it, a page shows it.
        events = [str(dict(event))[:200] for event in dp.events]
    rows = [
        ["epsilon", at_least(dp.epsilon)],
        ["delta", at_least(dp.delta)],
        ["unit", passport.claim.unit],
        ["neighboring relation", dp.relation],
        ["ledger tip", dp.ledger],
    ]
    return {"rows": rows, "events": events}


def _rows(p: dict[str, Any]) -> list[list[Any]]:
    release = p["release"]
    rows = [[k, release[k]] for k in ("fingerprint", "generator", "kind", "space", "written_by")]
    rows += [["backbone", release["embedding"]["backbone"]]]
    rows += [["decision", p["decision"]]] if p["decision"] else []
    rows += [[f"SHA-256 of {name}", sha] for name, sha in release["files"].items()]
    return rows + [[f"{name} version", number] for name, number in p["versions"].items()]


def _list(items: list[str]) -> str:
    return "\n".join(f"- {_text(item)}" for item in items)
