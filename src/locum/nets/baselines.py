"""Networks of the baselines, for tables and for images, and of the attackers they are trained against."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

_SLOPE = 0.2
# How sharply a perturbed block's gradients favor its largest value.
_SHARP = 4.0


class ColumnTypes(nn.Module):
    """Turns scores of a record's columns into values: a softmax in each one-hot block, a sigmoid elsewhere.

    Parameters
    ----------
    dim
        The number of columns.
    blocks
        The columns of each one-hot block, in the order of the columns; they do not overlap.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import ColumnTypes
    >>> ColumnTypes(3, [slice(0, 2)])(torch.zeros(1, 3)).tolist()
    [[0.5, 0.5, 0.5]]
    """

    def __init__(self, dim: int, blocks: Sequence[slice] = ()) -> None:
        super().__init__()
        self.blocks = tuple(blocks)
        edges = [0, *(edge for block in self.blocks for edge in (block.start, block.stop)), dim]
        # Every other stretch between the edges is a block.
        self.numbers = tuple(slice(a, b) for a, b in pairwise(edges))[::2]

    def forward(self, scores: Tensor) -> Tensor:
        parts = [torch.sigmoid(scores[:, self.numbers[0]])]
        for block, after in zip(self.blocks, self.numbers[1:], strict=True):
            parts += [torch.softmax(scores[:, block], dim=1), torch.sigmoid(scores[:, after])]
        return torch.cat(parts, dim=1)

    def pick(self, values: Tensor) -> Tensor:
        """Values with one category per block, the largest. Gradients pass straight through."""
        with torch.no_grad():
            picked = values.clone()
            for block in self.blocks:
                best = values[:, block].argmax(dim=1, keepdim=True)
                picked[:, block] = torch.zeros_like(values[:, block]).scatter_(1, best, 1.0)
        return values + (picked - values.detach()) if values.requires_grad else picked

    def settle(self, x: Tensor) -> Tensor:
        """Perturbed records made valid: numbers clipped to 0..1, and one category per block.

        A table without blocks, or an image, is returned as it is.
        """
        if not self.blocks:
            return x
        parts = [x[:, self.numbers[0]].clamp(0, 1)]
        for block, after in zip(self.blocks, self.numbers[1:], strict=True):
            parts += [torch.softmax(_SHARP * x[:, block], dim=1), x[:, after].clamp(0, 1)]
        return self.pick(torch.cat(parts, dim=1))


class RecordAutoencoder(nn.Module):
    """Encodes records to a short latent, and decodes `[latent, condition]` to scores of columns.

    With default sizes and 102 columns it has 83,716 parameters, like PUPET's generator: three hidden layers of 128
    before the latent of 30, two after it. (Two before and three after would have as many.)

    Parameters
    ----------
    dim
        The number of columns.
    blocks
        The columns of each one-hot block; see `ColumnTypes`.
    latent
        The number of latents.
    hidden
        The width of the hidden layers.
    condition
        How many columns of condition the decoder takes besides the latent.
    variational
        Give the encoder a second output, for the log-variance.

    Examples
    --------
    >>> from locum.nets import RecordAutoencoder
    >>> sum(p.numel() for p in RecordAutoencoder(102).parameters())
    83716
    """

    def __init__(
        self,
        dim: int,
        blocks: Sequence[slice] = (),
        *,
        latent: int = 30,
        hidden: int = 128,
        condition: int = 0,
        variational: bool = False,
    ) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = mlp([dim, hidden, hidden, hidden, latent * (2 if variational else 1)])
        self.decoder = mlp([latent + condition, hidden, hidden, dim])
        self.types = ColumnTypes(dim, blocks)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent; the latter has no columns if the network is not variational."""
        out: Tensor = self.encoder(x)
        return out[:, : self.latent], out[:, self.latent :]

    def scores(self, z: Tensor, condition: Tensor | None = None) -> Tensor:
        """Scores of the columns, decoded from `z`; `types` turns them into values."""
        out: Tensor = self.decoder(z if condition is None else torch.cat([z, condition], dim=1))
        return out

    def forward(self, z: Tensor, condition: Tensor | None = None) -> Tensor:
        """The record decoded from `z`."""
        return self.types.pick(self.types(self.scores(z, condition)))


class Added(nn.Module):
    """Adds a network's output to rows. The output starts at 0, because the last layer does.

    Parameters
    ----------
    body
        The network. It must end with a linear or transposed convolution layer with a bias, whose weights are set to
        0.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import Added, mlp
    >>> add = Added(mlp([4, 8, 2]))
    >>> add(torch.ones(1, 2), torch.randn(1, 4)).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body
        last = body[-1]
        assert isinstance(last, nn.Linear | nn.ConvTranspose2d)
        assert last.bias is not None
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor, inputs: Tensor) -> Tensor:
        added: Tensor = self.body(inputs)
        return x + added.view(x.shape)


class ImageExtractor(nn.Module):
    """Encodes images to a map of 64 features at a quarter of the size, and decodes such maps.

    Parameters
    ----------
    channels
        The number of channels of the images, whose sides are multiples of 4.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import ImageExtractor
    >>> net = ImageExtractor(3)
    >>> code = net.encoder(torch.zeros(1, 3, 16, 16))
    >>> tuple(code.shape), tuple(net(code).shape)
    ((1, 64, 4, 4), (1, 3, 16, 16))
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(_halve(channels, 32), nn.LeakyReLU(_SLOPE), _halve(32, 64))
        self.decoder = nn.Sequential(
            nn.LeakyReLU(_SLOPE), _double(64, 32), nn.LeakyReLU(_SLOPE), _double(32, channels), nn.Sigmoid()
        )

    def forward(self, z: Tensor) -> Tensor:
        """The image decoded from a map."""
        out: Tensor = self.decoder(z)
        return out


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between.

    Parameters
    ----------
    sizes
        The number of inputs, the widths of the hidden layers, and the number of outputs.

    Returns
    -------
    nn.Sequential
        The network; it ends with a linear layer.

    Examples
    --------
    >>> from locum.nets import mlp
    >>> [type(layer).__name__ for layer in mlp([4, 8, 2])]
    ['Linear', 'ReLU', 'Linear']
    """
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def guesser(shape: Sequence[int], classes: int) -> nn.Sequential:
    """A classifier of records, or of images or maps.

    Parameters
    ----------
    shape
        The shape of one input: `(d,)`, or `(channels, height, width)` with sides that are multiples of 8.
    classes
        The number of classes.

    Returns
    -------
    nn.Sequential
        A network that gives logits (n, classes).

    Examples
    --------
    >>> import torch
    >>> from locum.nets import guesser
    >>> tuple(guesser((3, 16, 16), 2)(torch.zeros(5, 3, 16, 16)).shape)
    (5, 2)
    """
    if len(shape) == 1:
        return mlp([shape[0], 128, 64, classes])
    channels, height, width = shape
    layers: list[nn.Module] = []
    # Halve down to a side of 4 at least: an extractor's map has been halved already.
    for out in (32, 64, 64):
        if min(height, width) % 2 or min(height, width) <= 4:
            break
        layers += [_halve(channels, out), nn.LeakyReLU(_SLOPE)]
        channels, height, width = out, height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), mlp([channels * height * width, 128, classes]))


def masker(shape: Sequence[int]) -> Added:
    """What to add to a row, computed from the row and as many numbers of noise.

    Parameters
    ----------
    shape
        The shape of one row: `(d,)`, or `(channels, height, width)` with sides that are multiples of 4.

    Returns
    -------
    Added
        A network to call with rows, and with rows and noise joined along dimension 1. It starts by adding 0.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import masker
    >>> x = torch.ones(1, 3)
    >>> masker((3,))(x, torch.cat([x, torch.randn(1, 3)], dim=1)).tolist()
    [[1.0, 1.0, 1.0]]
    """
    if len(shape) == 1:
        return Added(mlp([2 * shape[0], 128, 128, shape[0]]))
    channels = shape[0]
    return Added(
        nn.Sequential(
            _halve(2 * channels, 32), nn.LeakyReLU(_SLOPE), _halve(32, 64), nn.LeakyReLU(_SLOPE),
            _double(64, 32), nn.LeakyReLU(_SLOPE), _double(32, channels),
        )
    )  # fmt: skip


def noise_maker(shape: Sequence[int], latent: int) -> Added:
    """What to add to a row, computed from `latent` numbers of noise only.

    Parameters
    ----------
    shape
        The shape of one row: `(d,)`, or `(channels, height, width)` with sides that are multiples of 8.
    latent
        How many numbers of noise a row takes.

    Returns
    -------
    Added
        A network to call with rows and noise (n, latent). It starts by adding 0.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import noise_maker
    >>> noise_maker((3,), 2)(torch.ones(1, 3), torch.randn(1, 2)).tolist()
    [[1.0, 1.0, 1.0]]
    """
    if len(shape) == 1:
        return Added(mlp([latent, 128, 128, shape[0]]))
    channels, height, width = shape
    return Added(
        nn.Sequential(
            nn.Linear(latent, height * width), nn.LeakyReLU(_SLOPE), nn.Unflatten(1, (64, height // 8, width // 8)),
            _double(64, 64), nn.LeakyReLU(_SLOPE), _double(64, 32), nn.LeakyReLU(_SLOPE), _double(32, channels),
        )
    )  # fmt: skip


def _halve(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 4, stride=2, padding=1)


def _double(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)
