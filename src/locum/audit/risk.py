"""The risk map: which members the attacks of an audit tell from non-members best. It never leaves the holder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import Scores
from locum.audit.view import one_per_subject
from locum.errors import PrivacyError
from locum.io import check_output_file, lies_in_release, write_private_table
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Records are called exposed as long as at most this share of them is expected there by chance.
_LEVEL = 0.1
# If more than this share of the members is exposed, leaving them out is no remedy.
_MANY = 0.05
# The advice is about the whole class if its share of exposed records is this many times the overall share.
_TIMES = 3
_COLUMNS = ("row", "subject", "class", "exposed", "seen_by", "non_members_as_high", "p_value", "by_chance", "advice")
_ADVICE = {
    "noise": "too many records are exposed to leave them out: use a generator with noise (differential privacy)",
    "subject": "limit the number of records per subject, or leave this subject out; then audit again",
    "class": "merge this class with another, or use differential privacy; then audit again",
    "record": "leave this record out, then audit again",
    "": "",
}
_WARNING = (
    "Leaving records out because of their score is a choice that depends on the data: it voids a claim of "
    "differential privacy, reveals that unusual records were there, and exposes the next most unusual ones. Fit and "
    "audit again after every such change, if possible with non-members that no earlier audit has used."
)


@dataclass(frozen=True, slots=True)
class RecordRisk:
    """How exposed one member is.

    `row` is its position among the members as given, from 0. `seen_by` are the attacks in which the fewest
    non-members score as high; `non_members_as_high` is their share. `p_value` is the probability that a non-member
    looks as exposed in its best attack. `by_chance` is the share of the records, from the top of the map down to this
    one, that is expected there by chance alone.
    """

    row: int
    subject: str
    label: str
    seen_by: tuple[str, ...]
    non_members_as_high: float
    p_value: float
    by_chance: float
    exposed: bool
    advice: str


@dataclass(frozen=True, slots=True, repr=False)
class RiskMap:
    """Every member, the most exposed first. It names records, so no JSON, passport or page contains it.

    The number of non-members limits how small a p-value can get: with few of them no record can be called exposed,
    which is not an all-clear. Attacks that do not score records, such as "closest record", do not contribute.

    Parameters
    ----------
    records
        One entry per member.
    attacks
        Names of the attacks that contribute.
    non_members
        Number of non-members that members were compared with, one per subject.
    doubts
        Faults of the data that affect every row.
    level
        At most this share of the exposed records is expected there by chance.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import audit
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> found = audit(release, members, others, attacks=["nearest distance"], random_state=0)
    >>> found.risk
    RiskMap(0 of 50 members exposed; kept local)
    >>> found.risk.save("risk.csv")
    """

    records: tuple[RecordRisk, ...]
    attacks: tuple[str, ...]
    non_members: int
    doubts: tuple[str, ...] = ()
    level: float = _LEVEL

    @property
    def exposed(self) -> tuple[RecordRisk, ...]:
        """The exposed records; at most a share `level` of them is expected here by chance."""
        return tuple(record for record in self.records if record.exposed)

    @property
    def warning(self) -> str:
        """What anyone who acts on this map must know."""
        return _WARNING

    def sentence(self) -> str:
        """A summary that names no record."""
        found, n = len(self.exposed), len(self.records)
        compared = f"compared with {self.non_members:,} non-members in {_count(len(self.attacks))}"
        summary = (
            f"{found:,} of {n:,} members are exposed beyond chance, {compared}; at most {self.level:.0%} of them are "
            "expected there by chance."
            if found
            else f"None of {n:,} members is exposed beyond chance, {compared}. That is not an all-clear."
        )
        return " ".join([summary, *(f"Doubt: {words}." for words in self.doubts)])

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a CSV that only its owner can read. A path inside a release is refused."""
        check_risk_file(Path(path), overwrite=overwrite)
        write_private_table(Path(path), _COLUMNS, (_cells(record) for record in self.records))

    def __repr__(self) -> str:
        # A printed report must not name records.
        return f"RiskMap({len(self.exposed)} of {len(self.records)} members exposed; kept local)"


def check_risk_file(path: Path, *, overwrite: bool = False) -> None:
    """Check, before any attack is run, that a risk map may and can be written to a file.

    Parameters
    ----------
    path
        The file.
    overwrite
        Whether an existing file may be replaced.

    Raises
    ------
    PrivacyError
        If the file would be inside a release.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.audit import check_risk_file
    >>> Path("out").mkdir()
    >>> _ = Path("out/manifest.json").write_text("{}")
    >>> check_risk_file(Path("out/risk.csv"))
    Traceback (most recent call last):
        ...
    locum.errors.PrivacyError: 'out/risk.csv' is inside a release, and a risk map must not leave. Write it elsewhere.
    """
    if lies_in_release(path):
        raise PrivacyError(f"{str(path)!r} is inside a release, and a risk map must not leave. Write it elsewhere.")
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
    """Rank members by how few non-members score as high; None if no attack scores records.

    Only ranks among non-members count, one record per subject, so that attacks with different scales can be compared.
    A record gets the rank of its best attack; ties go to the record that more attacks see. Non-members are ranked in
    the same way, so that the p-value accounts for the choice of the attack. `by_chance` then accounts for the number
    of members (Benjamini and Hochberg). `rows` are the members' positions in the holder's file.
    """
    if not scores:
        return None
    theirs = one_per_subject(non_members, rng)
    inside = np.stack([s.inside for _, s in scores])
    outside = np.stack([s.outside[theirs] for _, s in scores])
    ordered = np.sort(outside, axis=1)
    mine, others = _as_high(inside, ordered), _as_high(outside, ordered)
    # A non-member counts itself among those that score as high; a member does not, so add one.
    places, m = mine + 1, len(theirs)
    key, other_keys = _key(places, m), np.sort(_key(others, m))
    p = (1 + np.searchsorted(other_keys, key, side="right")) / (m + 1)
    chance = _by_chance(p)
    order = np.lexsort((-_margin(inside, ordered), chance))
    exposed = chance <= _LEVEL
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
                by_chance=float(chance[i]),
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
    """How many non-members score as high or higher, by attack and record."""
    return np.stack([len(o) - np.searchsorted(o, s, side="left") for s, o in zip(scores, ordered, strict=True)])


def _key(places: Ints, m: int) -> Ints:
    """One number that orders records by their best rank, then by the sum of all ranks."""
    return np.asarray(places.min(axis=0) * (len(places) * (m + 1) + 1) + places.sum(axis=0), dtype=np.int64)


def _by_chance(p: Floats) -> Floats:
    """Benjamini and Hochberg's adjusted p-values, which never decrease down the list."""
    order = np.argsort(p, kind="stable")
    raised = p[order] * len(p) / np.arange(1, len(p) + 1)
    out = np.empty_like(raised)
    out[order] = np.minimum(1.0, np.minimum.accumulate(raised[::-1])[::-1])
    return out


def _margin(inside: Floats, ordered: Floats) -> Floats:
    """How far beyond all non-members, in units of their interquartile range; only used to order ties."""
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = ordered[:, (3 * len(ordered[0])) // 4] - ordered[:, len(ordered[0]) // 4]
        beyond = (inside - ordered[:, -1:]) / middle[:, None]
    return np.asarray(np.nan_to_num(beyond, nan=0.0).max(axis=0))


def _advice(exposed: npt.NDArray[np.bool_], members: EmbeddingSet) -> list[str]:
    """What to do about each record, as a key of `_ADVICE`."""
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
            out[i] = "subject"
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
        f"{record.by_chance:.4g}",
        record.advice,
    )
