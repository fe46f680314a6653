"""Which head is best for rare classes, by cross-validation on training records alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reb_cosine import thesis_head
from reb_sets import HEAD_MINUTES, by_group, groups_of, records, share
from sklearn.model_selection import StratifiedKFold

from locum.generate import ClassGaussian
from locum.recipes import StudyResults, study_set
from locum.recipes.study import Cell, markdown_table

# What was tried on training data. A generator replaces drawn records with a probability between the two.
CANDIDATES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "class-balanced sampling": {"sampler": "class_balanced"},
    "logit adjustment": {"prior": "uniform"},
    "logit adjustment, decay 1": {"prior": "uniform", "weight_decay": 1.0},
    "balanced softmax": {"loss": "balanced_softmax"},
    "balanced softmax, decay 1": {"loss": "balanced_softmax", "weight_decay": 1.0},
}
for _name, _p in (("0.01-0.7", (0.01, 0.7)), ("0.5-0.9", (0.5, 0.9)), ("0.8-0.95", (0.8, 0.95))):
    for _decay in (0.0, 1.0):
        CANDIDATES[f"balanced softmax + Gaussian {_name}" + (", decay 1" if _decay else "")] = {
            "loss": "balanced_softmax",
            "augment": ClassGaussian(),
            "p_min": _p[0],
            "p_max": _p[1],
            "weight_decay": _decay,
        }
# The same on class-centered directions.
for _scale in (10.0, 15.0, 20.0, 30.0):
    CANDIDATES[f"cosine, scale {_scale:g}"] = {"loss": "balanced_softmax", "cosine": _scale, "centered": True}
CANDIDATES["cosine, scale 20, learning rate 0.003"] = {**CANDIDATES["cosine, scale 20"], "learning_rate": 0.003}
CANDIDATES["cosine, scale 20 + Gaussian 0.01-0.7"] = {
    **CANDIDATES["balanced softmax + Gaussian 0.01-0.7"],
    **CANDIDATES["cosine, scale 20"],
}
# The best mean of the two sets by `rebalance-choice`.
OURS = "balanced softmax + Gaussian 0.01-0.7"


def choice(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each candidate by cross-validation on training records alone."""

    def cell(name: str, candidate: str, seed: int) -> Mapping[str, float]:
        X, y = records(name, "train")
        guess = np.empty_like(y)
        folds = StratifiedKFold(config["folds"], shuffle=True, random_state=seed)
        for a, b in folds.split(X, y):
            head = thesis_head(seed, CANDIDATES[candidate]).fit(X[a], y[a])
            guess[b] = head.predict(X[b])
        return by_group(y, y, guess)

    return {f"{name}/{c}": partial(cell, name, c) for name in config["sets"] for c in CANDIDATES}


def render_choice(results: StudyResults, out: Path) -> str:
    """One table a set, the best first."""
    text = []
    for name in results.config["sets"]:
        rows = sorted(CANDIDATES, key=lambda c: -results.estimate(f"{name}/{c}", "overall").value)
        first = next(iter(results.raw[f"{name}/{rows[0]}"].values()))
        shown = groups_of(first, ("overall", "many", "tail"))
        table = [[c, *(f"{results.estimate(f'{name}/{c}', g).value:.1f}" for g in shown)] for c in rows]
        text += [f"## {study_set(name).title}", markdown_table(["head", *shown], table)]
    text.append(
        f"Accuracy by {results.config['folds']}-fold cross-validation on training records, mean over classes, "
        f"{len(results.config['seeds'])} ways to make folds. No test record was read."
    )
    return "\n\n".join(text)


def choice_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    fits = len(config["seeds"]) * (config["folds"] - 1) * len(CANDIDATES)
    return HEAD_MINUTES * fits * sum(share(name) for name in config["sets"])
