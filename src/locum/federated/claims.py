"""What may be claimed of something that was made from releases of several sites, each of which paid for its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from locum.accounting import (
    Event,
    epsilon_of,
    epsilon_of_any,
    events_from_json,
    events_to_json,
    joined,
    least_delta,
    worst_of,
)
from locum.errors import ConfigError, PrivacyError
from locum.types import DPClaim, PrivacyClaim

_BEFOREHAND = "a site that chose its settings after a look at another's release: they are taken as fixed before"


def joint_claim(claims: Sequence[PrivacyClaim], max_sites_per_subject: int | None = None) -> PrivacyClaim:
    """The promise of whatever is made from releases of different sites, and from nothing else of theirs.

    A person can have records at up to `max_sites_per_subject` sites (None: at all of them), and then what those sites
    did composes. Delta is the sum of the largest deltas of so many sites. Epsilon holds whichever k sites these are:

    - The events listed are those of the k costliest sites, and epsilon is never below what they cost. It is just
      that for all sites, for sites that did the same, and wherever what the costliest did is worse in everything
      than what the others did: no other k sites can cost more then.
    - Otherwise it is the least of three upper bounds: the cost of all sites together, the sum of the k largest
      epsilons, and the k largest Renyi divergences at each order (`epsilon_of_any`).

    Sites must agree on unit and neighbours. A claim of another kind than "dp" among them makes all of it "none".
    """
    k = check_sites_per_subject(max_sites_per_subject, len(claims))
    told = tuple(dict.fromkeys(item for claim in claims for item in claim.not_covered))
    paid = [claim.dp for claim in claims if claim.dp is not None]
    if len(paid) < len(claims):
        silent = f"everything: {len(claims) - len(paid)} of {len(claims)} sites promise no differential privacy"
        # What is a test says so first, in words that other parts know.
        return PrivacyClaim("none", tuple(sorted((silent, *told), key=lambda item: "test coins" not in item)))
    if len({(claim.unit, dp.relation) for claim, dp in zip(claims, paid, strict=True)}) > 1:
        raise PrivacyError(
            "The sites promise different things: one protects records and another subjects, or neighbours differ. "
            "Let all sites choose the same `unit` and `relation`."
        )
    if k < len(claims):
        told += (f"a person with records at more than {k} of the {len(claims)} sites, and two releases of one site",)
    if k > 1:
        told += (_BEFOREHAND,)
    events, epsilon, delta = _cost(paid, k)
    dp = DPClaim(
        epsilon, delta, paid[0].relation, tuple(events_to_json(events)), joint_ledger([site.ledger for site in paid])
    )
    return PrivacyClaim("dp", told, unit=claims[0].unit, dp=dp)


def joint_ledger(heads: Sequence[str]) -> str:
    """What stands for several ledgers: the SHA-256, in hex, of their heads in order, one a line.

    A tip that is there twice is a release that was given twice, and is refused.
    """
    if len(set(heads)) < len(heads):
        raise ConfigError("A release was given twice: two of them name the same entry of a ledger. Give each once.")
    return hashlib.sha256("\n".join(sorted(heads)).encode()).hexdigest()


def check_sites_per_subject(budget: int | None, sites: int) -> int:
    """At how many of the sites one person can have records; more than there are is all of them."""
    if sites < 2:
        raise ConfigError(f"A joint result needs two sites or more; got {sites}.")
    if budget is None:
        return sites
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise ConfigError(f"`max_sites_per_subject` must be a whole number, 1 or more, or None; got {budget!r}.")
    return min(budget, sites)


def _cost(paid: Sequence[DPClaim], k: int) -> tuple[tuple[Event, ...], float, float]:
    """Events, epsilon and delta for somebody at any `k` of the sites."""
    relation: Any = paid[0].relation
    deltas = sorted((site.delta for site in paid), reverse=True)
    delta = sum(deltas[:k])
    # What a site claims is not taken on trust: it may not be less than what its events cost.
    did = [joined(events_from_json(site.events)) for site in paid]
    costs = [
        max(site.epsilon, epsilon_of(events, site.delta, relation)) for site, events in zip(paid, did, strict=True)
    ]
    # All at one delta: a site that did worse in everything then stands first for certain.
    order = sorted(range(len(paid)), key=lambda i: (-epsilon_of(did[i], deltas[0], relation), i))
    ranked = [did[i] for i in order]
    events = joined([event for site in ranked[:k] for event in site])
    epsilon = epsilon_of(events, delta, relation)
    if k == len(paid) or all(worst_of(*ranked[i:]) == ranked[i] for i in range(k)):
        return events, epsilon, delta
    bounds = [sum(sorted(costs)[-k:]), epsilon_of_any(ranked, k, delta, relation)]
    every = joined([event for site in ranked for event in site])
    if least_delta(every) <= delta:
        bounds.append(epsilon_of(every, delta, relation))
    return events, max(epsilon, min(bounds)), delta
