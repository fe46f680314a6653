"""AUC of an ordinary probe against epsilon: what a private release keeps of what real data give."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data import read_embeddings
from understudy.generate import BaseGenerator, ClassGaussian
from understudy.heads import LinearHead
from understudy.metrics import auc_macro, balanced_accuracy
from understudy.recipes.study import Cell, Study, StudyResults, data_folder, markdown_table
from understudy.types import DP

# Rounded sizes that may be known, and deltas of at most a tenth of one over them.
PUBLIC = {"breastmnist": (500, 1e-4), "pneumoniamnist": (5000, 1e-5), "cifar10_12k": (10000, 1e-5)}
TITLES = {"breastmnist": "BreastMNIST", "pneumoniamnist": "PneumoniaMNIST", "cifar10_12k": "CIFAR-10 (10,000)"}


def scores(name: str, model: BaseGenerator | None, samples: int, seed: int) -> Mapping[str, float]:
    """Fit, release, sample, probe: the receiver's way, tested on real records."""
    file = data_folder() / f"{name}_efflite0.npz"
    train, test = read_embeddings(file, "train"), read_embeddings(file, "test")
    X, y = train.X, train.y
    if model is not None:
        release = model.fit(train.X, train.y).release()
        X, y = release.sample(samples, random_state=seed)
    head = LinearHead(random_state=seed).fit(X, y)
    classes = len(test.info.class_names)
    # A class that was never drawn counts as missed.
    proba = np.zeros((len(test), classes))
    proba[:, head.classes_.astype(int)] = head.predict_proba(test.X)
    return {
        "auc": auc_macro(test.y, proba, np.arange(classes)),
        "balanced_accuracy": balanced_accuracy(test.y, proba.argmax(axis=1)),
    }


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Real data, the generator without a promise, and with one at each epsilon."""

    def private(name: str, epsilon: float, seed: int) -> Mapping[str, float]:
        size, delta = PUBLIC[name]
        classes = range(10) if name.startswith("cifar") else range(2)
        # Test coins: the figures can be computed again. Their noise is that of any other coins.
        model = ClassGaussian(
            privacy=DP(epsilon, delta, n_public=size),
            classes=classes,
            reference="efflite0",
            test_coins=seed,
            random_state=seed,
        )
        return scores(name, model, config["samples"], seed)

    def open_(name: str, seed: int) -> Mapping[str, float]:
        return scores(name, ClassGaussian(random_state=seed), config["samples"], seed)

    def real(name: str, seed: int) -> Mapping[str, float]:
        return scores(name, None, 0, seed)

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/real"] = partial(real, name)
        out[f"{name}/gaussian"] = partial(open_, name)
        for epsilon in config["epsilons"]:
            out[f"{name}/gaussian-{epsilon:g}"] = partial(private, name, epsilon)
    return out


def render(results: StudyResults, out: Path) -> str:
    """One table a set, with the share of what real data give above chance."""
    text = []
    for name in results.config["sets"]:
        size, delta = PUBLIC[name]
        real = results.estimate(f"{name}/real", "auc")
        rows = [["real data", f"{real:.3f}", _bacc(results, f"{name}/real"), "1.00"]]
        labels = {"gaussian": "ClassGaussian, no promise"} | {
            f"gaussian-{e:g}": f"ClassGaussian, epsilon {e:g}" for e in results.config["epsilons"]
        }
        for cell, label in labels.items():
            auc = results.estimate(f"{name}/{cell}", "auc")
            kept = (auc.value - 0.5) / (real.value - 0.5)
            rows.append([label, f"{auc:.3f}", _bacc(results, f"{name}/{cell}"), f"{kept:.2f}"])
        text += [
            f"## {TITLES[name]} (n_public {size}, delta {delta:g})",
            markdown_table(["trained on", "AUC", "balanced accuracy", "kept of real above chance"], rows),
        ]
    text.append(
        f"A linear probe on {results.config['samples']} samples of the release, tested on real records; means over "
        f"{len(results.config['seeds'])} seeds with 95 % intervals. Whitening by public statistics of drawn images."
    )
    return "\n\n".join(text)


def _bacc(results: StudyResults, cell: str) -> str:
    return f"{results.estimate(cell, 'balanced_accuracy'):.3f}"


STUDIES = {
    "private-epsilon": Study("AUC against epsilon: what a promise costs", cells, render),
}
