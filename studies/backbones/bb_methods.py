"""What is run on the vectors of each backbone: the replica paper's Table 1, the thesis' Table 9 and private fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from bb_vectors import Place, reference, vectors
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.data import kfold, stratified_split
from locum.errors import DivergedError
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.heads import LinearHead, bayes_head
from locum.metrics import auc_macro, average_nearest_distance, dispersion, score_all
from locum.recipes.study import Cell
from locum.recipes.study_sets import backbone_label
from locum.release import Release
from locum.types import DP, EmbeddingSet

# CVAEs by their names in the settings, which say where each runs, and for how many epochs at most.
CVAES: dict[str, Callable[[int, int], CVAEGenerator]] = {
    "cvae-replica": lambda epochs, seed: CVAEGenerator(
        "replica", authors_compat=True, max_epochs=epochs, random_state=seed
    ),
    "cvae-thesis": lambda epochs, seed: CVAEGenerator(
        "large", authors_compat=True, max_epochs=epochs, random_state=seed
    ),
    "cvae": lambda epochs, seed: CVAEGenerator("replica", max_epochs=epochs, random_state=seed),
}
THESIS = {"accuracy": "accuracy", "f1_weighted": "weighted F1", "cohen_kappa": "Cohen's kappa"}
# The k-Same that stands beside the thesis' CVAE, as in `thesis-table9`.
THESIS_K = 5
# The most first weights that a CVAE which diverges gets.
RESTARTS = 10
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)

Rows = tuple[np.ndarray, np.ndarray]
Figures = dict[str, float]


@dataclass(frozen=True)
class Task:
    """A set by a backbone, with the one scaler that all methods share: fitted on the real training split."""

    train: EmbeddingSet
    val: EmbeddingSet
    test: EmbeddingSet
    mean: np.ndarray
    std: np.ndarray

    def z(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self.mean) / self.std)

    @property
    def counts(self) -> dict[int, int]:
        return {c: int(n) for c, n in enumerate(self.train.counts) if n}


@lru_cache(maxsize=4)
def task(place: Place) -> Task:
    splits = vectors(place)
    if "val" not in splits:
        # As the replica paper does without a validation split: a stratified tenth.
        splits |= stratified_split(splits["train"], {"train": 0.9, "val": 0.1}, rng=np.random.default_rng(0))
    train = splits["train"]
    std = train.X.std(axis=0)
    # A feature that is constant in training is left unscaled.
    return Task(train, splits["val"], splits["test"], train.X.mean(axis=0), np.where(std > 1e-6, std, 1))


def table1(t: Task, rows: Rows, noise: list[int], seed: int) -> Figures:
    """AUC of a linear head at each noise on test vectors, as in `replica-results` (offline)."""
    head = LinearHead(standardize=False, random_state=seed)
    head.fit(t.z(rows[0]), rows[1], validation=(t.z(t.val.X), t.val.y))
    clean, out = t.z(t.test.X), {}
    for sigma in noise:
        rng = np.random.default_rng([seed, sigma])
        runs = [
            auc_macro(t.test.y, head.predict_proba(clean + sigma * rng.normal(size=clean.shape)), head.classes_)
            for _ in range(1 if sigma == 0 else 3)
        ]
        out[f"auc{sigma}"] = float(np.mean(runs))
    return out


def figure2(t: Task, X: np.ndarray) -> Figures:
    """The distance to the nearest record, and the spread, of z-scored vectors."""
    return {"D": average_nearest_distance(t.z(X), t.z(t.train.X)).value, "dispersion": dispersion(t.z(X)).mean}


def table9(t: Task, rows: Rows, seed: int) -> Figures:
    """Scores of one layer on raw embeddings that stops on a tenth of its own rows, as in `thesis-table9`."""
    head = LinearHead(batch_size=256, max_epochs=200, patience=10, standardize=False, random_state=seed).fit(*rows)
    scores = score_all(t.test.y, head.predict_proba(t.test.X), head.classes_)
    return {metric: scores[metric] for metric in THESIS}


def probe(penalty: float) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=300))


@lru_cache(maxsize=4)
def tuned(place: Place) -> float:
    """The penalty that is best on training folds of the real data."""
    train, found = task(place).train, {}
    folds = list(kfold(train, 4, np.random.default_rng(0)))
    for penalty in PENALTIES:
        scores = []
        for kept, held in folds:
            fitted = probe(penalty).fit(train.X[kept], train.y[kept])
            scores.append(auc_macro(train.y[held], fitted.predict_proba(train.X[held]), fitted.classes_))
        found[penalty] = float(np.mean(scores))
    return max(found, key=lambda penalty: found[penalty])


def probed(place: Place, rows: Rows) -> Figures:
    """AUC of the probe of `private-epsilon`, trained on these rows and tested on real records."""
    test = task(place).test
    fitted = probe(tuned(place)).fit(*rows)
    # A class that was never drawn counts as missed.
    proba = np.zeros((len(test), len(test.info.class_names)))
    proba[:, fitted.classes_.astype(int)] = fitted.predict_proba(test.X)
    return {"private/auc": auc_macro(test.y, proba, np.arange(proba.shape[1]))}


def of_gaussian(place: Place, release: Release, samples: int, seed: int) -> Figures:
    """The probe on samples, and the release's own rule."""
    test = task(place).test
    rule = bayes_head(release).predict_proba(test.X)
    own = {"private/rule_auc": auc_macro(test.y, rule, np.arange(rule.shape[1]))}
    return probed(place, release.sample(samples, random_state=seed)) | own


def real(place: Place, config: Mapping[str, Any], seed: int) -> Figures:
    t = task(place)
    rows = (t.train.X, t.train.y)
    out = table1(t, rows, config["noise"], seed) | {"dispersion": dispersion(t.z(t.train.X)).mean}
    return out | table9(t, rows, seed) | probed(place, rows)


def ksame(place: Place, config: Mapping[str, Any], k: int, seed: int) -> Figures:
    t = task(place)
    rows = KSame(k=k, random_state=seed).fit(t.train.X, t.train.y).sample()
    out = table1(t, rows, config["noise"], seed) | figure2(t, rows[0])
    return out | table9(t, rows, seed) if k == THESIS_K else out


def open_gaussian(place: Place, config: Mapping[str, Any], seed: int) -> Figures:
    """Without a guarantee."""
    t = task(place)
    release = ClassGaussian(random_state=seed).fit(t.train.X, t.train.y).release(no_dp=True)
    rows = release.sample(per_class=t.counts, random_state=seed)
    out = table1(t, rows, config["noise"], seed) | figure2(t, rows[0]) | table9(t, rows, seed)
    return out | of_gaussian(place, release, config["samples"], seed)


def cvae(place: Place, config: Mapping[str, Any], which: str, epochs: int, seed: int) -> Figures:
    t = task(place)
    validation = None if which == "cvae-thesis" else (t.val.X, t.val.y)
    model, restarts = fitted_cvae(t, which, epochs, seed, validation)
    rows = model.release(no_dp=True).sample(per_class=t.counts, random_state=seed)
    if which == "cvae-thesis":
        return table9(t, rows, seed) | {"restarts": restarts}
    return table1(t, rows, config["noise"], seed) | figure2(t, rows[0]) | {"restarts": restarts}


def fitted_cvae(t: Task, which: str, epochs: int, seed: int, validation: Rows | None) -> tuple[CVAEGenerator, int]:
    """A CVAE, and how often it was started again.

    The authors' code takes exp of the encoder's output as the standard deviation (fault F1), which overflows in the
    first epochs for some weights. Whoever ran it would start again, so this does, with other weights.
    """
    for restarts in range(RESTARTS):
        try:
            model = CVAES[which](epochs, seed + 100 * restarts)
            return model.fit(t.train.X, t.train.y, validation=validation), restarts
        except DivergedError:
            continue
    raise DivergedError(f"{which!r} diverged from {RESTARTS} different first weights on {t.train.info.backbone!r}.")


def private(place: Place, config: Mapping[str, Any], mechanism: str, epsilon: float, seed: int) -> Figures:
    """A private Gaussian. The insecure seed makes figures reproducible; the noise is distributed the same."""
    train = task(place).train
    model = ClassGaussian(
        mechanism=mechanism,
        privacy=DP(epsilon, config["delta"]),
        classes=range(len(train.info.class_names)),
        reference=reference(place, config["drawn"]),
        insecure_seed=seed,
        random_state=seed,
    )
    return of_gaussian(place, model.fit(train.X, train.y).release(), config["samples"], seed)


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each method on each set by each backbone; of a set CVAEs come last, which take nearly all the time."""
    out: dict[str, Cell] = {}
    for name in config["sets"]:
        places = {f"{backbone_label(b)}/{name}": Place.of(config, b, name) for b in config["backbones"]}
        for at, place in places.items():
            out[f"{at}/real"] = partial(real, place, config)
            out |= {f"{at}/{k}-Same": partial(ksame, place, config, k) for k in config["ks"]}
            out[f"{at}/gaussian"] = partial(open_gaussian, place, config)
            for mechanism in config["mechanisms"]:
                for epsilon in config["epsilons"]:
                    out[f"{at}/{mechanism}-{epsilon:g}"] = partial(private, place, config, mechanism, epsilon)
        for which, epochs in config["epochs"].items():
            if name in epochs:
                out |= {f"{at}/{which}": partial(cvae, p, config, which, epochs[name]) for at, p in places.items()}
    return out
