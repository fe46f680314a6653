"""What was done to private data, apart from what it costs.

A noise multiplier is the noise divided by how far one unit can move the released sum when it is added or removed.
Replacing a unit moves it twice as far; that is the business of `cost`, not of the event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from numbers import Real
from typing import Any

from locum.errors import ConfigError

# Below it an epsilon is in the thousands: nothing that deserves to be accounted for as privacy. Above the other
# nothing is left of any signal.
_LEAST_NOISE, _MOST_NOISE = 0.01, 1e9
# No data holding has more units than this.
_LEAST_RATE = 1e-12
# More can be asked for in a few bytes, and cannot be composed in any memory.
_MOST_STEPS = 10_000_000
# What one claim or one ledger entry may list, and how many sums one event may stand for.
_MOST_EVENTS, _MOST_SUMS = 1000, 1_000_000


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Normal noise on a sum, once; or on several sums that share the precision of one.

    The precision of a sum is one over its squared noise multiplier. Several sums may be drawn one after the other,
    each chosen after a look at those before, as long as their precisions add up to at most that of this event
    (docs/explain/proofs.md, section 2).

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise divided by the L2 sensitivity of the sum; from 0.01 to a billion.
    sums
        The largest number of sums that are drawn, from 1 to a million: each is on a grid, which costs a little.

    Examples
    --------
    >>> from locum.accounting import Gaussian
    >>> print(Gaussian(2.0))
    one sum with normal noise 2
    >>> print(Gaussian(2.0, sums=18))
    up to 18 sums, together as precise as one with normal noise 2
    """

    noise_multiplier: float
    sums: int = 1

    def __post_init__(self) -> None:
        _set_noise(self, self.noise_multiplier)
        if not (_is_number(self.sums) and 1 <= self.sums <= _MOST_SUMS and self.sums % 1 == 0):
            raise ConfigError(f"`sums` must be a whole number from 1 to {_MOST_SUMS}; got {_shown(self.sums)}.")
        object.__setattr__(self, "sums", int(self.sums))

    def __str__(self) -> str:
        if self.sums > 1:
            return f"up to {self.sums} sums, together as precise as one with normal noise {self.noise_multiplier:.4g}"
        return f"one sum with normal noise {self.noise_multiplier:.4g}"


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise on a sum, or geometric noise on counts, once.

    Only its pure epsilon, 1 / `noise_multiplier`, is used: a sum may have any number of parts, continuous or whole.

    Parameters
    ----------
    noise_multiplier
        Scale of the noise divided by the L1 sensitivity of the sum; from 0.01 to a billion.

    Examples
    --------
    >>> from locum.accounting import Laplace
    >>> print(Laplace(10.0))
    one sum or count with Laplace noise 10
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set_noise(self, self.noise_multiplier)

    def __str__(self) -> str:
        return f"one sum or count with Laplace noise {self.noise_multiplier:.4g}"


@dataclass(frozen=True, slots=True)
class PoissonGaussian:
    """Normal noise on the sum of a random batch, `steps` times; each unit joins each batch independently.

    The cost holds only if batches are really drawn so. It does not hold for shuffled batches of fixed size.

    Parameters
    ----------
    rate
        Probability with which a unit joins a batch, above 0 (1e-12 or more) and at most 1.
    noise_multiplier
        Standard deviation of the noise divided by the L2 sensitivity of the sum; from 0.01 to a billion.
    steps
        Number of batches, from 1 to 10 million.

    Examples
    --------
    >>> from locum.accounting import PoissonGaussian
    >>> print(PoissonGaussian(rate=0.1, noise_multiplier=2.0, steps=100))
    100 noisy steps, sampling rate 0.1, noise 2
    """

    rate: float
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        _set_noise(self, self.noise_multiplier)
        if not (_is_number(self.rate) and _LEAST_RATE <= self.rate <= 1):
            raise ConfigError(f"`rate` must lie between {_LEAST_RATE:g} and 1; got {_shown(self.rate)}.")
        if not (_is_number(self.steps) and 1 <= self.steps <= _MOST_STEPS and self.steps % 1 == 0):
            raise ConfigError(
                f"`steps` must be a whole number from 1 to {_MOST_STEPS}; got {_shown(self.steps)}. Take larger "
                "batches."
            )
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "steps", int(self.steps))

    def __str__(self) -> str:
        return f"{self.steps} noisy steps, sampling rate {self.rate:.4g}, noise {self.noise_multiplier:.4g}"


Event = Gaussian | Laplace | PoissonGaussian
_KINDS: dict[str, type[Any]] = {"gaussian": Gaussian, "laplace": Laplace, "poisson-gaussian": PoissonGaussian}


def events_to_json(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as plain JSON, for the ledger and the claim.

    Parameters
    ----------
    events
        What was done to the data.

    Returns
    -------
    list of dict
        One entry per event, with its `kind` and its numbers.

    Examples
    --------
    >>> from locum.accounting import Gaussian, events_to_json
    >>> events_to_json([Gaussian(2.0)])
    [{'kind': 'gaussian', 'noise_multiplier': 2.0}]
    """
    names = {kind: name for name, kind in _KINDS.items()}
    # A single sum is written as it always was.
    return [
        {"kind": names[type(event)], **{k: v for k, v in asdict(event).items() if (k, v) != ("sums", 1)}}
        for event in events
    ]


def events_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[Event, ...]:
    """Events from what `events_to_json` wrote.

    Parameters
    ----------
    data
        Entries with a `kind` and the numbers of that kind.

    Returns
    -------
    tuple of Event
        The events, in the same order.

    Raises
    ------
    ConfigError
        If a kind is unknown, its numbers are missing, unknown or out of range, or there are more than 1000 entries.

    Examples
    --------
    >>> from locum.accounting import events_from_json
    >>> events_from_json([{"kind": "gaussian", "noise_multiplier": 2.0}])
    (Gaussian(noise_multiplier=2.0, sums=1),)
    """
    # It comes from a file or from another site: nothing about its shape is known.
    if not isinstance(data, list | tuple) or len(data) > _MOST_EVENTS:
        given = f"{len(data)} entries" if isinstance(data, list | tuple) else f"a {type(data).__name__}"
        raise ConfigError(f"Events are a list of up to {_MOST_EVENTS} entries; got {given}.")
    out = []
    for entry in data:
        fields = dict(entry) if isinstance(entry, Mapping) else {}
        name = fields.pop("kind", None)
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ConfigError(f"An event of kind {_shown(name)} is not known; there are {', '.join(_KINDS)}.")
        if not set(kind.__dataclass_fields__) - {"sums"} <= set(fields) <= set(kind.__dataclass_fields__):
            wanted = ", ".join(kind.__dataclass_fields__)
            raise ConfigError(f"An event of kind {name!r} with other numbers than {wanted} is not known.")
        out.append(kind(**fields))
    return tuple(out)


def joined(events: Sequence[Event]) -> tuple[Event, ...]:
    """The same events in as few entries as possible, in a fixed order; together they cost the same.

    Steps of equal rate and noise add up. Several sums with normal noise become one event with less noise: precisions
    add, and so do the numbers of sums.

    Parameters
    ----------
    events
        What was done to the data.

    Returns
    -------
    tuple of Event
        Noisy steps first, then at most one sum with normal noise, then those with Laplace noise.

    Examples
    --------
    >>> from locum.accounting import Gaussian, PoissonGaussian, joined
    >>> joined([Gaussian(15.0), PoissonGaussian(0.1, 2.0, 30), Gaussian(20.0), PoissonGaussian(0.1, 2.0, 70)])
    (PoissonGaussian(rate=0.1, noise_multiplier=2.0, steps=100), Gaussian(noise_multiplier=12.0, sums=2))
    """
    steps: dict[tuple[float, float], int] = {}
    for event in events:
        if isinstance(event, PoissonGaussian):
            key = event.rate, event.noise_multiplier
            steps[key] = steps.get(key, 0) + event.steps
    # Strong ones first, so that the same place means the same in lists of several sites; see `worst_of`.
    order = sorted(steps.items(), key=lambda item: (-item[0][0] / item[0][1] * math.sqrt(item[1]), item))
    normal = [event for event in events if isinstance(event, Gaussian)]
    # A single one stays as it is, to the last digit.
    sums = normal
    if len(normal) > 1:
        sums = [
            Gaussian(
                1 / math.hypot(*(1 / event.noise_multiplier for event in normal)), sum(event.sums for event in normal)
            )
        ]
    laplace = sorted((event for event in events if isinstance(event, Laplace)), key=lambda e: e.noise_multiplier)
    return (*(PoissonGaussian(rate, noise, n) for (rate, noise), n in order), *sums, *laplace)


def worst_of(*lists: Sequence[Event]) -> tuple[Event, ...]:
    """Events that cost at least as much as any one of `lists`, also together with whatever else is done.

    Joined lists are compared kind by kind and place by place, and each place gets the highest rate, the least noise
    and the most steps: no attacker learns more from an event than from one that is worse in all of these. If one list
    is worse than the others in everything, that list is the answer.

    Parameters
    ----------
    *lists
        Events of each site or release.

    Returns
    -------
    tuple of Event
        The worst case, joined.

    Examples
    --------
    >>> from locum.accounting import PoissonGaussian, worst_of
    >>> worst_of([PoissonGaussian(0.1, 2.0, 100)], [PoissonGaussian(0.2, 3.0, 50)])
    (PoissonGaussian(rate=0.2, noise_multiplier=2.0, steps=100),)
    """
    tables, out = [joined(events) for events in lists], []
    for kind in _KINDS.values():
        for place in zip_longest(*([event for event in events if isinstance(event, kind)] for events in tables)):
            here = [event for event in place if event is not None]
            # The worst of each number: the highest rate and the most steps, but the least noise.
            worst = {name: max(getattr(event, name) for event in here) for name in kind.__dataclass_fields__}
            out.append(kind(**worst | {"noise_multiplier": min(event.noise_multiplier for event in here)}))
    return joined(out)


def _set_noise(event: Gaussian | Laplace | PoissonGaussian, value: Any) -> None:
    if not (_is_number(value) and _LEAST_NOISE <= value <= _MOST_NOISE):
        raise ConfigError(
            f"`noise_multiplier` must lie between {_LEAST_NOISE:g} and {_MOST_NOISE:g}; got {_shown(value)}. Without "
            "noise there is no privacy."
        )
    object.__setattr__(event, "noise_multiplier", float(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value for an error; one that a hostile file made deep or long is only named."""
    if isinstance(value, str | bool) or value is None:
        return repr(value if not isinstance(value, str) else value[:80])
    if isinstance(value, Real):
        return repr(value) if abs(value) < 1e300 else "a number too large to use"  # type: ignore[operator]
    return f"a {type(value).__name__}"
