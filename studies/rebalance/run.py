"""Rare classes: which method wins, chosen on training data and tested afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from locum.data import read_embeddings
from locum.generate import ClassGaussian, CVAEGenerator
from locum.heads import LinearHead
from locum.metrics import bootstrap_interval
from locum.rebalance import METHODS, GenerativeOverSampler
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table

Array = npt.NDArray[Any]
TITLES = {"lt100": "CIFAR-10 LT, ratio 100", "lt1000": "CIFAR-10 LT, ratio 1000"}
THINNED = (5000, 2320, 1077, 500, 232, 107, 50, 23, 10, 5)
# The thesis' head: on raw embeddings.
HEAD = {"batch_size": 256, "max_epochs": 10, "patience": None, "standardize": False}
LOSSES = ("cross_entropy", "balanced_softmax", "class_balanced", "focal", "equalization", "ldam")
# Those that are built from class counts.
COUNTING = ("balanced_softmax", "class_balanced", "equalization", "ldam")
GROUPS = ("overall", "many", "medium", "few", "tail")
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
# The best mean of the two sets by `rebalance-choice`.
OURS = "balanced softmax + Gaussian 0.01-0.7"


def records(name: str, split: str) -> tuple[Array, Array]:
    """Training records, thinned by a fixed seed for ratio 1000; the test set is the same for both."""
    found = read_embeddings(data_folder() / "cifar10lt_efflite0.npz", split)
    if name == "lt100" or split == "test":
        return found.X, found.y
    rng = np.random.default_rng(0)
    keep = [rng.permutation(np.flatnonzero(found.y == c))[:n] for c, n in enumerate(THINNED)]
    rows = np.sort(np.concatenate(keep))
    return found.X[rows], found.y[rows]


def by_group(train: Array, truth: Array, guess: Array) -> dict[str, float]:
    """Mean of class accuracies in percent, over all classes and over each group; `tail` is 100 records or fewer."""
    sizes = np.bincount(train, minlength=10)
    right = np.array([(guess[truth == c] == c).mean() for c in range(10)]) * 100
    groups = {name: in_group(sizes, name) for name in GROUPS}
    return {name: float(right[mine].mean()) for name, mine in groups.items() if mine.any()}


def in_group(sizes: Array, group: str) -> Array:
    """Which classes belong to a group, by their training records."""
    low, high = {
        "overall": (0, np.inf),
        "many": (100, np.inf),
        "medium": (20, 100),
        "few": (0, 20),
        "tail": (0, 100),
    }[group]
    return (sizes > low) & (sizes <= high)


def choice(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each candidate by cross-validation on training records alone."""

    def cell(name: str, candidate: str, seed: int) -> Mapping[str, float]:
        X, y = records(name, "train")
        guess = np.empty_like(y)
        folds = StratifiedKFold(config["folds"], shuffle=True, random_state=seed)
        for a, b in folds.split(X, y):
            head = LinearHead(random_state=seed, **HEAD, **CANDIDATES[candidate]).fit(X[a], y[a])
            guess[b] = head.predict(X[b])
        return by_group(y, y, guess)

    return {f"{name}/{c}": partial(cell, name, c) for name in config["sets"] for c in CANDIDATES}


def render_choice(results: StudyResults, out: Path) -> str:
    """One table a set, the best first."""
    text = []
    for name in results.config["sets"]:
        rows = sorted(CANDIDATES, key=lambda c: -results.estimate(f"{name}/{c}", "overall").value)
        shown = ("overall", "many", "tail")
        table = [[c, *(f"{results.estimate(f'{name}/{c}', g).value:.1f}" for g in shown)] for c in rows]
        text += [f"## {TITLES[name]}", markdown_table(["head", *shown], table)]
    text.append(
        f"Accuracy by {results.config['folds']}-fold cross-validation on training records, mean over classes, "
        f"{len(results.config['seeds'])} ways to make folds. No test record was read."
    )
    return "\n\n".join(text)


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
    text, shown = [], ("overall", "many", "tail")
    for name in results.config["sets"]:
        table = [[q, *(f"{results.estimate(f'{name}/{q}', g).value:.1f}" for g in shown)] for q in QUESTIONS]
        text += [f"## {TITLES[name]}", markdown_table(["GenerativeOverSampler", *shown], table)]
    text.append(
        f"Accuracy by {results.config['folds']}-fold cross-validation on training records, mean over classes, "
        f"{len(results.config['seeds'])} way(s) to make folds; CVAEs trained {results.config['cvae_epochs']} epochs. "
        "No test record was read."
    )
    return "\n\n".join(text)


def methods(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each method on the test set; a CVAE is fitted once per cell, for all variances and losses."""

    def score(name: str, seed: int, X: Array, y: Array, **settings: Any) -> dict[str, float | str]:
        test, truth = records(name, "test")
        guess = LinearHead(random_state=seed, **HEAD, **settings).fit(X, y).predict(test)
        right = np.packbits(guess == truth).tobytes().hex()
        return {**by_group(records(name, "train")[1], truth, guess), "right": right}

    def simple(name: str, settings: Mapping[str, Any], seed: int) -> Mapping[str, float | str]:
        return score(name, seed, *records(name, "train"), **settings)

    def resampled(name: str, method: str, seed: int) -> Mapping[str, float | str]:
        found = METHODS[method].resample(*records(name, "train"), np.random.default_rng(seed))
        return score(name, seed, found.X, found.y)

    def cvae(name: str, preset: str, seed: int) -> Mapping[str, float | str]:
        X, y = records(name, "train")
        model = CVAEGenerator(preset, max_epochs=config["cvae_epochs"], random_state=seed).fit(X, y)
        online = {"sampler": "class_balanced", "augment": model}
        out: dict[str, float | str] = {}
        for variance in config["variances"]:
            found = score(name, seed, X, y, **online | {"augment": _With(model, variance)})
            out |= {f"variance {variance:g}/{group}": v for group, v in found.items()}
        if preset == "large":
            for loss in LOSSES:
                # As in the thesis: the loss gets the records' counts, though batches are balanced.
                ways = {loss: {"counts": "records"}, f"{loss}, counts as drawn": {"counts": "drawn"}}
                for kind, more in (ways if loss in COUNTING else {loss: {}}).items():
                    found = score(name, seed, X, y, **online, loss=loss, **more)
                    out |= {f"{kind}/{group}": v for group, v in found.items()}
            found = score(name, seed, X, y, **online, remix=True)
            out |= {f"remix/{group}": v for group, v in found.items()}
        return out

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        for method in ("none", "random", "smote", "adasyn", "gaussian"):
            out[f"{name}/{method}"] = partial(resampled, name, method)
        for loss in LOSSES[1:]:
            out[f"{name}/{loss}"] = partial(simple, name, {"loss": loss})
        heads: dict[str, dict[str, Any]] = {
            "class-balanced sampling": {"sampler": "class_balanced"},
            "remix": {"remix": True},
            "class weights": {"class_weight": "balanced"},
            "logit adjustment": {"prior": "uniform"},
            "algorithm 1 with a Gaussian": {"sampler": "class_balanced", "augment": ClassGaussian()},
            "ours": CANDIDATES[OURS],
        }
        for method, settings in heads.items():
            out[f"{name}/{method}"] = partial(simple, name, settings)
        for preset in ("small", "large"):
            out[f"{name}/cvae-{preset}"] = partial(cvae, name, preset)
    return out


class _With:
    """A fitted generator that samples with another variance; a head takes whatever can `sample`."""

    def __init__(self, model: CVAEGenerator, variance: float) -> None:
        self.classes_, self._model, self._variance = model.classes_, model, variance

    def sample(self, **budget: Any) -> tuple[Array, Array]:
        """As the generator does."""
        return self._model.sample(**{**budget, "variance": self._variance})


def render_methods(results: StudyResults, out: Path) -> str:
    """Tables 5, 6 and 8 of the thesis for each set, and paired differences of ours from all others."""
    text = []
    for name in results.config["sets"]:
        groups = [g for g in GROUPS if g in results.raw[f"{name}/ours"]["0"]]
        row = partial(_row, results, groups)
        plain = [c.split("/", 1)[1] for c in results.raw if c.startswith(f"{name}/") and "cvae" not in c]
        table = [row(m, f"{name}/{m}", "") for m in plain]
        table += [
            row(f"algorithm 1 with the {p} CVAE", f"{name}/cvae-{p}", "variance 1/") for p in ("small", "large")
        ]
        table.append(row("the large CVAE + remix", f"{name}/cvae-large", "remix/"))
        text += [f"## {TITLES[name]}", "### Methods (Table 6)", markdown_table(["method", *groups], table)]
        table = []
        for loss in LOSSES:
            table.append(row(loss, f"{name}/{'none' if loss == 'cross_entropy' else loss}", ""))
            table.append(row(f"{loss} + CVAE", f"{name}/cvae-large", f"{loss}/"))
            if loss in COUNTING:
                table.append(
                    row(f"{loss} + CVAE, counts as drawn", f"{name}/cvae-large", f"{loss}, counts as drawn/")
                )
        text += ["### Losses, alone and with the large CVAE (Tables 7, 8)", markdown_table(["loss", *groups], table)]
        table = [
            row(f"{preset}, variance {v:g}", f"{name}/cvae-{preset}", f"variance {v:g}/")
            for preset in ("small", "large")
            for v in results.config["variances"]
        ]
        text += ["### Size and variance (Tables 4, 5)", markdown_table(["CVAE", *groups], table)]
        baselines = {m: (f"{name}/{m}", "") for m in plain if m != "ours"}
        baselines |= {
            f"algorithm 1 with the {p} CVAE": (f"{name}/cvae-{p}", "variance 1/") for p in ("small", "large")
        }
        baselines |= {"the large CVAE + remix": (f"{name}/cvae-large", "remix/")}
        baselines |= {f"{loss} + CVAE": (f"{name}/cvae-large", f"{loss}/") for loss in LOSSES[1:]}
        table = [[other, *_paired(results, name, *baseline, groups)] for other, baseline in baselines.items()]
        text += [
            "### Ours minus each other: paired bootstrap over test records, means of the seeds",
            markdown_table(["against", *groups], table),
        ]
    text.append(
        f"Accuracy in percent on balanced test records, mean over classes; {len(results.config['seeds'])} seeds, "
        "95 % intervals. many: over 100 training records, medium: 21 to 100, few: 20 or fewer, tail: 100 or fewer."
    )
    return "\n\n".join(text)


def _paired(results: StudyResults, name: str, cell: str, prefix: str, groups: list[str]) -> list[str]:
    """Ours minus a baseline on the same test records, a word where 0 is within the interval."""
    truth, sizes = records(name, "test")[1], np.bincount(records(name, "train")[1], minlength=10)

    def right(cell: str, metric: str) -> Array:
        runs = [np.frombuffer(bytes.fromhex(r), dtype=np.uint8) for r in results.texts(cell, metric)]
        return np.stack([np.unpackbits(r, count=len(truth)) for r in runs]).mean(axis=0)

    gap = 100 * (right(f"{name}/ours", "right") - right(cell, prefix + "right"))
    rng, told = np.random.default_rng(0), []
    for group in groups:
        # Test classes are of one size, so that the mean over records is the mean over classes.
        found = bootstrap_interval(gap[in_group(sizes, group)[truth]], rng)
        told.append(f"{found:+.1f}" + (" (tie)" if found.low <= 0 <= found.high else ""))
    return told


def _row(results: StudyResults, groups: list[str], title: str, cell: str, prefix: str) -> list[str]:
    return [title, *(f"{results.estimate(cell, prefix + g):.1f}" for g in groups)]


STUDIES: dict[str, Study] = {
    "rebalance-choice": Study("Rare classes: which head, chosen on training records", choice, render_choice),
    "rebalance-questions": Study("Rare classes: the thesis' open questions", requests, render_questions),
    "rebalance-methods": Study("Rare classes: every method on the test set", methods, render_methods),
}
