"""Clipped sums in closed form: each unit's joint gradient is scaled to a norm of at most `clip`, then all are added.

No unit's gradient is ever in memory. Norms come from the layers' inputs and gradients; for a subject, from their
products within the subject.

One unit changes the sum by at most `ClippedNetwork.sensitivity`, with rounding. The proof needs that the inputs and
gradients of a row's layers do not depend, in any bit, on the other rows of its batch (`ASSUMPTIONS`):

1. The squared norm of a row is a sum of squares in the type of the weights. No term is negative, so its relative
   error is at most the number of roundings times the type's unit roundoff: one for each number in a layer's input and
   gradient, and fewer than 20 besides for each layer. A clipped gradient is longer than `clip` by no more than that.
2. A sum of products, in any order, is off by at most `D u / (1 - D u)` times the sum of their absolute values, where
   `u` is 2^-53 and `D` the number of roundings that a product goes through (Higham, Accuracy and Stability of
   Numerical Algorithms, 2002, section 3.1). Rows are added in blocks, then the blocks: two roundings for the product,
   at most `BLOCK_ROWS` in its block and one for each block.
3. The sum of absolute values has a length of at most `clip` per record. For a subject it may be larger, as its rows
   can cancel. Its norm is therefore taken as the root of `|sum|^2 + (_CANCEL * sum of the rows' norms)^2`, so the
   absolute values of its scaled rows have a length of at most `clip / _CANCEL`; only subjects of two or more rows can
   cancel. `|sum|^2` is computed in float64, and the added term is far larger than its rounding, a share of the same
   square.
4. The sums with and without the unit are both off, so the bound counts twice. It must not depend on how many rows
   there are, which is private: it is computed for `MAX_ROWS`, and more are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.errors import PrivacyError
from locum.nets import CVAE
from locum.train.dp.layers import BLOCK_ROWS, Block, Sums, WeightedRule, rules_for
from locum.types import Unit

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
MAX_ROWS = 2**22
# The rows' norms times this count as a part of a subject's norm: opposite gradients cancel, their rounding does not.
_CANCEL = 2.0**-8


class Subjects:
    """Which rows belong to which subject; the rows of a batch are ordered into blocks of subjects of equal size.

    Parameters
    ----------
    codes
        One whole number per row: its subject.
    """

    def __init__(self, codes: npt.ArrayLike) -> None:
        _, inverse, counts = np.unique(np.asarray(codes), return_inverse=True, return_counts=True)
        self._rows = np.argsort(inverse, kind="stable")
        self.counts = counts
        self._starts = np.cumsum(counts) - counts

    def __len__(self) -> int:
        return len(self.counts)

    def rows(self, members: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], list[Block]]:
        """All rows of the given subjects, and their blocks; subjects with equally many rows are adjacent."""
        members = members[np.argsort(self.counts[members], kind="stable")]
        counts = self.counts[members]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self._starts[members] - (ends - counts), counts)
        sizes, howmany = np.unique(counts, return_counts=True)
        edges = [0, *np.cumsum(sizes * howmany).tolist()]
        blocks = [Block(a, b, int(size)) for (a, b), size in zip(pairwise(edges), sizes, strict=True)]
        return self._rows[places], blocks


class ClippedNetwork:
    """A module as one flat tensor of weights and one of gradient sums, with a rule for every layer.

    It must consist of `Linear`, `LayerNorm`, `ReLU` and `Sigmoid` in `Sequential`s, or be a `CVAE` of those. Anything
    else is refused: batch norm mixes records, and a weight that is frozen or has no rule would bypass the noise.

    Parameters
    ----------
    module
        The network, on the CPU, all float32 or all float64. Its weights become views of `flat` until `release`.

    Attributes
    ----------
    flat
        All weights in one tensor.
    sums
        The last clipped sum of gradients, one float64 number per weight. Private: it has no noise.
    inputs
        How many columns of a row the module takes.
    latent
        How many numbers of latent noise a row needs; 0 if the module is not a CVAE.
    clipped
        How many rows of the last sum belong to a unit whose gradient was longer than `clip`. Private.

    Raises
    ------
    PrivacyError
        If a layer cannot be clipped.

    Examples
    --------
    >>> import torch
    >>> from locum.train.dp import ClippedNetwork
    >>> network = ClippedNetwork(torch.nn.Linear(1, 1, bias=False))
    >>> rows = torch.tensor([[3.0], [0.5]])  # the gradient of the output is the row itself
    >>> _ = network.forward(rows, torch.empty(2, 0))
    >>> network.backward([torch.ones(2, 1)])
    >>> network.clipped_sum(clip=1.0), round(network.sums.item(), 4)
    (0, 1.5)
    """

    def __init__(self, module: nn.Module) -> None:
        _check(module)
        self.module = module
        self.cvae = module if isinstance(module, CVAE) and type(module) is CVAE else None
        self.flat, self.sums = _flatten(module)
        waiting: Sums = dict(zip(module.parameters(), _views(self.sums, module), strict=True))
        self._weighted: list[WeightedRule] = []
        stages = (module,) if self.cvae is None else (self.cvae.encoder, self.cvae.decoder)
        try:
            self._rules = [rules_for(stage, waiting, self._weighted) for stage in stages]
        except KeyError as error:
            self.release()
            raise PrivacyError(
                f"A layer of type {error.args[0]} has no rule for clipping: build private networks from Linear, "
                "LayerNorm, ReLU and Sigmoid in a Sequential, or take a CVAE of those."
            ) from None
        if waiting or not self._weighted:
            self.release()
            raise PrivacyError(
                f"{len(waiting)} weights belong to no layer that can be clipped: use only layers with a rule."
            )
        self.inputs = self._weighted[0].inputs
        self.clipped = 0

    @property
    def latent(self) -> int:
        """How many numbers of latent noise a row needs; 0 if the module is not a CVAE."""
        return 0 if self.cvae is None else self.cvae.latent

    def forward(self, rows: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        """The module's output, and for a CVAE also mean and log-variance of the latent."""
        x = rows[:, : self.inputs]
        first = self._rules[0].forward(x)
        if self.cvae is None:
            return (first,)
        mean, log_var = first[:, : self.latent], first[:, self.latent :]
        self._spread = noise * torch.exp(0.5 * log_var)
        z = torch.cat([mean + self._spread, x[:, self.cvae.dim :]], dim=1)
        return self._rules[1].forward(z), mean, log_var

    def backward(self, gradients: Sequence[Tensor]) -> None:
        """Propagate the gradient of each row's loss from the outputs through every layer."""
        if self.cvae is None:
            self._rules[0].backward(gradients[0], 0)
            return
        z = self._rules[1].backward(gradients[0], self.latent)
        both = torch.cat([gradients[1] + z, torch.addcmul(gradients[2], z, self._spread, value=0.5)], dim=1)
        self._rules[0].backward(both, 0)

    def clipped_sum(self, clip: float, blocks: Sequence[Block] | None = None) -> int:
        """Write the sum of all units' clipped gradients to `sums`; returns how many rows were not finite.

        Those count as 0. Without `blocks` each row is a unit. Adding or removing one changes `sums` by at most
        `sensitivity`.
        """
        squares = _total([rule.squares() for rule in self._weighted])
        check_rows(len(squares))
        lost = ~torch.isfinite(squares)
        ignored = int(lost.sum())
        if ignored:
            squares = squares.masked_fill(lost, 0.0)
            for rule in self._weighted:
                rule.drop(lost)
        if blocks is not None:
            squares = self._by_subject(squares, blocks)
        weights = torch.rsqrt(squares.double()).mul_(clip).clamp_(max=1.0)
        self.clipped = int((weights < 1).sum())
        for rule in self._weighted:
            rule.write(weights)
        return ignored

    def sensitivity(self, clip: float, unit: Unit = "record") -> float:
        """How far one unit moves `sums` at most, with rounding: `clip`, and a share that depends on nothing private.

        Summing adds 8e-6 for records and 1e-3 for subjects; norms add 1e-4 for a thousand inputs in float32.
        """
        norms = sum(rule.width + 20 for rule in self._weighted) * torch.finfo(self.flat.dtype).eps / 2
        roundings = 2 + BLOCK_ROWS + -(-MAX_ROWS // BLOCK_ROWS)
        error = roundings * 2.0**-53 / (1 - roundings * 2.0**-53)
        # Of the rows of subjects that cancel, each has at least one other.
        length = MAX_ROWS if unit == "record" else MAX_ROWS / 2 / _CANCEL
        return clip * (1 + norms) * (1 + 2 * error * length)

    def release(self) -> None:
        """Give the module its own weights again, and drop rows and gradients."""
        for parameter in self.module.parameters():
            parameter.data = parameter.data.clone()
        self._weighted, self._rules = [], []

    def _by_subject(self, squares: Tensor, blocks: Sequence[Block]) -> Tensor:
        """For each row, the squared norm of its subject's gradient."""
        # Rows that fill up a batch belong to no block.
        out = torch.zeros_like(squares, dtype=torch.float64)
        for block in blocks:
            lengths = squares[block.start : block.stop].double().sqrt().reshape(-1, block.size)
            if block.size > 1:
                joint = _total([rule.joint_squares(block) for rule in self._weighted]).clamp_(min=0.0)
                joint += torch.square(_CANCEL * lengths.sum(dim=1))
                # Infinity stays: its rows get the weight 0.
                joint = joint.nan_to_num_(nan=torch.inf, posinf=torch.inf)
            else:
                joint = lengths.square().squeeze(1)
            out[block.start : block.stop] = joint.repeat_interleave(block.size)
        return out


def check_rows(rows: int) -> None:
    """Refuse more rows than the bound on rounding was computed for."""
    if rows > MAX_ROWS:
        raise PrivacyError(
            f"Private training takes up to {MAX_ROWS:,} rows, for which rounding is accounted for; got more. Use a "
            "part of them."
        )


def _check(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, _BATCH_NORMS):
            raise PrivacyError(
                "Batch norm mixes the records of a batch, so no record's gradient can be bounded: use LayerNorm "
                "instead, or a preset without batch norm."
            )
    parameters = list(module.named_parameters(remove_duplicate=False))
    if len({id(p) for _, p in parameters}) != len(parameters):
        raise PrivacyError("A weight that is used twice cannot be clipped in closed form: give each layer its own.")
    frozen = [name for name, p in parameters if not p.requires_grad]
    if frozen:
        raise PrivacyError(
            f"All weights must be trained with noise, and {frozen[0]!r} is frozen: what it learned from records "
            "before would be released without noise. Unfreeze it."
        )
    if {(p.dtype, p.is_cpu) for _, p in parameters} not in ({(torch.float32, True)}, {(torch.float64, True)}):
        raise PrivacyError("Private training needs weights, all of them float32 or all float64, on the CPU.")


def _flatten(module: nn.Module) -> tuple[nn.Parameter, Tensor]:
    """All weights as one tensor, with the module's weights as views of it, and a float64 tensor as long for sums."""
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    for parameter, view in zip(module.parameters(), _views(flat, module), strict=True):
        parameter.data = view
        parameter.grad = None
    out = nn.Parameter(flat)
    out.grad = torch.zeros_like(flat)
    return out, torch.zeros_like(flat, dtype=torch.float64)


def _views(flat: Tensor, module: nn.Module) -> list[Tensor]:
    pieces = flat.split([p.numel() for p in module.parameters()])
    return [piece.view(p.shape) for piece, p in zip(pieces, module.parameters(), strict=True)]


def _total(values: Sequence[Tensor]) -> Tensor:
    out = values[0]
    for value in values[1:]:
        out = out + value
    return out
