"""Losses per record, with their gradients with respect to the network's outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class RowLoss(Protocol):
    """The loss of each row and its gradient with respect to each output.

    A row must not depend on the others: otherwise its gradient could not be clipped on its own.
    """

    def __call__(self, outputs: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One loss per row, and one gradient per output."""
        ...


@dataclass(frozen=True, slots=True)
class CVAELoss:
    """Squared error summed over features, plus `beta` times the KL divergence summed over latents.

    Parameters
    ----------
    beta
        The weight of the KL divergence from N(0, I), 0 or more.

    Examples
    --------
    >>> import torch
    >>> from locum.train import CVAELoss
    >>> out, zero = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)
    >>> losses, gradients = CVAELoss()((out, zero, zero), rows=zero)
    >>> losses.tolist(), gradients[0].tolist()
    ([25.0], [[6.0, 8.0]])
    """

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
    """Any loss per row, with gradients from autograd.

    Parameters
    ----------
    function
        A function of the network's outputs and the rows that gives one loss per row: `lambda out, rows: ...`. A row's
        loss must not depend on other rows.

    Examples
    --------
    >>> import torch
    >>> from locum.train import RowLossByAutograd
    >>> squared = RowLossByAutograd(lambda out, rows: (out - rows).square().sum(dim=1))
    >>> losses, (gradient,) = squared((torch.tensor([[5.0]]),), torch.tensor([[2.0]]))
    >>> losses.tolist(), gradient.tolist()
    ([9.0], [[6.0]])
    """

    # The address in a function's repr differs per process; a resumed fit must not look like another one.
    function: Callable[..., Tensor] = field(repr=False)

    def __call__(self, outputs: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Call the function with the outputs and then the rows."""
        with torch.enable_grad():
            leaves = tuple(out.detach().requires_grad_() for out in outputs)
            losses = self.function(*leaves, rows)
            gradients = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        return losses.detach(), gradients
