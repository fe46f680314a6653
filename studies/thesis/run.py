"""The thesis: MedMNIST anonymized by the large CVAE (Table 9), and how close the stand-ins come (Figure 12).

A third study asks whether the order of generators depends on the backbone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.heads import LinearHead
from locum.metrics import auc_macro, compare, nearest, paired_difference, score_all
from locum.recipes import SetNeeds, Study, StudyResults, study_splits
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.recipes.study_sets import on_own_sets
from locum.types import EmbeddingSet

# Table 9 of the thesis (DINOv2): accuracy, weighted F1 and kappa, for the original and the generated set.
SEED_TABLE9 = {
    "PathMNIST": ((0.9361, 0.938, 0.927), (0.9272, 0.928, 0.916)),
    "DermaMNIST": ((0.8392, 0.834, 0.681), (0.7577, 0.731, 0.473)),
    "OCTMNIST": ((0.8392, 0.836, 0.786), (0.7914, 0.787, 0.722)),
    "BloodMNIST": ((0.9819, 0.982, 0.979), (0.9601, 0.960, 0.953)),
    "TissueMNIST": ((0.6347, 0.621, 0.533), (0.5502, 0.509, 0.412)),
    "OrganAMNIST": ((0.9181, 0.917, 0.908), (0.8919, 0.890, 0.879)),
    "OrganCMNIST": ((0.8689, 0.869, 0.852), (0.8199, 0.818, 0.796)),
    "OrganSMNIST": ((0.7625, 0.758, 0.728), (0.7029, 0.700, 0.660)),
}
METRICS = {"accuracy": "accuracy", "f1_weighted": "weighted F1", "cohen_kappa": "Cohen's kappa"}
# Which rows stop the head's training: a tenth of what it learns from, or the real validation split.
STOPS = {
    "own": "Heads that stop early on a tenth of their own training rows (a receiver has no others)",
    "real": "The same, but stopped early on the real validation split as in the thesis",
}
GENERATORS: dict[str, Callable[[int, int], BaseGenerator]] = {
    "cvae-authors": lambda epochs, seed: CVAEGenerator(
        "large", authors_compat=True, max_epochs=epochs, random_state=seed
    ),
    "cvae": lambda epochs, seed: CVAEGenerator("large", max_epochs=epochs, random_state=seed),
    "gaussian": lambda _, seed: ClassGaussian(random_state=seed),
    "5-Same": lambda _, seed: KSame(k=5, random_state=seed),
}
NAMES = {
    "real": "real data",
    "cvae-authors": "large CVAE as in the thesis",
    "cvae": "large CVAE, our defaults",
    "gaussian": "ClassGaussian",
    "5-Same": "5-Same",
}
DISTANCE_NAMES = {
    "within": "within real (self excluded)",
    "fresh": "real validation records",
    **{which: NAMES[which] for which in ("cvae-authors", "cvae", "gaussian")},
}
# Every bar of the histograms holds one twentieth of the vectors.
LEVELS = (0, 1, *range(5, 101, 5))


def splits(name: str) -> dict[str, EmbeddingSet]:
    return study_splits(name)


def other_epochs(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """As many epochs for each given set as the most of the settings."""
    return {"epochs": dict.fromkeys(names, max(config["epochs"].values()))}


# 5-Same needs five records of each class.
NEEDS = SetNeeds("epochs", parts=("train", "val", "test"), per_class=lambda config: 5, choose=other_epochs)


def released(train: EmbeddingSet, model: BaseGenerator, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A stand-in of the training set with its exact class counts, as a receiver would draw it."""
    counts = {c: int(n) for c, n in enumerate(train.counts) if n}
    return model.fit(train.X, train.y).release(no_dp=True).sample(per_class=counts, random_state=seed)


def head(seed: int) -> LinearHead:
    """One layer on raw embeddings, as the thesis trains it."""
    return LinearHead(batch_size=256, max_epochs=200, patience=10, standardize=False, random_state=seed)


def table9_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def make(name: str, which: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            data = splits(name)
            train, val, test = data["train"], data["val"], data["test"]
            X, y = (train.X, train.y)
            if which != "real":
                X, y = released(train, GENERATORS[which](config["epochs"][name], seed), seed)
            out: dict[str, float] = {}
            for stop in STOPS:
                fitted = head(seed).fit(X, y, validation=(val.X, val.y) if stop == "real" else None)
                scores = score_all(test.y, fitted.predict_proba(test.X), fitted.classes_)
                out |= {f"{stop}/{metric}": scores[metric] for metric in METRICS}
            return out

        return cell

    return {f"{name}/{which}": make(name, which) for name in config["epochs"] for which in NAMES}


def table9_render(results: StudyResults, out: Path) -> str:
    text = []
    for name, epochs in results.config["epochs"].items():
        text.append(f"## {name}\n\nThe CVAEs run {epochs} epochs.")
        for stop, what in STOPS.items():
            rows = [
                [label, *(results.estimate(f"{name}/{which}", f"{stop}/{m}") for m in METRICS)]
                for which, label in NAMES.items()
            ]
            text.append(f"{what}:\n\n" + markdown_table(["trained on", *METRICS.values()], rows))
            text.append("Differences, paired by seed:\n\n" + differences(results, name, stop))
    if on_own_sets(results.config):
        return "\n\n".join(text)
    rows = []
    for name, (real, generated) in SEED_TABLE9.items():
        gaps = [f"{g - r:+.3f}" for r, g in zip(real, generated, strict=True)]
        rows.append([name, *(f"{r:.3f} / {g:.3f}" for r, g in zip(real, generated, strict=True)), ", ".join(gaps)])
    header = ["data set", *(f"{m}, real / generated" for m in METRICS.values()), "generated minus real"]
    text.append(
        "## The thesis' own figures\n\nOther data sets, DINOv2 embeddings, means of five runs:\n\n"
        + markdown_table(header, rows)
    )
    return "\n\n".join(text)


def differences(results: StudyResults, name: str, stop: str) -> str:
    pairs = [(which, "real") for which in GENERATORS]
    pairs += [("cvae", "cvae-authors"), ("gaussian", "cvae-authors"), ("gaussian", "cvae")]
    rows = []
    for a, b in pairs:
        found = [results.difference(f"{name}/{a}", f"{name}/{b}", f"{stop}/{m}") for m in METRICS]
        rows.append([NAMES[a], NAMES[b], *(f"{d:+.3f} {compare(d)}" for d in found)])
    if on_own_sets(results.config):
        return markdown_table(["method", "against", *METRICS.values()], rows)
    gaps = np.array([np.subtract(generated, real) for real, generated in SEED_TABLE9.values()])
    ranges = [f"{low:+.3f} to {high:+.3f}" for low, high in zip(gaps.min(axis=0), gaps.max(axis=0), strict=True)]
    # The same line of every table: what the thesis found on its own sets.
    rows.append(["thesis: large CVAE", "real data, range over its eight sets", *ranges])
    return markdown_table(["method", "against", *METRICS.values()], rows)


def fig12_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def make(name: str, which: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            data = splits(name)
            train = data["train"]
            within, _ = nearest(train.X, train.X, exclude_self=True)
            if which == "within":
                distances = within
            elif which == "fresh":
                distances, _ = nearest(data["val"].X, train.X)
            else:
                X, _ = released(train, GENERATORS[which](config["epochs"][name], seed), seed)
                distances, _ = nearest(X, train.X)
            found = {f"p{level}": float(np.percentile(distances, level)) for level in LEVELS}
            return found | {
                "mean": float(distances.mean()),
                "closer": float(np.mean(distances < np.percentile(within, 1))),
                "copies": float(np.mean(distances == 0)),
            }

        return cell

    return {f"{name}/{which}": make(name, which) for name in config["epochs"] for which in DISTANCE_NAMES}


def fig12_render(results: StudyResults, out: Path) -> str:
    fig12_figure(results, out)
    text = [
        "![Distances to the nearest real training vector](thesis-fig12.svg)\n\nEuclidean distances to the nearest "
        'real training vector, on raw embeddings. "Closer" is the share that lies nearer than the 1st percentile of '
        'the distances within real; "copies" is the share at distance 0. Each bar holds one twentieth of the '
        "vectors; its edges are averaged over seeds."
    ]
    for name, epochs in results.config["epochs"].items():
        rows = []
        for which, label in DISTANCE_NAMES.items():
            cell = f"{name}/{which}"
            distances = [f"{results.estimate(cell, m):.2f}" for m in ("mean", "p50", "p1")]
            shares = [f"{results.estimate(cell, m):.4f}" for m in ("closer", "copies")]
            rows.append([label, *distances, *shares])
        header = ["vectors", "mean", "median", "1st percentile", "closer", "copies"]
        text.append(f"## {name}\n\nThe CVAEs run {epochs} epochs.\n\n" + markdown_table(header, rows))
        rows = []
        for which in list(DISTANCE_NAMES)[1:]:
            found = [results.difference(f"{name}/{which}", f"{name}/within", m) for m in ("mean", "p50", "p1")]
            rows.append([DISTANCE_NAMES[which], *(f"{d:+.2f}" for d in found)])
        text.append("Minus the distances within real:\n\n" + markdown_table(header[:4], rows))
    return "\n\n".join(text)


def fig12_figure(results: StudyResults, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(results.config["epochs"])
    levels = [level for level in LEVELS if level % 5 == 0]
    # A fixed salt: the same figures give the same file.
    with plt.rc_context({"svg.hashsalt": "thesis-fig12"}):
        figure, axes = plt.subplots(1, len(names), figsize=(5.2 * len(names), 3.6), squeeze=False)
        for axis, name in zip(axes[0], names, strict=True):
            for i, (which, label) in enumerate(DISTANCE_NAMES.items()):
                edges = np.array([results.estimate(f"{name}/{which}", f"p{level}").value for level in levels])
                heights = np.diff(levels) / 100 / np.maximum(np.diff(edges), 1e-6)
                style: dict[str, Any] = {"color": f"C{i - 1}", "lw": 1.4}
                if which == "within":
                    style = {"color": "0.8", "fill": True}
                axis.stairs(heights, edges, label=label, **style)
            axis.set_title(name)
            axis.set_xlabel("distance to the nearest real training vector")
            axis.set_xlim(left=0)
        axes[0][0].set_ylabel("density")
        axes[0][-1].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(out / "thesis-fig12.svg", metadata={"Date": None})
        plt.close(figure)


BACKBONE_NAMES = {"real": "real data", "cvae": "CVAE (replica), our defaults", "gaussian": "ClassGaussian"}
BACKBONE_PAIRS = (("cvae", "real"), ("gaussian", "real"), ("gaussian", "cvae"))


@cache
def embedded(backbone: str) -> dict[str, EmbeddingSet]:
    """BreastMNIST through the package's own embedding; vectors are kept in `out/`, apart from the project."""
    from locum.embed import embed_images

    folder = Path("out/thesis-backbones")
    folder.mkdir(parents=True, exist_ok=True)
    with embed_images(data_folder() / "breastmnist.npz", backbone, cache=folder / f"{backbone}.sqlite") as found:
        return found.sets()


def backbones_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def make(backbone: str, which: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            train, test = embedded(backbone)["train"], embedded(backbone)["test"]
            X, y = train.X, train.y
            if which == "cvae":
                X, y = released(train, CVAEGenerator("replica", random_state=seed), seed)
            elif which == "gaussian":
                X, y = released(train, ClassGaussian(random_state=seed), seed)
            fitted = head(seed).fit(X, y)
            return {"auc": auc_macro(test.y, fitted.predict_proba(test.X), fitted.classes_)}

        return cell

    def agreement(seed: int) -> dict[str, float]:
        """Of our embeddings with those that the other studies read: they were made elsewhere, in float16."""
        ours, theirs = embedded("efflite0"), splits("breastmnist")
        cosines = np.concatenate([_cosine(ours[part].X, theirs[part].X) for part in theirs])
        same = np.mean([np.array_equal(ours[part].y, theirs[part].y) for part in theirs])
        return {"cosine mean": float(cosines.mean()), "cosine min": float(cosines.min()), "same labels": float(same)}

    cells = {f"{b}/{which}": make(b, which) for b in config["backbones"] for which in BACKBONE_NAMES}
    return {**cells, "efflite0/agreement": agreement}


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    out: np.ndarray = np.einsum("ij,ij->i", a, b) / lengths
    return out


def backbones_render(results: StudyResults, out: Path) -> str:
    backbones = results.config["backbones"]
    rows = [[label, *(results.estimate(f"{b}/{w}", "auc") for b in backbones)] for w, label in BACKBONE_NAMES.items()]
    text = ["Test AUC on BreastMNIST:\n\n" + markdown_table(["trained on", *backbones], rows)]
    rows = []
    for a, b in BACKBONE_PAIRS:
        gaps = [results.difference(f"{name}/{a}", f"{name}/{b}", "auc") for name in backbones]
        rows.append([BACKBONE_NAMES[a], BACKBONE_NAMES[b], *(f"{d:+.3f} {compare(d)}" for d in gaps)])
    text.append("Differences in AUC, paired by seed:\n\n" + markdown_table(["method", "against", *backbones], rows))
    rows = []
    for a, b in BACKBONE_PAIRS:
        row: list[object] = [f"{BACKBONE_NAMES[a]} minus {BACKBONE_NAMES[b]}"]
        for other in backbones[1:]:
            change = paired_difference(_gap(results, other, a, b), _gap(results, backbones[0], a, b))
            said = compare(change)
            row.append(f"{change:+.3f} {'changes' if said in ('better', 'worse') else said}")
        rows.append(row)
    header = ["how far this differs", *(f"{other} from {backbones[0]}" for other in backbones[1:])]
    text.append("Whether a difference depends on the backbone, paired by seed:\n\n" + markdown_table(header, rows))
    found = results.raw["efflite0/agreement"][str(results.config["seeds"][0])]
    text.append(
        "Our efflite0 embeddings against the float16 file `breastmnist_efflite0.npz`, which was made apart: the "
        f"cosine similarity of the least similar pair is {found['cosine min']:.7f}; "
        f"{'all labels agree' if found['same labels'] == 1 else 'LABELS DIFFER'}."
    )
    return "\n\n".join(text)


def _gap(results: StudyResults, backbone: str, a: str, b: str) -> np.ndarray:
    return np.subtract(results.runs(f"{backbone}/{a}", "auc"), results.runs(f"{backbone}/{b}", "auc"))


STUDIES = {
    "thesis-table9": Study(
        "Table 9 of the thesis: medical sets anonymized by the large CVAE", table9_cells, table9_render, sets=NEEDS
    ),
    "thesis-fig12": Study(
        "Figure 12 of the thesis: distances to the nearest real vector", fig12_cells, fig12_render, sets=NEEDS
    ),
    "thesis-backbones": Study(
        "Whether the order of generators depends on the backbone",
        backbones_cells,
        backbones_render,
        names={"backbones": None},
        sets="It compares its embeddings with a file of BreastMNIST's that was made apart.",
    ),
}
