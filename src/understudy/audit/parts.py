"""What a white-box attacker reads off a release: its decoders, and records as these decoders know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.audit.view import check_apart, spread
from understudy.errors import DataError
from understudy.release import Release
from understudy.release.decoders import part_tensors
from understudy.release.manifest import GaussianSpec, MixtureSpec, NetworkSpec, RowsSpec
from understudy.types import EmbeddingSet

__all__ = ["Part", "feature_weights", "parts_of", "record_codes", "records_of"]

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SPREAD_SAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One decoder of a release; a release that is no mixture has one part, of weight 1.

    `order` gives each class's place among the part's own classes, `log_weights` how often a class uses the part.
    """

    spec: NetworkSpec | GaussianSpec
    tensors: Mapping[str, npt.NDArray[Any]]
    order: Codes
    log_weights: Floats

    def own(self, codes: Codes) -> Codes:
        """Codes as this part knows them: the class in its own order, conditions as they are."""
        out = codes.copy()
        out[:, 0] = self.order[codes[:, 0]]
        return out


def parts_of(release: Release) -> tuple[Part, ...]:
    """The decoders of a release; none, where it is a fixed table."""
    spec, classes = release.manifest.decoder, len(release.manifest.classes)
    if isinstance(spec, RowsSpec):
        return ()
    plain = np.arange(classes)
    if not isinstance(spec, MixtureSpec):
        return (Part(spec, release.tensors, plain, np.zeros(classes)),)
    with np.errstate(divide="ignore"):
        weights = np.log(release.tensors["weights"].astype(np.float64))
    return tuple(
        Part(part.decoder, part_tensors(release.tensors, i), np.asarray(part.order or plain), weights[i])
        for i, part in enumerate(spec.parts)
    )


def record_codes(release: Release, data: EmbeddingSet) -> Codes:
    """Class, then conditions, of each record, by the order that the release gives them."""
    manifest = release.manifest
    spec = manifest.decoder
    if isinstance(spec, NetworkSpec) and not spec.conditional and len(manifest.classes) == 1:
        # What it gives is of one class that stands for all: labels play no part.
        columns = [np.zeros(len(data), dtype=np.int64)]
    else:
        columns = [data.with_classes(release.info.class_names).y]
    for condition in manifest.conditions:
        if condition.name not in data.attributes:
            raise DataError(
                f"The release is conditioned on {condition.name!r}, which the records do not have: "
                "give members and non-members with that attribute."
            )
        place = {value: i for i, value in enumerate(condition.values)}
        found = [place.get(str(value), -1) for value in data.attributes[condition.name].tolist()]
        if min(found) < 0:
            raise DataError(
                f"A record has a value of {condition.name!r} that the release does not know: leave such records out."
            )
        columns.append(np.asarray(found, dtype=np.int64))
    return np.stack(columns, axis=1)


def records_of(
    release: Release, members: EmbeddingSet, non_members: EmbeddingSet
) -> tuple[npt.NDArray[np.float32], Codes]:
    """Vectors in the release's space and codes of both sets in one table, members first."""
    X = np.concatenate(check_apart(release, members, non_members)).astype(np.float32, copy=False)
    return X, np.concatenate([record_codes(release, members), record_codes(release, non_members)])


def feature_weights(release: Release, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """One factor a feature that brings a decoder's own samples to one spread: no record has a say in it."""
    return np.asarray(1 / spread(release.sample(_SPREAD_SAMPLES, random_state=rng)[0]), dtype=np.float32)
