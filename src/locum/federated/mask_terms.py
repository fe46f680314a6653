"""What a federation with masked sums fixes beforehand: its sites, and how many may be absent or collude."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from locum.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

HEAD = {"format": "locum-masks", "version": 1}
MOST_STEPS = 10_000
_HASH = re.compile(r"[0-9a-f]{64}")


def check_sites(sites: int, absent: int, colluding: int) -> None:
    """Refuse numbers of sites for which masked sums do not protect.

    The threshold is t = sites - absent. Two conflicting lists cannot both gather t signatures if 2 t > sites +
    colluding; at least two sites of every sum must be honest, so t - colluding >= 2.

    Parameters
    ----------
    sites
        How many sites the federation has.
    absent
        How many of them may fail to answer.
    colluding
        How many of them may work with the coordinator; at least 1, because each site knows its own sums.

    Raises
    ------
    ConfigError
        If the numbers do not go together; the text names numbers that do.

    Examples
    --------
    >>> from locum.federated.masking import check_sites
    >>> check_sites(5, 1, 2)
    >>> check_sites(5, 2, 1)
    Traceback (most recent call last):
    locum.errors.ConfigError: 5 sites with `absent` 2 and `colluding` 1 cannot mask sums: with `colluding` 1 `absent` may be at most 1.
    """  # noqa: E501
    for name, value, least in (("sites", sites, 3), ("absent", absent, 0), ("colluding", colluding, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"`{name}` must be a whole number of at least {least} for masked sums; got {value!r}.")
    if 2 * absent < sites - colluding and sites - absent - colluding >= 2:
        return
    remedies = []
    if sites - colluding >= 2:
        remedies.append(f"with `colluding` {colluding} `absent` may be at most {(sites - colluding - 1) // 2}")
    most = min(sites - 2 * absent - 1, sites - absent - 2)
    if most >= 1:
        remedies.append(f"with `absent` {absent} `colluding` may be at most {most}")
    if not remedies:
        remedies.append(f"{sites} sites work with `absent` 0 and `colluding` 1 to {sites - 2}")
    raise ConfigError(
        f"{sites} sites with `absent` {absent} and `colluding` {colluding} cannot mask sums: {'; '.join(remedies)}."
    )


def noise_left(sites: int, absent: int, colluding: int, colluders: int) -> float:
    """Share of the planned standard deviation that still hides a record if `colluders` sites help the coordinator.

    Each site adds noise of sigma / sqrt(H), where H = sites - absent - colluding. While 2 t > sites + colluders the
    masks hold, and the noises of at least t - colluders honest sites remain: sqrt((t - colluders) / H) of sigma.
    Beyond that the coordinator can read each site alone, and only the noise of that site remains: sqrt(1 / H). The
    proof is in `docs/explain/masked-sums.md`.

    Parameters
    ----------
    sites, absent, colluding
        The numbers that the federation fixed; see `check_sites`.
    colluders
        How many sites work with the coordinator in fact, from 0 to `sites`.

    Returns
    -------
    float
        1 if there are as many colluders as planned, less if there are more.

    Examples
    --------
    >>> from locum.federated.masking import noise_left
    >>> noise_left(10, 2, 2, 2)
    1.0
    >>> round(noise_left(10, 2, 2, 8), 3)
    0.408
    """
    check_sites(sites, absent, colluding)
    if isinstance(colluders, bool) or not isinstance(colluders, int) or not 0 <= colluders <= sites:
        raise ConfigError(f"`colluders` must be a whole number from 0 to {sites}; got {colluders!r}.")
    threshold = sites - absent
    honest = threshold - colluding
    if colluders < sites and 2 * threshold > sites + colluders:
        return math.sqrt((threshold - colluders) / honest)
    return math.sqrt(1 / honest)


@dataclass(frozen=True)
class MaskTerms:
    """The public parameters of one run of masked sums, on which all sites and the coordinator agree beforehand.

    Parameters
    ----------
    run
        Name of the run; no two runs of a federation share one.
    terms
        SHA-256 of the federation's terms, in hex.
    sites
        The pinned sites: public signing key (a NIST curve) by name.
    absent
        How many sites may fail to answer.
    colluding
        How many sites may work with the coordinator; at least 1.
    steps
        How many sums the run opens at most. Steps are numbered from 0.

    Examples
    --------
    >>> from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
    >>> from locum.federated.masking import MaskTerms
    >>> keys = {name: generate_private_key(SECP384R1()).public_key() for name in ("a", "b", "c", "d")}
    >>> terms = MaskTerms("first", "00" * 32, keys, absent=1, colluding=1, steps=2)
    >>> terms.threshold, terms.honest
    (3, 2)
    """

    run: str
    terms: str
    sites: Mapping[str, EllipticCurvePublicKey]
    absent: int
    colluding: int
    steps: int

    def __post_init__(self) -> None:
        from locum.federated.site_keys import check_site_name

        if not isinstance(self.run, str) or not 1 <= len(self.run) <= 200:
            raise ConfigError("`run` must be a text of 1 to 200 characters.")
        if not isinstance(self.terms, str) or not _HASH.fullmatch(self.terms):
            raise ConfigError(f"`terms` must be a SHA-256 in lower-case hex; got {str(self.terms)[:80]!r}.")
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or not 1 <= self.steps <= MOST_STEPS:
            raise ConfigError(f"`steps` must be a whole number from 1 to {MOST_STEPS}; got {self.steps!r}.")
        for name in self.sites:
            check_site_name(name)
        check_sites(len(self.sites), self.absent, self.colluding)
        if len(set(self._points.values())) < len(self.sites):
            raise ConfigError("Two sites have the same public key: each site needs its own.")

    @property
    def threshold(self) -> int:
        """How many sites must answer before a sum opens."""
        return len(self.sites) - self.absent

    @property
    def honest(self) -> int:
        """How many honest sites are in every sum; each adds noise of sigma / sqrt(honest)."""
        return self.threshold - self.colluding

    @cached_property
    def holders(self) -> dict[str, int]:
        """Number under which each pinned site holds shares: its place in the sorted list of names, from 1."""
        return {name: place for place, name in enumerate(sorted(self.sites), 1)}

    @cached_property
    def parameters(self) -> str:
        """SHA-256 over everything here. Sites whose files differ then refuse each other's announcements."""
        return digest(
            "parameters",
            run=self.run,
            terms=self.terms,
            sites=self._points,
            absent=self.absent,
            colluding=self.colluding,
            steps=self.steps,
        )

    @cached_property
    def _points(self) -> dict[str, str]:
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        found = {}
        for name, key in self.sites.items():
            if not isinstance(key, EllipticCurvePublicKey) or not key.curve.name.startswith("secp"):
                raise ConfigError(f"The key of {name!r} is not a public key on a NIST curve.")
            point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            found[name] = f"{key.curve.name}:{point.hex()}"
        return found


def canonical(message: str, **fields: Any) -> bytes:
    """The only form in which anything is hashed, signed or used as a label: JSON with sorted keys and no spaces."""
    body = {**HEAD, "message": message, **fields}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(message: str, **fields: Any) -> str:
    """SHA-256 of a canonical message, in hex."""
    return hashlib.sha256(canonical(message, **fields)).hexdigest()


def context(
    terms: MaskTerms, announcements: str, step: int, query: bytes, participants: Sequence[str], words: int
) -> str:
    """What a mask is for, as a hash. Masks of two different contexts have nothing in common."""
    return digest(
        "context",
        run=terms.run,
        terms=terms.terms,
        announcements=announcements,
        step=step,
        query=query.hex(),
        participants=list(participants),
        words=words,
    )


def statement(terms: MaskTerms, step: int, context: str, answered: Sequence[str]) -> bytes:
    """What a site signs before a sum is opened: who answered, in which context."""
    fields = {"run": terms.run, "terms": terms.terms, "step": step, "context": context, "answered": list(answered)}
    return canonical("answered", **fields)


def check_step(terms: MaskTerms, step: Any) -> None:
    """Refuse what is not the number of a step of this run."""
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < terms.steps:
        raise FormatError(f"A step of this run is a whole number from 0 to {terms.steps - 1}.")


def check_query(query: Any) -> None:
    """Refuse what is not the hash of a query."""
    if not isinstance(query, bytes) or len(query) != 32:
        raise FormatError("The hash of a query has 32 bytes.")


def sorted_names(given: Any, what: str) -> tuple[str, ...]:
    """A list of names from outside, sorted."""
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise FormatError(f"{what} must be a list of names.")
    if len(set(given)) < len(given):
        raise FormatError(f"{what} names a site twice.")
    return tuple(sorted(given))
