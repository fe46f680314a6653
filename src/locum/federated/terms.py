"""What a site has told of its budget when it joined: public numbers, checked before anything rests on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from locum.accounting import Event, PoissonGaussian, epsilon_of, events_from_json, events_to_json
from locum.errors import FormatError, LocumError
from locum.federated.settings import FederationSettings
from locum.generate.private import TEST
from locum.types import DPClaim, PrivacyClaim

# What a site's promise leaves out.
NOT_COVERED = (
    "which sites take part, their budgets and their declared sizes: public",
    "that a site answers, and when: times and refusals are seen by the coordinator",
    "floating point: noise is rounded to 53 bits, not drawn on a grid",
)
# Nobody has more records than there will ever be people.
_MOST = 10**12


@dataclass(frozen=True, slots=True)
class Terms:
    """The promise of one site (none in a test), the noise of its sums, and its declared size."""

    noise: float
    size: int
    paid: PrivacyClaim | None

    @property
    def is_test(self) -> bool:
        """Whether coins were seeded: nothing is promised then."""
        return self.paid is None

    def beyond(self, settings: FederationSettings) -> str:
        """Why a site with these terms is not let in, in a few words; empty if it is."""
        if self.size > settings.max_size or self.noise > settings.max_noise:
            return "it declares more records or more noise than the terms allow"
        dp = self.claim.dp
        if dp is not None and (dp.epsilon > settings.max_epsilon or dp.delta > 1 / (10 * self.size)):
            return "it promises less than the terms ask for"
        return ""

    @property
    def claim(self) -> PrivacyClaim:
        """What the site has paid for."""
        return self.paid or PrivacyClaim("none", (TEST,))

    def epsilon_after(self, number: int, rounds: int) -> float:
        """What the site's answers up to round `number` have cost; joining included."""
        if self.paid is None or self.paid.dp is None:
            return math.nan
        events = []
        for event in events_from_json(self.paid.dp.events):
            if isinstance(event, PoissonGaussian):
                # All rounds have as many steps.
                done = event.steps * number // rounds
                if not done:
                    continue
                event = PoissonGaussian(event.rate, event.noise_multiplier, done)
            events.append(event)
        return _epsilon(tuple(events), self.paid.dp.delta, self.paid.dp.relation)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, the way a site tells it."""
        told: dict[str, Any] = {"noise": self.noise, "size": self.size, "terms": None}
        if self.paid is not None and self.paid.dp is not None:
            told["terms"] = paid_terms(self.paid.dp, self.paid.unit)
        return told


def paid_terms(dp: DPClaim, unit: str) -> dict[str, Any]:
    """A payment as a site tells it, and as `read_terms` reads it."""
    return {
        "epsilon": dp.epsilon,
        "delta": dp.delta,
        "unit": unit,
        "relation": dp.relation,
        "events": [dict(event) for event in dp.events],
        "ledger": dp.ledger,
    }


def read_terms(facts: Mapping[str, Any]) -> Terms:
    """Checked terms. The epsilon is computed here, from the events: a site's own word for it does not count."""
    try:
        noise, size, told = float(facts["noise"]), int(facts["size"]), facts["terms"]
        if not 0 <= noise < math.inf or not 1 <= size <= _MOST:
            raise ValueError
        if told is None:
            return Terms(noise, size, None)
        events = events_from_json(told["events"])
        epsilon = _epsilon(events, float(told["delta"]), str(told["relation"]))
        if noise <= 0 or told["unit"] not in ("record", "subject"):
            raise ValueError
        dp = DPClaim(
            epsilon, float(told["delta"]), told["relation"], tuple(events_to_json(events)), str(told["ledger"])
        )
        return Terms(noise, size, PrivacyClaim("dp", NOT_COVERED, unit=told["unit"], dp=dp))
    except (KeyError, TypeError, ValueError, OverflowError, LocumError):
        raise FormatError("its terms cannot be read, or promise nothing") from None


@lru_cache(maxsize=4096)
def _epsilon(events: tuple[Event, ...], delta: float, relation: str) -> float:
    return epsilon_of(events, delta, relation)  # type: ignore[arg-type]
