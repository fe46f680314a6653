"""Sums of integers: what a unit adds never depends on who else is there, and adding up makes no error."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError

Integers = npt.NDArray[np.int64]
# Far enough from the largest 64-bit integer for noise and for one more addition.
_LARGEST = 2**61


class ExactSums:
    """Integer sums, each on a grid of its own: a number is its integer times its step.

    Integers are added without error in any order, so sums over parts of the data, on several machines or in several
    runs, merge into exactly the sum over all of it.

    Parameters
    ----------
    steps
        The step of each number, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.mechanisms import ExactSums
    >>> one, two = ExactSums(np.array([0.5, 0.25])), ExactSums(np.array([0.5, 0.25]))
    >>> one.add(np.array([3, 2]))
    >>> two.add(np.array([-1, 2]))
    >>> one.merge(two)
    >>> one.integers.tolist(), one.to_array().tolist()
    ([2, 4], [1.0, 1.0])
    """

    def __init__(self, steps: npt.NDArray[np.float64]) -> None:
        self.steps = np.asarray(steps, dtype=np.float64)
        if self.steps.ndim != 1 or not (np.isfinite(self.steps) & (self.steps > 0)).all():
            raise ConfigError("`steps` must be one number above 0 for each sum.")
        self.integers: Integers = np.zeros(len(self.steps), dtype=np.int64)

    def add(self, integers: Integers) -> None:
        """Add what one unit, or several together, contribute."""
        if integers.dtype != np.int64 or integers.shape != self.integers.shape:
            raise ConfigError(
                f"Exact sums take {len(self.integers)} 64-bit integers; got {integers.dtype} of shape "
                f"{integers.shape}."
            )
        # Both are at most 2**61, so their sum fits; checked before it is kept.
        total = self.integers + integers if _fits(integers) else None
        if total is None or not _fits(total):
            raise ConfigError("The sums are larger than 64-bit integers can hold: use fewer records at a time.")
        self.integers = total

    def merge(self, other: Self) -> None:
        """Add the sums of other units, on the same grid."""
        if not np.array_equal(self.steps, other.steps):
            raise ConfigError("Only sums on the same grid can be merged.")
        self.add(other.integers)

    def to_array(self) -> npt.NDArray[np.float64]:
        """The sums as floating-point numbers."""
        return self.integers * self.steps


def _fits(integers: Integers) -> bool:
    # The smallest 64-bit integer has no absolute value.
    return bool(integers.min(initial=0) >= -_LARGEST and integers.max(initial=0) <= _LARGEST)
