"""A measured number and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from locum.errors import ConfigError, DataError

# Two-sided 95 % points of Student's t for 1..30 degrees of freedom: types/ knows numpy only.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval and the number of observations behind it.

    Every measured number is reported as one of these. The interval covers what was repeated (seeds, records) and
    nothing else: it says nothing about another hospital's data.

    Parameters
    ----------
    value
        What was measured.
    low, high
        Ends of the interval, with `low <= value <= high`; infinite if they are not known.
    n
        Number of observations.

    Examples
    --------
    >>> from locum.types import Estimate
    >>> e = Estimate.from_runs([0.80, 0.82, 0.81])
    >>> f"{e:.3f}"
    '0.810 [0.785, 0.835]'
    """

    value: float
    low: float
    high: float
    n: int

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ConfigError(
                f"An estimate needs low <= value <= high; got {self.low!r}, {self.value!r}, {self.high!r}."
            )

    @classmethod
    def exact(cls, value: float, n: int = 1) -> Estimate:
        """A number known without error, such as the AUC of a random guess."""
        return cls(value, value, value, n)

    @classmethod
    def from_runs(cls, values: Sequence[float]) -> Estimate:
        """Mean over runs with Student's t interval; one run gives an unbounded interval."""
        runs = [float(v) for v in values]
        if not runs:
            raise ConfigError("An estimate needs at least one run; got none.")
        mean = fmean(runs)
        if len(runs) == 1:
            return cls(mean, -math.inf, math.inf, 1)
        t = _T95[len(runs) - 2] if len(runs) <= 31 else 1.96
        half = t * stdev(runs) / math.sqrt(len(runs))
        return cls(mean, mean - half, mean + half, len(runs))

    def clipped(self, low: float, high: float) -> Estimate:
        """The same estimate with its interval cut to the possible range, such as 0..1 for a share."""
        return Estimate(self.value, max(self.low, low), min(self.high, high), self.n)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON: an unbounded end is `None`."""
        return {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Estimate:
        """Undo `to_dict`."""
        low = -math.inf if data["low"] is None else finite_number(data["low"])
        high = math.inf if data["high"] is None else finite_number(data["high"])
        return cls(finite_number(data["value"]), low, high, int(finite_number(data["n"])))

    def rounded(self) -> dict[str, float | None]:
        """What may leave: two digits, the interval rounded outward, and no number of observations.

        A share of n records is a multiple of 1/n: with three digits or more, a few such shares reveal n.
        Nothing below 1 is rounded to 1: it would read as perfect.

        >>> Estimate(0.996, 0.981, 1.0, 250).rounded()
        {'value': 0.99, 'low': 0.98, 'high': 1.0}
        """
        value = min(round(self.value, 2), 0.99) if self.value < 1 else round(self.value, 2)
        # The value may have been brought below 1, and the interval holds it.
        low = None if math.isinf(self.low) else min(math.floor(round(100 * self.low, 6)) / 100, value)
        high = None if math.isinf(self.high) else math.ceil(round(100 * self.high, 6)) / 100
        return {"value": value, "low": low, "high": high}

    def short(self, digits: int = 3) -> str:
        """For narrow columns: the number ± half the width of its interval.

        >>> Estimate(0.5, 0.4, 0.6, 100).short()
        '0.500 ± 0.100'
        """
        if math.isinf(self.low) or self.low == self.high:
            return f"{self.value:.{digits}f}"
        return f"{self.value:.{digits}f} ± {(self.high - self.low) / 2:.{digits}f}"

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        if self.low == self.high:
            return format(self.value, spec)
        if math.isinf(self.low) or math.isinf(self.high):
            return f"{self.value:{spec}} [one run]"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def finite_number(value: Any) -> float:
    """A finite number from JSON, or an error: no text, no truth value, no NaN.

    Parameters
    ----------
    value
        What was read.

    Returns
    -------
    float
        `value` as it is: a whole number stays an int.

    Raises
    ------
    DataError
        If `value` is not a finite number.

    Examples
    --------
    >>> from locum.types import finite_number
    >>> finite_number(0.5)
    0.5
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DataError(f"A measured figure must be a finite number; got {str(value)[:40]!r}.")
    return value
