"""From what `audit` and `evaluate` wrote to what a passport may hold of it: rounded, and without counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from understudy.errors import ConfigError, DataError
from understudy.release.passport_entries import (
    AttackEntry,
    AuditEntry,
    PolicyEntry,
    RuleEntry,
    SandwichEntry,
    UtilityEntry,
    worst_verdict,
)
from understudy.report.measured import blurred, shareable_figures

__all__ = ["audit_entry", "read_audit", "read_evaluation", "read_json", "utility_entry"]

# What reading a file that is not as expected can raise.
_BAD = (ValidationError, AttributeError, KeyError, OverflowError, TypeError, ValueError)
_MAX_BYTES = 64 * 2**20
# What may be told of an attack, by its name in the audit. The rest (classes, curves, notes) stays at home.
_FIGURES = {"attack": "attack", "control": "control", "baseline": "baseline", "most_exposed": "most exposed"}
_RATES = {0.01: "TPR at 1 % FPR", 0.001: "TPR at 0.1 % FPR"}


def read_audit(path: Path, fingerprint: str, *, include_measured: bool) -> AuditEntry:
    """What `understudy audit --json` wrote about the release with this fingerprint."""
    return audit_entry(read_json(path, "audit"), fingerprint, include_measured=include_measured)


def read_evaluation(path: Path, fingerprint: str) -> UtilityEntry:
    """What `understudy evaluate --json` wrote."""
    return utility_entry(read_json(path, "evaluation"), fingerprint)


def audit_entry(audit: Mapping[str, Any], fingerprint: str, *, include_measured: bool) -> AuditEntry:
    """Attacks and verdicts; with `include_measured` also their figures, blurred.

    `audit` must say by `fingerprint` which release was attacked: the good marks of another would fit any.
    """
    if audit.get("fingerprint") != fingerprint:
        given = "says of none" if not audit.get("fingerprint") else "is of another release"
        raise DataError(f"The audit must be of this release, by its `fingerprint`; it {given}. Audit this one.")
    results = audit.get("results")
    if not isinstance(results, list) or not results:
        raise DataError("The audit holds no `results`: give what `understudy audit RELEASE --json` wrote.")
    try:
        entries = [_attack(result, include_measured) for result in results]
        return AuditEntry(
            # Doubts about the data make an audit worse than any of its results.
            verdict=worst_verdict(audit["verdict"], *(entry.verdict for entry in entries)),
            results=tuple(entries),
            policy=_policy(audit),
            sandwich=_sandwich(audit.get("sandwich")),
        )
    except _BAD:
        # What a library says of a bad file may quote it.
        raise DataError("The audit is not as `understudy audit RELEASE --json` writes it: write it again.") from None


def utility_entry(evaluation: Mapping[str, Any], fingerprint: str) -> UtilityEntry:
    """Scores, blurred, of an evaluation. One that names a release must name this one."""
    if evaluation.get("fingerprint", fingerprint) != fingerprint:
        raise DataError("The evaluation is of another release, by its `fingerprint`. Evaluate this one.")
    try:
        told = shareable_figures({"membership": None, **evaluation})
        return UtilityEntry(**{k: told[k] for k in ("head", "seeds", "rows")})
    except _BAD:
        raise DataError(
            "The evaluation is not as `understudy evaluate RELEASE --json` writes it: write it again."
        ) from None


def _attack(result: Mapping[str, Any], include_measured: bool) -> AttackEntry:
    name = result["attack_name"] if "attack_name" in result else result["attack"]
    figures: dict[Any, Any] = {}
    if include_measured:
        # By either name: `attack` is the attack's name where its figures are apart.
        source = {**result, **result.get("estimates", {})}
        for key, title in _FIGURES.items():
            if isinstance(source.get(key), Mapping):
                figures[title] = blurred(source[key])
        for rate, estimate in source.get("tpr", {}).items():
            if float(rate) in _RATES:
                figures[_RATES[float(rate)]] = blurred(estimate)
    return AttackEntry(attack=name, verdict=result["verdict"], figures=figures)


def _policy(audit: Mapping[str, Any]) -> PolicyEntry | None:
    """Which rules are met; what was found for each stays at home."""
    policy = audit.get("policy")
    if policy is None:
        return None
    rules = tuple(RuleEntry(rule=finding["rule"], met=finding["met"]) for finding in policy["findings"])
    return PolicyEntry(name=policy["name"], met=audit["may_leave"], rules=rules)


def _sandwich(found: Mapping[str, Any] | None) -> SandwichEntry | None:
    """It read no record, so that its figures may be told as they are."""
    if found is None:
        return None
    lower = found["lower"]
    return SandwichEntry(
        verdict=found["verdict"],
        lower=lower["epsilon"],
        upper=found["upper"],
        delta=lower["delta"],
        confidence=lower["confidence"],
        canaries=lower["canaries"],
    )


def read_json(path: Path, what: str) -> Mapping[str, Any]:
    """What `audit` or `evaluate` wrote with --json, or one sentence on why this file is not that."""
    if not path.is_file():
        raise ConfigError(
            f"There is no file {str(path)!r}: give what `understudy {_verb(what)} RELEASE --json` wrote."
        )
    if path.stat().st_size > _MAX_BYTES:
        raise DataError(f"{str(path)!r} is too long to be an {what}.")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        data = None
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if not isinstance(data, dict):
        raise DataError(f"{str(path)!r} is no JSON of an {what}: write it with `understudy {_verb(what)} --json`.")
    return data


def _verb(what: str) -> str:
    return "audit" if what == "audit" else "evaluate"
