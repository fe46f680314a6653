"""What the page shows, as plain JSON: gathered from the recipes and from the dicts behind the reports."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locum.errors import ConfigError, DataError, LocumError
from locum.studio.actions import Fit, beside
from locum.studio.jobs import Jobs
from locum.studio.places import Root
from locum.types import DP

if TYPE_CHECKING:
    from locum.release import Release

_RISKS = 200
_MOST_JSON = 64 * 2**20


def about_data(root: Root, name: str) -> dict[str, Any]:
    """A data set at a glance, without reading its records."""
    from locum.data import ledger_for

    place = root.path(name)
    files = [p for p in place.rglob("*") if p.is_file()] if place.is_dir() else [place]
    ledger: str | None = None
    try:
        ledger = root.name(ledger_for(str(place)))
    except ValueError:
        # Vectors can name a ledger that lies elsewhere.
        ledger = None
    return {
        "path": name,
        "kind": "folder of images" if place.is_dir() else f"{place.suffix.lower().lstrip('.')} file",
        "files": len(files),
        "megabytes": sum(p.stat().st_size for p in files) / 1e6,
        "ledger": ledger if ledger is not None and (root.folder / ledger).is_file() else None,
    }


def about_release(root: Root, jobs: Jobs, name: str) -> dict[str, Any]:
    """A release: its claim, what was found about it, and where it stands on its way out."""
    from locum.recipes import verify_release
    from locum.release import load

    place = root.path(name)
    verified = verify_release(place)
    release = load(place)
    audit, evaluation = (_kept(root, name, ending) for ending in ("audit.json", "evaluation.json"))
    made = next((j for j in jobs.all() if j["kind"] == "fit" and j["arguments"].get("out") == name), None)
    return {
        "path": name,
        "fingerprint": verified.fingerprint,
        "generator": verified.generator,
        "classes": list(release.manifest.class_names),
        "features": release.manifest.embedding.dim,
        "kind": release.manifest.kind,
        "claim": {
            **verified.claim.to_dict(),
            "title": verified.claim.title,
            "sentence": verified.claim.sentence(),
            "warning": verified.claim.warning,
        },
        "checks": list(verified.checks),
        "not_checked": list(verified.not_checked),
        "signature": (place / "signature.json").is_file(),
        "decision": verified.decision,
        "outcome": outcome_of(place),
        "refused": verified.refused,
        "override": verified.override,
        "audit": None if audit is None else {"verdict": audit.get("verdict"), "met": audit.get("may_leave")},
        "evaluated": evaluation is not None,
        "ledger": _ledger_of(root, verified.claim.dp.ledger) if verified.claim.dp else None,
        "made": None if made is None else {"data": made["arguments"].get("data"), "command": made["command"]},
        "head": None
        if kept_beside(root, name, "head.safetensors") is None
        else str(beside(name, "head.safetensors")),
    }


def about_ledger(root: Root, name: str) -> dict[str, Any]:
    """A ledger as `locum ledger show` shows it."""
    from locum.recipes import show_ledger

    return {**show_ledger(root.path(name)), "file": name}


def about_audit(root: Root, name: str) -> dict[str, Any]:
    """The facts of the page of an audit; how exposed single records are stays out."""
    from locum.report import audit_facts

    found = _kept(root, name, "audit.json")
    if found is None:
        raise ConfigError(f"No attack was run on {name!r} yet.")
    with _reading(beside(name, "audit.json")):
        facts = audit_facts(found)
    return facts | {"risk": kept_beside(root, name, "risk.csv") is not None}


def about_risk(root: Root, name: str) -> dict[str, Any]:
    """The most exposed records of an audit, from the private file beside the release."""
    place = kept_beside(root, name, "risk.csv")
    if place is None:
        raise ConfigError(f"No risks of single records are kept beside {name!r}: attack the release first.")
    with _reading(place), place.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
        exposed = sum(row["exposed"] == "yes" for row in rows)
    return {"rows": rows[:_RISKS], "records": len(rows), "exposed": exposed}


def about_decision(root: Root, jobs: Jobs, name: str) -> dict[str, Any]:
    """All that the page of a decision shows."""
    from locum.release import load
    from locum.report import audit_facts, decision_facts

    audit, evaluation = (_kept(root, name, ending) for ending in ("audit.json", "evaluation.json"))
    release = load(root.path(name))
    with _reading(beside(name, "audit.json")):
        facts = decision_facts(release, audit=None if audit is None else audit_facts(audit), evaluation=evaluation)
    return facts | {"release": about_release(root, jobs, name)}


def about_plan(root: Root, fit: Fit) -> dict[str, Any]:
    """What a fit would cost, what would be left, and its command line; no record is read."""
    from locum.data import ledger_for
    from locum.errors import PrivacyError
    from locum.recipes import show_ledger

    out: dict[str, Any] = {"command": fit.command(), "cost": None, "holding": None, "problem": ""}
    if fit.no_dp:
        return out
    out["cost"] = {"epsilon": fit.epsilon, "delta": fit.delta}
    out["limit"] = proven(fit.epsilon, fit.delta)
    ledger = ledger_for(str(root.records(fit.data)))
    if ledger.is_file():
        known = [h for h in show_ledger(ledger)["holdings"] if h["name"] == fit.holding]
        if known:
            out["holding"] = known[0]
            left = known[0]["left"]
            if fit.epsilon > left["epsilon"] or fit.delta > left["delta"]:
                out["problem"] = (
                    f"Only epsilon {left['epsilon']:g} and delta {left['delta']:g} are left for {fit.holding!r}: ask "
                    "for less, or decide on a larger budget in a terminal with `locum ledger set-budget`."
                )
    try:
        DP(fit.epsilon, fit.delta)
    except (ConfigError, PrivacyError) as error:
        out["problem"] = str(error)
    return out


def proven(epsilon: float, delta: float) -> float:
    """The highest AUC of any attack on a release with this budget."""
    from locum.accounting import attack_limit, plan_head

    return attack_limit(plan_head(DP(epsilon, delta)).events)


def measured(root: Root) -> list[dict[str, Any]]:
    """What attacks and evaluations measured on the releases below the root, for the dial's curves."""
    from locum.release import load

    out = []
    for name in root.listing()["releases"]:
        try:
            release = load(root.folder / name)
            audit, evaluation = (_kept(root, name, ending) for ending in ("audit.json", "evaluation.json"))
        except LocumError:
            continue
        with suppress(LocumError), _reading(beside(name, "audit.json")):
            out.append(_measured(release, audit or {}, evaluation or {}) | {"release": name})
    return out


def _measured(release: Release, audit: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    attacks = [r for r in audit.get("results", ()) if r.get("measure") == "auc"]
    strongest = max(attacks, key=lambda r: float(r["attack"]["value"]), default=None)
    rows = evaluation.get("rows", ())
    return {
        "epsilon": None if release.claim.dp is None else release.claim.dp.epsilon,
        "classes": len(release.manifest.classes),
        "features": release.manifest.embedding.dim,
        "attack": None if strongest is None else {"name": strongest["name"], **strongest["attack"]},
        "auc": rows[0]["scores"]["auc"] if rows else None,
    }


def kept_beside(root: Root, name: str, ending: str) -> Path | None:
    """The file about a release that is kept beside it, if there is one; a link could lead anywhere."""
    root.path(name)
    place = root.folder / beside(name, ending)
    return place if place.is_file() and not place.is_symlink() and place.stat().st_size <= _MOST_JSON else None


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """What we wrote beside a release may have been edited since: one sentence, and never a fault of the studio."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, csv.Error):
        raise DataError(f"{file.name!r} is damaged, or was edited: attack or measure the release again.") from None


def _kept(root: Root, name: str, ending: str) -> Mapping[str, Any] | None:
    """The JSON about a release that is kept beside it, if it is about this very release."""
    from locum.release import load

    place = kept_beside(root, name, ending)
    if place is None:
        return None
    try:
        found = json.loads(place.read_bytes())
    except (ValueError, RecursionError):
        return None
    # Beside a release that was made anew lies the audit of the old one.
    same = isinstance(found, dict) and found.get("fingerprint") == load(root.path(name)).fingerprint
    return found if same else None


def outcome_of(place: Path) -> str | None:
    """What the holder decided, as the passport says; None without a decision."""
    from locum.release import open_release

    passport = open_release(place).passport_files.passport
    return None if passport is None or passport.decision is None else passport.decision.outcome


def _ledger_of(root: Root, tip: str) -> str | None:
    """The ledger below the root that has a charge."""
    from locum.accounting import Ledger

    for name in root.listing()["ledgers"]:
        try:
            if Ledger(root.folder / name).knows(tip):
                return str(name)
        except LocumError:
            continue
    return None
