"""Export of a trained decoder as the few operations that a release knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from locum.nets import ResidualBlock

Tensors = dict[str, npt.NDArray[np.float32]]


def export_decoder(decoder: nn.Sequential) -> tuple[list[dict[str, Any]], Tensors]:
    """Operations and tensors of a trained decoder, as a release holds them.

    Parameters
    ----------
    decoder
        Linear layers, batch norms, ReLU, sigmoid and `ResidualBlock`. Batch norms are folded into their layers, with
        the running statistics of training.

    Returns
    -------
    program : list of dict
        The operations, in order.
    tensors : dict
        Weights and biases by the names that the program uses, as float32 copies.

    Examples
    --------
    >>> from torch import nn
    >>> from locum.generate import export_decoder
    >>> program, tensors = export_decoder(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> [step["op"] for step in program], list(tensors)
    (['linear', 'relu'], ['layer0.weight', 'layer0.bias'])
    """
    tensors: Tensors = {}
    return _sequence(decoder, "layer", tensors), tensors


def _sequence(modules: nn.Sequential, prefix: str, tensors: Tensors) -> list[dict[str, Any]]:
    ops: list[dict[str, Any]] = []
    for i, module in enumerate(modules):
        name = f"{prefix}{i}"
        if isinstance(module, nn.Linear):
            tensors[f"{name}.weight"] = _numpy(module.weight)
            tensors[f"{name}.bias"] = _numpy(module.bias)
            ops.append({"op": "linear", "weight": f"{name}.weight", "bias": f"{name}.bias"})
        elif isinstance(module, nn.BatchNorm1d):
            _fold(module, ops[-1], tensors)
        elif isinstance(module, nn.ReLU):
            ops.append({"op": "relu"})
        elif isinstance(module, nn.Sigmoid):
            ops.append({"op": "sigmoid"})
        elif isinstance(module, ResidualBlock):
            body = _sequence(module.body, f"{name}.body", tensors)
            shortcut = _sequence(module.shortcut, f"{name}.shortcut", tensors)
            ops += [{"op": "residual", "body": body, "shortcut": shortcut}, {"op": "relu"}]
        else:
            raise TypeError(f"A release has no operation for {type(module).__name__}.")
    return ops


def _fold(norm: nn.BatchNorm1d, linear: dict[str, Any], tensors: Tensors) -> None:
    """Make `norm(linear(x))` one linear layer, with the running statistics of training."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    gain = _numpy(norm.weight) / np.sqrt(_numpy(norm.running_var) + norm.eps)
    tensors[linear["weight"]] = tensors[linear["weight"]] * gain[:, None]
    tensors[linear["bias"]] = (tensors[linear["bias"]] - _numpy(norm.running_mean)) * gain + _numpy(norm.bias)


def _numpy(value: Any) -> npt.NDArray[np.float32]:
    out: npt.NDArray[np.float32] = value.detach().numpy().copy()
    return out
