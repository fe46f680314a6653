"""The privacy budget that a data holder asks for, in public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from locum.errors import ConfigError, PrivacyError
from locum.types.claim import Relation, Unit

# The budget of a fit that is told none.
DEFAULT_EPSILON = 1.0
DEFAULT_DELTA = 1e-6


@dataclass(frozen=True, slots=True)
class DP:
    """A budget of (epsilon, delta)-differential privacy; the noise is derived from it, never typed.

    Parameters
    ----------
    epsilon, delta
        How much one unit may change what anyone can conclude: odds by a factor of at most `exp(epsilon)`, except with
        probability `delta`.
    unit
        What is hidden: a "record", or a "subject" with all of its records.
    n_public
        About how many units there are, as a number that may become public: round it. Sampling rate and steps of noisy
        training come from it, never from the data. The guarantee holds whatever the true number is. None: no plan
        that needs it.
    relation
        What neighbors are: "add-or-remove" one unit (its presence is hidden), or "replace-one" (its values are
        hidden; the number of units is public). The second needs about twice the noise.

    Raises
    ------
    ConfigError
        If a number is out of range.
    PrivacyError
        If `delta` is above 1 / (10 n_public).

    Examples
    --------
    >>> from locum.types import DP
    >>> DP(epsilon=1.0, delta=1e-6).unit
    'record'
    """

    epsilon: float
    delta: float
    unit: Unit = "record"
    n_public: int | None = None
    relation: Relation = "add-or-remove"

    def __post_init__(self) -> None:
        if not (_is_number(self.epsilon) and 0 < self.epsilon < math.inf):
            raise ConfigError(f"`epsilon` must be above 0 and finite; got {self.epsilon!r}. 1 is a usual choice.")
        if not (_is_number(self.delta) and 0 < self.delta < 1):
            raise ConfigError(f"`delta` must lie between 0 and 1; got {self.delta!r}. Take 1 / (10 n) or less.")
        if self.unit not in ("record", "subject"):
            raise ConfigError(f"`unit` must be 'record' or 'subject'; got {self.unit!r}.")
        if self.relation not in ("add-or-remove", "replace-one"):
            raise ConfigError(f"`relation` must be 'add-or-remove' or 'replace-one'; got {self.relation!r}.")
        # Numpy scalars become plain numbers: they are written to files.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if self.n_public is not None:
            if not (_is_number(self.n_public) and 1 <= self.n_public < math.inf and self.n_public % 1 == 0):
                raise ConfigError(f"`n_public` must be a whole number, 1 or more; got {self.n_public!r}.")
            object.__setattr__(self, "n_public", int(self.n_public))
            # A delta of 1 / n would allow publishing one unit outright.
            if self.delta > 1 / (10 * self.n_public):
                raise PrivacyError(
                    f"`delta` must be at most 1 / (10 n_public) = {1 / (10 * self.n_public):.3g}; got "
                    f"{self.delta:g}, which would allow publishing single {self.unit}s. Take a smaller delta."
                )

    def size(self) -> int:
        """`n_public`; without one, a PrivacyError that asks for it."""
        if self.n_public is None:
            raise PrivacyError(
                "Noisy training needs to know about how many records there are, which is private: give a rounded "
                "number that may become public as `n_public` (--n-public)."
            )
        return self.n_public


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
