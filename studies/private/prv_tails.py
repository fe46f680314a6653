"""Which mechanism serves rare classes under a guarantee, by cross-validation on training records alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold

from locum.generate import ClassGaussian
from locum.heads import bayes_head
from locum.rebalance import accuracy_by_class
from locum.recipes import StudyResults, study_set, study_splits
from locum.recipes.study import Cell, markdown_table
from locum.release import Release
from locum.types import DP, EmbeddingSet

OPEN = "no guarantee"
# At most as many training records as this make a class rare.
RARE = 100
GROUPS = {"records": "all records", "overall": "all classes", "many": "frequent classes", "tail": "rare classes"}


def tail_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each mechanism at each epsilon, and the Gaussian without a guarantee."""
    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/{OPEN}"] = partial(by_folds, config, name, None, None)
        for mechanism in config["mechanisms"]:
            for epsilon in config["epsilons"]:
                out[f"{name}/{mechanism}-{epsilon:g}"] = partial(by_folds, config, name, mechanism, epsilon)
    return out


def by_folds(
    config: Mapping[str, Any], name: str, mechanism: str | None, epsilon: float | None, seed: int
) -> Mapping[str, float]:
    """Accuracy of each release's own rule on the records that it did not see, also if it assumes equal classes."""
    data = study_splits(name)["train"]
    guess, alike = np.empty_like(data.y), np.empty_like(data.y)
    for a, b in StratifiedKFold(config["folds"], shuffle=True, random_state=seed).split(data.X, data.y):
        release = fitted(data, a, mechanism, epsilon, config["delta"], study_set(name).reference_of(data), seed)
        guess[b] = bayes_head(release).predict(data.X[b])
        alike[b] = bayes_head(release, balanced=True).predict(data.X[b])
    return by_group(data.y, guess) | {f"alike/{group}": v for group, v in by_group(data.y, alike).items()}


def fitted(
    data: EmbeddingSet,
    rows: npt.NDArray[np.int64],
    mechanism: str | None,
    epsilon: float | None,
    delta: float,
    reference: str,
    seed: int,
) -> Release:
    """The insecure seed makes figures reproducible; the noise is distributed the same."""
    X, y = data.X[rows], data.y[rows]
    if mechanism is None or epsilon is None:
        return ClassGaussian(random_state=seed).fit(X, y).release(no_dp=True)
    model = ClassGaussian(
        mechanism=mechanism,
        privacy=DP(epsilon, delta),
        classes=range(len(data.info.class_names)),
        reference=reference,
        insecure_seed=seed,
        random_state=seed,
    )
    return model.fit(X, y).release()


def by_group(y: npt.NDArray[Any], guess: npt.NDArray[Any]) -> dict[str, float]:
    """In percent: accuracy over records, and means of class accuracies over all, frequent and rare classes."""
    classes = accuracy_by_class(y, y, guess)
    groups = {
        "overall": [c.accuracy.value for c in classes],
        "many": [c.accuracy.value for c in classes if c.records > RARE],
        "tail": [c.accuracy.value for c in classes if c.records <= RARE],
    }
    found = {name: 100 * float(np.mean(values)) for name, values in groups.items() if values}
    return {"records": 100 * float(np.mean(y == guess)), **found}


def render_tails(results: StudyResults, out: Path) -> str:
    """One table per set."""
    config, text = results.config, []
    for name in config["sets"]:
        cells = [OPEN, *(f"{m}-{e:g}" for e in config["epsilons"] for m in config["mechanisms"])]
        first = next(iter(results.raw[f"{name}/{OPEN}"].values()))
        shown = {group: words for group, words in GROUPS.items() if group in first}
        shown |= {f"alike/{group}": f"{words}, `--balanced`" for group, words in shown.items()}
        rows = [
            [_called(cell), *(f"{results.estimate(f'{name}/{cell}', group):.1f}" for group in shown)]
            for cell in cells
        ]
        text += [f"## {study_set(name).title}", markdown_table(["mechanism", *shown.values()], rows)]
    text.append(
        f"Accuracy in percent of a release's own rule by {config['folds']}-fold cross-validation on training "
        f"records, folds made in {len(config['seeds'])} ways, 95 % intervals over them; delta {config['delta']:g}. "
        "`--balanced` assumes classes of equal size. Columns of classes are means over classes; rare classes have "
        f"{RARE} training records or fewer. No test record was read."
    )
    return "\n\n".join(text)


def _called(cell: str) -> str:
    mechanism, dash, epsilon = cell.partition("-")
    return (
        f"{mechanism}{' (default)' if mechanism == 'head' else ''}, epsilon {epsilon}"
        if dash
        else f"Gaussian, {OPEN}"
    )
