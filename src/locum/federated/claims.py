"""The claim of a result that was made from releases of several sites, each of which paid for its own."""

from __future__ import annotations

from collections.abc import Sequence

from locum.accounting import (
    Event,
    Gaussian,
    epsilon_of,
    epsilon_of_any,
    events_from_json,
    events_to_json,
    joined,
    joint_ledger,
    least_delta,
    worst_of,
)
from locum.errors import ConfigError, PrivacyError
from locum.federated.settings import FederationSettings
from locum.federated.terms import pays_terms, plan_site
from locum.generate.private import TEST
from locum.types import GRID_GAP, DPClaim, PrivacyClaim, at_least

_FIXED_SETTINGS = "a site that chose its settings after seeing another site's release: settings count as fixed before"


def joint_claim(claims: Sequence[PrivacyClaim], max_sites_per_subject: int | None = None) -> PrivacyClaim:
    """The claim of whatever is made from releases of different sites, and from nothing else of those sites.

    A subject can have records at up to k sites; what those k sites did then composes. Delta is the sum of the k
    largest deltas. Epsilon holds for any choice of k sites:

    - The events listed are those of the k costliest sites, and epsilon is never below their cost. It equals their
      cost if k is all sites, if all sites did the same, or if the costliest sites are worse than the others in
      every respect: then no other k sites can cost more.
    - Otherwise it is the least of three upper bounds: the cost of all sites together, the sum of the k largest
      epsilons, and the k largest Renyi divergences at each order (`epsilon_of_any`).

    Parameters
    ----------
    claims
        One claim per site. All must have the same unit and relation.
    max_sites_per_subject
        k, 1 or more; None: all sites.

    Returns
    -------
    PrivacyClaim
        Of kind "none" if any site's claim is not of kind "dp"; a test if any site's release is one.

    Examples
    --------
    >>> from locum.accounting import Gaussian, epsilon_of, events_to_json
    >>> from locum.federated import joint_claim
    >>> from locum.types import DPClaim, PrivacyClaim
    >>> events = (Gaussian(4.0),)
    >>> cost = (epsilon_of(events, 1e-5), 1e-5, "add-or-remove", tuple(events_to_json(events)))
    >>> sites = [PrivacyClaim("dp", ("counts",), dp=DPClaim(*cost, tip * 64)) for tip in "abc"]
    >>> joint_claim(sites, 1).dp.epsilon == cost[0] < joint_claim(sites, 2).dp.epsilon < 2 * cost[0]
    True
    """
    k = check_sites_per_subject(max_sites_per_subject, len(claims))
    outside = tuple(dict.fromkeys(item for claim in claims for item in claim.not_covered))
    assumptions = tuple(dict.fromkeys(item for claim in claims for item in claim.assumptions))
    paid = [claim.dp for claim in claims if claim.dp is not None]
    if len(paid) < len(claims):
        without = f"everything: {len(claims) - len(paid)} of {len(claims)} sites have no differential privacy"
        is_test = any(claim.test for claim in claims)
        return PrivacyClaim("none", (without, *outside), test=is_test, assumptions=assumptions)
    if len({(claim.unit, dp.relation) for claim, dp in zip(claims, paid, strict=True)}) > 1:
        raise PrivacyError(
            "The sites guarantee different things: they differ in `unit` or in `relation`. Let all sites choose the "
            "same."
        )
    if k < len(claims):
        outside += (
            f"a subject with records at more than {k} of the {len(claims)} sites, and two releases of one site",
        )
    if k > 1:
        outside += (_FIXED_SETTINGS,)
    events, epsilon, delta = _cost(paid, k)
    dp = DPClaim(
        epsilon, delta, paid[0].relation, tuple(events_to_json(events)), joint_ledger([site.ledger for site in paid])
    )
    return PrivacyClaim("dp", outside, unit=claims[0].unit, dp=dp, assumptions=assumptions)


def check_sites_per_subject(limit: int | None, sites: int) -> int:
    """At how many of the sites one subject can have records; None or a larger number means all of them."""
    if sites < 2:
        raise ConfigError(f"A joint result needs two sites or more; got {sites}.")
    if limit is None:
        return sites
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigError(f"`max_sites_per_subject` must be a whole number, 1 or more, or None; got {limit!r}.")
    return min(limit, sites)


def _cost(paid: Sequence[DPClaim], k: int) -> tuple[tuple[Event, ...], float, float]:
    """Events, epsilon and delta for a subject at any `k` of the sites."""
    relation = paid[0].relation
    deltas = sorted((site.delta for site in paid), reverse=True)
    delta = sum(deltas[:k])
    # A site's claim is not trusted: its epsilon counts as at least the cost of its events.
    did = [joined(events_from_json(site.events)) for site in paid]
    costs = [
        max(site.epsilon, epsilon_of(events, site.delta, relation)) for site, events in zip(paid, did, strict=True)
    ]
    # Compared at one delta, a site that is worse in every respect comes first for certain.
    order = sorted(range(len(paid)), key=lambda i: (-epsilon_of(did[i], deltas[0], relation), i))
    ranked = [did[i] for i in order]
    events = joined([event for site in ranked[:k] for event in site])
    epsilon = epsilon_of(events, delta, relation)
    # Each sum is on a grid of its own, and the costliest sites need not be those with the most sums.
    drawn = [_drawn(site) for site in did]
    sums = sum(sorted(drawn)[-k:])
    epsilon += GRID_GAP * (sums - _drawn(events))
    if k == len(paid) or all(worst_of(*ranked[i:]) == ranked[i] for i in range(k)):
        return events, epsilon, delta
    bounds = [sum(sorted(costs)[-k:]), epsilon_of_any(ranked, k, delta, relation)]
    every = joined([event for site in ranked for event in site])
    if least_delta(every) <= delta:
        bounds.append(epsilon_of(every, delta, relation))
    return events, max(epsilon, min(bounds) + GRID_GAP * sums), delta


def _drawn(events: Sequence[Event]) -> int:
    return sum(event.sums for event in events if isinstance(event, Gaussian))


def run_claim(settings: FederationSettings, claims: Sequence[PrivacyClaim]) -> PrivacyClaim:
    """The claim of a run's result, from those that the sites paid for."""
    if any(claim.test for claim in claims):
        return PrivacyClaim("none", (TEST,), test=True)
    if settings.masked:
        return _masked_claim(settings, claims)
    return joint_claim(claims, settings.max_sites_per_subject)


def _masked_claim(settings: FederationSettings, claims: Sequence[PrivacyClaim]) -> PrivacyClaim:
    """One mechanism for all sites, with the noise that at least the assumed number of honest sites add."""
    paid = [claim.dp for claim in claims if claim.dp is not None]
    plan, unit = plan_site(settings, settings.privacy), settings.unit
    n, k = len(settings.sites), settings.sites_per_subject or 1
    if not n - settings.absent <= len(paid) <= n:
        raise PrivacyError(f"{len(paid)} sites paid; sums of these {n} open only with {n - settings.absent} or more.")
    if not all(pays_terms(claim, settings) for claim in claims):
        raise PrivacyError("A site paid for something other than the terms of the federation ask for.")
    dp = DPClaim(
        epsilon_of(plan.events, settings.delta, settings.relation),
        settings.delta,
        settings.relation,
        tuple(events_to_json(plan.events)),
        joint_ledger([site.ledger for site in paid]),
    )
    more = f"more than {settings.colluding} of the {n} sites colluding with the coordinator"
    worse = [c for c in (n - 2, n - 1) if c > settings.colluding]
    if worse:
        costs = [f"{at_least(epsilon_against(settings, c))} against {c}" for c in worse]
        more += f": then epsilon is {' and '.join(costs)}"
    outside: tuple[str, ...] = (more,)
    if k < n:
        sites = "two sites" if k == 1 else f"more than {k} sites"
        outside += (f"a {unit} with records at {sites}" if unit == "subject" else f"a record that is at {sites}",)
    own = (item for claim in claims for item in claim.not_covered)
    return PrivacyClaim(
        "dp",
        tuple(dict.fromkeys((*own, *outside))),
        unit=unit,
        dp=dp,
        assumptions=(
            f"in every sum at least {settings.honest} of the {n} pinned sites are honest: they add their noise and "
            "do not reveal it",
        ),
    )


def epsilon_against(settings: FederationSettings, colluders: int) -> float:
    """The epsilon of masked sums if so many sites work with the coordinator, at the delta of the terms."""
    # Imported late: it needs cryptography.
    from locum.federated.masking import noise_left

    left = noise_left(len(settings.sites), settings.absent, settings.colluding, colluders)
    (event,) = plan_site(settings, settings.privacy).events
    assert isinstance(event, Gaussian)
    return epsilon_of((Gaussian(event.noise_multiplier * left, event.sums),), settings.delta, settings.relation)
