"""Choose the generators' defaults on training data alone, by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data import kfold, read_embeddings
from understudy.generate import ClassGaussian, CVAEGenerator
from understudy.heads import LinearHead, MLPHead
from understudy.metrics import auc_macro
from understudy.recipes.study import Cell, Study, StudyResults, data_folder, markdown_table
from understudy.release import Release
from understudy.types import EmbeddingSet

HEADS = {"linear": LinearHead, "mlp": MLPHead}
NOISES = ("none", "diagonal", "low-rank")


@cache
def records(name: str, limit: int) -> EmbeddingSet:
    data = read_embeddings(f"{data_folder() / name}.npz#train")
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
    """The same decoder with less of its noise: one training serves three settings."""
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
            release = generator.fit(train.X, train.y).release()
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
            return score(generator.release(), train, test, number)

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


def render(results: StudyResults, out: Path) -> str:
    text = []
    for data in results.config["datasets"]:
        rows: list[list[object]] = []
        candidates: list[tuple[str, Callable[[str], list[float]]]] = [
            ("real records", lambda h, d=data: results.runs(f"{d}/real", h))  # type: ignore[misc]
        ]
        for setting in results.config["gaussian"]:
            name = f"gaussian, rank and shrinkage {setting}"
            candidates.append((name, lambda h, d=data, s=setting: results.runs(f"{d}/gaussian {s}", h)))  # type: ignore[misc]
        for setting in results.config["cvae"]:
            for noise in NOISES:
                name = f"CVAE, {setting.replace(' ', ', beta ')}, noise {noise}"
                candidates.append(
                    (name, lambda h, d=data, s=setting, k=noise: results.runs(f"{d}/cvae {s}", f"{k}/{h}"))  # type: ignore[misc]
                )
        from understudy.types import Estimate

        for name, runs in candidates:
            rows.append([name, *(Estimate.from_runs(runs(head)) for head in HEADS)])
        text.append(
            f"## {data} (training split only)\n\n" + markdown_table(["setting", "AUC linear", "AUC mlp"], rows)
        )
    return "\n\n".join(text)


STUDIES = {
    "generator-defaults": Study("Defaults of the generators, by cross-validation on training data", cells, render)
}
