"""Shadow generators: the statistic of each record under many generators fitted with and without it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from locum._threads import one_thread
from locum.audit.decoder import records_of
from locum.audit.statistics import Scores
from locum.errors import CheckpointError, ConfigError, NotApplicableError
from locum.io import write_bytes
from locum.release import Release
from locum.types import EmbeddingSet, Progress, no_progress

Floats = npt.NDArray[np.float64]
FORMAT = "locum-shadows-2"


@dataclass(frozen=True, slots=True, eq=False)
class ShadowState:
    """The statistic of each record under the release (`own`) and under the shadows so far (`found`).

    Kept in a file that is written atomically, or only in memory if there is no path. A file with another key is
    refused.
    """

    path: Path | None
    key: str
    own: Floats
    found: Floats

    @classmethod
    def read(cls, path: Path | None, key: str) -> Self | None:
        """The state of an earlier run, if there is one."""
        if path is None or not path.is_file():
            return None
        try:
            with safe_open(path, framework="numpy") as f:
                meta = f.metadata() or {}
                own, found = f.get_tensor("own"), f.get_tensor("found")
        except PermissionError:
            raise CheckpointError(f"{path} cannot be read by this user. Change its permissions.") from None
        except (OSError, ValueError, SafetensorError):
            raise CheckpointError(f"{path} is damaged, or does not hold shadows. Remove it.") from None
        if meta.get("format") != FORMAT or meta.get("key") != key:
            raise CheckpointError(
                f"{path} holds shadows of other data, settings or seeds. Give another path, or remove it."
            )
        if own.dtype != np.float64 or found.dtype != np.float64 or found.shape[1:] != own.shape:
            raise CheckpointError(f"{path} is damaged, or does not hold shadows. Remove it.")
        return cls(path, key, own, found)

    @classmethod
    def begin(cls, path: Path | None, key: str, own: Floats) -> Self:
        """No shadow yet; written at once, so that a wrong path is reported before the work."""
        return cls(path, key, own, np.empty((0, len(own))))._written()

    def with_more(self, found: Floats) -> Self:
        """The state with more shadows, on disk before any other work."""
        return replace(self, found=np.concatenate([self.found, found]))._written()

    def _written(self) -> Self:
        if self.path is not None:
            tensors = {"own": np.ascontiguousarray(self.own), "found": np.ascontiguousarray(self.found)}
            write_bytes(str(self.path), save(tensors, metadata={"format": FORMAT, "key": self.key}))
        return self


Masks = npt.NDArray[np.bool_]
_LEAST_SHADOWS, _MOST_SHADOWS = 4, 10_000


class ShadowEngine(Protocol):
    """Where shadows are trained, if not in this process."""

    def train(
        self, release: Release, pool: Pool, blocks: Sequence[tuple[Masks, list[int]]], seconds: float | None
    ) -> Iterator[Floats]:
        """The statistic of all records under the shadows of each block (masks and seeds), in order."""
        ...


class ShadowFamily(Protocol):
    """How shadows of one release are trained, and the statistic of every record of the pool under each."""

    # How many are trained at once.
    block: int

    def own(self) -> Floats:
        """The statistic of each record under the release itself."""
        ...

    def train(self, inside: Masks, seeds: Sequence[int]) -> Floats:
        """Train one shadow on the records of each row of `inside`; return the statistic of all records under each."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Members and non-members in one table, sorted and without duplicates, so that nothing shows which is which.

    `unit` numbers what a shadow takes or leaves together: the records of a subject if subjects are known, otherwise
    single records. `place` gives the row of each record in the given order, members first.
    """

    X: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    members: int

    @classmethod
    def of(cls, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> Pool:
        """Records in the release's space; copies count once, since they would be in and out at the same time."""
        X, codes = records_of(release, members, non_members)
        # Adding 0 turns -0 into 0.
        rows = np.concatenate([X + np.float32(0), codes.astype(np.float32)], axis=1)
        _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        unit = np.arange(len(first))
        if members.subject is not None and non_members.subject is not None:
            subjects = np.concatenate([members.subject.astype(np.str_), non_members.subject.astype(np.str_)])
            unit = np.unique(subjects[first], return_inverse=True)[1]
        return cls(X[first], codes[first], unit.astype(np.int64), place.reshape(-1), len(members))

    def halves(self, shadows: int, seed: int) -> Masks:
        """Random halves of the pool, `(shadows, records)`; every second one is the complement of the one before.

        Each class is halved too, so that no shadow lacks a class with two or more units.
        """
        _, first = np.unique(self.unit, return_index=True)
        classes = self.codes[first, 0]
        out = np.empty((shadows, len(self.X)), dtype=bool)
        for pair in range(shadows // 2):
            rng = np.random.default_rng([seed, pair])
            inside = np.zeros(len(first), dtype=bool)
            spare = int(rng.integers(2))
            for c in np.unique(classes):
                units = rng.permutation(np.flatnonzero(classes == c))
                # Odd units go to the two halves in turn, so that the halves stay equal in size.
                inside[units[: (len(units) + spare) // 2]] = True
                spare ^= len(units) % 2
            out[2 * pair] = inside[self.unit]
            out[2 * pair + 1] = ~out[2 * pair]
        return out

    def scores(self, values: Floats, notes: tuple[str, ...] = ()) -> Scores:
        """Values per row of the pool as scores per record, in the given order."""
        found = values[self.place]
        return Scores(found[: self.members], found[self.members :], notes)


@dataclass(frozen=True, slots=True, eq=False)
class ShadowScores:
    """The statistic of each record of a pool under the release (`own`) and under each shadow.

    `inside` says which shadows were trained on the record. NaN if a shadow does not have the record's class.
    """

    own: Floats
    shadows: Floats
    inside: Masks

    def centered(self) -> ShadowScores:
        """Minus the median of each generator, which depends on how many records it was fitted on."""
        return ShadowScores(
            self.own - np.nanmedian(self.own),
            self.shadows - np.nanmedian(self.shadows, axis=1, keepdims=True),
            self.inside,
        )

    def mean(self, side: Masks) -> Floats:
        """Mean over the shadows that `side` selects; NaN if there are none."""
        known = side & ~np.isnan(self.shadows)
        count = known.sum(axis=0)
        total = np.where(known, self.shadows, 0).sum(axis=0)
        return np.where(count, total / np.maximum(count, 1), np.nan)


def no_shadows(release: Release) -> str | None:
    """The reason why shadows of a release cannot be trained; None if they can.

    What a release claims plays no part: a forged claim must not switch an attack off. Shadows of a private generator
    are trained without noise, which makes the attack weaker, not wrong.
    """
    manifest = release.manifest
    if manifest.generator not in ("ClassGaussian", "CVAEGenerator", "VAEGenerator") or manifest.kind == "data":
        return f"no shadows can be trained for a {manifest.kind} release of {manifest.generator}"
    return None


def enough_shadows(found: ShadowScores, name: str, wanted: int) -> tuple[str, ...]:
    """Notes on how many shadows there was time for; NotApplicableError if they are too few to be of use."""
    count = len(found.shadows)
    if count < min(_LEAST_SHADOWS, wanted):
        raise NotApplicableError(
            name, f"there was time for {count} shadows, and it needs {_LEAST_SHADOWS}; allow more minutes"
        )
    return () if count == wanted else (f"there was time for {count} of {wanted} shadows",)


def check_shadows(shadows: int) -> None:
    """Raise unless this many shadows can be trained, in pairs."""
    if not _LEAST_SHADOWS <= shadows <= _MOST_SHADOWS or shadows % 2:
        raise ConfigError(
            f"`shadows` must be an even number, {_LEAST_SHADOWS} to {_MOST_SHADOWS}; got {shadows!r}. 64 is usual."
        )


def shadow_scores(
    release: Release,
    pool: Pool,
    shadows: int,
    seed: int,
    *,
    state: str | Path | None = None,
    seconds: float | None = None,
    engine: ShadowEngine | None = None,
    progress: Progress | None = None,
) -> ShadowScores:
    """Train `shadows` generators like the release's on random halves of the pool, and score every record with each.

    The settings are those in the manifest. The halves have as many records as the release was fitted on only if there
    are as many members as non-members. `state` names a private file (mode 0600): after an interruption the same call
    continues from it, and another attack on the same release and records reuses its shadows. A file for other data,
    settings or seeds is refused. With `seconds`, training stops at the last pair that should still fit: fewer shadows
    come back, at least one pair, which alone can take longer. `engine` trains them elsewhere.

    Each product uses one thread: with more, the last bits would depend on the machine, and the small products of
    shadows would wait for threads most of the time.
    """
    check_shadows(shadows)
    if reason := no_shadows(release):
        raise ConfigError(f"There are no shadows here: {reason}.")
    family = make_family(release, pool.X, pool.codes)
    path, key = None if state is None else Path(state), _key(release, pool, seed)
    with one_thread():
        done = ShadowState.read(path, key) or ShadowState.begin(path, key, family.own())
    report = progress or no_progress
    report(min(len(done.found), shadows), shadows)
    halves = pool.halves(shadows, seed)
    begun, before = time.monotonic(), len(done.found)
    if engine is not None and before < shadows:
        # The blocks of one process.
        cuts = [*range(before, shadows, family.block), shadows]
        work = [(halves[a:b], [_shadow_seed(seed, i) for i in range(a, b)]) for a, b in pairwise(cuts)]
        for more in engine.train(release, pool, work, seconds):
            done = done.with_more(more)
            report(len(done.found), shadows)
    while engine is None and len(done.found) < shadows:
        size = family.block
        if seconds is not None:
            trained, spent = len(done.found) - before, time.monotonic() - begun
            # One pair shows how long the others will take.
            room = 2 if not trained else int((seconds - spent) / max(spent / trained, 1e-9)) // 2 * 2
            size = min(size, room)
            if size < 2:
                break
        block = slice(len(done.found), min(len(done.found) + size, shadows))
        seeds = [_shadow_seed(seed, i) for i in range(block.start, block.stop)]
        with one_thread():
            more = family.train(halves[block], seeds)
        done = done.with_more(more)
        report(len(done.found), shadows)
    found = done.found[:shadows]
    return ShadowScores(done.own, found, halves[: len(found)])


def make_family(release: Release, X: npt.NDArray[np.float32], codes: npt.NDArray[np.int64]) -> ShadowFamily:
    """How shadows of a release are trained on the records of a pool."""
    if release.manifest.generator == "ClassGaussian":
        from locum.audit.shadows.gaussian import GaussianShadows

        with one_thread():
            return GaussianShadows(release, X, codes)
    from locum.audit.shadows.cvae import CVAEShadows

    with one_thread():
        return CVAEShadows(release, X, codes)


def _shadow_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1, np.uint32)[0])


def _key(release: Release, pool: Pool, seed: int) -> str:
    """A hash of all that the shadows depend on: release, records, units and seed."""
    # Leave the files out: a release must have the same key before and after it is saved.
    manifest = release.manifest.model_copy(update={"files": {}})
    digest = hashlib.sha256(json.dumps([FORMAT, seed, manifest.dumps()]).encode())
    tensors = [release.tensors[name] for name in sorted(release.tensors)]
    for array in (*tensors, pool.X, pool.codes, pool.unit):
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
