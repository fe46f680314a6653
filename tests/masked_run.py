"""A federation with masked sums in one process: real keys, real sites, and a coordinator that the tests play."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key

from locum.federated.masking import MaskedStep, MaskingSite, MaskTerms, announce

QUERY = bytes(range(32))


@cache
def key_of(name: str) -> EllipticCurvePrivateKey:
    """A signing key that all tests of one process share."""
    return generate_private_key(SECP256R1())


class MaskedRun:
    """All sites of one run; `lists` and `blobs` hold what a coordinator passes on."""

    def __init__(
        self, sites: int, absent: int, colluding: int, *, steps: int = 1, run: str = "first", seed: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.names = [f"site-{i:02}" for i in range(sites)]
        keys = {name: key_of(name).public_key() for name in self.names}
        self.terms = MaskTerms(run, "5e" * 32, keys, absent, colluding, steps)
        self.masters = {name: self.rng.bytes(32) for name in self.names}
        self.said = {name: announce(self.terms, name, self.masters[name], key_of(name)) for name in self.names}
        self.sites = {name: MaskingSite(self.terms, name, self.masters[name], key_of(name)) for name in self.names}
        self.blobs: dict[str, dict[str, bytes]] = {}

    def share(self, announcing: Collection[str] = (), sharing: Collection[str] = ()) -> None:
        """Announcements to everyone in `announcing`, shares of those in `sharing` to all of them."""
        announcing = announcing or self.names
        sharing = sharing or announcing
        self.said = {name: self.said[name] for name in announcing}
        self.blobs = {name: self.sites[name].share(self.said) for name in sharing}
        for name in sharing:
            self.sites[name].receive(self.for_site(name, sharing))

    def for_site(self, name: str, senders: Collection[str]) -> dict[str, bytes]:
        """The shares addressed to one site."""
        return {sender: self.blobs[sender][name] for sender in senders if sender != name}

    def integers(self, words: int = 4) -> dict[str, np.ndarray]:
        """Whole numbers of any size for every site."""
        return {name: self.rng.integers(-(2**62), 2**62, words) for name in self.names}

    def mask(
        self,
        integers: Mapping[str, np.ndarray],
        participants: Collection[str],
        answered: Collection[str],
        step: int = 0,
    ) -> MaskedStep:
        """Those in `answered` mask their integers; the others of `participants` were asked too."""
        asked = list(participants)
        words = {name: self.sites[name].mask(step, QUERY, asked, integers[name]) for name in answered}
        return MaskedStep(self.terms, self.said, step, QUERY, asked, words)

    def open(
        self, masked: MaskedStep, confirming: Collection[str], opening: Collection[str]
    ) -> dict[str, dict[str, dict[str, str]]]:
        """Signatures of some of those who answered, and shares from some of those."""
        signed = {name: self.sites[name].confirm(masked.step, masked.answered) for name in confirming}
        assert all(masked.is_confirmed(name, signature) for name, signature in signed.items())
        return {name: self.sites[name].open(masked.step, signed) for name in opening}

    def restarted(self, name: str, state: Any = None) -> MaskingSite:
        """The same site in a new process."""
        state = self.sites[name].state if state is None else state
        return MaskingSite(self.terms, name, self.masters[name], key_of(name), state)


def plain_sum(integers: Mapping[str, np.ndarray], names: Collection[str]) -> list[int]:
    """The sum in Python's integers, wrapped to 64 bits."""
    columns = zip(*(integers[name].tolist() for name in names), strict=True)
    return [(sum(column) + 2**63) % 2**64 - 2**63 for column in columns]
