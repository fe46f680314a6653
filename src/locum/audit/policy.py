"""Policies: what must hold before a release may leave, each rule with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, ValidationError

from locum.audit.doubts import doubts_in_words
from locum.audit.limit import ProvenLimit
from locum.audit.statistics import needed_for
from locum.errors import ConfigError
from locum.io import read_toml
from locum.release import Strict, first_fault
from locum.types import AttackResult, ClaimKind, Estimate, PrivacyClaim, at_least, limit_figure

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

    kinds: Annotated[tuple[ClaimKind, ...], Field(min_length=1)]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule of a policy, whether it is met, and what was found."""

    rule: str
    met: bool
    found: str
    reason: str
    # A limit on attacks that the guarantee meets by proof, as it does every other limit of the policy on attacks.
    proven: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        out = {"rule": self.rule, "met": self.met, "found": self.found, "reason": self.reason}
        return {**out, "proven": self.proven}


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
        Limit on the share of members found at a false positive rate of 1 %. Where non-members are too few for that,
        it is scaled to the finest rate that they can show, 10 % at most; not met if they are too few for any.
    inconclusive
        How many attacks may be inconclusive.
    attacks
        Attacks that must have been run.
    decoder
        Attacks that must have been run besides, if the release is a decoder and claims no differential privacy.

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
    decoder: Needed | None = None

    def lacking(
        self, results: Sequence[AttackResult], claim: PrivacyClaim | None, *, decoder: bool = False
    ) -> tuple[str, ...]:
        """Names of attacks that the policy needs for such a release and that were not run."""
        unproven = decoder and (claim is None or claim.kind != "dp")
        rules = (self.attacks, self.decoder if unproven else None)
        run = {r.name for r in results}
        return tuple(name for rule in rules if rule is not None for name in rule.needed if name not in run)

    def findings(
        self,
        results: Sequence[AttackResult],
        claim: PrivacyClaim | None,
        *,
        decoder: bool = False,
        limit: ProvenLimit | None = None,
        by_subject: bool = False,
    ) -> tuple[Finding, ...]:
        """Every rule and whether it is met. `claim` is None for data that another tool made.

        `decoder` says that the release is one, not a table: there is more to attack. With a proven `limit` that is
        below the policy's, too few records are no refusal; `by_subject` says that the records name their subjects,
        which the limit must count by then.
        """
        applies = limit is not None and not limit.open_assumptions and (not by_subject or limit.unit == "subject")
        # Over all charged releases; each rule has its own.
        proven_auc = applies and limit is not None and _at_most(limit.joint_auc, self.auc)
        proven_tpr = applies and limit is not None and _at_most(limit.joint_tpr, self.tpr_at_1_percent)
        proven = proven_auc and proven_tpr
        leaks = [r.name for r in results if r.verdict == "leak"]
        doubts = [r for r in results if r.verdict == "inconclusive"]
        # A fault of the populations stays a fault; what a proof replaces is the number of records.
        open_ones = [r for r in doubts if r.voided or not proven]
        found = [Finding("no attack found a leak", not leaks, _listed(leaks), "A leak is a leak for any receiver.")]
        if limit is not None:
            found.append(_held(results, limit, by_subject))
        if self.claim is not None:
            kind = "none" if claim is None else claim.kind
            allowed = self.claim.kinds
            rule = f"the claim is of kind {' or '.join(allowed)}"
            if set(allowed) == set(get_args(ClaimKind)):
                rule = "any claim is allowed, including none"
            found.append(Finding(rule, kind in allowed, kind, self.claim.reason))
        if self.epsilon is not None and claim is not None and claim.dp is not None:
            rule = f"epsilon is at most {self.epsilon.at_most:g}"
            spent = claim.dp.epsilon
            found.append(Finding(rule, spent <= self.epsilon.at_most, at_least(spent), self.epsilon.reason))
        # A share of hits can be high for non-members too: only its verdict counts.
        ranked = [r for r in results if r.measure == "auc"]
        if self.auc is not None and ranked:
            worst = max(ranked, key=lambda r: r.attack.high)
            rule = f"no attacker's AUC can be above {self.auc.at_most:g}"
            figure = f"{worst.name}: {worst.attack:.3f}"
            if proven_auc and limit is not None:
                charged = "one release" if limit.releases == 1 else f"all {limit.releases} releases"
                figure = f"proven limit, {charged} charged: {limit_figure(limit.joint_auc)}; measured {figure}"
            else:
                figure += _above(worst.attack, self.auc.at_most)
            met = proven_auc or worst.attack.high <= self.auc.at_most
            found.append(Finding(rule, met, figure, self.auc.reason, proven))
        # The finest rate that these records can show, but none finer than the policy's.
        finest = min((fpr for r in results for fpr in r.tpr if fpr >= 0.01), default=0.01)
        rates = [(r.name, r.tpr[finest]) for r in results if finest in r.tpr]
        if self.tpr_at_1_percent is not None:
            most = self.tpr_at_1_percent
            scaled = min(1.0, most.at_most * finest / 0.01)
            rule = f"at {100 * finest:g}% false alarms, at most {scaled:.0%} of members are found"
            enough = f"1 % takes {needed_for(0.01)} non-members"
            if proven_tpr and limit is not None:
                proof = f"proven limit: {limit_figure(limit.joint_tpr)}"
                found.append(Finding(rule, True, proof, most.reason, proven))
            elif rates:
                name, rate = max(rates, key=lambda pair: pair[1].high)
                figure = f"{name}: {rate:.3f}{_above(rate, scaled)}" + ("" if finest == 0.01 else f"; {enough}")
                found.append(Finding(rule, rate.high <= scaled, figure, most.reason))
            else:
                found.append(Finding(rule, False, f"too few non-members to tell: {enough}", most.reason))
        if self.inconclusive is not None:
            rule = f"the number of inconclusive attacks is at most {self.inconclusive.at_most:g}"
            few = len(open_ones) <= self.inconclusive.at_most
            told = _listed([r.name for r in open_ones]) if few else doubts_in_words(open_ones)
            found.append(Finding(rule, few, told, self.inconclusive.reason))
        unproven = decoder and (claim is None or claim.kind != "dp")
        for needed in (self.attacks, self.decoder if unproven else None):
            if needed is None:
                continue
            lacking = [name for name in needed.needed if name not in {r.name for r in results}]
            rule = f"run: {', '.join(needed.needed)}"
            answer = "all were" if not lacking else f"not run: {', '.join(lacking)}"
            found.append(Finding(rule, not lacking, answer, needed.reason))
        return tuple(found)


def _at_most(value: float, rule: Limit | None) -> bool:
    return rule is None or value <= rule.at_most


def _above(figure: Estimate, most: float) -> str:
    """What fails a limit: the upper end of an interval, with enough digits to see it. Empty if it does not fail."""
    if figure.high <= most:
        return ""
    end = next(
        (text for digits in range(3, 9) if float(text := f"{figure.high:.{digits}f}") > most), repr(figure.high)
    )
    return f"; the upper end of the interval, {end}, is above {most:g}"


def _held(results: Sequence[AttackResult], limit: ProvenLimit, by_subject: bool) -> Finding:
    """Whether a proven limit applies to these records, and every attack stays below it."""
    above = [r.name for r in results if limit.exceeded_by(r)]
    faults = [f"above it: {', '.join(above)}"] if above else []
    if by_subject and limit.unit != "subject":
        faults.append("it counts by record, and the records name subjects")
    if limit.open_assumptions:
        faults.append(f"not accepted: {'; '.join(line.split(':')[0] for line in limit.open_assumptions)}")
    reason = "A proof stands for measured figures only if its conditions hold and no attack contradicts it."
    return Finding(f"every attack stays {limit.words}", not faults, "; ".join(faults) or limit.sentence, reason)


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
