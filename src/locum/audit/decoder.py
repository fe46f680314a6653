"""Decoders in torch, many of one shape at once, for attacks that need densities or gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import torch
from torch import Tensor
from torch.nn import functional

from locum.audit.view import checked_vectors
from locum.errors import DataError
from locum.metrics import feature_scale
from locum.release import (
    GaussianSpec,
    Linear,
    Manifest,
    MixtureSpec,
    NetworkSpec,
    Release,
    Residual,
    RowsSpec,
    part_tensors,
)
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]

# The least variance of a feature of its own, as a share of its total variance and of the median total variance: in
# a direction without variance all records off the mean would be equally impossible.
_LEAST_OWN = 1e-3
_LEAST_OF_MEDIAN = 1e-6


def gaussian_log_density(
    X: npt.NDArray[np.floating], labels: npt.NDArray[np.int64], means: Floats, factor: Floats, scale: Floats
) -> Floats:
    """Log of N(x; means[label], factor.T @ factor + diag(scale ** 2)) for each row, in float64.

    Features without variance get a little. A class with an unknown mean (NaN) gives NaN.
    """
    spread = Spread.of(factor, scale)
    gap = (X - means[labels]) / np.sqrt(spread.own)
    squares: Floats = np.einsum("ij,ij->i", gap, gap)
    if len(spread.known):
        known = gap @ (spread.known * np.sqrt(spread.own)).T
        squares = squares - np.einsum("ij,ij->i", known, known)
    out: Floats = -0.5 * (squares + spread.log_det + X.shape[1] * np.log(2 * np.pi))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A covariance of low rank plus diagonal, inverted: `diag(1 / own) - known.T @ known`.

    `own` is the variance of each feature besides the factor, `log_det` the log of the determinant, and `excess` the
    mean of total variances over own ones: how many times larger the two terms are than their difference.
    """

    own: Floats
    known: Floats
    log_det: float
    excess: float

    @classmethod
    def of(cls, factor: npt.NDArray[np.floating], scale: npt.NDArray[np.floating]) -> Spread:
        """That of `factor.T @ factor + diag(scale ** 2)`; features without variance get a little."""
        factor = factor.astype(np.float64)
        own = np.square(scale, dtype=np.float64)
        total = own + np.square(factor).sum(axis=0)
        varying = total[total > 0]
        least = np.median(varying) if len(varying) else 1
        own = np.maximum(own, np.maximum(_LEAST_OWN * total, _LEAST_OF_MEDIAN * least))
        log_det, known = float(np.log(own).sum()), factor / own
        if len(factor):
            # A matrix of the size of the factor's rank, not of the number of features.
            inner = scipy.linalg.cholesky(np.eye(len(factor)) + known @ factor.T, lower=True, check_finite=False)
            log_det += 2 * float(np.log(np.diag(inner)).sum())
            known = scipy.linalg.solve_triangular(inner, known, lower=True, check_finite=False)
        return cls(own, known, log_det, float(np.mean(total / own)))


Codes = npt.NDArray[np.int64]

_SPREAD_SAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """One decoder of a release; a release that is not a mixture has one component, of weight 1.

    `order` gives the position of each class among the component's classes, and `log_weights` the log of how often a
    class uses the component. `widths` is the manifest's: how many classes, then values of each condition.
    """

    spec: NetworkSpec | GaussianSpec
    tensors: Mapping[str, npt.NDArray[Any]]
    order: Codes
    log_weights: Floats
    widths: tuple[int, ...]

    def local(self, codes: Codes) -> Codes:
        """Codes with the class in the component's own order; conditions stay as they are."""
        out = codes.copy()
        out[:, 0] = self.order[codes[:, 0]]
        return out


def components_of(release: Release) -> tuple[Component, ...]:
    """The decoders of a release; a fixed table has none."""
    spec, widths = release.manifest.decoder, release.manifest.widths
    if isinstance(spec, RowsSpec):
        return ()
    plain = np.arange(widths[0])
    if not isinstance(spec, MixtureSpec):
        return (Component(spec, release.tensors, plain, np.zeros(widths[0]), widths),)
    with np.errstate(divide="ignore"):
        weights = np.log(release.tensors["weights"].astype(np.float64))
    return tuple(
        Component(part.decoder, part_tensors(release.tensors, i), np.asarray(part.order or plain), weights[i], widths)
        for i, part in enumerate(spec.parts)
    )


def record_codes(release: Release, data: EmbeddingSet) -> Codes:
    """The class, then the conditions, of each record, as codes of the release."""
    manifest = release.manifest
    spec = manifest.decoder
    if isinstance(spec, NetworkSpec) and not spec.conditional and len(manifest.classes) == 1:
        # The release has one class that stands for all: labels are not used.
        columns = [np.zeros(len(data), dtype=np.int64)]
    else:
        columns = [data.with_classes(release.info.class_names).y]
    for condition in manifest.conditions:
        if condition.name not in data.attributes:
            raise DataError(
                f"The release is conditioned on {condition.name!r}, which the records do not have. "
                "Give members and non-members with that attribute."
            )
        place = {value: i for i, value in enumerate(condition.values)}
        found = [place.get(str(value), -1) for value in data.attributes[condition.name].tolist()]
        if min(found) < 0:
            raise DataError(
                f"A record has a value of {condition.name!r} that the release does not know. Leave such records out."
            )
        columns.append(np.asarray(found, dtype=np.int64))
    return np.stack(columns, axis=1)


def records_of(
    release: Release, members: EmbeddingSet, non_members: EmbeddingSet
) -> tuple[npt.NDArray[np.float32], Codes]:
    """Vectors in the release's space and codes of both sets in one table, members first."""
    X = np.concatenate(checked_vectors(release, members, non_members)).astype(np.float32, copy=False)
    return X, np.concatenate([record_codes(release, members), record_codes(release, non_members)])


def feature_weights(release: Release, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """One factor per feature that scales the release's own samples; it does not depend on any record."""
    return np.asarray(
        1 / feature_scale(release.sample(_SPREAD_SAMPLES, random_state=rng, as_frame=False)[0]), dtype=np.float32
    )


@dataclass(frozen=True, slots=True, eq=False)
class DecoderBank:
    """`k` decoders with the same program; every tensor has a first axis of length `k`.

    The results are those of `locum.release.decoders` in numpy, with gradients.
    """

    spec: NetworkSpec
    tensors: Mapping[str, Tensor]
    # Widths of the one-hot condition: classes, then further conditions; empty if labels are not used.
    sizes: tuple[int, ...]
    space: str

    @classmethod
    def stack(
        cls, manifest: Manifest, spec: NetworkSpec, tensors: Sequence[Mapping[str, npt.NDArray[Any]]]
    ) -> DecoderBank:
        """The decoders of several releases of one shape, or of one."""
        sizes = manifest.widths if spec.conditional else ()
        joined = {name: torch.from_numpy(np.stack([t[name] for t in tensors])) for name in tensors[0]}
        return cls(spec, joined, sizes, manifest.space)

    def __len__(self) -> int:
        return len(self.tensors["span"])

    @property
    def latent(self) -> int:
        """Number of latents."""
        return self.spec.latent_dim

    def condition(self, codes: Tensor) -> Tensor:
        """The one-hot condition of each row, once for all decoders: `(rows, width)`."""
        hot = [functional.one_hot(codes[:, j], size).float() for j, size in enumerate(self.sizes)]
        return torch.cat(hot, dim=1) if hot else torch.zeros(len(codes), 0)

    def decode(self, z: Tensor, codes: Tensor) -> Tensor:
        """Decode latents `(k, rows, latent)`, before noise and before the release's space."""
        hot = self.condition(codes)
        x = torch.cat([z, hot.expand(len(z), -1, -1)], dim=2) if hot.shape[1] else z
        offset = self.tensors["offset"]
        base = offset if offset.shape[1] == 1 else offset[:, codes[:, 0]]
        return torch.addcmul(base, _run(self.spec.program, self.tensors, x), self.tensors["span"][:, None])

    def means(self, z: Tensor, codes: Tensor) -> Tensor:
        """Decoded latents in the release's space, without noise."""
        return self.to_space(self.decode(z, codes))

    def samples(self, z: Tensor, codes: Tensor, rng: torch.Generator) -> Tensor:
        """Vectors as a receiver samples them from these latents: with noise, in the release's space."""
        x = self.decode(z, codes)
        if self.spec.noise != "none":
            x = x + torch.randn(x.shape, generator=rng) * self.tensors["noise_scale"][:, None]
        if self.spec.noise == "low-rank":
            factor = self.tensors["noise_factor"]
            x = torch.baddbmm(x, torch.randn((*x.shape[:2], factor.shape[1]), generator=rng), factor)
        return self.to_space(x)

    def to_space(self, x: Tensor) -> Tensor:
        """As `locum.release.to_space`."""
        if self.space == "raw":
            return x
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)
        return x / length


def _run(program: Sequence[Any], tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    for op in program:
        if isinstance(op, Linear):
            x = torch.baddbmm(tensors[op.bias][:, None], x, tensors[op.weight].transpose(1, 2))
        elif isinstance(op, Residual):
            x = _run(op.body, tensors, x) + _run(op.shortcut, tensors, x)
        else:
            x = torch.relu(x) if op.op == "relu" else torch.sigmoid(x)
    return x
