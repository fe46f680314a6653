"""The coordinator's side of one masked sum: whose signature counts, and the total from what the sites revealed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError, PrivacyError
from locum.federated import secret_sharing
from locum.federated.mask_keys import (
    Words,
    announcements_digest,
    commitment,
    is_signed,
    pair_stream,
    public_key,
    read_announcement,
    self_stream,
    shown,
)
from locum.federated.mask_terms import MaskTerms, check_query, check_step, context, sorted_names, statement


class MaskedStep:
    """One sum of a run, at the coordinator, who learns the total and nothing else.

    Parameters
    ----------
    terms
        Public parameters of the run.
    announcements
        The list that all sites got; each was checked with `check_announcement` when it came.
    step
        Number of the sum, from 0.
    query
        Hash of the public query, as it was sent to the sites.
    participants
        The list that was sent to the sites.
    words
        The masked vectors by site, of those who answered.

    Attributes
    ----------
    answered
        Sites whose vectors came, sorted: the list to be confirmed.
    wrong_shares
        After `total`: sites that revealed a share that does not fit, each with the sites whose secrets these shares
        belong to. A wrong share can also be the fault of the site that made it, and several sites that work together
        can make the shares of another look wrong.

    Examples
    --------
    See `MaskingSite`, whose example is a whole run.
    """

    def __init__(
        self,
        terms: MaskTerms,
        announcements: Mapping[str, Mapping[str, Any]],
        step: int,
        query: bytes,
        participants: Sequence[str],
        words: Mapping[str, Words],
    ) -> None:
        check_step(terms, step)
        check_query(query)
        if not isinstance(announcements, Mapping) or not isinstance(words, Mapping):
            raise FormatError("Announcements and masked vectors must be given by site name.")
        for name in announcements:
            if not isinstance(name, str) or name not in terms.sites:
                raise PrivacyError(f"The announcements name {shown(name)}, which is not one of the pinned sites.")
        self.terms = terms
        self.step = step
        self._announced = {n: read_announcement(terms, n, announcement) for n, announcement in announcements.items()}
        self.participants = sorted_names(participants, "The list of participants")
        self.answered = sorted_names(tuple(words), "The list of those who answered")
        for name in (*self.participants, *self.answered):
            if name not in self._announced or name not in self.participants:
                raise PrivacyError(
                    f"{shown(name)} takes part without an announcement, or answered without being asked."
                )
        if len(self.answered) < terms.threshold:
            raise PrivacyError(
                f"{len(self.answered)} sites answered step {step}; the sum opens only with {terms.threshold} or more."
            )
        self._words = {name: _vector(name, words[name]) for name in self.answered}
        lengths = {name: len(vector) for name, vector in self._words.items()}
        if len(set(lengths.values())) > 1:
            raise FormatError(f"The masked vectors of step {step} have different lengths: {lengths}.")
        self.length = lengths[self.answered[0]]
        listed = announcements_digest(terms, self._announced.values())
        self.context = context(terms, listed, step, query, self.participants, self.length)
        self.wrong_shares: dict[str, tuple[str, ...]] = {}

    def is_confirmed(self, name: str, signature: str) -> bool:
        """Whether a site that answered has signed the list of those who answered."""
        signed = statement(self.terms, self.step, self.context, self.answered)
        return name in self.answered and is_signed(self.terms, name, signed, signature)

    def total(self, opened: Mapping[str, Mapping[str, Mapping[str, str]]]) -> npt.NDArray[np.int64]:
        """The sum of the integers of all who answered, modulo 2**64.

        Wrong shares are found and left out where more than the needed shares came; `wrong_shares` then names who
        sent them. Otherwise FormatError names the sites whose secrets could not be put together again.
        """
        came = [name for name in self.answered if isinstance(opened, Mapping) and name in opened]
        if len(came) < self.terms.threshold:
            raise PrivacyError(
                f"{len(came)} sites opened step {self.step}; the sum opens only with {self.terms.threshold} or more."
            )
        self.wrong_shares = {}
        gone = [name for name in self.participants if name not in self.answered]
        seeds = self._secrets(opened, came, "self", self.answered)
        privates = self._secrets(opened, came, "pair", gone)
        if lost := [name for name, secret in (seeds | privates).items() if secret is None]:
            raise FormatError(
                f"The secrets of {', '.join(lost)} could not be put together for step {self.step}: too many of the "
                f"shares from {', '.join(came)} are wrong, or the sites named first made wrong shares."
            )
        total = np.zeros(self.length, dtype=np.uint64)
        for name in self.answered:
            total += self._words[name]
            total -= self_stream(seeds[name] or b"", name, self.context, self.length)
            for absent in gone:
                public = self._announced[name].masks[self.step]
                mask = pair_stream(privates[absent] or b"", public, (name, absent), self.context, self.length)
                # The mask that `name` added or subtracted, and `absent` did not undo.
                if name < absent:
                    total -= mask
                else:
                    total += mask
        return total.view(np.int64)

    def _secrets(
        self, opened: Mapping[str, Any], came: Sequence[str], kind: str, owners: Sequence[str]
    ) -> dict[str, bytes | None]:
        names = {holder: name for name, holder in self.terms.holders.items()}
        found: dict[str, bytes | None] = {}
        for owner in owners:
            shares = {self.terms.holders[name]: _share(opened[name], kind, owner) for name in came}
            readable = {holder: share for holder, share in shares.items() if share is not None}
            suspects = [self.terms.holders[name] for name in self.wrong_shares]
            fit = secret_sharing.recover(readable, self.terms.threshold, self._check_of(kind, owner), suspects)
            found[owner] = None if fit is None else fit.secret
            wrong = () if fit is None else fit.wrong
            for holder in (*(h for h in shares if h not in readable), *wrong):
                sender = names[holder]
                self.wrong_shares[sender] = tuple(sorted({*self.wrong_shares.get(sender, ()), owner}))
        return found

    def _check_of(self, kind: str, owner: str) -> Callable[[bytes], bool]:
        announced = self._announced[owner]
        if kind == "self":
            return lambda secret: commitment(secret) == announced.commitments[self.step]
        return lambda secret: public_key(secret) == announced.masks[self.step]


def _vector(name: str, words: Any) -> Words:
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.ndim != 1:
        raise FormatError(f"What {name!r} sent is not a vector of masked words.")
    return words


def _share(revealed: Any, kind: str, owner: str) -> int | None:
    """One site's share of one secret; None if it cannot be read."""
    try:
        text = revealed[kind][owner]
        return secret_sharing.decode(bytes.fromhex(text)) if len(text) == 2 * secret_sharing.SHARE_BYTES else None
    except (FormatError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
