"""Masked sums of which only the total opens, although sites stay away, and although some work with the coordinator.

Each site adds to its integers a mask of its own and one mask per pair of sites. Shares of the secrets behind them lie
with all sites. After the sites have signed one list of who answered, they reveal the shares of the own masks of those
who answered, and of the pairwise masks of those who did not: never both for one site. The protocol is that of
Bonawitz et al. (2017) against a malicious server, for several sums in one run. Its messages, checks and proofs are in
`docs/explain/masked-sums.md`. Nothing here reads a file or talks to anyone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError, PrivacyError
from locum.federated import secret_sharing
from locum.federated.mask_keys import (
    Announced,
    SiteKeys,
    Words,
    announce as announce,
    announcements_digest,
    check_announcement as check_announcement,
    check_own_key,
    decrypt,
    encrypt,
    is_announced,
    is_signed,
    pair_stream,
    read_announcement,
    self_stream,
    shown,
    sign,
)
from locum.federated.mask_terms import (
    MaskTerms as MaskTerms,
    check_query,
    check_sites as check_sites,
    check_step,
    context,
    noise_left as noise_left,
    sorted_names,
    statement,
)
from locum.federated.masked_step import MaskedStep as MaskedStep

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_PAIR = 2 * secret_sharing.SHARE_BYTES


@dataclass(frozen=True)
class _Masked:
    """What a site did in one step."""

    context: str
    participants: tuple[str, ...]
    answered: tuple[str, ...] = ()


class MaskingSite:
    """One site's side of a run.

    Every method checks what the coordinator sent, and refuses what would reveal more than totals: PrivacyError if the
    request is one that an honest coordinator does not make, FormatError if it cannot be read. `state` changes with
    each call. Store it before the result of the call leaves the site: a site that forgets that it masked a step can
    be made to mask it twice.

    Parameters
    ----------
    terms
        Public parameters of the run.
    name
        Name of this site.
    master
        The site's master secret of 32 bytes, from which `announce` made its announcement.
    key
        The site's private signing key.
    state
        An earlier `state` of this run, to go on from; private.

    Examples
    --------
    >>> import numpy as np
    >>> from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
    >>> from locum.federated.masking import MaskedStep, MaskingSite, MaskTerms, announce
    >>> keys = {name: generate_private_key(SECP384R1()) for name in ("a", "b", "c")}
    >>> public = {name: key.public_key() for name, key in keys.items()}
    >>> terms = MaskTerms("first", "00" * 32, public, absent=0, colluding=1, steps=1)
    >>> sites = {name: MaskingSite(terms, name, name.encode() * 32, key) for name, key in keys.items()}
    >>> said = {name: announce(terms, name, name.encode() * 32, key) for name, key in keys.items()}
    >>> blobs = {name: site.share(said) for name, site in sites.items()}
    >>> for name, site in sites.items():
    ...     site.receive({sender: sent[name] for sender, sent in blobs.items() if sender != name})
    >>> query, everyone = bytes(32), ["a", "b", "c"]
    >>> words = {name: site.mask(0, query, everyone, np.array([1, -2])) for name, site in sites.items()}
    >>> signed = {name: site.confirm(0, everyone) for name, site in sites.items()}
    >>> opened = {name: site.open(0, signed) for name, site in sites.items()}
    >>> MaskedStep(terms, said, 0, query, everyone, words).total(opened).tolist()
    [3, -6]
    """

    def __init__(
        self,
        terms: MaskTerms,
        name: str,
        master: bytes,
        key: EllipticCurvePrivateKey,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.terms = terms
        self.name = name
        self._keys = SiteKeys(terms, name, master)
        check_own_key(terms, name, key)
        self._key = key
        self._announced: dict[str, Announced] = {}
        self._digest = ""
        self._shares: dict[str, bytes] = {}
        self._steps: dict[int, _Masked] = {}
        if state is not None:
            self._restore(state)

    @property
    def state(self) -> dict[str, Any]:
        """Everything that a later call needs, for JSON; private, because it holds shares of other sites' secrets."""
        return {
            "format": "locum-masks-state",
            "version": 1,
            "run": self.terms.run,
            "parameters": self.terms.parameters,
            "site": self.name,
            "announcements": {name: found.to_dict(self.terms) for name, found in self._announced.items()},
            "shares": {name: raw.hex() for name, raw in self._shares.items()},
            "steps": {
                str(step): {
                    "context": done.context,
                    "participants": list(done.participants),
                    "answered": list(done.answered),
                }
                for step, done in self._steps.items()
            },
        }

    def share(self, announcements: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """Shares of this site's secrets, encrypted for each other site of the list.

        The same list again gives the same bytes; another list is refused.
        """
        found = self._checked_list(announcements)
        listed = announcements_digest(self.terms, found.values())
        if not self._announced:
            self._check_keys(found)
            self._announced, self._digest = found, listed
        elif listed != self._digest:
            raise PrivacyError("This site has shared its secrets in this run with another list of announcements.")
        kinds = [
            (self._keys.shares(step, "self"), self._keys.shares(step, "pair")) for step in range(self.terms.steps)
        ]
        private, blobs = self._keys.encryption(), {}
        for name, other in self._announced.items():
            if name != self.name:
                holder = self.terms.holders[name]
                plain = b"".join(secret_sharing.encode(kind[holder]) for step in kinds for kind in step)
                blobs[name] = encrypt(self.terms, private, other, self.name, self._digest, plain)
        return blobs

    def receive(self, blobs: Mapping[str, bytes]) -> None:
        """Take the shares of the other sites, all at once; the same again changes nothing."""
        if not self._announced:
            raise PrivacyError("Shares came before the list of announcements.")
        self._check_names(blobs, "The shares")
        if unlisted := [name for name in blobs if name not in self._announced or name == self.name]:
            raise PrivacyError(f"Shares came from {unlisted[0]!r}, which is not another site of this run's list.")
        if len(blobs) + 1 < self.terms.threshold:
            raise PrivacyError(
                f"Shares of {len(blobs)} other sites came; with {self.terms.threshold - 1} or more a sum can open."
            )
        private = self._keys.encryption()
        found = {}
        for name in sorted(blobs):
            plain = decrypt(self.terms, private, self._announced[name], self.name, self._digest, blobs[name])
            for start in range(0, len(plain), secret_sharing.SHARE_BYTES):
                if int.from_bytes(plain[start : start + secret_sharing.SHARE_BYTES], "big") >= secret_sharing.PRIME:
                    raise FormatError(f"The shares of {name!r} are not numbers below the prime.")
            found[name] = plain
        if self._shares and found != self._shares:
            raise PrivacyError("This site has taken other shares in this run: they come once.")
        self._shares = found

    def check_mask(self, step: int, query: bytes, participants: Sequence[str]) -> None:
        """Refuse whatever `mask` would refuse, so that a caller knows before it pays and draws noise."""
        self._checked_mask(step, query, participants)

    def mask(self, step: int, query: bytes, participants: Sequence[str], integers: npt.NDArray[np.int64]) -> Words:
        """The integers plus this site's masks, modulo 2**64. A step is masked once: keep the result for retries."""
        names = self._checked_mask(step, query, participants)
        if not isinstance(integers, np.ndarray) or integers.dtype != np.int64 or integers.ndim != 1:
            raise FormatError("Only a vector of int64 can be masked.")
        label = context(self.terms, self._digest, step, query, names, len(integers))
        self._steps[step] = _Masked(label, names)
        out = integers.view(np.uint64).copy()
        out += self_stream(self._keys.self_mask(step), self.name, label, len(out))
        private = self._keys.mask(step)
        for name in names:
            if name != self.name:
                public = self._announced[name].masks[step]
                mask = pair_stream(private, public, (self.name, name), label, len(out))
                if self.name < name:
                    out += mask
                else:
                    out -= mask
        return out

    def confirm(self, step: int, answered: Sequence[str]) -> str:
        """Sign who answered. A second, different list is refused for a step."""
        done = self._done(step)
        names = self._checked_names(answered, "The list of those who answered", done.participants)
        if done.answered and names != done.answered:
            raise PrivacyError(f"This site has confirmed another list of those who answered step {step}.")
        self._steps[step] = replace(done, answered=names)
        return sign(self._key, statement(self.terms, step, done.context, names))

    def open(self, step: int, signatures: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Reveal shares, if enough sites have signed exactly the list that this site signed.

        "self" holds this site's shares of the own masks of those who answered, "pair" those of the mask keys of the
        participants who did not.
        """
        done = self._done(step)
        if not done.answered:
            raise PrivacyError(f"This site has not confirmed who answered step {step}.")
        if not isinstance(signatures, Mapping):
            raise FormatError("Signatures must be given by site name.")
        signed = statement(self.terms, step, done.context, done.answered)
        valid = sum(is_signed(self.terms, name, signed, signatures.get(name)) for name in done.answered)
        if valid < self.terms.threshold:
            raise PrivacyError(
                f"Only {valid} sites have signed the list that this site signed for step {step}; "
                f"{self.terms.threshold} are needed."
            )
        gone = [name for name in done.participants if name not in done.answered]
        return {
            "self": {name: self._share_of(name, step, "self").hex() for name in done.answered},
            "pair": {name: self._share_of(name, step, "pair").hex() for name in gone},
        }

    def _share_of(self, name: str, step: int, kind: str) -> bytes:
        if name == self.name:
            return secret_sharing.encode(self._keys.shares(step, kind)[self.terms.holders[name]])
        start = _PAIR * step + (0 if kind == "self" else secret_sharing.SHARE_BYTES)
        return self._shares[name][start : start + secret_sharing.SHARE_BYTES]

    def _check_names(self, given: Any, what: str) -> None:
        """Refuse a mapping whose names are not pinned, before anything else is looked at."""
        if not isinstance(given, Mapping):
            raise FormatError(f"{what} must be given by site name.")
        for name in given:
            if not isinstance(name, str) or name not in self.terms.sites:
                raise PrivacyError(f"{what} name {shown(name)}, which is not one of the federation's pinned sites.")

    def _checked_list(self, announcements: Any) -> dict[str, Announced]:
        self._check_names(announcements, "The announcements")
        if self.name not in announcements:
            raise PrivacyError("The announcements lack this site's own.")
        if len(announcements) < self.terms.threshold:
            raise PrivacyError(f"Only {len(announcements)} sites announced keys; {self.terms.threshold} are needed.")
        return {name: read_announcement(self.terms, name, announcements[name]) for name in sorted(announcements)}

    def _check_keys(self, found: Mapping[str, Announced]) -> None:
        for name, announced in found.items():
            if not is_announced(self.terms, announced):
                raise PrivacyError(f"The announcement of {name!r} is not signed with the pinned key of that site.")
        if replace(found[self.name], signature="") != self._keys.announced():
            raise PrivacyError("The list has an announcement of this site that differs from the one that it made.")
        keys = [key for announced in found.values() for key in (announced.encryption, *announced.masks)]
        if len(set(keys)) < len(keys):
            raise PrivacyError("The announcements use one key twice: each site and step needs its own.")

    def _checked_names(self, given: Any, what: str, among: tuple[str, ...]) -> tuple[str, ...]:
        """A list of sites, sorted, if it is one that a sum can open for."""
        names = sorted_names(given, what)
        if strange := [name for name in names if name not in among]:
            raise PrivacyError(f"{what} names {shown(strange[0])}, which cannot take part.")
        if self.name not in names:
            raise PrivacyError(f"{what} lacks this site.")
        if len(names) < self.terms.threshold:
            raise PrivacyError(f"{what} has {len(names)} sites; {self.terms.threshold} are needed.")
        return names

    def _checked_mask(self, step: Any, query: Any, participants: Any) -> tuple[str, ...]:
        check_step(self.terms, step)
        check_query(query)
        if not self._shares:
            raise PrivacyError("A sum was asked for before the other sites' shares came.")
        if step in self._steps:
            raise PrivacyError(f"This site has answered step {step}: a step is masked once.")
        return self._checked_names(participants, "The list of participants", (self.name, *self._shares))

    def _done(self, step: Any) -> _Masked:
        check_step(self.terms, step)
        if step not in self._steps:
            raise PrivacyError(f"This site has not answered step {step}.")
        return self._steps[step]

    def _restore(self, state: Mapping[str, Any]) -> None:
        try:
            same = (state["format"], state["version"], state["run"], state["parameters"], state["site"])
            if same != ("locum-masks-state", 1, self.terms.run, self.terms.parameters, self.name):
                raise FormatError("The stored state of the masks belongs to another run, site or version.")
            self._announced = {n: read_announcement(self.terms, n, a) for n, a in state["announcements"].items()}
            self._digest = announcements_digest(self.terms, self._announced.values()) if self._announced else ""
            self._shares = {name: bytes.fromhex(raw) for name, raw in state["shares"].items()}
            if any(len(raw) != _PAIR * self.terms.steps for raw in self._shares.values()):
                raise ValueError
            self._steps = {
                int(step): _Masked(str(done["context"]), tuple(done["participants"]), tuple(done["answered"]))
                for step, done in state["steps"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError):
            raise FormatError(
                "The stored state of the masks is damaged: this site can no longer take part."
            ) from None
