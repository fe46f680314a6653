"""A conditional GAN: one network makes vectors of a class, the other tells them from real ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

# Scale of the critic's label relative to vectors with entries of order one. With length 1 it would be drowned out by
# hundreds of features, and the generator would never learn that classes differ.
_LABEL = 3.0


class CGAN(nn.Module):
    """A generator from `[z, condition]` to a vector, and a critic from `[x, condition]` to a logit (high: real).

    Vectors should have entries of order one. Only the critic may see records; the generator learns from the critic.

    Parameters
    ----------
    generator
        A network from `latent` plus condition columns to `dim` numbers.
    critic
        A network from `dim` plus condition columns to one logit. Private: it learns from records and is never
        released.
    dim
        The number of features of a vector.
    latent
        The number of latents.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import plain_cgan
    >>> net = plain_cgan(dim=5, condition=2, latent=3)
    >>> tuple(net.generate(torch.randn(4, 3), torch.eye(2)[[0, 1, 0, 1]]).shape)
    (4, 5)
    """

    def __init__(self, generator: nn.Sequential, critic: nn.Sequential, dim: int, latent: int) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic
        self.dim = dim
        self.latent = latent

    def generate(self, z: Tensor, condition: Tensor) -> Tensor:
        """The vectors generated from `z`."""
        out: Tensor = self.generator(torch.cat([z, condition], dim=1))
        return out

    def join(self, x: Tensor, condition: Tensor) -> Tensor:
        """The critic's input: vectors, then conditions scaled to a similar length."""
        return torch.cat([x, condition * (_LABEL * self.dim**0.5)], dim=1)

    def forward(self, joined: Tensor) -> Tensor:
        """The critic's logit for each row."""
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
    """A CGAN of linear layers with ReLU between; the default sizes are those of the federated paper.

    ReLU instead of the LeakyReLU that is usual in GANs: private training and releases support only ReLU.

    Parameters
    ----------
    dim
        The number of features of a vector.
    condition
        The number of condition columns, such as one per class.
    latent
        The number of latents.
    generator_hidden, critic_hidden
        The widths of the hidden layers.
    sigmoid
        End the generator with a sigmoid, for vectors between 0 and 1.

    Returns
    -------
    CGAN
        The networks, with random initial weights: the generator's outputs have a variance of about 1 before a
        sigmoid.

    Examples
    --------
    >>> from locum.nets import plain_cgan
    >>> net = plain_cgan(dim=5, condition=2, latent=3, generator_hidden=(8,), critic_hidden=(8,))
    >>> net.generator[0].in_features, net.critic[0].in_features
    (5, 7)
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
    """Initialize the weights so that outputs have a variance of about 1.

    Torch's defaults give about 1/1000: a cloud so narrow that the critic recognizes it at once, and training
    collapses.
    """
    linear = [layer for layer in generator if isinstance(layer, nn.Linear)]
    for layer in linear:
        # A ReLU halves the mean square of a layer's input; the first layer has none before it.
        nn.init.normal_(layer.weight, std=((1.0 if layer is linear[0] else 2.0) / layer.in_features) ** 0.5)
        nn.init.zeros_(layer.bias)
