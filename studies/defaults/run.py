"""Choose the generators' defaults on training data alone, by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from locum.data import kfold
from locum.generate import ClassGaussian, CVAEGenerator
from locum.heads import LinearHead, MLPHead
from locum.metrics import auc_macro, compare
from locum.recipes import SetNeeds, Study, StudyResults, study_set, study_splits
from locum.recipes.study import Cell, markdown_table
from locum.release import Release
from locum.types import EmbeddingSet, Estimate

HEADS = {"linear": LinearHead, "mlp": MLPHead}
NOISES = ("none", "diagonal", "low-rank")
CVAE_DEFAULT = "CVAE, class, beta 1, noise diagonal"
GAUSSIAN_DEFAULT = "Gaussian, rank 64, shrinkage 0.1"


def records(name: str, limit: int) -> EmbeddingSet:
    data = study_splits(name)["train"]
    rng = np.random.default_rng(0)
    return data.take(np.sort(rng.permutation(len(data))[:limit]))


def fold(name: str, limit: int, number: int, folds: int = 5) -> tuple[EmbeddingSet, EmbeddingSet]:
    data = records(name, limit)
    train, test = list(kfold(data, folds, np.random.default_rng(1)))[number]
    return data.take(train), data.take(test)


def score(release: Release, train: EmbeddingSet, test: EmbeddingSet, seed: int) -> dict[str, float]:
    counts = {label: int((train.y == label).sum()) for label in release.manifest.classes}
    X, y = release.sample(per_class=counts, random_state=seed)
    out = {}
    for name, head in HEADS.items():
        fitted = head(random_state=seed).fit(X, y)
        out[name] = auc_macro(test.y, fitted.predict_proba(test.X), fitted.classes_)
    return out


def with_noise(release: Release, noise: str) -> Release:
    """The same decoder with less noise: one training run serves three settings."""
    tensors = dict(release.tensors)
    factor = tensors.pop("noise_factor")
    if noise == "low-rank":
        return release
    if noise == "none":
        del tensors["noise_scale"]
    else:
        tensors["noise_scale"] = np.sqrt(tensors["noise_scale"] ** 2 + (factor**2).sum(axis=0))
    decoder = release.manifest.decoder.model_copy(update={"noise": noise})
    return Release(release.manifest.model_copy(update={"decoder": decoder}), tensors)


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    limit = config["max_records"]

    def cvae(data: str, scaling: str, beta: float) -> Cell:
        def cell(number: int) -> dict[str, float]:
            train, test = fold(data, limit, number)
            generator = CVAEGenerator(scaling=scaling, beta=beta, decoder_noise="low-rank", random_state=number)
            release = generator.fit(train.X, train.y).release(no_dp=True)
            figures = {}
            for noise in NOISES:
                for head, value in score(with_noise(release, noise), train, test, number).items():
                    figures[f"{noise}/{head}"] = value
            return figures

        return cell

    def gaussian(data: str, rank: int, shrinkage: float) -> Cell:
        def cell(number: int) -> dict[str, float]:
            train, test = fold(data, limit, number)
            generator = ClassGaussian(rank=rank, shrinkage=shrinkage, random_state=number).fit(train.X, train.y)
            return score(generator.release(no_dp=True), train, test, number)

        return cell

    def real(data: str) -> Cell:
        def cell(number: int) -> dict[str, float]:
            train, test = fold(data, limit, number)
            out = {}
            for name, head in HEADS.items():
                fitted = head(random_state=number).fit(train.X, train.y)
                out[name] = auc_macro(test.y, fitted.predict_proba(test.X), fitted.classes_)
            return out

        return cell

    out: dict[str, Cell] = {}
    for data in config["datasets"]:
        out[f"{data}/real"] = real(data)
        for setting in config["gaussian"]:
            rank, shrinkage = setting.split()
            out[f"{data}/gaussian {setting}"] = gaussian(data, int(rank), float(shrinkage))
        for setting in config["cvae"]:
            scaling, beta = setting.split()
            out[f"{data}/cvae {setting}"] = cvae(data, scaling, float(beta))
    return out


def candidates(results: StudyResults, data: str) -> dict[str, Callable[[str], list[float]]]:
    """Every setting by name, as a function from a head's name to one AUC per fold."""

    def runs(cell: str, prefix: str = "") -> Callable[[str], list[float]]:
        return lambda head: results.runs(f"{data}/{cell}", f"{prefix}{head}")

    out = {"real records": runs("real")}
    for setting in results.config["gaussian"]:
        rank, shrinkage = setting.split()
        out[f"Gaussian, rank {rank}, shrinkage {shrinkage}"] = runs(f"gaussian {setting}")
    for setting in results.config["cvae"]:
        scaling, beta = setting.split()
        for noise in NOISES:
            out[f"CVAE, {scaling}, beta {beta}, noise {noise}"] = runs(f"cvae {setting}", f"{noise}/")
    return out


def render(results: StudyResults, out: Path) -> str:
    text = []
    for data in results.config["datasets"]:
        found = candidates(results, data)
        rows = [[name, *(Estimate.from_runs(runs(head)) for head in HEADS)] for name, runs in found.items()]
        text.append(f"## {study_set(data).title}\n\n" + markdown_table(["setting", "linear", "mlp"], rows))
    text.append(differences(results))
    return "AUC on the fifth fold, training splits only.\n\n" + "\n\n".join(text)


def differences(results: StudyResults) -> str:
    """The default minus each alternative, paired over the folds of all data sets."""
    rows: list[list[object]] = []
    for ours, baselines in (
        (CVAE_DEFAULT, [name for name in candidates(results, results.config["datasets"][0]) if name != CVAE_DEFAULT]),
        (GAUSSIAN_DEFAULT, ["Gaussian, rank 16, shrinkage 0.1", "Gaussian, rank 64, shrinkage 0",
                            "Gaussian, rank 256, shrinkage 0.1"]),
    ):  # fmt: skip
        for baseline in baselines:
            row: list[object] = [ours, baseline]
            for head in HEADS:
                pairs = []
                for data in results.config["datasets"]:
                    found = candidates(results, data)
                    pairs += [a - b for a, b in zip(found[ours](head), found[baseline](head), strict=True)]
                difference = Estimate.from_runs(pairs)
                row.append(f"{difference:+.3f} {compare(difference)}")
            rows.append(row)
    return (
        "## Paired differences in AUC, over all folds and sets\n\n"
        "Folds share records, so these intervals are somewhat too narrow.\n\n"
        + markdown_table(["default", "against", "linear", "mlp"], rows)
    )


STUDIES = {
    "generator-defaults": Study(
        "Defaults of the generators, by cross-validation on training data",
        cells,
        render,
        sets=SetNeeds("datasets", parts=("train",), per_class=lambda config: 10),
        most_seeds=5,
    )
}
