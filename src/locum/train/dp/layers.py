"""Rules for layers, with their own backward pass: the norm of a record's gradient is known before it is summed.

A record's gradient with respect to the weights of a linear layer is the product of the layer's input (`a`) and the
gradient of its output (`g`), so its norm follows from those two vectors. No layer here mixes records, and a layer
without a rule cannot be trained.

A record's gradient is what the numbers in `a` and `g` say, rounded as they are. Sums of gradients are computed in
float64; `clipping` bounds how far they and the norms are off.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

# Maps each weight to the float64 tensor for the sum of its gradients; a rule takes its own weights out.
Sums = MutableMapping[Tensor, Tensor]
# So many rows are added by one matrix product, and then the sums of the blocks: an error of rounding grows with the
# longest chain of additions.
BLOCK_ROWS = 512


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
    # How many numbers the squared norm of a row's gradient is computed from.
    width: int

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
        """Write the weighted sum of the rows' gradients, with weights and sum in float64."""
        ...


class _Linear:
    a: Tensor
    g: Tensor

    def __init__(self, layer: nn.Linear, sums: Sums) -> None:
        self.inputs = layer.in_features
        self.width = layer.in_features + layer.out_features
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
        def product(rows: slice, out: Tensor) -> None:
            a, g, w = self.a[rows], self.g[rows], weights[rows, None]
            # The product with float64 weights is float64.
            a, g = (a * w, g.double()) if a.shape[1] < g.shape[1] else (a.double(), g * w)
            torch.mm(g.T, a, out=out)

        _by_blocks(product, len(weights), self.weight_sum)
        if self.bias_sum is not None:
            _by_blocks(_rows_times(self.g, weights), len(weights), self.bias_sum)


class _LayerNorm:
    scaled: Tensor
    inverse: Tensor
    g: Tensor

    def __init__(self, layer: nn.LayerNorm, sums: Sums) -> None:
        self.inputs = layer.normalized_shape[0]
        self.width = 2 * self.inputs
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
        out = _square(self._weight_gradients()) + _underflow(self.g)
        return out if self.bias is None else out + (_square(self.g) + _underflow(self.g))

    def joint_squares(self, block: Block) -> Tensor:
        out = _square(_by_subject(self._weight_gradients(), block).sum(dim=1))
        return out if self.bias is None else out + _square(_by_subject(self.g, block).sum(dim=1))

    def drop(self, rows: Tensor) -> None:
        self.scaled, self.g = _without(self.scaled, rows), _without(self.g, rows)

    def write(self, weights: Tensor) -> None:
        _by_blocks(_rows_times(self._weight_gradients(), weights), len(weights), self.weight_sum)
        if self.bias_sum is not None:
            _by_blocks(_rows_times(self.g, weights), len(weights), self.bias_sum)

    def _weight_gradients(self) -> Tensor:
        # Rounded once, the same way wherever it is used: the norm is that of what is added.
        return self.g * self.scaled


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


def _by_blocks(product: Callable[[slice, Tensor], None], rows: int, out: Tensor) -> None:
    """Write a sum over rows to `out`, where `product` computes that of some of them."""
    product(slice(0, BLOCK_ROWS), out)
    if rows > BLOCK_ROWS:
        # Not added by the product itself, which might add each row to the sum of all before it.
        part = torch.empty_like(out)
        for start in range(BLOCK_ROWS, rows, BLOCK_ROWS):
            product(slice(start, start + BLOCK_ROWS), part)
            out += part


def _rows_times(x: Tensor, weights: Tensor) -> Callable[[slice, Tensor], None]:
    def product(rows: slice, out: Tensor) -> None:
        torch.mv(x[rows].double().T, weights[rows], out=out)

    return product


def _by_subject(x: Tensor, block: Block) -> Tensor:
    return x[block.start : block.stop].reshape(-1, block.size, x.shape[1]).double()


def _without(x: Tensor, rows: Tensor) -> Tensor:
    return x.masked_fill(rows[:, None], 0.0)
