"""Forecasts: how much of the usefulness of real data a private release keeps, from public numbers alone.

They come from a table of measured releases (`locum study run private-epsilon`), which ships with Locum; no record of
yours is read. What decides is the signal: units against the noise on a vector.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import plan_head
from locum.errors import ConfigError
from locum.types import DP, Estimate

Array = npt.NDArray[np.float64]

TABLE = Path(__file__).parent / "forecast.json"
# What a forecast assumes of a classifier on real data, unless told.
REAL_AUC = 0.95
EPSILONS = (0.3, 1.0, 3.0, 8.0)
# Measured releases within this factor of the signal say how far off a forecast may be; at least so many.
_NEAR, _FEWEST = 3.0, 6
_MOST_EPSILON = 20.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a release is expected to keep, with the range in which measured releases scattered.

    Attributes
    ----------
    epsilon
        The budget.
    kept
        The share of what real data give above chance (AUC - 0.5) that the release's own rule keeps.
    auc
        The same as an AUC, for real data that give `real_auc`.
    real_auc
        What a classifier trained on the real data is assumed to reach.

    Examples
    --------
    >>> from locum.recipes import forecast
    >>> from locum.types import DP
    >>> few, many = (forecast(DP(1.0, 1e-6), units=n, classes=2) for n in (300, 30_000))
    >>> few.kept.value < many.kept.value
    True
    """

    epsilon: float
    kept: Estimate
    auc: Estimate
    real_auc: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "epsilon": self.epsilon,
            "kept": self.kept.to_dict(),
            "auc": self.auc.to_dict(),
            "real_auc": self.real_auc,
        }


def forecast(budget: DP, *, units: float, classes: int, features: int = 1280, real_auc: float = REAL_AUC) -> Forecast:
    """What a private release of so many units is expected to keep; nothing is read and nothing is spent.

    Parameters
    ----------
    budget
        The budget.
    units
        About how many records, or subjects if they are the unit.
    classes, features
        The numbers of classes and of features of the vectors.
    real_auc
        What a classifier trained on the real data reaches, as far as you know: above 0.5, at most 1.

    Returns
    -------
    Forecast
        The share that is kept and the AUC. Measured on vectors of EfficientNet-Lite 0: other vectors may differ.

    Examples
    --------
    >>> from locum.recipes import forecast
    >>> from locum.types import DP
    >>> found = forecast(DP(1.0, 1e-6), units=5000, classes=2)
    >>> found.auc.low < found.auc.value < found.auc.high
    True
    """
    if not units >= 1 or classes < 2 or features < 1:
        raise ConfigError(
            f"A forecast needs at least one record, two classes and one feature; got {units!r}, {classes!r} and "
            f"{features!r}."
        )
    if not 0.5 < real_auc <= 1:
        raise ConfigError(f"`real_auc` must be above 0.5 and at most 1; got {real_auc!r}.")
    signal = signal_of(units, classes, features, plan_head(budget).noise_multiplier)
    value, width = _curve().at(signal)
    kept = Estimate(value, max(0.0, value - width), min(1.0, value + width), _curve().size)

    def auc(share: float) -> float:
        return 0.5 + share * (real_auc - 0.5)

    return Forecast(
        budget.epsilon, kept, Estimate(auc(kept.value), auc(kept.low), auc(kept.high), kept.n), float(real_auc)
    )


def epsilon_for(
    want_auc: float, budget: DP, *, units: float, classes: int, features: int = 1280, real_auc: float = REAL_AUC
) -> Forecast:
    """The forecast at the smallest epsilon whose expected AUC is `want_auc`; delta and unit are those of `budget`.

    Parameters
    ----------
    want_auc
        The AUC that the release's own rule should have on real data, above 0.5 and below `real_auc`.
    budget
        Delta, unit and relation; its epsilon is not used.
    units, classes, features, real_auc
        As in `forecast`.

    Returns
    -------
    Forecast
        With the epsilon that was found.

    Raises
    ------
    ConfigError
        If no epsilon up to 20 is expected to be enough.

    Examples
    --------
    >>> from locum.recipes import epsilon_for
    >>> from locum.types import DP
    >>> found = epsilon_for(0.8, DP(1.0, 1e-6), units=5000, classes=4)
    >>> 0 < found.epsilon < 20
    True
    """
    if not 0.5 < want_auc < real_auc:
        raise ConfigError(
            f"An AUC of {want_auc!r} is out of reach: real data give {real_auc:g}. Ask for one between 0.5 and that, "
            "or say with --real-auc what real data give."
        )

    def at(epsilon: float) -> Forecast:
        return forecast(
            replace(budget, epsilon=epsilon), units=units, classes=classes, features=features, real_auc=real_auc
        )

    low, high = 0.01, _MOST_EPSILON
    if at(high).auc.value < want_auc:
        raise ConfigError(
            f"No epsilon up to {_MOST_EPSILON:g} is expected to give an AUC of {want_auc:g} with so few records: ask "
            "for less, or collect more."
        )
    while high > low * 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if at(middle).auc.value >= want_auc else (middle, high)
    # Rounded up to two digits, as people would choose it.
    digits = 10 ** math.floor(math.log10(high) - 1)
    return at(math.ceil(high / digits - 1e-9) * digits)


def signal_of(units: float, classes: int, features: int, noise: float) -> float:
    """Units per class pair against the noise on a vector: what a forecast goes by."""
    return units / (noise * math.sqrt(features)) * math.sqrt(2 / classes)


class _Curve:
    """A rising curve through measured releases, and how far they lie from it."""

    def __init__(self, signals: Array, kept: Array) -> None:
        order = np.argsort(signals)
        self._log, self._kept, self.size = np.log(signals[order]), kept[order], len(kept)
        # The nearest curve that never falls (pool adjacent violators), taken at the middle of each level.
        blocks: list[list[float]] = []
        for x, y in zip(self._log, self._kept, strict=True):
            blocks.append([float(x), float(y), 1.0])
            while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
                right, left = blocks.pop(), blocks.pop()
                n = left[2] + right[2]
                mean = [(a * left[2] + b * right[2]) / n for a, b in zip(left[:2], right[:2], strict=True)]
                blocks.append([*mean, n])
        self._x, self._y = np.array([b[0] for b in blocks]), np.array([b[1] for b in blocks])
        self._off = self._kept - np.interp(self._log, self._x, self._y)

    def at(self, signal: float) -> tuple[float, float]:
        """The share that is kept at a signal, and twice the typical distance of releases with a similar one."""
        x = math.log(signal)
        away = np.abs(self._log - x)
        near = away <= max(math.log(_NEAR), float(np.sort(away)[min(_FEWEST, self.size) - 1]))
        value = float(np.clip(np.interp(x, self._x, self._y), 0.0, 1.0))
        # Below the smallest measured signal nothing is left, in the end.
        if x < self._x[0]:
            value *= max(0.0, 1 - (self._x[0] - x))
        return value, 2 * float(np.sqrt(np.mean(np.square(self._off[near])))) + 0.01


@lru_cache(maxsize=1)
def _curve() -> _Curve:
    rows = json.loads(TABLE.read_text())["releases"]
    return _Curve(np.array([row["signal"] for row in rows]), np.array([row["kept"] for row in rows]))
