"""What taking part costs a site (`SitePlan`), and what it reports about that when it joins (`Terms`).

Both use public numbers only. A plan exists before any record is read; the coordinator checks terms before it uses
anything that a site sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from locum.accounting import (
    Event,
    Gaussian,
    NonPrivateSGD,
    PoissonGaussian,
    QueryPlan,
    SGDPlan,
    epsilon_of,
    events_from_json,
    events_to_json,
    plan_head,
    plan_query,
)
from locum.data import Reference, load_reference
from locum.errors import ConfigError, DataError, FormatError, LocumError, PrivacyError
from locum.federated.settings import FederationSettings
from locum.generate.private import (
    COUNTS_ONLY,
    FLOATING,
    LOOKED,
    MEANS,
    MEANS_AND_PRODUCTS,
    TEST,
    Shares,
    plan_network,
    reference_hash,
)
from locum.train.dp import ASSUMPTIONS, InitialQuery
from locum.types import DP, DPClaim, EmbeddingInfo, PrivacyClaim

# What a site's guarantee does not cover.
NOT_COVERED = (
    "which sites take part, their budgets and their declared sizes: public",
    "that a site replies, and when: the coordinator sees times and refusals",
)
# No site has more records than this.
_MAX_RECORDS = 10**12


@dataclass(frozen=True, slots=True)
class SitePlan:
    """Sums with noise of `sums_noise` first; then, in mode "decoder", `training` with so many steps per round.

    With masked sums the noise is that of all sites together, and `sums` of them share its precision. Without a budget
    (`privacy` is None) there is no noise and no cost: for simulations only.
    """

    privacy: DP | None
    sums_noise: float
    training: SGDPlan | NonPrivateSGD | None
    steps_per_round: int
    sums: int = 1
    sites_per_subject: int = 1

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger is charged with, all of it before the first round."""
        if self.privacy is None:
            return ()
        # A subject with records at several sites moves a total by as much.
        own = Gaussian(self.sums_noise / self.sites_per_subject, self.sums)
        return (own,) if self.training is None else self.training.events


def plan_site(settings: FederationSettings, privacy: DP | None, records: int = 0) -> SitePlan:
    """Plan what taking part would cost one site, from public numbers alone.

    Parameters
    ----------
    settings
        The public terms.
    privacy
        The site's budget; None, for simulations: no noise and no cost.
    records
        The true number of records; used only without a budget.

    Returns
    -------
    SitePlan
        `sums_noise`, the noise of the sums; `training` with so many `steps_per_round` in mode "decoder"; and
        `events`, what the ledger is charged with.

    Examples
    --------
    >>> from locum.accounting import epsilon_of
    >>> from locum.federated import FederationSettings, plan_site
    >>> from locum.types import DP
    >>> settings = FederationSettings(("benign", "malignant"), dim=1280, mode="sums")
    >>> plan = plan_site(settings, DP(epsilon=1.0, delta=1e-5, n_public=1000))
    >>> 0.99 < epsilon_of(plan.events, 1e-5) <= 1.0
    True
    """
    if privacy is None:
        return _plan_without_privacy(settings, records)
    if settings.masked:
        return _plan_masked(settings, privacy)
    if settings.mode == "sums":
        return SitePlan(privacy, plan_query(privacy).noise_multiplier, None, 0)
    steps = steps_per_round(settings, privacy.size())
    training = plan_network(
        privacy, settings.initial_query, batch=settings.batch, steps=settings.rounds * steps, clip=settings.clip
    )
    return SitePlan(privacy, InitialQuery.noise(training), training, steps)


def _plan_masked(settings: FederationSettings, privacy: DP) -> SitePlan:
    """All sites pay for the guarantee of the terms, if their own budgets allow it."""
    wanted = settings.privacy
    if (privacy.unit, privacy.relation) != (wanted.unit, wanted.relation):
        raise PrivacyError(
            f"The terms guarantee {wanted.unit}s ({wanted.relation}), and this site's budget is for {privacy.unit}s "
            f"({privacy.relation}): set `unit` and `relation` in site.toml as in the terms."
        )
    if privacy.epsilon < wanted.epsilon or privacy.delta < wanted.delta:
        raise PrivacyError(
            f"The terms cost epsilon {wanted.epsilon:g} at delta {wanted.delta:g}; this site allows "
            f"{privacy.epsilon:g} at {privacy.delta:g}."
        )
    plan = masked_plan(settings)
    k = settings.sites_per_subject or 1
    return SitePlan(wanted, k * plan.noise_multiplier, None, 0, plan.sums, k)


def pays_terms(claim: PrivacyClaim, settings: FederationSettings) -> bool:
    """Whether a payment is exactly what the terms of masked sums ask for."""
    dp, plan = claim.dp, plan_site(settings, settings.privacy)
    if dp is None or events_from_json(dp.events) != plan.events:
        return False
    return (claim.unit, dp.relation, dp.delta) == (settings.unit, settings.relation, settings.delta)


def masked_plan(settings: FederationSettings) -> QueryPlan:
    """The plan of masked sums, from the terms alone: for a subject that has records at one site."""
    return (plan_head if settings.mode == "head" else plan_query)(settings.privacy)


def _plan_without_privacy(settings: FederationSettings, records: int) -> SitePlan:
    if settings.mode != "decoder":
        return SitePlan(None, 0.0, None, 0)
    n = max(records, 1)
    batch, steps = min(settings.batch, n), steps_per_round(settings, n)
    return SitePlan(None, 0.0, NonPrivateSGD(batch / n, batch, settings.rounds * steps), steps)


def steps_per_round(settings: FederationSettings, n: int) -> int:
    """Steps that a site of declared size `n` takes in each round."""
    return max(1, round(settings.local_epochs * n / min(settings.batch, n)))


def requested_sums(settings: FederationSettings) -> Shares:
    """Which sums a site is asked for when it joins."""
    if settings.mode == "sums":
        return MEANS_AND_PRODUCTS if settings.covariance == "own" else MEANS
    return MEANS if settings.initial_query == "class" else COUNTS_ONLY


def agreed_reference(
    settings: FederationSettings, file: str | Path | None = None, info: EmbeddingInfo | None = None
) -> Reference:
    """The public statistics that the terms name, by hash; `file` is one's own copy of those that do not ship."""
    wanted = settings.reference_sha256
    if settings.reference != "own":
        file = settings.reference
    elif file is None:
        raise ConfigError(
            f"The terms ask for public statistics in a file (sha256 {wanted[:16]}...): name your copy of it, as "
            "`reference` in site.toml or with --reference at the coordinator."
        )
    found = load_reference(file, settings.dim, info)
    if wanted and reference_hash(found) != wanted:
        raise DataError(
            f"The public statistics {str(file)!r} (sha256 {reference_hash(found)[:16]}...) are not those of the "
            f"terms (sha256 {wanted[:16]}...): get the file that the federation agreed on."
        )
    return found


@dataclass(frozen=True, slots=True)
class Terms:
    """What one site paid for (None in a test), the noise of its sums, its declared size and its signed receipt."""

    noise: float
    size: int
    paid: PrivacyClaim | None
    receipt: Mapping[str, str] | None = None

    @property
    def is_test(self) -> bool:
        """Whether the site used seeded randomness, so that nothing is guaranteed."""
        return self.paid is None

    def why_excluded(self, settings: FederationSettings) -> str:
        """Why a site with these terms may not join, in a few words; empty if it may."""
        if self.size > settings.max_size or self.noise > settings.max_noise:
            return "it declares more records or more noise than the terms allow"
        dp = self.claim.dp
        if dp is not None and (dp.epsilon > settings.max_epsilon or dp.delta > 1 / (10 * self.size)):
            return "its guarantee is weaker than the terms require"
        return ""

    @property
    def claim(self) -> PrivacyClaim:
        """What the site has paid for."""
        return self.paid or PrivacyClaim("none", (TEST,), test=True)

    def epsilon_after(self, number: int, rounds: int) -> float:
        """The cost of the site's replies up to round `number`, joining included."""
        if self.paid is None or self.paid.dp is None:
            return math.nan
        events = []
        for event in events_from_json(self.paid.dp.events):
            if isinstance(event, PoissonGaussian):
                # All rounds have the same number of steps.
                done = event.steps * number // rounds
                if not done:
                    continue
                event = PoissonGaussian(event.rate, event.noise_multiplier, done)
            events.append(event)
        return _epsilon(tuple(events), self.paid.dp.delta, self.paid.dp.relation)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, in the form that a site sends."""
        facts: dict[str, Any] = {"noise": self.noise, "size": self.size, "terms": None}
        if self.paid is not None and self.paid.dp is not None:
            facts["terms"] = paid_terms(self.paid)
        if self.receipt is not None:
            facts["receipt"] = dict(self.receipt)
        return facts


def paid_terms(claim: PrivacyClaim) -> dict[str, Any]:
    """A payment in the form that a site sends and `read_terms` reads; `looked` is there only if somebody did."""
    dp = claim.dp
    assert dp is not None
    paid = {
        "epsilon": dp.epsilon,
        "delta": dp.delta,
        "unit": claim.unit,
        "relation": dp.relation,
        "events": [dict(event) for event in dp.events],
        "ledger": dp.ledger,
    }
    return {**paid, "looked": True} if LOOKED in claim.not_covered else paid


def read_terms(facts: Mapping[str, Any]) -> Terms:
    """Checked terms. Epsilon is computed here from the events: the value that a site sends is ignored."""
    try:
        noise, size, sent = float(facts["noise"]), int(facts["size"]), facts["terms"]
        if not 0 <= noise < math.inf or not 1 <= size <= _MAX_RECORDS:
            raise ValueError
        if sent is None:
            return Terms(noise, size, None)
        events = events_from_json(sent["events"])
        epsilon = _epsilon(events, float(sent["delta"]), str(sent["relation"]))
        if noise <= 0 or sent["unit"] not in ("record", "subject"):
            raise ValueError
        dp = DPClaim(
            epsilon, float(sent["delta"]), sent["relation"], tuple(events_to_json(events)), str(sent["ledger"])
        )
        steps = any(isinstance(event, PoissonGaussian) for event in events)
        outside = (*NOT_COVERED, FLOATING) if steps else NOT_COVERED
        if "looked" in sent:
            if sent["looked"] is not True:
                raise ValueError
            outside = (*outside, LOOKED)
        claim = PrivacyClaim("dp", outside, unit=sent["unit"], dp=dp, assumptions=ASSUMPTIONS if steps else ())
        return Terms(noise, size, claim, _receipt(facts.get("receipt")))
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError, RecursionError, LocumError):
        raise FormatError("its terms cannot be read, or guarantee nothing") from None


def _receipt(sent: Any) -> dict[str, str] | None:
    """A receipt in form only; whose it is, `is_receipt` checks."""
    if sent is None:
        return None
    key, signature = str(sent["key"]), str(sent["signature"])
    if len(sent) != 2 or len(bytes.fromhex(key)) != 32 or len(bytes.fromhex(signature)) > 200:
        raise ValueError
    return {"key": key, "signature": signature}


@lru_cache(maxsize=4096)
def _epsilon(events: tuple[Event, ...], delta: float, relation: str) -> float:
    return epsilon_of(events, delta, relation)  # type: ignore[arg-type]
