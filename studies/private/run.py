"""AUC of a linear classifier against epsilon: how much of the utility of real data a private release keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from locum.data import read_embeddings
from locum.generate import BaseGenerator, CGANGenerator, ClassGaussian, CVAEGenerator
from locum.heads import LinearHead
from locum.metrics import auc_macro, balanced_accuracy, entropic_wasserstein
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.types import DP

# Rounded public sizes n, and deltas of at most 1 / (10 n).
PUBLIC = {"breastmnist": (500, 1e-4), "pneumoniamnist": (5000, 1e-5), "cifar10_12k": (10000, 1e-5)}
TITLES = {"breastmnist": "BreastMNIST", "pneumoniamnist": "PneumoniaMNIST", "cifar10_12k": "CIFAR-10 (10,000)"}
METHODS: dict[str, tuple[str, Callable[..., BaseGenerator]]] = {
    "gaussian": ("ClassGaussian", ClassGaussian),
    "gaussian-public": ("ClassGaussian, public covariance", partial(ClassGaussian, covariance="public")),
    "cvae": ("CVAE", CVAEGenerator),
    "federated": ("CVAE of the federated paper", partial(CVAEGenerator, preset="federated")),
    "cgan": ("CGAN of the federated paper", CGANGenerator),
}
# Records compared by the Wasserstein distance.
COMPARED = 1000


def scores(name: str, model: BaseGenerator | None, samples: int, seed: int) -> Mapping[str, float]:
    """Fit, release, sample and train a classifier, as a receiver would; tested on real records."""
    file = data_folder() / f"{name}_efflite0.npz"
    train, test = read_embeddings(file, "train"), read_embeddings(file, "test")
    X, y = train.X, train.y
    if model is not None:
        X, y = model.fit(train.X, train.y).release(no_dp=model.privacy is None).sample(samples, random_state=seed)
    head = LinearHead(random_state=seed).fit(X, y)
    classes = len(test.info.class_names)
    # A class that was never drawn counts as missed.
    proba = np.zeros((len(test), classes))
    proba[:, head.classes_.astype(int)] = head.predict_proba(test.X)
    return {
        "auc": auc_macro(test.y, proba, np.arange(classes)),
        "balanced_accuracy": balanced_accuracy(test.y, proba.argmax(axis=1)),
    }


def private(method: str, name: str, epsilon: float, seed: int) -> BaseGenerator:
    """A private generator. The insecure seed makes figures reproducible; the noise is distributed the same."""
    size, delta = PUBLIC[name]
    return METHODS[method][1](
        privacy=DP(epsilon, delta, n_public=size),
        classes=range(10) if name.startswith("cifar") else range(2),
        reference="efflite0",
        insecure_seed=seed,
        random_state=seed,
    )


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Real data, each generator without a guarantee, and with one at each epsilon."""

    def guaranteed(name: str, method: str, epsilon: float, seed: int) -> Mapping[str, float]:
        return scores(name, private(method, name, epsilon, seed), config["samples"], seed)

    def open_(name: str, method: str, seed: int) -> Mapping[str, float]:
        return scores(name, METHODS[method][1](random_state=seed), config["samples"], seed)

    def real(name: str, seed: int) -> Mapping[str, float]:
        return scores(name, None, 0, seed)

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/real"] = partial(real, name)
        for method, epsilons in _methods(config, name).items():
            if method != "gaussian-public":
                out[f"{name}/{method}"] = partial(open_, name, method)
            for epsilon in epsilons:
                out[f"{name}/{method}-{epsilon:g}"] = partial(guaranteed, name, method, epsilon)
    return out


def render(results: StudyResults, out: Path) -> str:
    """For each set AUC and balanced accuracy by epsilon, and the best generator at each."""
    config, text = results.config, []
    every = sorted({e for epsilons in config["methods"].values() for e in epsilons})
    for name in config["sets"]:
        size, delta = PUBLIC[name]
        real = results.estimate(f"{name}/real", "auc")
        text.append(f"## {TITLES[name]} (n_public {size}, delta {delta:g}); real data: AUC {real:.3f}")
        for metric, words in (("auc", "AUC"), ("balanced_accuracy", "balanced accuracy")):
            rows = []
            for method, epsilons in _methods(config, name).items():
                row = [METHODS[method][0]]
                row += [_shown(results, f"{name}/{method}-{e:g}", metric) if e in epsilons else "" for e in every]
                rows.append(
                    [*row, "" if method == "gaussian-public" else _shown(results, f"{name}/{method}", metric)]
                )
            header = [words, *(f"epsilon {e:g}" for e in every), "no guarantee"]
            text.append(markdown_table(header, rows))
        best, methods = [], _methods(config, name)
        for e in every:
            found = {m: results.estimate(f"{name}/{m}-{e:g}", "auc") for m, es in methods.items() if e in es}
            winner = max(found, key=lambda m: found[m].value)
            kept = (found[winner].value - 0.5) / (real.value - 0.5)
            best.append([f"{e:g}", METHODS[winner][0], f"{found[winner]:.3f}", f"{kept:.2f}"])
        text.append(markdown_table(["epsilon", "highest mean AUC", "AUC", "kept of real above chance"], best))
        gaps = []
        for other in [m for m in methods if m != "gaussian"]:
            both = [e for e in methods[other] if e in methods["gaussian"]]
            shown = {e: results.difference(f"{name}/gaussian-{e:g}", f"{name}/{other}-{e:g}", "auc") for e in both}
            gaps.append([METHODS[other][0], *(f"{shown[e]:+.3f}" if e in shown else "" for e in every)])
        header = ["ClassGaussian minus, paired by seed", *(f"epsilon {e:g}" for e in every)]
        text.append(markdown_table(header, gaps))
    text.append(
        f"A linear probe on {config['samples']} samples of the release, tested on real records; means over "
        f"{len(config['seeds'])} seeds with 95 % intervals. Whitening by public statistics of drawn images."
    )
    return "\n\n".join(text)


def _methods(config: Mapping[str, Any], name: str) -> dict[str, list[float]]:
    """The methods that are run on a data set, and their epsilons."""
    return {m: es for m, es in config["methods"].items() if name in config.get("only", {}).get(m, [name])}


def _shown(results: StudyResults, cell: str, metric: str) -> str:
    return f"{results.estimate(cell, metric):.3f}"


def baselines(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Distance of samples from real vectors, and size of each generator."""

    def distances(name: str, model: BaseGenerator | None, seed: int) -> Mapping[str, float]:
        file = data_folder() / f"{name}_efflite0.npz"
        train, test = read_embeddings(file, "train"), read_embeddings(file, "test")
        rng = np.random.default_rng(seed)
        X, released, trained = train.X, 0, 0
        if model is not None:
            release = model.fit(train.X, train.y).release(no_dp=model.privacy is None)
            X, _ = release.sample(COMPARED, random_state=seed)
            released = sum(value.size for value in release.tensors.values())
            trained = sum(p.numel() for p in getattr(model, "module_", nn.Identity()).parameters())
        some, real = (a[rng.permutation(len(a))[:COMPARED]] for a in (X, test.X))
        # In units of a feature's typical spread: the sets become comparable.
        unit = float(np.sqrt(train.X.var(axis=0).mean()))
        return {
            "wasserstein": entropic_wasserstein(some / unit, real / unit),
            "released": float(released),
            "trained": float(trained),
        }

    def make(name: str, method: str, epsilon: float | None, seed: int) -> Mapping[str, float]:
        if epsilon is not None:
            return distances(name, private(method, name, epsilon, seed), seed)
        return distances(name, METHODS[method][1](random_state=seed), seed)

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/real"] = lambda seed, name=name: distances(name, None, seed)
        for method in config["methods"]:
            out[f"{name}/{method}"] = partial(make, name, method, None)
            out[f"{name}/{method}-{config['epsilon']:g}"] = partial(make, name, method, config["epsilon"])
    return out


def render_baselines(results: StudyResults, out: Path) -> str:
    """One row per generator."""
    config = results.config
    sets, methods, epsilon = config["sets"], config["methods"], f"{config['epsilon']:g}"
    header = ["generator", "weights trained", "numbers released"]
    header += [f"{TITLES[s]}, {words}" for s in sets for words in ("no guarantee", f"epsilon {epsilon}")]
    rows = [["real training data", "", ""] + [_far(results, f"{s}/real") for s in sets for _ in "ab"]]
    for method in methods:
        row = [METHODS[method][0]]
        row += [f"{results.estimate(f'{sets[-1]}/{method}', kind).value:,.0f}" for kind in ("trained", "released")]
        row += [_far(results, f"{s}/{method}{e}") for s in sets for e in ("", f"-{epsilon}")]
        rows.append(row)
    return (
        markdown_table(header, rows)
        + f"\n\nWasserstein distance (entropic, p = 2) of {COMPARED} samples from as many real test vectors, in "
        f"units of a feature's typical spread; means over {len(config['seeds'])} seeds with 95 % intervals. Smaller "
        f"is closer. Sizes are those on {TITLES[sets[-1]]}, without a guarantee."
    )


def _far(results: StudyResults, cell: str) -> str:
    return f"{results.estimate(cell, 'wasserstein'):.2f}"


STUDIES = {
    "private-epsilon": Study("AUC against epsilon: what a guarantee costs", cells, render),
    "private-baselines": Study("Distance from real vectors, and size", baselines, render_baselines),
}
