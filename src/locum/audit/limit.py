"""The proven limit of a release: what no attack can exceed on average, from the events that were paid for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from locum.accounting import Charge, attack_limit, events_from_json, found_limit, pair_limits
from locum.errors import ConfigError
from locum.types import AttackResult, PrivacyClaim, Relation, Unit, limit_figure

_FPR = 0.01


@dataclass(frozen=True, slots=True)
class ProvenLimit:
    """The highest AUC that any test of one unit can have, averaged over the noise, and under which conditions.

    Parameters
    ----------
    auc, tpr
        For this release alone: the AUC, and the share of members found at 1 % false alarms.
    releases
        How many charges the ledger has.
    joint_auc, joint_tpr
        The same for all of them together.
    unit, relation
        What the guarantee counts by, and what neighbors are.
    open_assumptions
        Assumptions of the claim that nobody has accepted: then the limit proves nothing.

    Examples
    --------
    >>> from locum.audit import ProvenLimit
    >>> ProvenLimit(0.5664, 0.0182, 1, 0.5664, 0.0182, "record", "add-or-remove").words
    'within the proven limit (0.567)'
    """

    auc: float
    tpr: float
    releases: int
    joint_auc: float
    joint_tpr: float
    unit: Unit
    relation: Relation
    open_assumptions: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The verdict of a release whose attacks stay below it."""
        return f"within the proven limit ({limit_figure(self.auc)})"

    @property
    def sentence(self) -> str:
        """The limit with its conditions."""
        what = f"whether a given {self.unit} took part"
        if self.relation == "replace-one":
            what = f"which of two values a given {self.unit} had"
        joint = f"with all {self.releases} releases charged to this ledger, {limit_figure(self.joint_auc)}"
        if self.releases == 1:
            joint = "it is the only release charged to this ledger so far"
        return (
            f"Averaged over the noise, no test of {what} has an AUC above {limit_figure(self.auc)}, even knowing all "
            f"other records; {joint}."
        )

    def exceeded_by(self, result: AttackResult) -> bool:
        """Whether the whole interval of an attack lies above the limit of this release."""
        return result.measure == "auc" and result.attack.low > self.auc

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "auc": self.auc,
            "tpr": self.tpr,
            "releases": self.releases,
            "joint_auc": self.joint_auc,
            "joint_tpr": self.joint_tpr,
            "unit": self.unit,
            "relation": self.relation,
            "open_assumptions": list(self.open_assumptions),
            "sentence": self.sentence,
        }


def proven_limit(claim: PrivacyClaim, charges: Sequence[Charge], *, accepted: Iterable[str] = ()) -> ProvenLimit:
    """The limit of a release, from its events, and of all releases of its ledger, from their charges.

    Anybody can write a claim: check first that the ledger knows the release (`locum verify --ledger`). Settings of a
    later release may have been chosen after a look at an earlier one, so several charges are added up as the ledger
    does it, which is valid then, and not composed as one plan.

    Parameters
    ----------
    claim
        The claim of the release, of kind "dp".
    charges
        All charges of the ledger that paid for it.
    accepted
        Names of the assumptions that the holder accepts: a line of `claim.assumptions`, or what stands before its
        first colon.

    Returns
    -------
    ProvenLimit
        The limit and its conditions.

    Raises
    ------
    ConfigError
        If the claim is of another kind, or an accepted assumption is none of the claim's.

    Examples
    --------
    >>> from locum.accounting import Ledger
    >>> from locum.audit import proven_limit
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.types import DP
    >>> data, budget = load_sample("breast-cancer"), DP(1.0, 1e-6, n_public=500)
    >>> private = ClassGaussian(privacy=budget, classes=[0, 1], ledger="limit.sqlite").fit(data.X, data.y)
    >>> charges = Ledger("limit.sqlite").holding("default").charges
    >>> proven_limit(private.claim_, charges).words
    'within the proven limit (0.567)'
    """
    if claim.dp is None:
        raise ConfigError(f"Only a claim of kind 'dp' has a proven limit; got {claim.kind!r}.")
    names = {_plain(line): line for line in claim.assumptions}
    names |= {_plain(line.split(":")[0]): line for line in claim.assumptions}
    given = list(accepted)
    if unknown := [name for name in given if _plain(name) not in names]:
        known = "; ".join(line.split(":")[0] for line in claim.assumptions) or "none"
        raise ConfigError(f"The claim makes no assumption {unknown[0][:200]!r}; it makes: {known}.")
    agreed = {names[_plain(name)] for name in given}
    events, relation = events_from_json(claim.dp.events), claim.dp.relation
    auc, tpr = attack_limit(events, relation), found_limit(events, _FPR, relation)
    joint = auc, tpr
    if len(charges) > 1:
        epsilon, delta = (math.fsum(getattr(c, name) for c in charges) for name in ("epsilon", "delta"))
        joint = pair_limits(epsilon, min(1.0, delta), _FPR)
    return ProvenLimit(
        auc=auc,
        tpr=tpr,
        releases=max(1, len(charges)),
        joint_auc=max(auc, joint[0]),
        joint_tpr=max(tpr, joint[1]),
        unit=claim.unit,
        relation=relation,
        open_assumptions=tuple(line for line in claim.assumptions if line not in agreed),
    )


def with_limit(result: AttackResult, limit: ProvenLimit | None) -> AttackResult:
    """The result with the limit that it is held against: so much the guarantee allows, and no more.

    Only for an AUC, which the limit is about, and only if every assumption of the limit is accepted. Too few records
    are no doubt then: what they cannot show is proven.

    Parameters
    ----------
    result
        What an attack found.
    limit
        The proven limit of the release; None: it has none.

    Returns
    -------
    AttackResult
        Its verdict is "within the proven limit" if the attack stays below it.

    Examples
    --------
    >>> from locum.audit import ProvenLimit, with_limit
    >>> from locum.types import AttackResult, Estimate
    >>> at = [Estimate(auc, auc - 0.01, auc + 0.01, 500) for auc in (0.55, 0.5)]
    >>> found = AttackResult("nearest distance", "auc", *at, Estimate.exact(0.5))
    >>> with_limit(found, ProvenLimit(0.5664, 0.0182, 1, 0.5664, 0.0182, "record", "add-or-remove")).verdict
    'within the proven limit'
    """
    if limit is None or limit.open_assumptions or result.measure != "auc":
        return result
    notes = (f"above the proven limit of {limit_figure(limit.auc)}",) if limit.exceeded_by(result) else ()
    doubt = result.inconclusive_because if result.voided else ""
    return replace(result, limit=limit.auc, inconclusive_because=doubt, notes=(*result.notes, *notes))


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())
