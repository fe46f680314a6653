"""Records and released vectors in one space and on one scale, as attacks compare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError
from locum.metrics import feature_scale
from locum.release import Release
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.floating[Any]]
# The control compares two halves with two records each.
LEAST_NON_MEMBERS = 4


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Members, non-members and released vectors, with each feature divided by its `scale`."""

    inside: Floats
    outside: Floats
    samples: Floats
    scale: Floats

    @property
    def records(self) -> Floats:
        """Members, then non-members, in one table."""
        return np.concatenate([self.inside, self.outside])


def make_view(
    release: Release, members: EmbeddingSet, non_members: EmbeddingSet, samples: int, rng: np.random.Generator
) -> View:
    """All three in the release's space, on the scale of members and non-members together.

    A decoder gives `samples` draws, a fixed table all its rows. Sets that share a subject or many records are an
    error: members among the non-members would make any release look harmless.
    """
    inside, outside = checked_vectors(release, members, non_members)
    scale = feature_scale(np.concatenate([inside, outside]))
    n = None if release.manifest.kind == "data" else samples
    drawn, _ = release.sample(n, random_state=rng, as_frame=False)
    return View(inside / scale, outside / scale, drawn / scale, scale)


def checked_vectors(release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> tuple[Floats, Floats]:
    """Vectors of both sets in the release's space, after checks that the sets can be compared."""
    if len(members) < 2 or len(non_members) < LEAST_NON_MEMBERS:
        raise DataError(
            f"An attack needs at least 2 members and {LEAST_NON_MEMBERS} non-members; "
            f"got {len(members)} and {len(non_members)}."
        )
    if members.subject is not None and non_members.subject is not None:
        shared = len(np.intersect1d(members.subject, non_members.subject))
        if shared:
            raise DataError(
                f"{shared} subjects are both members and non-members. Give non-members of other subjects."
            )
    inside, outside = release.transform(members.X), release.transform(non_members.X)
    known = {row.tobytes() for row in inside + np.float32(0)}
    copies = sum(row.tobytes() in known for row in outside + np.float32(0))
    if copies > 0.05 * len(non_members):
        raise DataError(
            f"{copies} of {len(non_members)} non-members equal a member. Give records that the fit did not use: "
            "`fit --drop-duplicates` leaves copies out, and so does `locum.data.copies_of` in Python."
        )
    return inside, outside


def one_per_subject(data: EmbeddingSet, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Positions of one random record per subject: several records of one subject are not independent."""
    if data.subject is None:
        return np.arange(len(data))
    order = rng.permutation(len(data))
    _, first = np.unique(data.subject[order], return_index=True)
    return np.sort(order[first])


def principal_axes(
    X: Floats, dim: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and matrix that map vectors to at most `dim` principal components of `X`, each with variance 1."""
    from sklearn.utils.extmath import randomized_svd

    rows = X[rng.permutation(len(X))[:2000]].astype(np.float64)
    mean = rows.mean(axis=0)
    dim = max(1, min(dim, X.shape[1], len(rows) - 1))
    _, values, axes = randomized_svd(rows - mean, dim, random_state=int(rng.integers(2**31)))
    kept = values > 1e-6 * max(float(values[0]), 1e-300)
    if not kept.any():
        return mean, np.zeros((X.shape[1], 1))
    return mean, axes[kept].T * (np.sqrt(len(rows) - 1) / values[kept])
