"""What sites sum together under masks: the public query of each sum, who chooses the next one, and who answers.

A program is the coordinator's: it says what to query next and takes totals. `SiteQueries` is a site's: it computes
its exact sums. A query is public; it follows from totals that were opened before.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from locum.data import Reference
from locum.errors import FormatError
from locum.federated.protocol import Request, Tensors
from locum.federated.settings import FederationSettings
from locum.federated.terms import requested_sums
from locum.generate.private import (
    FIRST,
    GRADIENT_STEP,
    Descent,
    HeadQuery,
    Shares,
    SoftmaxRule,
    exact_query,
)
from locum.mechanisms import ExactSums
from locum.types import EmbeddingSet

Array = npt.NDArray[np.float64]
# "statistics": the class statistics of mode "sums". The others are those of a private head, in their order.
Kind = Literal["statistics", "first", "classes", "gradient"]
_TENSORS: dict[str, tuple[str, ...]] = {
    "statistics": (),
    "first": (),
    "classes": ("center",),
    "gradient": ("center", "weights", "offsets"),
}
# Far beyond what an honest coordinator sends. Within these bounds nothing overflows, whatever the records are: a site
# that failed for some records, and answered for others, would tell about them without noise and without payment.
_LARGEST, _CLIPS, _LEAST_SHARE = 1e100, (1e-6, 1e6), 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One sum over all sites: what is summed, and with which share of the precision that sites pay for.

    Parameters
    ----------
    kind
        What is summed.
    share
        The share of the precision, above 0 and at most 1.
    clip
        For "gradient": the bound on the length of a unit's gradient.
    tensors
        For "classes" the `center`; for "gradient" also `weights` and `offsets` of the rule.
    """

    kind: Kind
    share: float
    clip: float = 1.0
    tensors: Tensors = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """As part of a request, without the tensors."""
        return {"query": self.kind, "share": self.share, "clip": self.clip}

    def digest(self) -> bytes:
        """SHA-256 of all of it: sites whose queries differ get masks that do not cancel."""
        found = hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode())
        for name, value in sorted(self.tensors.items()):
            found.update(f"\n{name} {value.shape}\n".encode())
            found.update(np.ascontiguousarray(value, dtype="<f8").tobytes())
        return found.digest()

    def size(self, settings: FederationSettings) -> int:
        """How many numbers are summed."""
        return len(self.steps(settings))

    def steps(self, settings: FederationSettings) -> Array:
        """The step of the grid of each number."""
        classes, d = len(settings.classes), settings.dim
        if self.kind == "statistics":
            return requested_sums(settings).steps(classes, d)
        return FIRST.steps(classes, d) if self.kind == "first" else np.full(classes * d, GRADIENT_STEP)


def read_query(request: Request, settings: FederationSettings) -> Query:
    """The query of a request. Anything is refused that an honest coordinator would not send."""
    kind, share, clip = (request.facts.get(name) for name in ("query", "share", "clip"))
    classes, d = len(settings.classes), settings.dim
    shapes = {"center": (d,), "weights": (classes, d), "offsets": (classes,)}
    allowed = ("statistics",) if settings.mode == "sums" else get_args(Kind)[1:]
    if kind not in allowed or not isinstance(share, float) or not isinstance(clip, float):
        raise FormatError("A request for a sum must name a query of these terms, its share and its clip.")
    if not _LEAST_SHARE <= share <= 1 or not _CLIPS[0] <= clip <= _CLIPS[1]:
        raise FormatError(
            f"A request for a sum needs a share from {_LEAST_SHARE:g} to 1 and a clip from {_CLIPS[0]:g} to "
            f"{_CLIPS[1]:g}."
        )
    wanted = {name: shapes[name] for name in _TENSORS[kind]}  # type: ignore[index]
    if {name: tuple(value.shape) for name, value in request.tensors.items()} != wanted or not all(
        value.dtype == np.float64 and (np.abs(value) <= _LARGEST).all() for value in request.tensors.values()
    ):
        raise FormatError("A request for a sum has tensors of wrong names, shapes or types, or too large numbers.")
    return Query(kind, share, clip, dict(request.tensors))  # type: ignore[arg-type]


class HeadProgram:
    """A private head by gradient steps; all of it is public."""

    def __init__(self, settings: FederationSettings, noise: float) -> None:
        self.descent = Descent(noise, len(settings.classes), settings.dim)
        self._totals: list[Array] = []

    @property
    def done(self) -> bool:
        """Whether nothing is left to query."""
        return self.descent.done

    @property
    def sums(self) -> int:
        """How many sums there will be; before the first one, the two that are certain."""
        return 2 + (0 if self.descent.schedule is None else self.descent.schedule.steps)

    def query(self) -> Query:
        """The next query of the descent."""
        descent = self.descent
        if descent.taken == 0:
            return Query("first", float(descent.share))
        if descent.taken == 1:
            return Query("classes", float(descent.share), tensors={"center": descent.center})
        rule = descent.rule
        tensors = {"center": descent.center, "weights": rule.weights, "offsets": rule.offsets}
        return Query("gradient", float(descent.share), float(descent.clip), tensors)

    def take(self, total: Array) -> None:
        """Use a noisy total."""
        self.descent.take(total)
        self._totals.append(total)

    @property
    def transcript(self) -> npt.NDArray[np.float32]:
        """All totals so far, as a release holds them."""
        return np.concatenate(self._totals).astype(np.float32)


class StatisticsProgram:
    """Class statistics in one sum; all of it is public."""

    def __init__(self) -> None:
        self.done, self.sums = False, 1

    def query(self) -> Query:
        """The only query."""
        return Query("statistics", 1.0)

    def take(self, total: Array) -> None:
        """There is nothing more to ask."""
        self.done = True


def program_for(settings: FederationSettings, noise: float) -> HeadProgram | StatisticsProgram:
    """The program of a federation with masked sums, whose totals have noise of `noise` at full precision."""
    return HeadProgram(settings, noise) if settings.mode == "head" else StatisticsProgram()


class SiteQueries:
    """A site's records, prepared once; each query gives its exact sums. Private.

    Every sum moves by at most 1 in L2 if one unit is added or removed: docs/explain/proofs.md, sections 1 and 2.
    """

    def __init__(
        self,
        records: EmbeddingSet,
        subject: npt.NDArray[np.int64] | None,
        settings: FederationSettings,
        reference: Reference,
    ) -> None:
        self._records, self._subject, self._settings, self._reference = records, subject, settings, reference
        self._head: HeadQuery | None = None
        self._center: Array | None = None

    @property
    def clipped(self) -> float | None:
        """The share of units whose last gradient was cut to its bound; it stays at the site."""
        return None if self._head is None else self._head.clipped

    def sums(self, query: Query) -> ExactSums:
        """The exact sums of this site for a query; they leave only with noise and masks."""
        classes = len(self._settings.classes)
        if query.kind == "statistics":
            shares: Shares = requested_sums(self._settings)
            return exact_query(self._records.X, self._records.y, self._subject, classes, self._reference, shares)
        if self._head is None:
            self._head = HeadQuery(self._records.X, self._records.y, self._subject, classes, self._reference)
        if query.kind == "first":
            return self._head.first(FIRST)
        center = query.tensors["center"]
        if self._center is None or not np.array_equal(center, self._center):
            self._head.recenter(center)
            self._center = np.array(center)
        if query.kind == "classes":
            return self._head.class_sums()
        return self._head.gradient(SoftmaxRule(query.tensors["weights"], query.tensors["offsets"]), query.clip)
