"""Which distance tells how useful a decoder is: the Wasserstein distance of the federated paper, and others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fed_averaged import NETWORKS, SAMPLES, prepared
from fed_sets import DELTA, PAPER_DELTA, Array, Deal, check_sites, deals
from scipy.stats import spearmanr

from locum.data import load_reference
from locum.errors import ConfigError
from locum.generate import ClassGaussian
from locum.heads import LinearHead
from locum.metrics import balanced_accuracy, entropic_wasserstein, frechet_by_class
from locum.recipes import StudyResults, study_set
from locum.recipes.study import Cell, markdown_table
from locum.types import DP

# Each measure, and whether more of it should mean a more useful decoder.
MEASURES = {
    "wasserstein": -1,
    "wasserstein per class": -1,
    "frechet per class": -1,
    "distance of class means": -1,
    "nearest class mean": 1,
    "agreement of class means": 1,
}
EXPLAINED = {
    "wasserstein": "entropic, p = 2, of 500 samples to 500 real vectors, as in the paper",
    "wasserstein per class": "the same within each class (100 to 100), mean over classes",
    "frechet per class": "Frechet distance within each class, mean over classes",
    "distance of class means": "between the mean of a class's samples and of its real vectors, mean over classes",
    "nearest class mean": "share of real vectors whose nearest class mean of samples is that of their own class",
    "agreement of class means": "cosine between class means of samples and of real vectors, each less the mean over "
    "classes; mean over classes",
}


def check(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` or `DataError` for a set that is no single federation, or has too small sites."""
    if study_set(config["set"]).more.get("partition") == "hospitals":
        raise ConfigError(
            f"This study tests decoders on one split, and the set {config['set']!r} is tested in folds."
        )
    check_sites([config["set"]])


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per decoder."""
    out: dict[str, Cell] = {}
    for name, epsilon, rounds in config["networks"]:
        title = "no privacy" if epsilon == "inf" else f"epsilon {epsilon}"
        out[f"{name}, {title}, {rounds} rounds"] = partial(_network, config["set"], name, epsilon, rounds)
    for mechanism in ("means", "head"):
        for epsilon in config["gaussian_epsilons"]:
            out[f"Gaussian ({mechanism}), epsilon {epsilon}"] = partial(_gaussian, config["set"], mechanism, epsilon)
    out["Gaussian, no privacy"] = partial(_gaussian, config["set"], "plain", "inf")
    out["real records"] = partial(_real, config["set"])
    return out


def _network(where: str, name: str, epsilon: str, rounds: int, seed: int) -> dict[str, float]:
    (deal,) = deals(where, seed)
    sampler = NETWORKS[name](deal, None if epsilon == "inf" else float(epsilon), rounds, seed)
    x, y = sampler.samples(SAMPLES, seed)
    # Back to raw vectors of the mean length, which a real run would have to pay for.
    reference, root = load_reference(deal.reference, deal.dim), np.sqrt(deal.dim)
    length = np.linalg.norm(reference.whiten(deal.pooled().X), axis=1).mean()
    return measured(reference.color(x / root * length), y, deal, seed)


def _gaussian(where: str, mechanism: str, epsilon: str, seed: int) -> dict[str, float]:
    (deal,) = deals(where, seed)
    pooled, classes = deal.pooled(), list(range(len(deal.classes)))
    if epsilon == "inf":
        model = ClassGaussian(random_state=seed)
    else:
        model = ClassGaussian(
            privacy=DP(float(epsilon), DELTA),
            classes=classes,
            reference=deal.reference,
            mechanism=mechanism,
            insecure_seed=seed,
            random_state=seed,
        )
    release = model.fit(pooled.X, pooled.y).release(pooled.info, no_dp=epsilon == "inf")
    X, labels = release.sample(per_class=dict.fromkeys(release.manifest.classes, SAMPLES), random_state=seed)
    place = {label: i for i, label in enumerate(release.manifest.classes)}
    y = np.array([place[label] for label in labels.tolist()])
    return measured(X, y, deal, seed)


def _real(where: str, seed: int) -> dict[str, float]:
    (deal,) = deals(where, seed)
    pooled = deal.pooled()
    return measured(pooled.X, pooled.y, deal, seed)


def measured(X: Array, y: Array, deal: Deal, seed: int) -> dict[str, float]:
    """Use and distances of samples, against real test records; class means are those of whitened vectors."""
    test = next(iter(deal.test.values()))
    real, labels, classes = test.X.astype(np.float64), test.y, len(deal.classes)
    rng = np.random.default_rng(seed)
    head = LinearHead(batch_size=len(X), max_epochs=100, weight_decay=5e-4, patience=None, random_state=seed)
    head.fit(X.astype(np.float32), y)

    def some(vectors: Array, n: int) -> Array:
        return vectors[rng.choice(len(vectors), min(n, len(vectors)), replace=False)]

    by_class = [(some(X[y == c], 100), some(real[labels == c], 100)) for c in range(classes)]
    white = [prepared(v.astype(np.float32), deal) for v in (X, real)]
    pairs = zip(white, (y, labels), strict=True)
    made, true = (np.stack([v[k == c].mean(axis=0) for c in range(classes)]) for v, k in pairs)
    nearest = (np.square(made).sum(axis=1) - 2 * white[1] @ made.T).argmin(axis=1)
    a, b = made - made.mean(axis=0), true - true.mean(axis=0)
    cosine = (a * b).sum(axis=1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-12)
    rows = np.concatenate([np.flatnonzero(y == c)[:200] for c in range(classes)])
    return {
        "global bacc": balanced_accuracy(labels, head.predict(real.astype(np.float32))),
        "wasserstein": entropic_wasserstein(some(real, 500), some(X, 500)),
        "wasserstein per class": float(np.mean([entropic_wasserstein(s, r) for s, r in by_class])),
        "frechet per class": frechet_by_class(X[rows], y[rows], real, labels).average,
        "distance of class means": float(np.linalg.norm(made - true, axis=1).mean()),
        "nearest class mean": balanced_accuracy(labels, nearest),
        "agreement of class means": float(cosine.mean()),
    }


def render(results: StudyResults, out: Path) -> str:
    """Decoders by their use, and the rank correlation of each measure with it."""
    found = study_set(results.config["set"])
    # What `deals` does: sites of so many records, tested on 3,000 others, or a set that is split already.
    where, tested = (f"{found.title} records", "3,000") if found.more.get("each") else (found.title, "other")
    names = sorted(results.raw, key=lambda n: -results.estimate(n, "global bacc").value)
    many = len(results.config["seeds"]) > 1

    def shown(cell: str, metric: str) -> str:
        value = results.estimate(cell, metric)
        # The first two are what the paper speaks of.
        with_interval = many and metric in ("global bacc", "wasserstein")
        return f"{value:.3f}" if with_interval else f"{value.value:.3f}"

    table = markdown_table(
        ["decoder", "global bacc", *MEASURES],
        [[n, *(shown(n, m) for m in ("global bacc", *MEASURES))] for n in names],
    )
    made = [n for n in names if n != "real records"]
    use = [v for n in made for v in results.runs(n, "global bacc")]
    rows = []
    for measure, sign in MEASURES.items():
        values = [sign * v for n in made for v in results.runs(n, measure)]
        rows.append([measure, f"{spearmanr(values, use).statistic:+.2f}", EXPLAINED[measure]])
    told = _differences(results) if many else ""
    return (
        f"{table}\n\n{told}## Which measure orders decoders by their use\n\n"
        + markdown_table(["measure", "rank correlation with global bacc", "what it is"], rows)
        + f"\n\n{where}; seeds {results.config['seeds']}. global bacc: a linear head trained on 500 samples per "
        f"class, tested on {tested} real vectors. +1 would order decoders as their use does. "
        f"Networks at the paper's delta of {PAPER_DELTA:g}, Gaussians at {DELTA:g} with all records in one place. "
        "Real records are not part of the correlation."
    )


# The paper's choices, and the alternatives that it names: paired by seed.
PAIRS = {
    "encoders averaged too, no privacy, 25 rounds": (
        "CVAE, all averaged, no privacy, 25 rounds",
        "CVAE, decoders averaged, no privacy, 25 rounds",
        "global bacc",
    ),
    "encoders averaged too, epsilon 1, 5 rounds": (
        "CVAE, all averaged, epsilon 1, 5 rounds",
        "CVAE, decoders averaged, epsilon 1, 5 rounds",
        "global bacc",
    ),
    "CVAE against CGAN, epsilon 1": (
        "CVAE, decoders averaged, epsilon 1, 5 rounds",
        "CGAN, generators averaged, epsilon 1, 3 rounds",
        "wasserstein",
    ),
    "CVAE against CGAN, no privacy": (
        "CVAE, decoders averaged, no privacy, 5 rounds",
        "CGAN, generators averaged, no privacy, 3 rounds",
        "wasserstein",
    ),
}


def _differences(results: StudyResults) -> str:
    """First less second, where both were run."""
    rows = [
        [what, metric, f"{results.difference(first, second, metric):+.3f}"]
        for what, (first, second, metric) in PAIRS.items()
        if {first, second} <= results.raw.keys()
    ]
    return f"{markdown_table(['difference, paired by seed', 'measure', ''], rows)}\n\n" if rows else ""
