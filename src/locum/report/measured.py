"""Figures that were measured on records: as they are for the holder, blurred for anybody else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError
from locum.metrics import k_nearest, nearest
from locum.report.text import METRICS

Vectors = npt.NDArray[np.floating[Any]]
# More queries than this draw the same picture.
_QUERIES = 2000
_BINS = 28
_LEVELS = {"closest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95}


class Scale:
    """Puts every feature on the scale of `by`, as `evaluate` does: no feature decides by its unit."""

    def __init__(self, by: Vectors) -> None:
        wide = by.astype(np.float64)
        self.mean, std = wide.mean(axis=0), wide.std(axis=0)
        self.std = np.where(std > 1e-6 * (np.abs(self.mean) + 1e-6), std, 1.0)

    def __call__(self, X: Vectors) -> npt.NDArray[np.float64]:
        out: npt.NDArray[np.float64] = (X.astype(np.float64) - self.mean) / self.std
        return out


def closeness(
    released: Vectors, records: Vectors, held_out: Vectors | None, rng: np.random.Generator
) -> dict[str, Any]:
    """Distances to the nearest record, binned: of released vectors, of strangers, and among the records.

    All must be on one scale. At most 2,000 of each side are drawn to ask; the records they are measured
    against are all of them. The last bin holds whatever lies beyond.
    """
    if len(records) < 2:
        raise DataError("The records are a single row: distances among them need two or more.")
    found = {"released": nearest(_some(released, rng), records)[0]}
    if held_out is not None:
        found["held-out"] = nearest(_some(held_out, rng), records)[0]
    # The nearest but one: the nearest is the record itself, or its equal at another place.
    found["among records"] = k_nearest(_some(records, rng), records, 2)[0][:, 1]
    top = max(float(np.quantile(d, 0.975)) for d in found.values()) or 1.0
    edges = np.linspace(0, top, _BINS + 1)
    limit = np.quantile(found["among records"], 0.05)
    return {
        "edges": [_significant(e, 4) for e in edges.tolist()],
        "series": [
            {
                "name": name,
                "asked": len(d),
                "shares": (np.histogram(np.minimum(d, top), edges)[0] / len(d)).round(4).tolist(),
                "quantiles": {k: _significant(float(np.quantile(d, q)), 4) for k, q in _LEVELS.items()},
            }
            for name, d in found.items()
        ],
        "copies": int(np.count_nonzero(found["released"] == 0)),
        "closer": round(float(np.mean(found["released"] < limit)), 4),
        "closer_held_out": round(float(np.mean(found["held-out"] < limit)), 4) if held_out is not None else None,
    }


def shareable_figures(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Of an evaluation, what may stand on a page that leaves: blurred estimates and the verdict; no count.

    Whatever is not named here stays at home, whatever an evaluation may hold one day.
    """
    rows = [
        {
            "method": row["method"],
            "scores": {m: blurred(row["scores"][m]) for m in METRICS if m in row["scores"]},
            "distance": None if row["distance"] is None else blurred(row["distance"]),
        }
        for row in measured["rows"]
    ]
    attack = measured["membership"]
    names = ("attack", "control", "baseline")
    return {
        "head": measured["head"],
        "seeds": measured["seeds"],
        "rows": rows,
        "membership": None
        if attack is None
        else {k: attack[k] for k in ("attack_name", "verdict")} | {k: blurred(attack[k]) for k in names},
    }


def blurred(estimate: Mapping[str, Any]) -> dict[str, float | None]:
    """Two digits, the interval rounded outwards, and not how many observations are behind it.

    A share of n records is a multiple of 1/n: with three digits or more, a few such shares give n away.
    Nothing below 1 becomes 1: it would read as perfect.
    """
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    return {
        "value": min(round(value, 2), 0.99) if value < 1 else round(value, 2),
        "low": None if low is None else math.floor(round(100 * low, 6)) / 100,
        "high": None if high is None else math.ceil(round(100 * high, 6)) / 100,
    }


def _some(X: Vectors, rng: np.random.Generator) -> Vectors:
    return X if len(X) <= _QUERIES else X[rng.permutation(len(X))[:_QUERIES]]


def _significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
