"""What a guarantee costs: usefulness by epsilon on test data, the settings of the private head on training folds, and
likeness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.accounting import plan_head
from locum.data import kfold, load_reference, read_embeddings
from locum.generate import BaseGenerator, CGANGenerator, ClassGaussian, CVAEGenerator
from locum.generate.private import (
    FIRST,
    Descent,
    HeadQuery,
    PaidSums,
    Schedule,
    recentered,
    schedule_for,
    subjects,
    unit_vectors,
)
from locum.heads import bayes_head
from locum.metrics import (
    auc_macro,
    average_nearest_distance,
    balanced_accuracy,
    entropic_wasserstein,
    expected_calibration_error,
    frechet_by_class,
)
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.release import Release
from locum.types import DEFAULT_DELTA, DP, EmbeddingSet, Unit

TITLES = {
    "breastmnist": "BreastMNIST (546)",
    "pneumoniamnist": "PneumoniaMNIST (4,708)",
    "cifar10_12k": "CIFAR-10 (10,000)",
    "nih_cxr14": "NIH chest X-rays, per image (3,491)",
    "nih_cxr14-patients": "NIH chest X-rays, per patient (934)",
}
METHODS: dict[str, tuple[str, Callable[..., BaseGenerator]]] = {
    "head": ("ClassGaussian, head (default)", ClassGaussian),
    "means": ("ClassGaussian, means", partial(ClassGaussian, mechanism="means")),
    "covariance": ("ClassGaussian, covariance", partial(ClassGaussian, mechanism="covariance")),
    "cvae": ("CVAE", CVAEGenerator),
    "federated": ("CVAE of the federated paper", partial(CVAEGenerator, preset="federated")),
    "cgan": ("CGAN of the federated paper", CGANGenerator),
}
# Public sizes for networks, which need them.
SIZES = {
    "breastmnist": 500,
    "pneumoniamnist": 5000,
    "cifar10_12k": 10000,
    "nih_cxr14": 3000,
    "nih_cxr14-patients": 900,
}
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
# Records compared by distances.
COMPARED = 1000


@cache
def data(name: str, part: str) -> EmbeddingSet:
    return read_embeddings(data_folder() / f"{name.removesuffix('-patients')}_efflite0.npz", part)


def probe(penalty: float) -> Pipeline:
    """The one classifier that all figures share: scikit-learn's logistic regression on standardized features."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=300))


@cache
def tuned(name: str) -> float:
    """The penalty that is best on training folds of the real data."""
    train = data(name, "train")
    folds = list(kfold(train, 4, np.random.default_rng(0)))
    found = {}
    for penalty in PENALTIES:
        scores = []
        for kept, held in folds:
            fitted = probe(penalty).fit(train.X[kept], train.y[kept])
            scores.append(auc_macro(train.y[held], fitted.predict_proba(train.X[held]), fitted.classes_))
        found[penalty] = float(np.mean(scores))
    return max(found, key=lambda penalty: found[penalty])


def probed(name: str, X: npt.NDArray[np.float32], y: npt.NDArray[Any]) -> dict[str, float]:
    """Figures of the probe, trained on these rows and tested on real records."""
    test = data(name, "test")
    classes = len(test.info.class_names)
    fitted = probe(tuned(name)).fit(X, y)
    # A class that was never drawn counts as missed.
    proba = np.zeros((len(test), classes))
    proba[:, fitted.classes_.astype(int)] = fitted.predict_proba(test.X)
    return figures(test.y, proba)


def figures(y: npt.NDArray[np.int64], proba: npt.NDArray[np.float64]) -> dict[str, float]:
    return {
        "auc": auc_macro(y, proba, np.arange(proba.shape[1])),
        "balanced_accuracy": balanced_accuracy(y, proba.argmax(axis=1)),
        "calibration_error": expected_calibration_error(y, proba),
    }


def of_release(name: str, release: Release, samples: int, seed: int) -> dict[str, float]:
    """The probe on samples and, of a Gaussian, its own rule."""
    out = probed(name, *release.sample(samples, random_state=seed))
    if "means" in release.tensors:
        test = data(name, "test")
        out |= {
            f"rule_{key}": value for key, value in figures(test.y, bayes_head(release).predict_proba(test.X)).items()
        }
    return out


def private(method: str, name: str, epsilon: float, delta: float, seed: int) -> BaseGenerator:
    """A private generator. The insecure seed makes figures reproducible; the noise is distributed the same."""
    size = None if method in ("head", "means", "covariance") else SIZES[name]
    return METHODS[method][1](
        privacy=DP(epsilon, delta, unit=unit_of(name), n_public=size),
        classes=range(len(data(name, "train").info.class_names)),
        reference="efflite0",
        insecure_seed=seed,
        random_state=seed,
    )


def unit_of(name: str) -> Unit:
    return "subject" if name.endswith("-patients") else "record"


def fitted(model: BaseGenerator, name: str) -> BaseGenerator:
    train = data(name, "train")
    return model.fit(train.X, train.y, train.subject)


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Real data, a Gaussian without a guarantee, and each generator at each epsilon."""
    samples = config["samples"]

    def guaranteed(name: str, method: str, epsilon: float, delta: float, seed: int) -> Mapping[str, float]:
        release = fitted(private(method, name, epsilon, delta, seed), name).release()
        return of_release(name, release, samples, seed)

    def open_(name: str, seed: int) -> Mapping[str, float]:
        release = fitted(ClassGaussian(random_state=seed), name).release(no_dp=True)
        return of_release(name, release, samples, seed)

    def real(name: str, seed: int) -> Mapping[str, float]:
        train = data(name, "train")
        return {**probed(name, train.X, train.y), "penalty": tuned(name)}

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/real"] = partial(real, name)
        out[f"{name}/open"] = partial(open_, name)
        for method, epsilons in _methods(config, name).items():
            for epsilon in epsilons:
                for delta in _deltas(config, method, epsilon):
                    out[_cell(name, method, epsilon, delta)] = partial(guaranteed, name, method, epsilon, delta)
    return out


def _deltas(config: Mapping[str, Any], method: str, epsilon: float) -> list[float]:
    """The delta of all rows, and the default of `fit` for the head at a few epsilons."""
    return [config["delta"], *([DEFAULT_DELTA] if method == "head" and epsilon in config["by_default"] else [])]


def _cell(name: str, method: str, epsilon: float, delta: float) -> str:
    return f"{name}/{method}-{epsilon:g}-{delta:g}"


def _methods(config: Mapping[str, Any], name: str) -> dict[str, list[float]]:
    """The methods that are run on a data set, and their epsilons."""
    return {m: es for m, es in config["methods"].items() if name in config.get("only", {}).get(m, [name])}


def render(results: StudyResults, out: Path) -> str:
    """For each set: the probe on samples and the release's own rule, by epsilon."""
    config, text = results.config, []
    every = sorted({e for epsilons in config["methods"].values() for e in epsilons})
    usual = config["delta"]
    for name in config["sets"]:
        real = {m: results.estimate(f"{name}/real", m).value for m in ("auc", "balanced_accuracy", "penalty")}
        text.append(
            f"## {TITLES[name]}; real data: AUC {real['auc']:.3f}, balanced accuracy {real['balanced_accuracy']:.3f} "
            f"(C = {real['penalty']:g})"
        )
        for metric, words in (
            ("auc", "AUC, probe on samples"),
            ("rule_auc", "AUC, the release's own rule"),
            ("balanced_accuracy", "balanced accuracy, probe"),
            ("rule_balanced_accuracy", "balanced accuracy, own rule"),
        ):
            rows = []
            for method, epsilons in _methods(config, name).items():
                for delta in [usual, DEFAULT_DELTA] if method == "head" else [usual]:
                    label = METHODS[method][0] + ("" if delta == usual else f", delta {delta:g}")
                    known = [e for e in epsilons if delta in _deltas(config, method, e)]
                    places = [_cell(name, method, e, delta) if e in known else "" for e in every]
                    row = [label, *(_shown(results, place, metric) for place in places)]
                    if any(row[1:]):
                        open_ = method == "head" and delta == usual
                        rows.append([*row, _shown(results, f"{name}/open", metric) if open_ else ""])
            text.append(markdown_table([words, *(f"epsilon {e:g}" for e in every), "no guarantee"], rows))
        gaps = []
        for other in [m for m in _methods(config, name) if m != "head"]:
            both = [e for e in _methods(config, name)[other] if e in _methods(config, name)["head"]]
            shown = {
                e: results.difference(_cell(name, "head", e, usual), _cell(name, other, e, usual), "auc")
                for e in both
            }
            gaps.append([METHODS[other][0], *(f"{shown[e]:+.3f}" if e in shown else "" for e in every)])
        text.append(
            markdown_table(["AUC of the head minus, paired by seed", *(f"epsilon {e:g}" for e in every)], gaps)
        )
    text.append(
        f"The probe is scikit-learn's logistic regression on {config['samples']} standardized samples, with the C "
        f"that is best on training folds of the real data; tested on real records. Delta {usual:g} unless a row "
        f"says otherwise; {DEFAULT_DELTA:g} is the default of `fit`. Means over {len(config['seeds'])} seeds with "
        "95 % intervals. Whitening by public statistics of drawn images."
    )
    return "\n\n".join(text)


def _shown(results: StudyResults, cell: str, metric: str) -> str:
    if not cell or metric not in next(iter(results.raw[cell].values())):
        return ""
    return f"{results.estimate(cell, metric):.3f}"


# Changes of the schedule, each alone: what the rule of `schedule_for` is compared with.
VARIANTS: dict[str, Callable[[Schedule], dict[str, Any]]] = {
    "the rule": lambda s: {},
    "no steps": lambda s: {"start": 0.88, "steps": 0},
    "half the steps": lambda s: {"steps": max(1, s.steps // 2), "learning_rate": 2 * s.learning_rate},
    "twice the steps": lambda s: {"steps": 2 * s.steps, "learning_rate": s.learning_rate / 2},
    "half the learning rate": lambda s: {"learning_rate": s.learning_rate / 2},
    "twice the learning rate": lambda s: {"learning_rate": 2 * s.learning_rate},
    "clip 1": lambda s: {"clip": 1.0},
    "clip 0.25": lambda s: {"clip": 0.25},
    "start with 0.3": lambda s: {"start": 0.3},
    "momentum 0.9": lambda s: {"momentum": 0.9},
    "no decay": lambda s: {"decay": 0.0},
}


def head_on_fold(name: str, epsilon: float, variant: str, number: int) -> Mapping[str, float]:
    """The AUC of the head itself on a training fold that it did not see, with one setting of the schedule changed."""
    whole = data(name, "train")
    kept, held = list(kfold(whole, 4, np.random.default_rng(0)))[number]
    train, test = whole.take(kept), whole.take(held)
    reference, d, classes = load_reference("efflite0", whole.dim), whole.dim, len(whole.info.class_names)
    plan = plan_head(DP(epsilon, 1e-5))
    owners = subjects(train.subject) if unit_of(name) == "subject" else None
    query = HeadQuery(train.X, train.y, owners, classes, reference)
    # Twice as many steps as the rule allows at most would not be paid for; in a study nothing is.
    paid = PaidSums(replace(plan, sums=200), None, name, "study", insecure_seed=number)
    first = paid.draw(lambda: query.first(FIRST), 0.12)
    descent = Descent(plan.noise_multiplier, classes, d)
    descent.take(first)
    usual = schedule_for(descent.count, classes, d, plan.noise_multiplier)
    descent = Descent(plan.noise_multiplier, classes, d, replace(usual, **VARIANTS[variant](usual)))
    descent.take(first)
    query.recenter(descent.center)
    while not descent.done:
        sums = query.class_sums if descent.taken == 1 else lambda: query.gradient(descent.rule, descent.clip)
        descent.take(paid.draw(sums, descent.share))
    head = descent.head
    vectors = recentered(unit_vectors(test.X, reference)[0], head.center)
    scores = vectors @ head.weights.T + np.log(head.prior)
    scores -= scores.max(axis=1, keepdims=True)
    proba = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return {**figures(test.y, proba), "steps": float(head.schedule.steps)}


def schedule_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each variant of the schedule on each task; seeds are folds."""
    return {
        f"{name}-{epsilon:g}/{variant}": partial(head_on_fold, name, epsilon, variant)
        for name, epsilon in config["tasks"]
        for variant in config.get("variants", VARIANTS)
    }


def render_schedule(results: StudyResults, out: Path) -> str:
    """AUC of the rule, and what each change gains or loses, paired by fold."""
    config, rows = results.config, []
    tasks = [f"{name}-{epsilon:g}" for name, epsilon in config["tasks"]]
    for variant in config.get("variants", VARIANTS):
        if variant == "the rule":
            row = [f"{results.estimate(f'{task}/{variant}', 'auc').value:.3f}" for task in tasks]
        else:
            gaps = [results.difference(f"{task}/{variant}", f"{task}/the rule", "auc") for task in tasks]
            row = [f"{gap.value:+.3f}" + ("" if gap.low <= 0 <= gap.high else " *") for gap in gaps]
        rows.append([variant, *row])
    steps = [f"{results.estimate(f'{task}/the rule', 'steps').value:.0f}" for task in tasks]
    rows.append(["steps of the rule", *steps])
    header = ["AUC on training folds", *(f"{TITLES[n].split(' (')[0]}, epsilon {e:g}" for n, e in config["tasks"])]
    return (
        markdown_table(header, rows)
        + f"\n\nMeans over {len(config['seeds'])} training folds at delta 1e-5; the head "
        "itself, on recentered vectors. Rows below the first are differences from it, paired by fold; a star marks "
        "those whose 95 % interval excludes 0. No test data are read."
    )


def baselines(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Distance of samples from real vectors, and size of each generator."""

    def distances(name: str, release: Release | None, seed: int) -> Mapping[str, float]:
        train, test = data(name, "train"), data(name, "test")
        rng = np.random.default_rng(seed)
        X, y, released = train.X, train.y, 0
        if release is not None:
            X, y = release.sample(max(COMPARED, len(train)), random_state=seed)
            released = sum(value.size for value in release.tensors.values())
        some, real = (a[rng.permutation(len(a))[:COMPARED]] for a in (X, test.X))
        # In units of a feature's typical spread: the sets become comparable.
        unit = float(np.sqrt(train.X.var(axis=0).mean()))
        return {
            "wasserstein": entropic_wasserstein(some / unit, real / unit),
            "frechet": float(frechet_by_class(X / unit, y, test.X / unit, test.y).value),
            "nearest": float(average_nearest_distance(some / unit, train.X / unit).value),
            "released": float(released),
        }

    def make(name: str, method: str, epsilon: float, seed: int) -> Mapping[str, float]:
        return distances(name, fitted(private(method, name, epsilon, 1e-5, seed), name).release(), seed)

    def open_(name: str, seed: int) -> Mapping[str, float]:
        return distances(name, fitted(ClassGaussian(random_state=seed), name).release(no_dp=True), seed)

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/real"] = lambda seed, name=name: distances(name, None, seed)
        out[f"{name}/open"] = partial(open_, name)
        for method in config["methods"]:
            out[f"{name}/{method}"] = partial(make, name, method, config["epsilon"])
    return out


def render_baselines(results: StudyResults, out: Path) -> str:
    """One row per generator."""
    config = results.config
    kinds = {"wasserstein": "Wasserstein", "frechet": "Frechet, per class", "nearest": "to the nearest record"}
    text = []
    for name in config["sets"]:
        names = {"real": "real training data", "open": "ClassGaussian, no guarantee"}
        names |= {m: f"{METHODS[m][0]}, epsilon {config['epsilon']:g}" for m in config["methods"]}
        rows = [
            [
                words,
                *(f"{results.estimate(f'{name}/{cell}', kind):.2f}" for kind in kinds),
                f"{results.estimate(f'{name}/{cell}', 'released').value:,.0f}",
            ]
            for cell, words in names.items()
        ]
        text += [f"## {TITLES[name]}", markdown_table(["distance", *kinds.values(), "numbers released"], rows)]
    text.append(
        f"Distances of samples from real test vectors (Wasserstein: entropic, p = 2, {COMPARED} of each), and of "
        f"{COMPARED} samples from the nearest training record, in units of a feature's typical spread; means over "
        f"{len(config['seeds'])} seeds with 95 % intervals. Smaller is closer."
    )
    return "\n\n".join(text)


STUDIES = {
    "private-epsilon": Study("AUC against epsilon: what a guarantee costs", cells, render),
    "private-schedule": Study("The settings of the private head, on training folds", schedule_cells, render_schedule),
    "private-baselines": Study("Distance from real vectors, and size", baselines, render_baselines),
}
