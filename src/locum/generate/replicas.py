"""An offline replica: a fixed table of samples, optionally kept at a distance from the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError, PrivacyError
from locum.metrics import nearest
from locum.release import Release, RowsSpec, build_release

MAX_ROUNDS = 50


def replica(
    release: Release,
    n: int | None = None,
    *,
    per_class: Mapping[Any, int] | None = None,
    min_distance: float | None = None,
    real: npt.ArrayLike | None = None,
    random_state: int | None = None,
) -> Release:
    """An offline replica: a release of kind "data" that holds samples of another release.

    With `min_distance`, samples closer than that to a vector of `real` are drawn again. That depends on the records:
    it leaves a hole around each of them, and anyone who can draw often from the decoder sees the holes. Use it only
    for a replica whose decoder is not released. The number of redrawn samples is neither returned nor written. A
    differentially private release refuses it.

    Parameters
    ----------
    release
        The release to sample from.
    n
        How many samples; labels are drawn by the released prior.
    per_class
        How many of each label, instead of `n`.
    min_distance
        The smallest distance, in the release's space, from a sample to a vector of `real`; None: no limit.
    real
        The real vectors (m, d), for `min_distance` only. Private.
    random_state
        Seed; None: the operating system's entropy.

    Returns
    -------
    Release
        A fixed table with the claim of `release`, and the holes under `not_covered`.

    Raises
    ------
    PrivacyError
        If `min_distance` is given for a differentially private release.
    DataError
        If samples are still too close after 50 rounds.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian, replica
    >>> s = load_sample("breast-cancer")
    >>> table = replica(ClassGaussian().fit(s.X, s.y).release(no_dp=True), 100, random_state=0)
    >>> table.manifest.kind, table.sample()[0].shape
    ('data', (100, 30))
    """
    if (min_distance is None) != (real is None):
        raise ConfigError("`min_distance` and `real` belong together: give both, or neither.")
    if min_distance is not None and not 0 < min_distance < np.inf:
        raise ConfigError(f"`min_distance` must be above 0; got {min_distance!r}.")
    if min_distance is not None and release.claim.dp is not None:
        raise PrivacyError(
            "`min_distance` depends on records and no budget pays for it: sample a differentially private release "
            "without it."
        )
    rng = np.random.default_rng(random_state)
    drawn = release.sample_set(n, per_class=per_class, random_state=rng)
    X, y = drawn.X.copy(), drawn.y
    if min_distance is not None:
        _push_away(release, X, y, release.transform(np.asarray(real)), min_distance, rng)
    # What the decoder's weights remember can show in samples too.
    not_covered = release.claim.not_covered
    if min_distance is not None:
        not_covered += (
            f"holes of radius {min_distance:g} around the records: anyone who also has the decoder can find them",
        )
    claim = replace(release.claim, not_covered=not_covered)
    manifest = release.manifest
    return build_release(
        generator=manifest.generator,
        settings={**manifest.settings, "min_distance": min_distance},
        embedding=manifest.embedding,
        classes=manifest.classes,
        class_names=manifest.class_names,
        joint=tuple(((c,), float(p)) for c, p in _class_prior(manifest.joint).items()),
        space=manifest.space,
        decoder=RowsSpec(),
        tensors={"X": X, "codes": y.reshape(-1, 1)},
        claim=claim,
    )


def _push_away(
    release: Release,
    X: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    real: npt.NDArray[np.float32],
    min_distance: float,
    rng: np.random.Generator,
) -> None:
    """Redraw samples that lie too close, keeping their labels; in place."""
    if release.manifest.kind == "data":
        raise ConfigError("`min_distance` needs a decoder to draw from again; this release is a fixed table.")
    near = np.flatnonzero(nearest(X, real)[0] < min_distance)
    for _ in range(MAX_ROUNDS):
        if not len(near):
            return
        wanted = {release.manifest.classes[c]: int(k) for c, k in enumerate(np.bincount(y[near])) if k}
        fresh = release.sample_set(per_class=wanted, random_state=rng)
        order = np.argsort(fresh.y, kind="stable")
        X[near[np.argsort(y[near], kind="stable")]] = fresh.X[order]
        near = near[nearest(X[near], real)[0] < min_distance]
    raise DataError(
        f"Samples are still closer than min_distance={min_distance:g} to real vectors after {MAX_ROUNDS} rounds. "
        "Lower it: nearly all samples of some class are that close."
    )


def _class_prior(joint: tuple[tuple[tuple[int, ...], float], ...]) -> dict[int, float]:
    prior: dict[int, float] = {}
    for codes, p in joint:
        prior[codes[0]] = prior.get(codes[0], 0.0) + p
    return prior
