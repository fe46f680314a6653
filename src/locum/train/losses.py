"""Losses per record, with their gradients with respect to the network's outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class RowLoss(Protocol):
    """The loss of each row and its gradient with respect to each output. A row must not depend on the others."""

    def __call__(self, outputs: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One loss per row, and one gradient per output."""
        ...


@dataclass(frozen=True, slots=True)
class CVAELoss:
    """Squared error summed over features, plus `beta` times the KL divergence summed over latents."""

    beta: float = 1.0

    def __call__(self, outputs: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """For a CVAE; a row begins with the vector to reconstruct."""
        out, mean, log_var = outputs
        error = out - rows[:, : out.shape[1]]
        variance = torch.exp(log_var)
        kl = (variance + torch.square(mean) - log_var).sum(dim=1) - mean.shape[1]
        losses = torch.square(torch.linalg.vector_norm(error, dim=1)) + 0.5 * self.beta * kl
        return losses, (error.mul_(2), self.beta * mean, variance.sub_(1).mul_(0.5 * self.beta))


@dataclass(frozen=True, slots=True)
class RowLossByAutograd:
    """Any function of the outputs and the rows that gives one loss per row: `lambda out, rows: ...`."""

    # The address in a function's repr differs per process; a resumed fit must not look like another one.
    function: Callable[..., Tensor] = field(repr=False)

    def __call__(self, outputs: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Call the function with the outputs and then the rows."""
        with torch.enable_grad():
            leaves = tuple(out.detach().requires_grad_() for out in outputs)
            losses = self.function(*leaves, rows)
            gradients = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        return losses.detach(), gradients
