"""The thesis' open questions on generated records, by cross-validation on training records alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reb_sets import HEAD, HEAD_MINUTES, by_group, cvae_minutes, groups_of, records
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from locum.generate import CVAEGenerator
from locum.heads import LinearHead
from locum.rebalance import GenerativeOverSampler
from locum.recipes import StudyResults, study_set
from locum.recipes.study import Cell, markdown_table

# The thesis' open questions, asked of the over-sampler: what it draws from, and with what settings.
QUESTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the default": ({}, {}),
    "means not shrunk": ({"shrink_means": False}, {}),
    "amount 0.5": ({"amount": 0.5}, {}),
    "amount 0.75": ({"amount": 0.75}, {}),
    "amount 0.5, then balanced softmax": ({"amount": 0.5}, {"loss": "balanced_softmax"}),
    "adaptive variance 0.1": ({"adaptive_variance": 0.1}, {}),
    "adaptive variance 0.25": ({"adaptive_variance": 0.25}, {}),
    "adaptive variance -0.1": ({"adaptive_variance": -0.1}, {}),
    "variance 0.5": ({"variance": 0.5}, {}),
    "variance 2": ({"variance": 2.0}, {}),
    "small CVAE": ({"generator": CVAEGenerator("small", decoder_noise="none")}, {}),
    "small CVAE, residual noise": ({"generator": CVAEGenerator("small", decoder_noise="low-rank")}, {}),
}


def requests(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each setting of the over-sampler by cross-validation on training records alone."""

    def cell(name: str, request: str, seed: int) -> Mapping[str, float]:
        X, y = records(name, "train")
        guess = np.empty_like(y)
        sampler, head = QUESTIONS[request]
        if "generator" in sampler:
            generator = clone(sampler["generator"]).set_params(max_epochs=config["cvae_epochs"])
            sampler = sampler | {"generator": generator}
        folds = StratifiedKFold(config["folds"], shuffle=True, random_state=seed)
        for a, b in folds.split(X, y):
            found = GenerativeOverSampler(random_state=seed, **sampler).fit_resample(X[a], y[a])
            guess[b] = LinearHead(random_state=seed, **HEAD, **head).fit(*found).predict(X[b])
        return by_group(y, y, guess)

    return {f"{name}/{q}": partial(cell, name, q) for name in config["sets"] for q in QUESTIONS}


def render_questions(results: StudyResults, out: Path) -> str:
    """One table a set, in the order of the questions."""
    text = []
    for name in results.config["sets"]:
        first = next(iter(results.raw[f"{name}/{next(iter(QUESTIONS))}"].values()))
        shown = groups_of(first, ("overall", "many", "tail"))
        table = [[q, *(f"{results.estimate(f'{name}/{q}', g).value:.1f}" for g in shown)] for q in QUESTIONS]
        text += [f"## {study_set(name).title}", markdown_table(["GenerativeOverSampler", *shown], table)]
    text.append(
        f"Accuracy by {results.config['folds']}-fold cross-validation on training records, mean over classes, "
        f"{len(results.config['seeds'])} way(s) to make folds; CVAEs trained {results.config['cvae_epochs']} epochs. "
        "No test record was read."
    )
    return "\n\n".join(text)


def questions_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core; heads see four times as many rows as there are records."""
    networks = sum("generator" in sampler for sampler, _ in QUESTIONS.values())
    heads = 4 * HEAD_MINUTES * len(QUESTIONS) * len(config["sets"])
    fits = networks * sum(cvae_minutes(name, "small", config["cvae_epochs"]) for name in config["sets"])
    return float(len(config["seeds"]) * (config["folds"] - 1) * (heads + fits))
