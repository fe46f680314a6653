"""Figures measured on records: exact for the holder, rounded for everyone else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError
from locum.metrics import feature_scale, k_nearest, nearest
from locum.report.text import METRICS
from locum.types import AttackResult, Estimate

Vectors = npt.NDArray[np.floating[Any]]
# More points than this do not change the picture.
_QUERIES = 2000
_BINS = 28
# How much further than real distances a histogram reaches.
_WIDEST = 3.0
_LEVELS = {"closest": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95}


class Scale:
    """Puts every feature on the scale of `by`, as `evaluate` does: units do not matter."""

    def __init__(self, by: Vectors) -> None:
        wide = by.astype(np.float64)
        self.mean, self.std = wide.mean(axis=0), feature_scale(wide, floor=0.0)

    def __call__(self, X: Vectors) -> npt.NDArray[np.float64]:
        out: npt.NDArray[np.float64] = (X.astype(np.float64) - self.mean) / self.std
        return out


def closeness(
    released: Vectors, records: Vectors, held_out: Vectors | None, rng: np.random.Generator
) -> dict[str, Any]:
    """Distances to the nearest record, binned: of released vectors, of held-out records, and among the records.

    The unit is the usual distance from a record to the nearest other one (the median), given as `unit`: 1 is what is
    normal. All must be on one scale. At most 2,000 vectors of each kind are drawn and compared with all records. The
    last bin holds everything beyond it.
    """
    if len(records) < 2:
        raise DataError("The records are a single row: distances among them need two or more.")
    found = {"released": nearest(_some(released, rng), records)[0]}
    if held_out is not None:
        found["held-out"] = nearest(_some(held_out, rng), records)[0]
    # The second nearest: the nearest is the record itself, or a duplicate.
    found["among records"] = k_nearest(_some(records, rng), records, 2)[0][:, 1]
    unit = float(np.median(found["among records"])) or float(np.mean(found["among records"])) or 1.0
    found = {name: d / unit for name, d in found.items()}
    # Real distances fill the picture: far vectors of a noisy release would squeeze them into one bar.
    real = max(float(np.quantile(d, 0.975)) for name, d in found.items() if name != "released")
    top = min(max(float(np.quantile(found["released"], 0.975)), real), _WIDEST * real) or 1.0
    edges = np.linspace(0, top, _BINS + 1)
    limit = np.quantile(found["among records"], 0.05)
    return {
        "unit": unit,
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
    """The part of an evaluation that a shareable page may hold: rounded estimates and the verdict; no count.

    This is a list of what is kept: anything added to an evaluation later is left out.

    Parameters
    ----------
    measured
        An evaluation as plain JSON, as `locum evaluate --json` gives it.

    Returns
    -------
    dict
        `head`, `seeds`, `rows` and `membership`, as plain JSON.

    Examples
    --------
    >>> from locum.report import shareable_figures
    >>> auc = {"value": 0.8765, "low": 0.8612, "high": 0.8901, "n": 3}
    >>> row = {"method": "release", "scores": {"auc": auc}, "distance": None}
    >>> found = shareable_figures({"head": "linear", "seeds": 3, "rows": [row], "membership": None})
    >>> found["rows"][0]["scores"]["auc"]
    {'value': 0.88, 'low': 0.86, 'high': 0.9}
    """
    rows = [
        {
            "method": row["method"],
            "scores": {m: blurred(row["scores"][m]) for m in METRICS if m in row["scores"]},
            # It says nothing without the distances among the records, which do not leave.
            "distance": None,
        }
        for row in measured["rows"]
    ]
    attack = measured["membership"]
    return {
        "head": measured["head"],
        "seeds": measured["seeds"],
        "rows": rows,
        "membership": None if attack is None else AttackResult.from_dict(attack).shareable(figures=True),
    }


def blurred(estimate: Mapping[str, Any]) -> dict[str, float | None]:
    """The JSON of an estimate as it may leave: see `Estimate.rounded`."""
    return Estimate.from_dict(estimate).rounded()


def _some(X: Vectors, rng: np.random.Generator) -> Vectors:
    return X if len(X) <= _QUERIES else X[rng.permutation(len(X))[:_QUERIES]]


def _significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
