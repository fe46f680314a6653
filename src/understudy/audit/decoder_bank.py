"""Network decoders in torch, many of one shape at once: what searches for latents, or learns from samples, needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from understudy.release.manifest import Linear, Manifest, NetworkSpec, Residual

__all__ = ["DecoderBank"]


@dataclass(frozen=True, slots=True, eq=False)
class DecoderBank:
    """`k` decoders with one program; every tensor has a first axis of length `k`.

    It gives what `understudy.release.decoders` gives in numpy, and gradients.
    """

    spec: NetworkSpec
    tensors: Mapping[str, Tensor]
    # Widths of the one-hot condition: classes, then each further one; none where labels play no part.
    sizes: tuple[int, ...]
    space: str

    @classmethod
    def stack(
        cls, manifest: Manifest, spec: NetworkSpec, tensors: Sequence[Mapping[str, npt.NDArray[Any]]]
    ) -> DecoderBank:
        """The decoders of several releases of one shape, or of one."""
        sizes = (len(manifest.classes), *(len(c.values) for c in manifest.conditions)) if spec.conditional else ()
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
        """What latents `(k, rows, latent)` stand for, before noise and before the release's space."""
        hot = self.condition(codes)
        x = torch.cat([z, hot.expand(len(z), -1, -1)], dim=2) if hot.shape[1] else z
        offset = self.tensors["offset"]
        base = offset if offset.shape[1] == 1 else offset[:, codes[:, 0]]
        return torch.addcmul(base, _run(self.spec.program, self.tensors, x), self.tensors["span"][:, None])

    def means(self, z: Tensor, codes: Tensor) -> Tensor:
        """The same in the release's space."""
        return self.to_space(self.decode(z, codes))

    def samples(self, z: Tensor, codes: Tensor, coins: torch.Generator) -> Tensor:
        """Vectors as a receiver draws them from these latents: with the decoder's noise, in the release's space."""
        x = self.decode(z, codes)
        if self.spec.noise != "none":
            x = x + torch.randn(x.shape, generator=coins) * self.tensors["noise_scale"][:, None]
        if self.spec.noise == "low-rank":
            factor = self.tensors["noise_factor"]
            x = torch.baddbmm(x, torch.randn((*x.shape[:2], factor.shape[1]), generator=coins), factor)
        return self.to_space(x)

    def to_space(self, x: Tensor) -> Tensor:
        """As `understudy.release.to_space`."""
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
