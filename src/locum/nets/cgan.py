"""A conditional GAN: one network makes vectors of a class, the other tells them from real ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

# How long the critic's label is, beside vectors whose numbers are of order one. At its own length of 1 it is drowned
# by hundreds of features, and the generator never learns that classes differ.
_LABEL = 3.0


class CGAN(nn.Module):
    """Generator of `[z, condition]` to a vector, critic of `[x, condition]` to a logit: the higher, the more real.

    Vectors are to have numbers of order one. Only the critic is to see records; the generator learns from the critic.
    """

    def __init__(self, generator: nn.Sequential, critic: nn.Sequential, dim: int, latent: int) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic
        self.dim = dim
        self.latent = latent

    def generate(self, z: Tensor, condition: Tensor) -> Tensor:
        """The vectors that `z` stands for."""
        out: Tensor = self.generator(torch.cat([z, condition], dim=1))
        return out

    def join(self, x: Tensor, condition: Tensor) -> Tensor:
        """Rows as the critic takes them: vectors, then conditions that are about as long."""
        return torch.cat([x, condition * (_LABEL * self.dim**0.5)], dim=1)

    def forward(self, joined: Tensor) -> Tensor:
        """What the critic thinks of each row."""
        out: Tensor = self.critic(joined)[:, 0]
        return out


def plain_cgan(
    dim: int,
    condition: int,
    latent: int = 100,
    generator_hidden: Sequence[int] = (512, 1024),
    critic_hidden: Sequence[int] = (1024, 512),
    *,
    sigmoid: bool = False,
) -> CGAN:
    """Linear layers with ReLU between; the sizes left out are those of the seed *federated*.

    ReLU, where GANs mostly take its leaky sister: private training and releases know the one and not the other.
    """
    generator = _mlp([latent + condition, *generator_hidden, dim])
    _of_order_one(generator)
    if sigmoid:
        generator.append(nn.Sigmoid())
    return CGAN(generator, _mlp([dim + condition, *critic_hidden, 1]), dim, latent)


def _mlp(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _of_order_one(generator: nn.Sequential) -> None:
    """Weights that give numbers of variance about 1 from the start.

    Torch's own give about 1/1000: a cloud so narrow that a critic tells it from records at once, and it collapses.
    """
    linear = [layer for layer in generator if isinstance(layer, nn.Linear)]
    for layer in linear:
        # A ReLU before it has halved the square of what comes in; before the first there is none.
        nn.init.normal_(layer.weight, std=((1.0 if layer is linear[0] else 2.0) / layer.in_features) ** 0.5)
        nn.init.zeros_(layer.bias)
