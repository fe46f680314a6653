"""The replica paper: CVAE against k-Same (and a class Gaussian) on AUC, distance and robustness."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from locum.data import read_splits, stratified_split
from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.heads import LinearHead
from locum.metrics import auc_macro, average_nearest_distance
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.release import Release
from locum.types import EmbeddingSet

# Table 1 of the paper, BreastMNIST (DINOv2 embeddings): AUC in percent at noise 0, 1, 2, 3.
PAPER_BREAST = {
    "2-Same": (86.6, 83.5, 77.2, 72.4),
    "5-Same": (85.0, 82.3, 76.6, 72.2),
    "10-Same": (80.5, 78.4, 72.8, 68.7),
    "15-Same": (79.0, 76.7, 71.8, 67.9),
    "CVAE 0.5": (82.9, 81.2, 77.7, 74.2),
    "CVAE 1.0": (82.6, 81.2, 77.8, 73.8),
    "CVAE 1.5": (83.5, 81.9, 76.9, 72.0),
}
GENERATORS: dict[str, Callable[[int], BaseGenerator]] = {
    "gaussian": lambda seed: ClassGaussian(random_state=seed),
    "cvae-authors": lambda seed: CVAEGenerator("replica", authors_compat=True, random_state=seed),
    "cvae": lambda seed: CVAEGenerator("replica", random_state=seed),
}
NAMES = {"gaussian": "ClassGaussian", "cvae-authors": "CVAE as in the paper", "cvae": "CVAE, our defaults"}


@dataclass(frozen=True)
class Task:
    """Real data, with the one scaler that all methods share (fault F11): fitted on the real training set."""

    train: EmbeddingSet
    val: EmbeddingSet
    test: EmbeddingSet
    mean: np.ndarray
    std: np.ndarray

    def z(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) / self.std


@cache
def task(name: str) -> Task:
    splits = read_splits(data_folder() / f"{name}.npz")
    if "val" not in splits:
        # As the paper does without a validation split: a stratified tenth.
        splits |= stratified_split(splits["train"], {"train": 0.9, "val": 0.1}, rng=np.random.default_rng(0))
    train = splits["train"]
    std = train.X.std(axis=0)
    # A feature that is constant in training is left unscaled.
    return Task(train, splits["val"], splits["test"], train.X.mean(axis=0), np.where(std > 1e-6, std, 1))


def probe(seed: int) -> LinearHead:
    return LinearHead(standardize=False, random_state=seed)


def scores(t: Task, head: LinearHead, noise: list[int], seed: int) -> dict[str, float]:
    out = {}
    clean = t.z(t.test.X)
    for sigma in noise:
        rng = np.random.default_rng([seed, sigma])
        runs = [
            auc_macro(t.test.y, head.predict_proba(clean + sigma * rng.normal(size=clean.shape)), head.classes_)
            for _ in range(1 if sigma == 0 else 3)
        ]
        out[f"auc{sigma}"] = float(np.mean(runs))
    return out


def offline(t: Task, X: np.ndarray, y: np.ndarray, noise: list[int], seed: int) -> dict[str, float]:
    head = probe(seed).fit(t.z(X), y, validation=(t.z(t.val.X), t.val.y))
    return scores(t, head, noise, seed)


def online(t: Task, release: Release, variance: float, noise: list[int], seed: int) -> dict[str, float]:
    import torch

    mean, std = torch.from_numpy(t.mean), torch.from_numpy(t.std)
    stream = (((x - mean) / std, y) for x, y in release.stream(128, variance=variance, random_state=seed))
    head = probe(seed).fit_stream(
        stream,
        classes=release.classes,
        samples_per_epoch=10 * len(t.train),
        validation=(t.z(t.val.X), t.val.y),
    )
    return scores(t, head, noise, seed)


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    noise = config["noise"]

    def real(name: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            t = task(name)
            found = offline(t, t.train.X, t.train.y, noise, seed)
            return {f"offline/{k}": v for k, v in found.items()}

        return cell

    def ksame(name: str, k: int) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            t = task(name)
            X, y = KSame(k=k, random_state=seed).fit(t.train.X, t.train.y).sample()
            out = {f"offline/{m}": v for m, v in offline(t, X, y, noise, seed).items()}
            return out | {"D": average_nearest_distance(t.z(X), t.z(t.train.X)).value}

        return cell

    def generator(name: str, which: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            t = task(name)
            model = GENERATORS[which](seed)
            model.fit(t.train.X, t.train.y, validation=(t.val.X, t.val.y))
            release = model.release(no_dp=True)
            counts = {c: int(n) for c, n in enumerate(t.train.counts) if n}
            out: dict[str, float] = {}
            for variance in config["variances"]:
                X, y = release.sample(per_class=counts, variance=variance, random_state=seed)
                found = offline(t, X, y, noise, seed)
                out |= {f"offline/{variance}/{m}": v for m, v in found.items()}
                found = online(t, release, variance, noise, seed)
                out |= {f"online/{variance}/{m}": v for m, v in found.items()}
                if variance == 1.0:
                    out["D"] = average_nearest_distance(t.z(X), t.z(t.train.X)).value
            return out

        return cell

    out: dict[str, Cell] = {}
    for name in config["datasets"]:
        out[f"{name}/real"] = real(name)
        out |= {f"{name}/{k}-Same": ksame(name, k) for k in config["ks"]}
        out |= {f"{name}/{which}": generator(name, which) for which in GENERATORS}
    return out


def render(results: StudyResults, out: Path) -> str:
    text = []
    for name in results.config["datasets"]:
        text.append(f"## {name.removesuffix('_efflite0')}\n\n" + table(results, name))
        text.append(comparisons(results, name))
    figure2(results, out)
    text.append("![AUC against distance](replica-fig2.svg)")
    return "\n\n".join(text)


def table(results: StudyResults, name: str) -> str:
    noise = results.config["noise"]
    ours_only = name != "breastmnist_efflite0"
    header = ["trained on", *(f"AUC, noise {s}" for s in noise), "D"]
    if not ours_only:
        header.append("paper's figures (DINOv2)")
    rows: list[list[object]] = []

    def add(label: str, cell: str, prefix: str, distance: bool, paper_key: str | None = None) -> None:
        row: list[object] = [label, *(results.estimate(f"{name}/{cell}", f"{prefix}/auc{s}") for s in noise)]
        row.append(f"{results.estimate(f'{name}/{cell}', 'D'):.1f}" if distance else "-")
        if not ours_only:
            row.append(" / ".join(f"{v:.1f}" for v in PAPER_BREAST[paper_key]) if paper_key in PAPER_BREAST else "-")
        rows.append(row)

    add("real data", "real", "offline", False)
    for k in results.config["ks"]:
        add(f"{k}-Same", f"{k}-Same", "offline", True, f"{k}-Same")
    for which, label in NAMES.items():
        for mode in ("offline", "online"):
            for variance in results.config["variances"]:
                key = f"CVAE {variance}" if which == "cvae-authors" and mode == "online" else None
                at_one = variance == 1.0 and mode == "offline"
                add(f"{label}, {mode}, variance {variance}", which, f"{mode}/{variance}", at_one, key)
    return markdown_table(header, rows)


def comparisons(results: StudyResults, name: str) -> str:
    """Differences paired by seed, with ties marked."""
    from locum.metrics import compare
    from locum.types import Estimate

    rows = []
    for which in ("cvae", "cvae-authors"):
        for baseline, metric in [("real", "offline/{}"), *((f"{k}-Same", "offline/{}") for k in results.config["ks"]),
                              ("gaussian", "offline/1.0/{}")]:  # fmt: skip
            row: list[object] = [NAMES[which], baseline]
            for sigma in (0, 3):
                mine = results.runs(f"{name}/{which}", f"offline/1.0/auc{sigma}")
                other = results.runs(f"{name}/{baseline}", metric.format(f"auc{sigma}"))
                difference = Estimate.from_runs([a - b for a, b in zip(mine, other, strict=True)])
                row.append(f"{difference:+.3f} {compare(difference)}")
            rows.append(row)
    return "Differences in AUC (offline, variance 1), paired by seed:\n\n" + markdown_table(
        ["method", "against", "noise 0", "noise 3"], rows
    )


def figure2(results: StudyResults, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = results.config["datasets"]
    figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.6), squeeze=False)
    methods = [*(f"{k}-Same" for k in results.config["ks"]), *GENERATORS]
    for axis, name in zip(axes[0], names, strict=True):
        axis.axvline(results.estimate(f"{name}/real", "offline/auc0").value, color="0.5", ls="--", label="real data")
        for i, method in enumerate(methods):
            metric = "offline/auc0" if method.endswith("Same") else "offline/1.0/auc0"
            auc, distance = results.estimate(f"{name}/{method}", metric), results.estimate(f"{name}/{method}", "D")
            marker = "o" if method.endswith("Same") else "*"
            axis.errorbar(
                auc.value,
                distance.value,
                xerr=[[auc.value - auc.low], [auc.high - auc.value]],
                fmt=marker,
                ms=7 if marker == "o" else 12,
                color=f"C{i}",
                label=NAMES.get(method, method),
            )
        axis.set_title(name.removesuffix("_efflite0"))
        axis.set_xlabel("AUC")
    axes[0][0].set_ylabel("D, mean distance to nearest record")
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out / "replica-fig2.svg", metadata={"Date": None})
    plt.close(figure)


def fig3_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def cell(seed: int) -> dict[str, float]:
        """Share of t-SNE's neighbors that are of the other kind: 0.5 if real and released vectors mix."""
        points, kinds = _embedding(config, seed)
        out = {}
        for kind in range(1, int(kinds.max()) + 1):
            both = np.isin(kinds, (0, kind))
            P, K = points[both], kinds[both]
            order = np.argsort(((P[:, None] - P[None]) ** 2).sum(axis=2), axis=1)[:, 1:11]
            out[f"mixing {_fig3_names(config)[kind]}"] = float((K[order] != K[:, None]).mean())
        return out

    return {"tsne": cell}


def _fig3_names(config: Mapping[str, Any]) -> list[str]:
    return ["real", *(f"{k}-Same" for k in config["ks"]), "CVAE"]


@cache
def _embedding_cached(dataset: str, ks: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.manifold import TSNE

    t = task(dataset)
    model = CVAEGenerator("replica", random_state=seed).fit(t.train.X, t.train.y, validation=(t.val.X, t.val.y))
    counts = {c: int(n) for c, n in enumerate(t.train.counts)}
    sets = [t.train.X, *(KSame(k=k, random_state=seed).fit(t.train.X, t.train.y).sample()[0] for k in ks)]
    sets.append(model.sample(per_class=counts)[0])
    kinds = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    points = TSNE(random_state=seed, init="pca", perplexity=30).fit_transform(t.z(np.concatenate(sets)))
    return points, kinds


def _embedding(config: Mapping[str, Any], seed: int) -> tuple[np.ndarray, np.ndarray]:
    return _embedding_cached(config["dataset"], tuple(config["ks"]), seed)


def fig3_render(results: StudyResults, out: Path) -> str:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points, kinds = _embedding(results.config, results.config["seeds"][0])
    names = _fig3_names(results.config)
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.3), sharex=True, sharey=True)
    for kind, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.scatter(*points[kinds == 0].T, s=4, color="0.85")
        axis.scatter(*points[kinds == kind].T, s=4, color=f"C{kind}")
        axis.set_title(name)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.tight_layout()
    # The figure shows real points: as PNG, no coordinate can be read back exactly.
    figure.savefig(out / "replica-fig3.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    rows = [[n, results.raw["tsne"][str(results.config["seeds"][0])][f"mixing {n}"]] for n in names[1:]]
    shown = [[name, f"{value:.3f}"] for name, value in rows]
    return (
        "![t-SNE](replica-fig3.png)\n\nGray: real records. Of the ten nearest neighbors on the map, the share "
        "that is of the other kind (0.5: real and released are mixed):\n\n"
        + markdown_table(["released", "mixing"], shown)
    )


def payload_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def make(name: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            train = read_splits(data_folder() / f"{name}_efflite0.npz")["train"]
            with np.load(data_folder() / f"{name}.npz") as archive:
                stored = archive["train_images"].nbytes / 1e6
            sizes = {
                "images as stored": stored,
                "images at 224 px, RGB": len(train) * 224 * 224 * 3 / 1e6,
                "embeddings, float32": train.X.nbytes / 1e6,
            }
            for which, label in NAMES.items():
                model = GENERATORS[which](seed)
                if isinstance(model, CVAEGenerator):
                    model.set_params(max_epochs=1)
                release = model.fit(train.X, train.y).release(no_dp=True)
                with tempfile.TemporaryDirectory() as folder:
                    path = release.save(Path(folder) / "r")
                    sizes[f"release, {label}"] = sum(f.stat().st_size for f in path.iterdir()) / 1e6
            return sizes

        return cell

    return {name: make(name) for name in config["datasets"]}


def payload_render(results: StudyResults, out: Path) -> str:
    names = list(results.config["datasets"])
    seed = str(results.config["seeds"][0])
    rows = [
        [what, *(f"{results.raw[name][seed][what]:.2f}" for name in names)] for what in results.raw[names[0]][seed]
    ]
    return "Megabytes to send, uncompressed (training split):\n\n" + markdown_table(["what", *names], rows)


STUDIES = {
    "replica-results": Study("Figure 2 and Table 1 of the replica paper", cells, render),
    "replica-fig3": Study(
        "Figure 3 of the replica paper: t-SNE of real and released vectors", fig3_cells, fig3_render
    ),
    "replica-payload": Study(
        "Payload of the replica paper: decoder against images and embeddings", payload_cells, payload_render
    ),
}
