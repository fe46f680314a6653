"""The threat model of a release in words: the same for every release with the same kind of claim."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from locum.release.manifest import Manifest, Strict
from locum.types import at_least

Sentences = Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(min_length=1, max_length=40)]


class ThreatModel(Strict):
    """Who attacks and what they have, what is proven against them, what is not, and what that assumes."""

    attacker: Sentences
    proven: Sentences
    not_proven: Sentences
    assumes: Sentences
    not_considered: Sentences


_ATTACKER = (
    "has this entire folder: every number in it, the manifest, the card and this passport",
    "knows the software, its source and all public settings",
    "has accurate vectors of the person in question and of others, other public data, and time",
)
_DATA = "reads every released row; a row cannot be withdrawn"
_DECODER = "draws any number of samples from the decoder, and reads its weights (white box)"
_ASSUMES = (
    "the software that made the release was not altered, nor was the computer it ran on",
    "the backbone that made the vectors was not trained on these records, or was public already",
)
_ONE_SUBJECT = "each person has one record; a person with several records is protected less"
_NOT_CONSIDERED = (
    "anyone who can read the disk or the memory of the data holder, or measure its computing time",
    "records that a contributor made up in order to learn about others",
    "what a receiver learns by joining the release with other data, beyond what is proven",
)
_INTEGRITY = "altered files are noticed, if the signature is checked with the sender's key"


def threat_model(manifest: Manifest) -> ThreatModel:
    """The threat model for this kind of release and claim; nothing in it depends on a record."""
    claim = manifest.claim
    assumes = [*_ASSUMES, *([_ONE_SUBJECT] if claim.unit == "record" else [])]
    proven = [_INTEGRITY]
    not_proven = [
        "membership: whether a record was used",
        "attributes of a person",
        "a vector that is close to that of a record",
    ]
    if claim.kind == "k-anonymity":
        proven.append(f"each released vector is the mean of a group of at least {claim.k} {claim.unit}s")
        not_proven.append(f"the last member of a group, for anyone who knows the other {(claim.k or 2) - 1}")
    if claim.dp is not None:
        dp = claim.dp
        proven.append(
            f"anything about one {claim.unit}, membership included: the odds of any conclusion change by a factor of "
            f"at most exp({at_least(dp.epsilon)}), except with probability {at_least(dp.delta)}"
        )
        not_proven = [
            "what is true of the population, and so of each of its members, whether or not they took part",
            "the total over this and other releases of the same data: the holder's ledger adds them up",
        ]
        assumes.append("the holder's ledger is complete, and no old copy of it was put back")
        assumes.append("the random numbers of the operating system cannot be guessed")
    if claim.test:
        not_proven.append("anything that depends on random numbers: this is a test, made with an insecure seed")
    return ThreatModel(
        attacker=(*_ATTACKER, _DATA if manifest.kind == "data" else _DECODER),
        proven=tuple(proven),
        not_proven=tuple(not_proven),
        assumes=tuple(assumes),
        not_considered=_NOT_CONSIDERED,
    )
