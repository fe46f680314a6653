"""Policies: what must hold before a release may leave, each rule with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from locum.errors import ConfigError
from locum.io import read_toml
from locum.release import Strict, first_fault
from locum.types import AttackResult, PrivacyClaim

POLICIES = ("public", "research-sharing", "internal")
Reason = Annotated[str, Field(min_length=10, max_length=500)]


class Limit(Strict):
    """An upper limit, and why."""

    at_most: Annotated[float, Field(ge=0)]
    reason: Reason


class Needed(Strict):
    """Attacks that must have been run, and why."""

    needed: tuple[str, ...]
    reason: Reason


class Kinds(Strict):
    """Which kinds of claim are accepted, and why."""

    kinds: Annotated[tuple[Literal["none", "k-anonymity", "dp"], ...], Field(min_length=1)]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule of a policy, whether it is met, and what was found."""

    rule: str
    met: bool
    found: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"rule": self.rule, "met": self.met, "found": self.found, "reason": self.reason}


class Policy(Strict):
    """What must hold. A leak, or a refuted epsilon, is never allowed, whatever a policy says.

    Limits on attacks apply to the upper ends of their intervals: an uncertain figure is not known to be low. Each
    rule has a `reason`; None leaves a rule out.

    Parameters
    ----------
    name
        Name of the policy.
    summary
        What it is for.
    claim
        Which kinds of claim are accepted.
    epsilon
        Limit on epsilon; it applies to claims of kind "dp" only.
    auc
        Limit on the AUC of every attack that has one.
    tpr_at_1_percent
        Limit on the share of members found at a false positive rate of 1 %; not met if there are too few non-members.
    inconclusive
        How many attacks may be inconclusive.
    attacks
        Attacks that must have been run.

    Examples
    --------
    >>> from locum.audit import Policy
    >>> policy = Policy(name="ours", attacks={"needed": ["LiRA"], "reason": "The strongest attack must be run."})
    >>> [(finding.rule, finding.met) for finding in policy.findings([], claim=None)]
    [('no attack found a leak', True), ('run: LiRA', False)]
    """

    name: Annotated[str, Field(min_length=1, max_length=60)]
    summary: Annotated[str, Field(max_length=300)] = ""
    claim: Kinds | None = None
    epsilon: Limit | None = None
    auc: Limit | None = None
    tpr_at_1_percent: Limit | None = None
    inconclusive: Limit | None = None
    attacks: Needed | None = None

    def findings(self, results: Sequence[AttackResult], claim: PrivacyClaim | None) -> tuple[Finding, ...]:
        """Every rule and whether it is met. `claim` is None for data that another tool made."""
        leaks = [r.name for r in results if r.verdict == "leak"]
        open_ones = [r.name for r in results if r.verdict == "inconclusive"]
        found = [Finding("no attack found a leak", not leaks, _listed(leaks), "A leak is a leak for any receiver.")]
        if self.claim is not None:
            kind = "none" if claim is None else claim.kind
            rule = f"the claim is of kind {' or '.join(self.claim.kinds)}"
            found.append(Finding(rule, kind in self.claim.kinds, kind, self.claim.reason))
        if self.epsilon is not None and claim is not None and claim.dp is not None:
            rule = f"epsilon is at most {self.epsilon.at_most:g}"
            spent = claim.dp.epsilon
            found.append(Finding(rule, spent <= self.epsilon.at_most, f"{spent:.4g}", self.epsilon.reason))
        # A share of hits can be high for non-members too: only its verdict counts.
        ranked = [r for r in results if r.measure == "auc"]
        if self.auc is not None and ranked:
            worst = max(ranked, key=lambda r: r.attack.high)
            rule = f"no attacker's AUC can be above {self.auc.at_most:g}"
            figure = f"{worst.name}: {worst.attack:.3f}"
            found.append(Finding(rule, worst.attack.high <= self.auc.at_most, figure, self.auc.reason))
        rates = [(r.name, r.tpr[0.01]) for r in results if 0.01 in r.tpr]
        if self.tpr_at_1_percent is not None:
            limit = self.tpr_at_1_percent
            rule = f"at 1 % false alarms at most {limit.at_most:.0%} of members are found"
            if rates:
                name, rate = max(rates, key=lambda pair: pair[1].high)
                found.append(Finding(rule, rate.high <= limit.at_most, f"{name}: {rate:.3f}", limit.reason))
            else:
                found.append(Finding(rule, False, "too few non-members to tell", limit.reason))
        if self.inconclusive is not None:
            rule = f"at most {self.inconclusive.at_most:g} attacks are inconclusive"
            few = len(open_ones) <= self.inconclusive.at_most
            found.append(Finding(rule, few, _listed(open_ones), self.inconclusive.reason))
        if self.attacks is not None:
            lacking = [name for name in self.attacks.needed if name not in {r.name for r in results}]
            rule = f"run: {', '.join(self.attacks.needed)}"
            answer = "all were" if not lacking else f"not run: {', '.join(lacking)}"
            found.append(Finding(rule, not lacking, answer, self.attacks.reason))
        return tuple(found)


def load_policy(name: str | Path) -> Policy:
    """A policy that comes with Locum, by its name, or one from a TOML file.

    Parameters
    ----------
    name
        "public", "research-sharing", "internal", or the path of a .toml file.

    Returns
    -------
    Policy
        Its rules.

    Raises
    ------
    ConfigError
        If there is no such policy, or its file breaks the rules.

    Examples
    --------
    >>> from locum.audit import load_policy
    >>> load_policy("research-sharing").auc.at_most
    0.6
    """
    if str(name) in POLICIES:
        text = (resources.files("locum.audit") / "policies" / f"{name}.toml").read_text()
        rules = tomllib.loads(text)
    elif Path(name).suffix == ".toml":
        rules = read_toml(name, "policy")
    else:
        raise ConfigError(f"There is no policy {str(name)!r}; there are {', '.join(POLICIES)}, or give a .toml file.")
    try:
        return Policy.model_validate(rules)
    except ValidationError as error:
        place, fault = first_fault(error)
        raise ConfigError(f"The policy {str(name)!r} is wrong at {place!r}: {fault}.") from error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
