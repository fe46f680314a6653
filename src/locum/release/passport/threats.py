"""Against whom a release stands, in words: the same for every release of one kind of claim."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from locum.release.manifest import Manifest, Strict
from locum.types import at_least

Sentences = Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(min_length=1, max_length=40)]


class ThreatModel(Strict):
    """Who attacks and what they have, what is proven against them, what is not, and what must be true for it."""

    attacker: Sentences
    proven: Sentences
    not_proven: Sentences
    assumes: Sentences
    not_considered: Sentences


_ATTACKER = (
    "has this whole folder: every number in it, the manifest, the card and this passport",
    "knows the software, its source and all public settings",
    "has good vectors of the person in question and of other people, other public data, and time",
)
_DATA = "reads every released row; a row cannot be taken back"
_DECODER = "draws from the decoder without end, and reads its weights (white box)"
_ASSUMES = (
    "the software that made the release was not altered, nor was the computer it ran on",
    "the backbone that made the vectors had not learnt from these records, or was public already",
)
_ONE_SUBJECT = "one record stands for one person; whoever has several records is protected less"
_NOT_CONSIDERED = (
    "whoever can read the disk or the memory of the data holder, or measure how long it computes",
    "records that a contributor made up in order to learn of others",
    "what a receiver learns by joining the release with other data, beyond what is proven",
)
_INTEGRITY = "that files were altered on the way is seen, where the signature is checked with the sender's key"


def threat_model(manifest: Manifest) -> ThreatModel:
    """The words for this kind of release and claim; nothing in them depends on a record."""
    claim = manifest.claim
    assumes = [*_ASSUMES, *([_ONE_SUBJECT] if claim.unit == "record" else [])]
    proven, open_ends = [_INTEGRITY], ["membership: whether a record was among those used", "attributes of a person"]
    open_ends.append("a vector that is close to that of a record")
    if claim.kind == "k-anonymity":
        proven.append(f"each released vector is the mean of a group of at least {claim.k} {claim.unit}s")
        open_ends.append(f"the last of a group, for whoever knows the other {(claim.k or 2) - 1}")
    if claim.dp is not None:
        dp = claim.dp
        proven.append(
            f"whatever an attacker wants to know of one {claim.unit}, membership included: the odds of any "
            f"conclusion change by a factor of at most exp({at_least(dp.epsilon)}), but for a chance of "
            f"{at_least(dp.delta)}"
        )
        open_ends = ["what holds of the population, and so of each of its members, whether or not they took part"]
        open_ends.append("the sum of this and of other releases of the same data: the holder's ledger adds them up")
        assumes.append("the holder's ledger is whole, and no old copy of it was put back")
        assumes.append("the random numbers of the operating system cannot be guessed")
    return ThreatModel(
        attacker=(*_ATTACKER, _DATA if manifest.kind == "data" else _DECODER),
        proven=tuple(proven),
        not_proven=tuple(open_ends),
        assumes=tuple(assumes),
        not_considered=_NOT_CONSIDERED,
    )
