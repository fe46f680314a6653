"""Conditional variational autoencoders: the plain one of the papers, and the residual one of the thesis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Linear, norm, ReLU, linear, norm, plus a shortcut (projected if the sizes differ), then ReLU.

    The norms are batch norms, so the block cannot be trained with differential privacy.

    Parameters
    ----------
    inputs, outputs
        The numbers of columns that it takes and gives.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import ResidualBlock
    >>> tuple(ResidualBlock(4, 6)(torch.randn(3, 4)).shape)
    (3, 6)
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, outputs),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
            nn.Linear(outputs, outputs),
            nn.BatchNorm1d(outputs),
        )
        self.shortcut = (
            nn.Sequential()
            if inputs == outputs
            else nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.relu(self.body(x) + self.shortcut(x))
        return out


class CVAE(nn.Module):
    """An encoder from `[x, condition]` to a Gaussian, and a decoder from `[z, condition]` to a vector.

    Inputs come as one tensor, the vector first, so that a batch is gathered only once. Without columns in `condition`
    this is an ordinary VAE.

    Parameters
    ----------
    encoder
        A network from `dim` plus condition columns to `2 * latent` numbers: mean, then log-variance. Private: it is
        never released.
    decoder
        A network from `latent` plus condition columns to `dim` numbers.
    dim
        The number of features of a vector.
    latent
        The number of latents.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import plain_cvae
    >>> net = plain_cvae(dim=5, condition=2, hidden=(8,), latent=3, sigmoid=False)
    >>> out, mean, log_var = net(torch.randn(4, 7), torch.randn(4, 3), 0.5)
    >>> tuple(out.shape), tuple(mean.shape)
    ((4, 5), (4, 3))
    """

    def __init__(self, encoder: nn.Sequential, decoder: nn.Sequential, dim: int, latent: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.dim = dim
        self.latent = latent

    def encode(self, joined: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent; the loss defines what "log-variance" means."""
        out: Tensor = self.encoder(joined)
        return out[:, : self.latent], out[:, self.latent :]

    def decode(self, z: Tensor, condition: Tensor) -> Tensor:
        """The vector decoded from `z`."""
        out: Tensor = self.decoder(torch.cat([z, condition], dim=1) if condition.shape[1] else z)
        return out

    def forward(self, joined: Tensor, noise: Tensor, std_from_log: float) -> tuple[Tensor, Tensor, Tensor]:
        """Reconstruction, mean and log-variance, with `noise` as the latent noise.

        The standard deviation is `exp(std_from_log * log_var)`: 0.5 is right, 1 is what the authors ran (F1).
        """
        mean, log_var = self.encode(joined)
        z = mean + noise * torch.exp(std_from_log * log_var)
        return self.decode(z, joined[:, self.dim :]), mean, log_var


def plain_cvae(dim: int, condition: int, hidden: Sequence[int], latent: int, *, sigmoid: bool) -> CVAE:
    """A CVAE of linear layers with ReLU between; the decoder mirrors the encoder.

    Parameters
    ----------
    dim
        The number of features of a vector.
    condition
        The number of condition columns, such as one per class; 0 for an ordinary VAE.
    hidden
        The widths of the encoder's hidden layers; the decoder has them in reverse order.
    latent
        The number of latents.
    sigmoid
        End the decoder with a sigmoid, for vectors between 0 and 1.

    Returns
    -------
    CVAE
        The network, with random initial weights.

    Examples
    --------
    >>> from locum.nets import plain_cvae
    >>> net = plain_cvae(dim=5, condition=2, hidden=(8,), latent=3, sigmoid=True)
    >>> net.encoder[0].in_features, net.decoder[0].in_features
    (7, 5)
    """
    encoder = _mlp([dim + condition, *hidden, 2 * latent])
    decoder = _mlp([latent + condition, *reversed(hidden), dim])
    return CVAE(encoder, _finish(decoder, sigmoid), dim, latent)


def residual_cvae(dim: int, condition: int, latent: int, *, sigmoid: bool) -> CVAE:
    """The large network of the thesis: three residual blocks each in encoder and decoder, 512 and 256 wide.

    Parameters
    ----------
    dim
        The number of features of a vector.
    condition
        The number of condition columns, such as one per class; 0 for an ordinary VAE.
    latent
        The number of latents.
    sigmoid
        End the decoder with a sigmoid, for vectors between 0 and 1.

    Returns
    -------
    CVAE
        The network, with random initial weights. It has batch norms, so it cannot be trained with differential
        privacy.

    Examples
    --------
    >>> from locum.nets import residual_cvae
    >>> residual_cvae(dim=5, condition=2, latent=3, sigmoid=False).encoder[-1].out_features
    6
    """
    encoder = nn.Sequential(
        nn.Linear(dim + condition, 512),
        ResidualBlock(512, 512),
        ResidualBlock(512, 256),
        ResidualBlock(256, 256),
        nn.Linear(256, 2 * latent),
    )
    decoder = nn.Sequential(
        nn.Linear(latent + condition, 256),
        ResidualBlock(256, 256),
        ResidualBlock(256, 512),
        ResidualBlock(512, 512),
        nn.Linear(512, dim),
    )
    return CVAE(encoder, _finish(decoder, sigmoid), dim, latent)


def _mlp(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _finish(decoder: nn.Sequential, sigmoid: bool) -> nn.Sequential:
    if sigmoid:
        decoder.append(nn.Sigmoid())
    return decoder
