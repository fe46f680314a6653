"""Rules for layers, with their own backward pass: the norm of a record's gradient is known before it is summed.

A record's gradient with respect to the weights of a linear layer is the product of the layer's input (`a`) and the
gradient of its output (`g`), so its norm follows from those two vectors. No layer here mixes records, and a layer
without a rule cannot be trained.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

# Maps each weight to the tensor for the sum of its gradients; a rule takes its own weights out.
Sums = MutableMapping[Tensor, Tensor]


class Block(NamedTuple):
    """Rows `start` to `stop` of a batch belong to subjects of `size` rows each, one after another."""

    start: int
    stop: int
    size: int


class LayerRule(Protocol):
    """How one layer, or a sequence of layers, treats each record on its own."""

    def forward(self, x: Tensor) -> Tensor:
        """The output; stores what the backward pass needs."""
        ...

    def backward(self, g: Tensor, columns: int | None) -> Tensor:
        """The gradient of the first `columns` of the input (None: all), given the gradient of the output."""
        ...


class WeightedRule(Protocol):
    """A rule for a layer with weights: it knows the norm of each gradient, and writes weighted sums of them."""

    inputs: int

    def squares(self) -> Tensor:
        """Squared norm of each row's gradient; infinite or NaN if the gradient is. Never too small by underflow."""
        ...

    def joint_squares(self, block: Block) -> Tensor:
        """Squared norm of each subject's summed gradient, in float64."""
        ...

    def drop(self, rows: Tensor) -> None:
        """Set the gradients of the marked rows to 0."""
        ...

    def write(self, weights: Tensor) -> None:
        """Write the weighted sum of the rows' gradients to where the optimizer reads it."""
        ...


class _Linear:
    a: Tensor
    g: Tensor

    def __init__(self, layer: nn.Linear, sums: Sums) -> None:
        self.inputs = layer.in_features
        self.weight = layer.weight.detach()
        self.bias = None if layer.bias is None else layer.bias.detach()
        self.weight_sum = sums.pop(layer.weight)
        self.bias_sum = None if layer.bias is None else sums.pop(layer.bias)
        # A bias is the weight of an input that is always 1.
        self.ones = 0.0 if self.bias is None else 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.a = x
        return functional.linear(x, self.weight, self.bias)

    def backward(self, g: Tensor, columns: int | None) -> Tensor:
        self.g = g
        return g @ self.weight[:, :columns]

    def squares(self) -> Tensor:
        return (_square(self.a) + (self.ones + _underflow(self.a))) * (_square(self.g) + _underflow(self.g))

    def joint_squares(self, block: Block) -> Tensor:
        a, g = _by_subject(self.a, block), _by_subject(self.g, block)
        inputs, outputs = a.shape[2], g.shape[2]
        if block.size * (inputs + outputs) <= inputs * outputs:
            return ((g @ g.mT) * (a @ a.mT + self.ones)).sum(dim=(1, 2))
        # For that many rows, the summed gradient is cheaper than all pairs; one at a time is in memory.
        summed = torch.stack([torch.square(y.T @ x).sum() for x, y in zip(a, g, strict=True)])
        return summed + self.ones * _square(g.sum(dim=1))

    def drop(self, rows: Tensor) -> None:
        self.a, self.g = _without(self.a, rows), _without(self.g, rows)

    def write(self, weights: Tensor) -> None:
        if self.bias_sum is not None:
            torch.mv(self.g.T, weights, out=self.bias_sum)
        a, g = self.a, self.g
        if a.shape[1] < g.shape[1]:
            a = a * weights[:, None]
        else:
            g = g * weights[:, None]
        torch.mm(g.T, a, out=self.weight_sum)


class _LayerNorm:
    scaled: Tensor
    inverse: Tensor
    g: Tensor

    def __init__(self, layer: nn.LayerNorm, sums: Sums) -> None:
        self.inputs = layer.normalized_shape[0]
        self.eps = layer.eps
        self.weight = layer.weight.detach()
        self.bias = None if layer.bias is None else layer.bias.detach()
        self.weight_sum = sums.pop(layer.weight)
        self.bias_sum = None if layer.bias is None else sums.pop(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        centered = x - x.mean(dim=1, keepdim=True)
        self.inverse = torch.rsqrt(centered.square().mean(dim=1, keepdim=True) + self.eps)
        self.scaled = centered * self.inverse
        out = self.scaled * self.weight
        return out if self.bias is None else out + self.bias

    def backward(self, g: Tensor, columns: int | None) -> Tensor:
        self.g = g
        h = g * self.weight
        along = (h * self.scaled).mean(dim=1, keepdim=True)
        back = self.inverse * (h - h.mean(dim=1, keepdim=True) - self.scaled * along)
        return back[:, :columns]

    def squares(self) -> Tensor:
        out = _square(self.g * self.scaled)
        return out if self.bias is None else out + _square(self.g)

    def joint_squares(self, block: Block) -> Tensor:
        g = _by_subject(self.g, block)
        out = _square((g * _by_subject(self.scaled, block)).sum(dim=1))
        return out if self.bias is None else out + _square(g.sum(dim=1))

    def drop(self, rows: Tensor) -> None:
        self.scaled, self.g = _without(self.scaled, rows), _without(self.g, rows)

    def write(self, weights: Tensor) -> None:
        torch.mv((self.g * self.scaled).T, weights, out=self.weight_sum)
        if self.bias_sum is not None:
            torch.mv(self.g.T, weights, out=self.bias_sum)


class _ReLU:
    out: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.out = torch.relu(x)
        return self.out

    def backward(self, g: Tensor, columns: int | None) -> Tensor:
        out: Tensor = torch.ops.aten.threshold_backward(g, self.out, 0)
        return out[:, :columns]


class _Sigmoid:
    out: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.out = torch.sigmoid(x)
        return self.out

    def backward(self, g: Tensor, columns: int | None) -> Tensor:
        out: Tensor = torch.ops.aten.sigmoid_backward(g, self.out)
        return out[:, :columns]


class _Sequence:
    def __init__(self, rules: Sequence[LayerRule]) -> None:
        self.rules = rules

    def forward(self, x: Tensor) -> Tensor:
        for rule in self.rules:
            x = rule.forward(x)
        return x

    def backward(self, g: Tensor, columns: int | None) -> Tensor:
        for i in reversed(range(len(self.rules))):
            g = self.rules[i].backward(g, None if i else columns)
        return g


def rules_for(module: nn.Module, sums: Sums, weighted: list[WeightedRule]) -> LayerRule:
    """The rules of a module; those with weights are appended to `weighted`. KeyError names a type without a rule.

    Types are compared exactly: a subclass may do anything in its `forward`.
    """
    kind = type(module)
    if isinstance(module, nn.Sequential) and kind is nn.Sequential:
        return _Sequence([rules_for(child, sums, weighted) for child in module])
    if kind is nn.ReLU:
        return _ReLU()
    if kind is nn.Sigmoid:
        return _Sigmoid()
    if isinstance(module, nn.Linear) and kind is nn.Linear:
        weighted.append(linear := _Linear(module, sums))
        return linear
    plain = isinstance(module, nn.LayerNorm) and module.elementwise_affine and len(module.normalized_shape) == 1
    if isinstance(module, nn.LayerNorm) and kind is nn.LayerNorm and plain:
        weighted.append(norm := _LayerNorm(module, sums))
        return norm
    raise KeyError(kind.__name__)


def _square(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=1)
    return norm.square_()


def _underflow(x: Tensor) -> float:
    """An upper bound on what squares that were rounded to 0 could add up to, since the other factor can be huge."""
    return float(torch.finfo(x.dtype).tiny) * x.shape[1]


def _by_subject(x: Tensor, block: Block) -> Tensor:
    return x[block.start : block.stop].reshape(-1, block.size, x.shape[1]).double()


def _without(x: Tensor, rows: Tensor) -> Tensor:
    return x.masked_fill(rows[:, None], 0.0)
