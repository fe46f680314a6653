"""Figures of long-tailed learning, for the data holder only: they show class sizes.

Needs `locum[figures]`. Each function writes one file, atomically; its suffix selects the format. The same numbers
give the same SVG.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from locum.errors import DataError
from locum.io import figure_file
from locum.metrics import FrechetByClass
from locum.rebalance.analyses import ClassAccuracy

PathLike = str | os.PathLike[str]
# More names would overlap.
_NAMED = 24
# Lines must differ without color too; one mark fewer than colors, so that pairs of them repeat late.
_MARKS = "osD^vPX*<"


def plot_accuracy_by_class(methods: Mapping[str, Sequence[ClassAccuracy]], path: PathLike) -> None:
    """Draw the accuracy of each class with its interval, from the largest class to the rarest, one series per method.

    Parameters
    ----------
    methods
        Rows of `accuracy_by_class` for each method, by name. All must have been scored on the same classes.
    path
        File to write; its suffix selects SVG, PNG or PDF. For the data holder only: it shows class sizes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from locum.rebalance import accuracy_by_class, plot_accuracy_by_class
    >>> rows = accuracy_by_class([0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_accuracy_by_class({"none": rows}, Path(folder, "accuracy.svg"))
    ...     [file.name for file in Path(folder).iterdir()]
    ['accuracy.svg']
    """
    first = _first(methods)
    order = [row.label for row in first]
    # Many methods of many classes need a wide figure.
    with figure_file(path, width=min(20.0, max(7.0, 0.08 * len(order) * len(methods)))) as axis:
        for i, (name, rows) in enumerate(methods.items()):
            if sorted(map(str, order)) != sorted(str(row.label) for row in rows):
                raise DataError(f"The methods were scored on different classes: {name!r} differs from the first.")
            by_label = {row.label: row.accuracy for row in rows}
            values = np.array([(by_label[c].value, by_label[c].low, by_label[c].high) for c in order])
            bars = np.abs(values[:, 1:].T - values[:, 0])
            # Side by side, because overlapping intervals cannot be read.
            at = np.arange(len(order)) + 0.6 * ((i + 0.5) / len(methods) - 0.5)
            axis.errorbar(at, values[:, 0], bars, fmt=_MARKS[i % len(_MARKS)], ms=4, lw=1, capsize=2, label=name)
        _name_classes(axis, order, {row.label: row.records for row in first})
        axis.set_ylabel("accuracy")
        axis.set_ylim(-0.02, 1.02)


def plot_by_class(
    curves: Mapping[str, Mapping[Any, float]], records: Mapping[Any, int], path: PathLike, *, ylabel: str
) -> None:
    """Draw one value per class, such as coverage or the radius of its ball, from the largest class to the rarest.

    Parameters
    ----------
    curves
        For each name, a value per class; a class missing from a curve leaves a gap.
    records
        The number of training records of each class.
    path
        File to write; its suffix selects SVG, PNG or PDF. For the data holder only: it shows class sizes.
    ylabel
        What the values are.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from locum.rebalance import plot_by_class
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_by_class({"SMOTE": {"a": 0.4, "b": 0.7}}, {"a": 5, "b": 9}, Path(folder, "it.svg"), ylabel="share")
    ...     [file.name for file in Path(folder).iterdir()]
    ['it.svg']
    """
    _first(curves)
    order = sorted(records, key=lambda c: -records[c])
    with figure_file(path) as axis:
        for i, (name, curve) in enumerate(curves.items()):
            values = [curve.get(c, np.nan) for c in order]
            axis.plot(values, marker=_MARKS[i % len(_MARKS)], ms=4, lw=1, label=name)
        _name_classes(axis, order, records)
        axis.set_ylabel(ylabel)
        axis.set_ylim(bottom=0)


def plot_frechet(generators: Mapping[str, Mapping[float, FrechetByClass]], path: PathLike) -> None:
    """Draw the average Frechet distance over sampling variances, one line per generator.

    Parameters
    ----------
    generators
        Results of `frechet_over_variances` for each generator, by name.
    path
        File to write; its suffix selects SVG, PNG or PDF.

    Examples
    --------
    >>> from locum.rebalance import frechet_over_variances, plot_frechet
    >>> found = frechet_over_variances(model, X_test, y_test)  # doctest: +SKIP
    >>> plot_frechet({"CVAE": found}, "frechet.svg")  # doctest: +SKIP
    """
    _first(generators)
    with figure_file(path) as axis:
        for i, (name, found) in enumerate(generators.items()):
            variances = sorted(found)
            averages = [found[v].average for v in variances]
            axis.plot(variances, averages, marker=_MARKS[i % len(_MARKS)], ms=4, lw=1, label=name)
        axis.set_xlabel("sampling variance")
        axis.set_ylabel("Frechet distance, mean over classes")
        axis.set_ylim(bottom=0)


def _first(curves: Mapping[str, Any]) -> Any:
    if not curves:
        raise DataError("There is nothing to draw: pass at least one named curve.")
    return next(iter(curves.values()))


def _name_classes(axis: Any, order: Sequence[Any], records: Mapping[Any, int]) -> None:
    if len(order) <= _NAMED:
        # A dollar sign in a class name is not math.
        names = [f"{str(c)[:20]}\n{records[c]}".replace("$", r"\$") for c in order]
        axis.set_xticks(range(len(order)), names, fontsize=7)
    axis.set_xlabel("class, by training records")
