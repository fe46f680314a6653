"""What a guarantee costs: usefulness by epsilon on test data, settings of the private head and numbers per class on
training folds, and likeness."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from prv_tails import render_tails, tail_cells
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.accounting import plan_head, plan_query
from locum.data import kfold, load_reference
from locum.errors import ConfigError
from locum.generate import BaseGenerator, CGANGenerator, ClassGaussian, CVAEGenerator
from locum.generate.private import (
    FIRST,
    MEANS,
    Descent,
    HeadQuery,
    PaidSums,
    Schedule,
    measured,
    query_sums,
    recentered,
    schedule_for,
    subjects,
    unit_vectors,
)
from locum.generate.private.estimate import shrunk
from locum.heads import bayes_head
from locum.metrics import (
    auc_macro,
    average_nearest_distance,
    balanced_accuracy,
    entropic_wasserstein,
    expected_calibration_error,
    frechet_by_class,
)
from locum.recipes import SetNeeds, Study, StudyResults, study_set, study_splits
from locum.recipes.forecasting import signal_of
from locum.recipes.study import Cell, markdown_table
from locum.recipes.study_sets import set_key
from locum.release import Release
from locum.types import DEFAULT_DELTA, DP, EmbeddingSet, Estimate, Unit

Array = npt.NDArray[np.float64]

METHODS: dict[str, tuple[str, Callable[..., BaseGenerator]]] = {
    "head": ("ClassGaussian, head (default)", ClassGaussian),
    "means": ("ClassGaussian, means", partial(ClassGaussian, mechanism="means")),
    "covariance": ("ClassGaussian, covariance", partial(ClassGaussian, mechanism="covariance")),
    "cvae": ("CVAE, our preset", CVAEGenerator),
    # Its beta and no decoder noise. Vectors are scaled by public statistics: its exact bounds are not paid for (F6).
    "federated-paper": (
        "CVAE of the federated paper",
        partial(CVAEGenerator, preset="federated", beta=0.1, decoder_noise="none"),
    ),
    "federated": (
        "CVAE of the federated paper's size, our beta and noise",
        partial(CVAEGenerator, preset="federated"),
    ),
    "cgan": ("CGAN of the federated paper's size, our training", CGANGenerator),
}
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
# Records compared by distances.
COMPARED = 1000


def data(name: str, part: str) -> EmbeddingSet:
    return study_splits(name)[part]


def size_of(name: str) -> int:
    """A public size for networks, which need one: as declared, or the number of units rounded down to fifties."""
    declared, train = study_set(name).more.get("public_size"), data(name, "train")
    units = len(np.unique(train.subject)) if unit_of(name) == "subject" else len(train)
    return int(declared or max(50, units // 50 * 50))


def reference_of(name: str) -> str:
    """Public statistics that whiten a set."""
    return study_set(name).reference_of(data(name, "train"))


def probe(penalty: float) -> Pipeline:
    """The one classifier that all figures share: scikit-learn's logistic regression on standardized features."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=300))


def tuned(name: str) -> float:
    """The penalty that is best on training folds of the real data."""
    return _tuned(name, set_key(name))


@cache
def _tuned(name: str, key: tuple[str, int]) -> float:
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
    size = None if method in ("head", "means", "covariance") else size_of(name)
    return METHODS[method][1](
        privacy=DP(epsilon, delta, unit=unit_of(name), n_public=size),
        classes=range(len(data(name, "train").info.class_names)),
        reference=reference_of(name),
        insecure_seed=seed,
        random_state=seed,
    )


def unit_of(name: str) -> Unit:
    return study_set(name).unit


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


def check_methods(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for methods that there are not, or sets on which the head is left out."""
    if unknown := [m for m in config["methods"] if m not in METHODS]:
        raise ConfigError(f"There is no method {unknown[0]!r}; there are {', '.join(METHODS)}.")
    for name in config["sets"]:
        if "head" not in _methods(config, name):
            raise ConfigError(f"`methods` must have 'head' on {name!r}: all others are compared with it.")


def _deltas(config: Mapping[str, Any], method: str, epsilon: float) -> list[float]:
    """The delta of all rows, and the default of `fit` for the head at a few epsilons."""
    return [config["delta"], *([DEFAULT_DELTA] if method == "head" and epsilon in config["by_default"] else [])]


def _cell(name: str, method: str, epsilon: float, delta: float) -> str:
    return f"{name}/{method}-{epsilon:g}-{delta:g}"


def _methods(config: Mapping[str, Any], name: str) -> dict[str, list[float]]:
    """The methods that are run on a data set, and their epsilons."""
    chosen, only = config["methods"], config.get("only", {})
    return {m: chosen[m] for m in METHODS if m in chosen and name in only.get(m, [name])}


def render(results: StudyResults, out: Path) -> str:
    """For each set: the probe on samples and the release's own rule, by epsilon."""
    config, text = results.config, []
    every = sorted({e for epsilons in config["methods"].values() for e in epsilons})
    usual = config["delta"]
    (out / "private-forecast.json").write_text(json.dumps(forecast_table(results), indent=1) + "\n")
    for name in config["sets"]:
        real = {m: results.estimate(f"{name}/real", m).value for m in ("auc", "balanced_accuracy", "penalty")}
        text.append(
            f"## {study_set(name).label}; real data: AUC {real['auc']:.3f}, balanced accuracy "
            f"{real['balanced_accuracy']:.3f} (C = {real['penalty']:g})"
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


def forecast_table(results: StudyResults) -> dict[str, Any]:
    """What each release of the head kept, by its signal: the table that forecasts go by."""
    config, releases = results.config, []
    for name in config["sets"]:
        train = data(name, "train")
        units = len(np.unique(train.subject)) if unit_of(name) == "subject" else len(train)
        classes = len(train.info.class_names)
        real = results.estimate(f"{name}/real", "auc").value
        for epsilon in _methods(config, name)["head"]:
            noise = plan_head(DP(epsilon, config["delta"])).noise_multiplier
            found = results.estimate(_cell(name, "head", epsilon, config["delta"]), "rule_auc").value
            releases.append(
                {
                    "set": name,
                    "epsilon": epsilon,
                    "signal": round(signal_of(units, classes, train.dim, noise), 4),
                    "kept": round(max(0.0, (found - 0.5) / (real - 0.5)), 4),
                }
            )
    return {"study": "private-epsilon", "releases": releases}


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
    reference, d, classes = load_reference(reference_of(name), whole.dim), whole.dim, len(whole.info.class_names)
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


def other_tasks(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Each given set at each epsilon of the settings."""
    epsilons = sorted({float(epsilon) for _, epsilon in config["tasks"]})
    return {"tasks": [[name, epsilon] for name in names for epsilon in epsilons]}


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
    header = ["AUC on training folds", *(f"{study_set(n).title}, epsilon {e:g}" for n, e in config["tasks"])]
    return (
        markdown_table(header, rows)
        + f"\n\nMeans over {len(config['seeds'])} training folds at delta 1e-5; the head "
        "itself, on recentered vectors. Rows below the first are differences from it, paired by fold; a star marks "
        "those whose 95 % interval excludes 0. No test data are read."
    )


# The share of the precision for one more number per class.
EXTRA = 0.02


def class_variance_on_fold(name: str, epsilon: float | None, number: int) -> Mapping[str, float]:
    """AUC of Gaussian rules with class means and isotropic spread on a training fold that they did not see.

    Vectors are whitened with public statistics and scaled to length 1. A level or a mean length per class is measured
    exactly without an epsilon; with one it is a noisy sum of one number per class, for EXTRA of the precision. The
    spread of lengths around their means is taken as known.
    """
    whole = data(name, "train")
    kept, held = list(kfold(whole, 4, np.random.default_rng(0)))[number]
    train, test = whole.take(kept), whole.take(held)
    d, classes, rng = whole.dim, len(whole.info.class_names), np.random.default_rng(number)
    reference = load_reference(reference_of(name), d)
    noise = 1e-6 if epsilon is None else plan_query(DP(epsilon, 1e-5)).noise_multiplier
    sums = query_sums(train.X, train.y, None, classes, reference, MEANS)
    # One draw for all rules: they differ in what they give up.
    drawn, extra = rng.normal(size=len(sums)), rng.normal(size=(2, classes))
    (unit, length), (seen, seen_length) = (unit_vectors(part.X, reference) for part in (train, test))

    def means(share: float) -> tuple[Array, Array, Array]:
        std = noise / math.sqrt(share)
        found = measured(sums + std * drawn, std, classes, d, MEANS)
        assert found.means is not None
        return shrunk(found.means, found.error), found.counts, found.shares

    def per_class(values: Array, counts: Array, noisy: Array, most: float) -> Array:
        """The mean of a number in 0..`most` per class, shrunk toward their mean by what noise explains."""
        std = noise / math.sqrt(EXTRA) * most
        total = np.bincount(train.y, weights=np.minimum(values, most), minlength=classes) + std * noisy
        shown, center = total / counts, total.sum() / counts.sum()
        scatter = float(np.square(shown - center).sum()) / max(classes - 1, 1)
        keep = max(0.0, 1 - float(np.square(std / counts).mean()) / max(scatter, 1e-300))
        return np.asarray(center + keep * (shown - center))

    (at, _, prior), (less, fewer, rarer) = means(1.0), means(1.0 if epsilon is None else 1 - EXTRA)
    shared = np.full(classes, max(1 - float(prior @ np.square(at).sum(axis=1)), 0.1) / d)
    level = per_class(np.square(unit - less[train.y]).sum(axis=1), fewer, extra[0], 4.0) / d
    typical = per_class(length, fewer, extra[1], 1.0)
    spread = float(np.std(length - typical[train.y]))
    by_length = -np.square((seen_length[:, None] - typical) / spread) / 2
    scores = {
        "means": _isotropic(seen, at, shared, prior),
        "level": _isotropic(seen, less, np.maximum(level, shared / 4), rarer),
        "length": _isotropic(seen, less, shared, rarer) + by_length,
        "length alone": by_length + np.log(rarer),
    }
    return {rule: auc_macro(test.y, _log_odds(found), np.arange(classes)) for rule, found in scores.items()}


def _isotropic(X: Array, means: Array, level: Array, prior: Array) -> Array:
    """Log densities of isotropic Gaussians with a variance per class, plus the log of the prior."""
    square = np.square(X).sum(axis=1, keepdims=True) - 2 * X @ means.T + np.square(means).sum(axis=1)
    return np.asarray(-square / (2 * level) - X.shape[1] / 2 * np.log(level) + np.log(prior))


def _log_odds(scores: Array) -> Array:
    """Each class against all others. Probabilities would be 0 or 1 to the last bit, and tie."""
    others = [np.logaddexp.reduce(np.delete(scores, c, axis=1), axis=1) for c in range(scores.shape[1])]
    return np.asarray(scores - np.stack(others, axis=1))


def variance_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each set without noise and at each epsilon; seeds are folds."""
    return {
        f"{name}/{epsilon or 'none'}": partial(class_variance_on_fold, name, epsilon or None)
        for name in config["sets"]
        for epsilon in config["epsilons"]
    }


def render_variance(results: StudyResults, out: Path) -> str:
    """AUC with one shared level, and what a number per class gains or loses, paired by fold."""
    config, rows = results.config, []
    words = {"level": "a level per class", "length": "a length per class", "length alone": "the length alone"}
    for name in config["sets"]:
        for epsilon in config["epsilons"]:
            cell = f"{name}/{epsilon or 'none'}"
            row = [study_set(name).title, f"{epsilon:g}" if epsilon else "no noise"]
            row.append(f"{results.estimate(cell, 'means').value:.3f}")
            for rule in ("level", "length"):
                gaps = zip(results.runs(cell, rule), results.runs(cell, "means"), strict=True)
                row.append(f"{Estimate.from_runs([a - b for a, b in gaps]):+.3f}")
            rows.append([*row, f"{results.estimate(cell, 'length alone').value:.3f}"])
    header = ["set", "epsilon", "AUC, one shared level", *words.values()]
    return (
        markdown_table(header, rows)
        + f"\n\nMeans over {len(config['seeds'])} training folds, per record, at delta 1e-5; class means of publicly "
        "whitened vectors of length 1, isotropic Gaussians around them, and their Bayes rule. The next two columns "
        "are differences from the shared level, paired by fold, with 95 % intervals; with noise they pay for their "
        f"number per class with {EXTRA:g} of the precision. The last is the AUC of the length alone. No test data "
        "are read."
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
            "frechet": frechet_by_class(X / unit, y, test.X / unit, test.y).average,
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
        text += [
            f"## {study_set(name).label}",
            markdown_table(["distance", *kinds.values(), "numbers released"], rows),
        ]
    text.append(
        f"Distances of samples from real test vectors (Wasserstein: entropic, p = 2, {COMPARED} of each), and of "
        f"{COMPARED} samples from the nearest training record, in units of a feature's typical spread; means over "
        f"{len(config['seeds'])} seeds with 95 % intervals. Smaller is closer."
    )
    return "\n\n".join(text)


STUDIES = {
    "private-epsilon": Study(
        "AUC against epsilon: what a guarantee costs",
        cells,
        render,
        # Four folds choose the penalty of the probe.
        sets=SetNeeds("sets", per_class=lambda config: 4),
        check=check_methods,
        names={"methods": None, "only": None},
    ),
    "private-schedule": Study(
        "The settings of the private head, on training folds",
        schedule_cells,
        render_schedule,
        sets=SetNeeds(
            "tasks",
            parts=("train",),
            per_class=lambda config: 4,
            choose=other_tasks,
            names=lambda config: [name for name, _ in config["tasks"]],
        ),
        most_seeds=4,
    ),
    "private-class-variance": Study(
        "A level or a length per class, on training folds",
        variance_cells,
        render_variance,
        sets=SetNeeds("sets", parts=("train",), per_class=lambda config: 4),
        most_seeds=4,
    ),
    "private-tails": Study(
        "Rare classes under a guarantee, by mechanism, on training folds",
        tail_cells,
        render_tails,
        sets=SetNeeds("sets", parts=("train",), per_class=lambda config: config["folds"]),
    ),
    "private-baselines": Study(
        "Distance from real vectors, and size", baselines, render_baselines, sets=SetNeeds("sets")
    ),
}
