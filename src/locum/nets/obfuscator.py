"""The network of the adjustable paper: an autoencoder whose code is split into the utility labels and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from locum.errors import ConfigError

Ends = Literal["paper", "linear"]
_SLOPE = 0.2


class Obfuscator(nn.Module):
    """Encoder E, classifier C, residual network R and decoder D: `D(C(E(x)), R(E(x)))` is close to x.

    C gives log-probabilities, one group per utility attribute; R gives what else is needed to rebuild a record.

    Parameters
    ----------
    encoder
        E, from a record to its code.
    classifier
        C, from the code to one score per value of each utility attribute.
    residual
        R, from the code to `rest` numbers.
    decoder
        D, from the outputs of C and R, joined, to a record.
    classes
        The number of values of each utility attribute.
    rest
        How many numbers R gives.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import table_obfuscator
    >>> net = table_obfuscator(6, [2, 3])
    >>> rebuilt, needed = net(torch.rand(4, 6))
    >>> tuple(rebuilt.shape), tuple(needed.shape)
    ((4, 6), (4, 5))
    """

    def __init__(
        self,
        encoder: nn.Module,
        classifier: nn.Module,
        residual: nn.Module,
        decoder: nn.Module,
        classes: Sequence[int],
        rest: int,
    ) -> None:
        super().__init__()
        self.encoder, self.classifier, self.residual, self.decoder = encoder, classifier, residual, decoder
        self.classes, self.rest = tuple(classes), rest

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the utility attributes, and the rest."""
        code = self.encoder(x)
        groups = self.classifier(code).split(self.classes, dim=1)
        return torch.cat([group.log_softmax(dim=1) for group in groups], dim=1), self.residual(code)

    def join(self, needed: Tensor, rest: Tensor) -> Tensor:
        """A record rebuilt from both."""
        out: Tensor = self.decoder(torch.cat([needed, rest], dim=1))
        return out

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The rebuilt record, and the log-probabilities."""
        needed, rest = self.split(x)
        return self.join(needed, rest), needed


def table_obfuscator(
    dim: int, classes: Sequence[int], *, ends: Ends = "paper", hidden: int = 128, code: int = 64
) -> Obfuscator:
    """Obfuscator for rows of numbers between 0 and 1.

    86,494 parameters for rows of 102 numbers and one binary attribute, with the default sizes.

    Parameters
    ----------
    dim
        The number of columns of a row.
    classes
        The number of values of each utility attribute, 2 or more each; their sum must be below `code`.
    ends
        "paper": R ends with a ReLU and D with a sigmoid. "linear": the outputs of R and D are unbounded, so that
        noise goes both ways, and D gives logits.
    hidden
        The width of the hidden layers of E and D.
    code
        The width of the code.

    Returns
    -------
    Obfuscator
        The network, with random initial weights.

    Examples
    --------
    >>> from locum.nets import table_obfuscator
    >>> sum(p.numel() for p in table_obfuscator(102, [2]).parameters())
    86494
    """
    needed, rest = _sizes(classes, code)
    cut = -1 if ends == "linear" else None
    return Obfuscator(
        nn.Sequential(*_dense(dim, hidden, hidden, code)),
        nn.Sequential(*_dense(code, 32, max(8, needed)), nn.Linear(max(8, needed), needed)),
        nn.Sequential(*_dense(code, code, rest)[:cut]),
        nn.Sequential(*[*_dense(code, hidden, hidden), nn.Linear(hidden, dim), nn.Sigmoid()][:cut]),
        classes,
        rest,
    )


def image_obfuscator(channels: int, side: int, classes: Sequence[int], *, code: int = 1024) -> Obfuscator:
    """Obfuscator for square images between 0 and 1; 9,204,032 parameters at 3 x 64 x 64 with one binary attribute.

    Parameters
    ----------
    channels
        The number of channels of an image.
    side
        The height and width of an image, a multiple of 16.
    classes
        The number of values of each utility attribute, 2 or more each; their sum must be below `code`.
    code
        The width of the code.

    Returns
    -------
    Obfuscator
        The network, with the paper's initial weights.

    Examples
    --------
    >>> import torch
    >>> from locum.nets import image_obfuscator
    >>> net = image_obfuscator(1, 16, [2], code=64)
    >>> tuple(net(torch.rand(2, 1, 16, 16))[0].shape)
    (2, 1, 16, 16)
    """
    if side < 16 or side % 16:
        raise ConfigError(f"The side of an image must be a multiple of 16; got {side}. Resize the images.")
    needed, rest = _sizes(classes, code)
    small = side // 16
    encoder = nn.Sequential(
        _conv(channels, 64),
        nn.LeakyReLU(_SLOPE),
        *(layer for a, b in ((64, 64), (64, 64), (64, 128)) for layer in _convolved(a, b)),
        nn.Flatten(),
        nn.Linear(128 * small**2, code),
        nn.LeakyReLU(_SLOPE),
    )
    classifier = nn.Sequential(
        *_dropped(code, 1024), *_dropped(1024, 256), nn.Linear(256, 64), nn.LeakyReLU(_SLOPE), nn.Linear(64, needed)
    )
    residual = nn.Sequential(
        *_dropped(code, 1024), *_dropped(1024, 1024), nn.Linear(1024, rest), nn.LeakyReLU(_SLOPE)
    )
    decoder = nn.Sequential(
        nn.Linear(code, 128 * small**2),
        nn.LeakyReLU(_SLOPE),
        nn.Unflatten(1, (128, small, small)),
        *(layer for a, b in ((128, 64), (64, 64), (64, 64)) for layer in _grown(a, b)),
        nn.ConvTranspose2d(64, channels, 4, 2, 1, bias=False),
        nn.Sigmoid(),
    )
    net = Obfuscator(encoder, classifier, residual, decoder, classes, rest)
    net.apply(_start)
    return net


def _sizes(classes: Sequence[int], code: int) -> tuple[int, int]:
    needed = sum(classes)
    if not classes or min(classes) < 2:
        raise ConfigError(f"Each utility attribute needs two or more values; got {list(classes)} values.")
    if needed >= code:
        raise ConfigError(f"{needed} values of utility attributes do not fit into a code of {code} numbers.")
    return needed, code - needed


def _dense(*sizes: int) -> list[nn.Module]:
    return [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]


def _dropped(a: int, b: int) -> tuple[nn.Module, ...]:
    return nn.Linear(a, b), nn.LeakyReLU(_SLOPE), nn.Dropout(0.5)


def _conv(a: int, b: int) -> nn.Conv2d:
    return nn.Conv2d(a, b, 4, 2, 1, bias=False)


def _convolved(a: int, b: int) -> tuple[nn.Module, ...]:
    return _conv(a, b), nn.BatchNorm2d(b), nn.LeakyReLU(_SLOPE)


def _grown(a: int, b: int) -> tuple[nn.Module, ...]:
    return nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()


def _start(module: nn.Module) -> None:
    """The paper's initial weights."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)
