"""The adjustable paper's networks for judging a release: attacker and receiver use the same ones."""

from __future__ import annotations

from torch import nn

from locum.errors import ConfigError

_SPREAD = 0.02
_LEAK = 0.2


def table_judge(dim: int, classes: int) -> nn.Sequential:
    """Classifier for rows: 256, 256 and 128 wide, with dropout (the adjustable paper's Table 2).

    Parameters
    ----------
    dim
        The number of columns of a row.
    classes
        The number of classes.

    Returns
    -------
    nn.Sequential
        A network that gives logits (n, classes).

    Examples
    --------
    >>> import torch
    >>> from locum.nets import table_judge
    >>> tuple(table_judge(6, 2)(torch.zeros(4, 6)).shape)
    (4, 2)
    """
    layers: list[nn.Module] = []
    width = dim
    for outputs, dropout in ((256, 0.2), (256, 0.3), (128, 0.4)):
        layers += [nn.Linear(width, outputs), nn.Dropout(dropout), nn.ReLU()]
        width = outputs
    return nn.Sequential(*layers, nn.Linear(width, classes))


def image_judge(channels: int, side: int, classes: int) -> nn.Sequential:
    """Classifier for square images: four convolutions that halve the side, then five linear layers (Table 1).

    Initial weights as in the adjustable paper: convolutions N(0, 0.02), batch normalization N(1, 0.02), where 0.02 is
    the standard deviation.

    Parameters
    ----------
    channels
        The number of channels of an image.
    side
        The height and width of an image, a multiple of 16.
    classes
        The number of classes.

    Returns
    -------
    nn.Sequential
        A network that gives logits (n, classes).

    Examples
    --------
    >>> import torch
    >>> from locum.nets import image_judge
    >>> tuple(image_judge(1, 16, 2)(torch.zeros(4, 1, 16, 16)).shape)
    (4, 2)
    """
    if side < 16 or side % 16:
        raise ConfigError(f"The side of an image must be a multiple of 16; got {side!r}. Resize or pad the images.")
    layers: list[nn.Module] = [_halving(channels, 64), nn.LeakyReLU(_LEAK)]
    for inputs, outputs in ((64, 64), (64, 64), (64, 128)):
        layers += [_halving(inputs, outputs), _norm(outputs), nn.LeakyReLU(_LEAK)]
    layers.append(nn.Flatten())
    width = 128 * (side // 16) ** 2
    for outputs, dropout in ((1024, 0.0), (1024, 0.5), (256, 0.5), (64, 0.0)):
        layers.append(nn.Linear(width, outputs))
        if dropout:
            layers.append(nn.Dropout(dropout))
        layers.append(nn.LeakyReLU(_LEAK))
        width = outputs
    return nn.Sequential(*layers, nn.Linear(width, classes))


def _halving(inputs: int, outputs: int) -> nn.Conv2d:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=4, stride=2, padding=1, bias=False)
    nn.init.normal_(convolution.weight, 0.0, _SPREAD)
    return convolution


def _norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    nn.init.normal_(norm.weight, 1.0, _SPREAD)
    return norm
