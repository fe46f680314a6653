"""The risk map: which members an audit's attacks tell from strangers best. It stays with the holder, always."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import Scores
from locum.audit.view import one_per_subject
from locum.errors import PrivacyError
from locum.io import check_output_file, lies_in_release, write_private_table
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Records are called exposed while at most this share of them is expected there by luck.
_LEVEL = 0.1
# Where more members than this share are exposed, leaving them out leaves too little.
_MANY = 0.05
# A class is advised on as a whole where its share of exposed records is so many times the usual one.
_TIMES = 3
_COLUMNS = ("row", "subject", "class", "exposed", "seen_by", "non_members_as_high", "p_value", "by_luck", "advice")
_ADVICE = {
    "noise": "too many records are exposed to leave them out: use a generator with noise (differential privacy)",
    "person": "cap how many records one person gives, or leave this person out; then audit again",
    "class": "clip or merge this class, or give it noise; then audit again",
    "record": "leave this record out, then audit again",
    "": "",
}
_WARNING = (
    "Leaving records out because of their score is itself a choice that depends on the data: it voids a claim of "
    "differential privacy, shows that somebody unusual was there, and exposes those who come next. Fit and audit "
    "anew after every such change, with non-members that no earlier audit has seen if there are any."
)


@dataclass(frozen=True, slots=True)
class RecordRisk:
    """How exposed one member is.

    `row` is its place among the members as they were given, from 0. `seen_by` are the attacks in which the fewest
    non-members score as high; `non_members_as_high` is that share. `p_value` is the chance that a non-member would
    look as exposed in the best of all these attacks. `by_luck` is the share of records, from the top down to this
    one, that is expected to be there by luck alone.
    """

    row: int
    subject: str
    label: str
    seen_by: tuple[str, ...]
    non_members_as_high: float
    p_value: float
    by_luck: float
    exposed: bool
    advice: str


@dataclass(frozen=True, slots=True, repr=False)
class RiskMap:
    """Every member, the most exposed first. It names records: it is in no JSON, no passport and no page.

    The number of `non_members` decides how small a p-value can get: where they are few, nobody can be called exposed,
    and that is no all-clear. `doubts` are faults of the data that shake every row. Attacks that score no
    records, such as "closest record", have no say here.
    """

    records: tuple[RecordRisk, ...]
    attacks: tuple[str, ...]
    non_members: int
    doubts: tuple[str, ...] = ()
    level: float = _LEVEL

    @property
    def exposed(self) -> tuple[RecordRisk, ...]:
        """Those of which at most the share `level` is expected to be there by luck."""
        return tuple(record for record in self.records if record.exposed)

    @property
    def warning(self) -> str:
        """What everybody must know who acts on this map."""
        return _WARNING

    def sentence(self) -> str:
        """The map in words, without naming anybody."""
        found, n = len(self.exposed), len(self.records)
        judged = f"judged by {self.non_members:,} strangers in {_count(len(self.attacks))}"
        told = (
            f"{found:,} of {n:,} members are exposed beyond luck, {judged}; at most {self.level:.0%} of them are "
            "expected there by luck."
            if found
            else f"No member of {n:,} is exposed beyond luck, {judged}. Few strangers show little: no all-clear."
        )
        return " ".join([told, *(f"Doubt: {words}." for words in self.doubts)])

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a CSV that only its owner can read. A folder that is a release, or lies in one, is refused."""
        check_risk_file(Path(path), overwrite=overwrite)
        write_private_table(Path(path), _COLUMNS, (_cells(record) for record in self.records))

    def __repr__(self) -> str:
        # A printed report must not name records.
        return f"RiskMap({len(self.exposed)} of {len(self.records)} members exposed; kept local)"


def check_risk_file(path: Path, *, overwrite: bool = False) -> None:
    """Complain, before any attack is made, about a place where no risk map may or can be written."""
    if lies_in_release(path):
        raise PrivacyError(
            f"{str(path)!r} lies in a release, which is made to leave: a risk map must not. Write it elsewhere."
        )
    check_output_file(path, overwrite=overwrite)


def risk_map(
    scores: Sequence[tuple[str, Scores]],
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    rng: np.random.Generator,
    *,
    rows: Ints | None = None,
    doubts: Sequence[str] = (),
) -> RiskMap | None:
    """Rank members by how few strangers score as high; None where no attack scores records.

    Only ranks among non-members count, one of each person, so that attacks with different scales can be laid side by
    side. A record stands where its best attack puts it, ties going to the one that more attacks see; strangers are
    ranked in the same way, so that the p-value has paid for the choice of the attack. `by_luck` then pays for the
    number of members (Benjamini and Hochberg). `rows` are the members' places in the holder's own file.
    """
    if not scores:
        return None
    theirs = one_per_subject(non_members, rng)
    inside = np.stack([s.inside for _, s in scores])
    outside = np.stack([s.outside[theirs] for _, s in scores])
    ordered = np.sort(outside, axis=1)
    mine, others = _as_high(inside, ordered), _as_high(outside, ordered)
    # A stranger is among the strangers that score as high as it does; a member is the one more.
    places, m = mine + 1, len(theirs)
    key, other_keys = _key(places, m), np.sort(_key(others, m))
    p = (1 + np.searchsorted(other_keys, key, side="right")) / (m + 1)
    luck = _by_luck(p)
    order = np.lexsort((-_margin(inside, ordered), luck))
    exposed = luck <= _LEVEL
    advice = _advice(exposed, members)
    row = np.arange(len(members)) if rows is None else rows
    labels, names = members.labels, [name for name, _ in scores]
    fewest = places.min(axis=0)
    return RiskMap(
        tuple(
            RecordRisk(
                row=int(row[i]),
                subject="" if members.subject is None else str(members.subject[i]),
                label=str(labels[i]),
                seen_by=tuple(name for name, place in zip(names, places[:, i], strict=True) if place == fewest[i]),
                non_members_as_high=float(fewest[i] - 1) / m,
                p_value=float(p[i]),
                by_luck=float(luck[i]),
                exposed=bool(exposed[i]),
                advice=_ADVICE[advice[i]],
            )
            for i in order.tolist()
        ),
        tuple(names),
        m,
        tuple(doubts),
    )


def _as_high(scores: Floats, ordered: Floats) -> Ints:
    """How many strangers score as high or higher, by attack and record."""
    return np.stack([len(o) - np.searchsorted(o, s, side="left") for s, o in zip(scores, ordered, strict=True)])


def _key(places: Ints, m: int) -> Ints:
    """The best place, then the sum of all places: one number that orders records."""
    return np.asarray(places.min(axis=0) * (len(places) * (m + 1) + 1) + places.sum(axis=0), dtype=np.int64)


def _by_luck(p: Floats) -> Floats:
    """Benjamini and Hochberg's adjusted p-values: never smaller further down the list."""
    order = np.argsort(p, kind="stable")
    raised = p[order] * len(p) / np.arange(1, len(p) + 1)
    out = np.empty_like(raised)
    out[order] = np.minimum(1.0, np.minimum.accumulate(raised[::-1])[::-1])
    return out


def _margin(inside: Floats, ordered: Floats) -> Floats:
    """How far beyond all strangers, in their spread: it orders those that luck does not, and decides nothing else."""
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = ordered[:, (3 * len(ordered[0])) // 4] - ordered[:, len(ordered[0]) // 4]
        beyond = (inside - ordered[:, -1:]) / middle[:, None]
    return np.asarray(np.nan_to_num(beyond, nan=0.0).max(axis=0))


def _advice(exposed: npt.NDArray[np.bool_], members: EmbeddingSet) -> list[str]:
    """What to do about each record, by key of `_ADVICE`."""
    if exposed.mean() > _MANY:
        return ["noise" if one else "" for one in exposed]
    labels = members.labels.tolist()
    subjects = [None] * len(labels) if members.subject is None else members.subject.tolist()
    found = [i for i, one in enumerate(exposed.tolist()) if one]
    of_subject = Counter(subjects[i] for i in found)
    of_class, all_of_class = Counter(labels[i] for i in found), Counter(labels)
    out = [""] * len(labels)
    for i in found:
        own = of_class[labels[i]]
        if subjects[i] is not None and of_subject[subjects[i]] > 1:
            out[i] = "person"
        elif own > 1 and own / all_of_class[labels[i]] >= _TIMES * exposed.mean():
            out[i] = "class"
        else:
            out[i] = "record"
    return out


def _count(n: int) -> str:
    return "1 attack" if n == 1 else f"{n} attacks"


def _cells(record: RecordRisk) -> tuple[str, ...]:
    return (
        str(record.row),
        record.subject,
        record.label,
        "yes" if record.exposed else "no",
        " + ".join(record.seen_by),
        f"{record.non_members_as_high:.4g}",
        f"{record.p_value:.4g}",
        f"{record.by_luck:.4g}",
        record.advice,
    )
