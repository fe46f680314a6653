"""What an over-sampler draws from: a generator fitted at home, or somebody else's release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from understudy.errors import ConfigError, DataError, PrivacyError
from understudy.generate import BaseGenerator, ClassGaussian, KSame, VAEGenerator
from understudy.rebalance.means import shrunk_means
from understudy.release import Release, RowsSpec, to_space

__all__ = ["Source", "fitted_source", "release_source"]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Something to sample, what it calls each class, and by how much to move what it gives for a class."""

    origin: BaseGenerator | Release
    labels: Sequence[Any]
    shifts: npt.NDArray[np.float32] | None = None

    @property
    def variance(self) -> float:
        """The sampling variance that it has by itself."""
        owner: Any = self.origin.manifest.decoder if isinstance(self.origin, Release) else self.origin
        return float(getattr(owner, "variance", 1.0))

    def draw(self, code: int, n: int, variance: float | None, seed: int) -> npt.NDArray[np.float32]:
        """`n` fresh records of the class with this code."""
        X, _ = self.origin.sample(per_class={self.labels[code]: n}, variance=variance, random_state=seed)
        if self.shifts is None or isinstance(self.origin, Release):
            return X
        return to_space(X + self.shifts[code], self.origin.space)


def fitted_source(
    generator: Any, X: npt.NDArray[Any], codes: npt.NDArray[np.int64], seed: int, *, shrink_means: bool
) -> Source:
    """A copy of `generator` (None: a class Gaussian), fitted on all records; `seed` serves if it has none."""
    if generator is not None and not isinstance(generator, BaseGenerator):
        raise ConfigError(
            f"`generator` must be None, a generator or an opened release; got {type(generator).__name__}. "
            "understudy.load(path) opens one."
        )
    if isinstance(generator, KSame | VAEGenerator):
        why = "gives each of its rows once" if isinstance(generator, KSame) else "knows no classes"
        raise ConfigError(
            f"{type(generator).__name__} cannot fill up a class: it {why}. Use ClassGaussian or CVAEGenerator."
        )
    copy: BaseGenerator = ClassGaussian() if generator is None else clone(generator)
    if copy.privacy is not None:
        raise PrivacyError(
            "A promise of privacy would be paid for and lost, since the result holds the real records: leave "
            "`privacy` out, or give a release that was made with it."
        )
    _check_space(X, copy.space, "`generator`")
    if copy.random_state is None:
        copy.set_params(random_state=seed)
    # Codes stand in for labels: generators take whole numbers and text alone.
    shifts = shrunk_means(X, codes).shifts.astype(np.float32) if shrink_means else None
    return Source(copy.fit(X, codes), range(int(codes.max()) + 1), shifts)


def release_source(
    release: Release, X: npt.NDArray[Any], classes: npt.NDArray[Any], needed: npt.NDArray[np.bool_]
) -> Source:
    """`release`, if its vectors fit X and it has each class that is needed, by label or by name.

    That a label means the same on both sides is taken on trust.
    """
    manifest = release.manifest
    if isinstance(manifest.decoder, RowsSpec):
        raise ConfigError("This release holds fixed rows and cannot fill up a class: give one that holds a decoder.")
    if manifest.embedding.dim != X.shape[1]:
        raise DataError(
            f"The release's vectors have {manifest.embedding.dim} features and X has {X.shape[1]}: embed X with the "
            "backbone that the release names, or choose another release."
        )
    _check_space(X, manifest.space, "the release")
    by_name = dict(zip(manifest.class_names, manifest.classes, strict=True))
    labels: list[Any] = []
    for c, wish in zip(classes.tolist(), needed, strict=True):
        # True and 1.0 are the class 1, as for a generator.
        key = int(c) if isinstance(c, bool | float) else c
        label = key if key in manifest.classes else by_name.get(str(key))
        if wish and label is None:
            raise DataError(
                f"The release has no class {key!r}; it has {list(manifest.classes)[:10]}. Choose another release, or "
                "leave the class out of `sampling_strategy`."
            )
        labels.append(label)
    return Source(release, labels)


def _check_space(X: npt.NDArray[Any], space: str, owner: str) -> None:
    """Generated records must live where the real ones do."""
    # Half precision rounds to about a thousandth.
    if space != "raw" and not np.allclose(to_space(X.astype(np.float32), space), X, rtol=1e-2, atol=1e-6):
        raise DataError(f"Vectors of {owner} live in the space {space!r} and those of X do not: bring X there first.")
