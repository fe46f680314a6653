"""All that is known about a release: its folder, and what was found about it and is kept beside it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from locum.accounting import is_spent, left_in_words, ways_out
from locum.data import ledger_for
from locum.errors import ConfigError, DataError, PrivacyError
from locum.io import beside_folder
from locum.recipes.ledger import show_ledger
from locum.recipes.passport import audit_entry
from locum.recipes.verify import verify_opened_release
from locum.release import open_release
from locum.release.passport import Passport
from locum.report import audit_facts, decision_facts
from locum.types import DP

# What `locum audit` and `locum evaluate` are told to write next to a release.
AUDIT, EVALUATION, RISK, HEAD = "-audit.json", "-evaluation.json", "-risk.csv", "-head.safetensors"
_MOST_BYTES = 64 * 2**20
_RISKS = 200


def review_release(release: Path) -> dict[str, Any]:
    """Gather what is known about a release: its claim, its checks, attacks, usefulness and decision.

    Findings are taken from `RELEASE-audit.json` and `RELEASE-evaluation.json` next to the release, if they are about
    this very release.

    Parameters
    ----------
    release
        Folder of the release.

    Returns
    -------
    dict
        Plain JSON; `audit` is what `audit_facts` gives, or None, and `page` what `decision_facts` gives. `outdated`
        says that this audit has another outcome than the one that was decided on. Internal: it depends on records.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, review_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> made = fit_release("tumors.npz", Path("release-to-review"), no_dp=True)
    >>> facts = review_release(made.release)
    >>> facts["decision"], facts["audit"], facts["page"]["verdict"]["state"]
    ('no decision is recorded', None, 'open')
    """
    opened = open_release(release)
    verified, manifest = verify_opened_release(opened), opened.release.manifest
    audit, evaluation = (finding_beside(release, ending, verified.fingerprint) for ending in (AUDIT, EVALUATION))
    passport = opened.passport_files.passport
    outdated = _is_outdated(passport, audit)
    decided = passport is not None and passport.decision is not None and not outdated
    attacks = None if audit is None else audit_facts(audit, decision=verified.decision if decided else "")
    try:
        page = decision_facts(opened.release, audit=attacks, evaluation=evaluation)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # Somebody may have edited it since.
        raise DataError(f"{release.name + EVALUATION!r} is damaged: measure the release again.") from None
    return {
        "fingerprint": verified.fingerprint,
        "generator": verified.generator,
        "kind": manifest.kind,
        "classes": list(manifest.class_names),
        "features": manifest.embedding.dim,
        "claim": page["claim"],
        "checks": list(verified.checks),
        "not_checked": list(verified.not_checked),
        "signature": opened.passport_files.signature is not None,
        "decision": verified.decision,
        "outcome": None if passport is None or passport.decision is None else passport.decision.outcome,
        "outdated": outdated,
        "refused": verified.refused,
        "override": verified.override,
        "audit": attacks,
        "page": page,
        "has_risk": _file_beside(release, RISK) is not None,
        "has_head": _file_beside(release, HEAD) is not None,
    }


def findings_beside(release: Path) -> dict[str, Path]:
    """Find what was found about a release in the files next to it.

    Parameters
    ----------
    release
        Folder of the release.

    Returns
    -------
    dict of str to Path
        The files `audit` and `evaluation`, as far as they are there and about this very release.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import findings_beside, fit_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> findings_beside(fit_release("tumors.npz", Path("release-without-findings"), no_dp=True).release)
    {}
    """
    fingerprint = open_release(release).fingerprint
    endings = {"audit": AUDIT, "evaluation": EVALUATION}
    return {
        name: beside_folder(release, ending)
        for name, ending in endings.items()
        if finding_beside(release, ending, fingerprint) is not None
    }


def read_risk(release: Path) -> dict[str, Any]:
    """Read the most exposed records from `RELEASE-risk.csv` next to a release.

    Parameters
    ----------
    release
        Folder of the release.

    Returns
    -------
    dict
        `rows`, at most 200 as the file has them, `records`, how many there are, and `exposed`, how many of them are.
        Private: it names records.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import read_risk
    >>> read_risk(Path("release"))  # doctest: +SKIP
    """
    file = _file_beside(release, RISK)
    if file is None:
        raise ConfigError(f"There is no risk map of {release.name!r}: run the attacks on it first.")
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        exposed = sum(row["exposed"] == "yes" for row in rows)
    except (ValueError, KeyError, csv.Error):
        raise DataError(f"{file.name!r} is not a risk map, or is damaged: run the attacks again.") from None
    return {"rows": rows[:_RISKS], "records": len(rows), "exposed": exposed}


def show_cost(data: str, budget: DP, holding: str = "default", *, unit_from_data: bool = False) -> dict[str, Any]:
    """Say what a private fit would cost, and what the ledger of the data has left; no record is used.

    Parameters
    ----------
    data
        File or folder of records.
    budget
        The budget of the fit.
    holding
        Name of the holding that would pay.
    unit_from_data
        The data decide on the unit, whatever `budget` says; they are not read, so the unit is not checked.

    Returns
    -------
    dict
        `cost`, `limit` (the highest AUC of any attack, on average), `holding` as `show_ledger` shows it, or None if
        it would be opened, and `problem`, a sentence if it would be refused.

    Examples
    --------
    >>> from locum.recipes import show_cost
    >>> from locum.types import DP
    >>> found = show_cost("elsewhere/scans.npz", DP(epsilon=1.0, delta=1e-6))
    >>> found["holding"], round(found["limit"], 3)
    (None, 0.566)
    """
    from locum.accounting import Ledger, attack_limit, plan_head

    plan = plan_head(budget)
    out: dict[str, Any] = {
        "cost": {"epsilon": budget.epsilon, "delta": budget.delta},
        "limit": attack_limit(plan.events, budget.relation),
        "holding": None,
        "problem": "",
    }
    ledger = ledger_for(data)
    if not ledger.is_file():
        return out
    known = {one["name"]: one for one in show_ledger(ledger)["holdings"]}
    if holding in known:
        out["holding"] = known[holding]
        left = known[holding]["left"]
        kept = Ledger(ledger).holding(holding)
        try:
            kept.check_terms(replace(budget, unit=kept.unit) if unit_from_data else budget)
        except PrivacyError as error:
            return out | {"problem": str(error)}
        if plan.epsilon > left["epsilon"] or budget.delta > left["delta"]:
            asked = plan.epsilon, budget.delta
            rest = left["epsilon"], left["delta"]
            out["problem"] = (
                f"The budget of {holding!r} does not allow this: {left_in_words(rest, *asked)}. "
                f"{ways_out(ledger, spent=is_spent(rest, *asked))}"
            )
    return out


def _is_outdated(passport: Passport | None, audit: Mapping[str, Any] | None) -> bool:
    """Whether the release was attacked again, with another outcome, since somebody decided about it."""
    if passport is None or passport.decision is None or audit is None:
        return False
    found, known = audit_entry(audit, passport.release.fingerprint, include_measured=False), passport.audit
    return known is None or (known.verdict, known.policy) != (found.verdict, found.policy)


def finding_beside(release: Path, ending: str, fingerprint: str) -> Mapping[str, Any] | None:
    """The JSON about a release in the file beside it; None if it is that of an earlier release of the same name."""
    file = _file_beside(release, ending)
    if file is None:
        return None
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("fingerprint") == fingerprint else None


def _file_beside(release: Path, ending: str) -> Path | None:
    """A file that is kept beside a release, if it is there; a link could lead anywhere."""
    file = beside_folder(release, ending)
    small = file.is_file() and not file.is_symlink() and file.stat().st_size <= _MOST_BYTES
    return file if small else None
