"""The replica paper: CVAE against k-Same (and a class Gaussian) on AUC, distance and robustness."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rep_published import FIGURE2, LEAST, NOISE, TABLE1, WHY

from locum.data import stratified_split
from locum.errors import ConfigError, DataError
from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.heads import LinearHead
from locum.metrics import auc_macro, average_nearest_distance, compare, dispersion
from locum.recipes import SetNeeds, Study, StudyResults, study_set, study_splits
from locum.recipes.published import reversed_table
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.recipes.study_sets import on_own_sets, set_key
from locum.release import Release
from locum.types import EmbeddingSet, Estimate

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


def task(name: str) -> Task:
    return _task(name, set_key(name))


@cache
def _task(name: str, key: tuple[str, int]) -> Task:
    splits = dict(study_splits(name))
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


def spread(t: Task, X: np.ndarray) -> dict[str, float]:
    """The paper's maximum dispersion, per pair: all sets have one size, and a mean is easier to read than a sum."""
    return {"dispersion": dispersion(t.z(X)).mean}


def same(train: EmbeddingSet, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """k-Same; a class of fewer than k records is one group."""
    present = np.flatnonzero(train.counts)
    if train.counts[present].min() >= k:
        return KSame(k=k, random_state=seed).fit(train.X, train.y).sample()
    found = []
    for c in present:
        mine = train.y == c
        model = KSame(k=min(k, int(mine.sum())), random_state=seed).fit(train.X[mine], train.y[mine])
        found.append(model.sample())
    return np.concatenate([X for X, _ in found]), np.concatenate([y for _, y in found])


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    noise = config["noise"]

    def real(name: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            t = task(name)
            found = offline(t, t.train.X, t.train.y, noise, seed)
            return {f"offline/{k}": v for k, v in found.items()} | spread(t, t.train.X)

        return cell

    def ksame(name: str, k: int) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            t = task(name)
            X, y = same(t.train, k, seed)
            out = {f"offline/{m}": v for m, v in offline(t, X, y, noise, seed).items()}
            return out | {"D": average_nearest_distance(t.z(X), t.z(t.train.X)).value} | spread(t, X)

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
                    out |= {"D": average_nearest_distance(t.z(X), t.z(t.train.X)).value} | spread(t, X)
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
        text.append(f"## {study_set(name).title}\n\n" + table(results, name))
        if study_set(name).published in TABLE1:
            text += orders(results, name)
        text.append(comparisons(results, name))
    if any(study_set(name).given or study_set(name).thin for name in results.config["datasets"]):
        text.append("k-Same takes a class of fewer than k records as one group.")
    figure2(results, out)
    text.append("![AUC against distance](replica-fig2.svg)")
    if on_own_sets(results.config):
        # The paper's figures are of other data.
        return "\n\n".join(text)
    text.append("What the text says of its Figure 2 (its points are drawn, not printed): " + "; ".join(FIGURE2) + ".")
    shown = [study_set(name).published for name in results.config["datasets"]]
    for name in [name for name in TABLE1 if name not in shown]:
        rows = [[row, *(f"{value:.1f}" for value in figures)] for row, figures in TABLE1[name].items()]
        title = f"## The paper's Table 1, {name}: not at hand here"
        text += [title, markdown_table(["trained on", *(f"AUC, noise {sigma}" for sigma in NOISE)], rows)]
    return "\n\n".join(text)


def largest_k(config: Mapping[str, Any]) -> int:
    """k-Same needs k records of each class."""
    return max(config["ks"], default=2)


def check_settings(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for settings that tables and figures could not be drawn from."""
    if not all(type(sigma) is int and sigma >= 0 for sigma in config["noise"]) or 0 not in config["noise"]:
        raise ConfigError(f"`noise` must hold whole numbers, and 0 among them; got {config['noise']!r}.")
    if 1.0 not in config["variances"]:
        raise ConfigError(f"`variances` must hold 1.0, which all are compared at; got {config['variances']!r}.")


Place = tuple[str, str]


def places(results: StudyResults) -> dict[str, Place]:
    """Rows by name: their cell, and what their metrics start with."""
    out = {"real data": ("real", "offline")}
    out |= {f"{k}-Same": (f"{k}-Same", "offline") for k in results.config["ks"]}
    for which, label in NAMES.items():
        for mode in ("offline", "online"):
            for variance in results.config["variances"]:
                out[f"{label}, {mode}, variance {variance}"] = (which, f"{mode}/{variance}")
    return out


def in_the_paper(label: str) -> str:
    """The name of one of our rows in the paper's Table 1, whose CVAE is trained online."""
    online = f"{NAMES['cvae-authors']}, online, variance "
    return f"CVAE {label.removeprefix(online)}" if label.startswith(online) else label


def table(results: StudyResults, name: str) -> str:
    noise, paper = results.config["noise"], TABLE1.get(study_set(name).published)
    header = ["trained on", *(f"AUC, noise {s}" for s in noise), "D", "dispersion"]
    rows: list[list[object]] = []
    for label, (cell, prefix) in places(results).items():
        row: list[object] = [label, *(results.estimate(f"{name}/{cell}", f"{prefix}/auc{s}") for s in noise)]
        once = prefix in ("offline", "offline/1.0")
        for metric in ("D", "dispersion"):
            known = once and metric in next(iter(results.raw[f"{name}/{cell}"].values()))
            row.append(f"{results.estimate(f'{name}/{cell}', metric):.1f}" if known else "-")
        if paper:
            figures = paper.get(in_the_paper(label))
            row.append(" / ".join(f"{value:.1f}" for value in figures) if figures else "-")
        rows.append(row)
    return markdown_table([*header, *(["the paper, noise 0 / 1 / 2 / 3"] if paper else [])], rows)


def orders(results: StudyResults, name: str) -> list[str]:
    """Orders of the paper that are reversed here, at each noise that both have."""
    text = []
    for sigma in [s for s in NOISE if s in results.config["noise"]]:
        published = {row: figures[NOISE.index(sigma)] for row, figures in TABLE1[study_set(name).published].items()}
        runs = {
            in_the_paper(label): [100 * v for v in results.runs(f"{name}/{cell}", f"{prefix}/auc{sigma}")]
            for label, (cell, prefix) in places(results).items()
        }
        what = f"orders of the paper at noise {sigma}"
        text.append(reversed_table(published, runs, WHY, what=what, least=LEAST))
    return text


def comparisons(results: StudyResults, name: str) -> str:
    """Differences paired by seed, with ties marked."""
    noise = results.config["noise"]
    ends = sorted({min(noise), max(noise)})
    rows = []
    for which in ("cvae", "cvae-authors"):
        for baseline, metric in [("real", "offline/{}"), *((f"{k}-Same", "offline/{}") for k in results.config["ks"]),
                              ("gaussian", "offline/1.0/{}")]:  # fmt: skip
            row: list[object] = [NAMES[which], baseline]
            for sigma in ends:
                mine = results.runs(f"{name}/{which}", f"offline/1.0/auc{sigma}")
                other = results.runs(f"{name}/{baseline}", metric.format(f"auc{sigma}"))
                difference = Estimate.from_runs([a - b for a, b in zip(mine, other, strict=True)])
                row.append(f"{difference:+.3f} {compare(difference)}")
            rows.append(row)
    return "Differences in AUC (offline, variance 1), paired by seed:\n\n" + markdown_table(
        ["method", "against", *(f"noise {sigma}" for sigma in ends)], rows
    )


def figure2(results: StudyResults, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = results.config["datasets"]
    # A fixed salt: the same figures give the same file.
    with plt.rc_context({"svg.hashsalt": "replica-fig2"}):
        figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.6), squeeze=False)
        methods = [*(f"{k}-Same" for k in results.config["ks"]), *GENERATORS]
        for axis, name in zip(axes[0], names, strict=True):
            axis.axvline(
                results.estimate(f"{name}/real", "offline/auc0").value, color="0.5", ls="--", label="real data"
            )
            for i, method in enumerate(methods):
                metric = "offline/auc0" if method.endswith("Same") else "offline/1.0/auc0"
                auc, distance = (
                    results.estimate(f"{name}/{method}", metric),
                    results.estimate(f"{name}/{method}", "D"),
                )
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
            axis.set_title(study_set(name).title)
            axis.set_xlabel("AUC")
        axes[0][0].set_ylabel("D, mean distance to nearest record")
        axes[0][-1].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(out / "replica-fig2.svg", metadata={"Date": None})
        plt.close(figure)


# The CVAEs of Figure 3: the paper's and ours, each under its name.
DRAWN = ("cvae-authors", "cvae")


def fig3_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def cell(seed: int) -> dict[str, float]:
        """Share of t-SNE's neighbors that are of the other kind (0.5 if real and released mix), and dispersions."""
        sets, points, kinds = _embedding(config["dataset"], tuple(config["ks"]), seed)
        out = {}
        for kind, name in enumerate(_fig3_names(config)):
            out[f"dispersion {name}"] = dispersion(sets[kind]).mean
            if kind:
                both = np.isin(kinds, (0, kind))
                P, K = points[both], kinds[both]
                order = np.argsort(((P[:, None] - P[None]) ** 2).sum(axis=2), axis=1)[:, 1:11]
                out[f"mixing {name}"] = float((K[order] != K[:, None]).mean())
        return out

    return {"tsne": cell}


def _fig3_names(config: Mapping[str, Any]) -> list[str]:
    return ["real", *(f"{k}-Same" for k in config["ks"]), *(NAMES[which] for which in DRAWN)]


@cache
def _embedding(dataset: str, ks: tuple[int, ...], seed: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Real and released vectors, z-scored, then all of them on one map, and which set each point is of."""
    from sklearn.manifold import TSNE

    t = task(dataset)
    counts = {c: int(n) for c, n in enumerate(t.train.counts)}
    sets = [t.train.X, *(KSame(k=k, random_state=seed).fit(t.train.X, t.train.y).sample()[0] for k in ks)]
    for which in DRAWN:
        model = GENERATORS[which](seed).fit(t.train.X, t.train.y, validation=(t.val.X, t.val.y))
        sets.append(model.sample(per_class=counts, random_state=seed)[0])
    sets = [t.z(X) for X in sets]
    kinds = np.repeat(np.arange(len(sets)), [len(X) for X in sets])
    points = TSNE(random_state=seed, init="pca", perplexity=30).fit_transform(np.concatenate(sets))
    return sets, points, kinds


def fig3_render(results: StudyResults, out: Path) -> str:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    config = results.config
    _, points, kinds = _embedding(config["dataset"], tuple(config["ks"]), config["seeds"][0])
    names = _fig3_names(config)
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
    rows = []
    for name in names:
        mixing = f"{results.estimate('tsne', f'mixing {name}'):.3f}" if name != "real" else "-"
        gap = [
            100 * (a / b - 1)
            for a, b in zip(
                results.runs("tsne", f"dispersion {name}"), results.runs("tsne", "dispersion real"), strict=True
            )
        ]
        share = f"{Estimate.from_runs(gap):+.1f} %" if name != "real" else "-"
        rows.append([name, mixing, f"{results.estimate('tsne', f'dispersion {name}'):.1f}", share])
    return (
        "![t-SNE](replica-fig3.png)\n\nGray: real records; first seed. Mixing: of the ten nearest neighbors on the "
        "map, the share that is of the other kind (0.5: real and released are mixed). Dispersion: the mean distance "
        "between two vectors of a set, z-scored; the paper's maximum dispersion is its sum over pairs. "
        f"{len(config['seeds'])} seeds, 95 % intervals.\n\n"
        + markdown_table(["vectors", "mixing", "dispersion", "against real"], rows)
        + "\n\nThe paper says of its figure that the CVAE keeps the shape of the data and k-Same loses it, and that "
        "the CVAE has the larger dispersion; it prints no figures."
    )


def fig3_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core, by those on 546 records."""
    return (
        1.5
        * len(config["seeds"])
        * (study_set(config["dataset"]).records or len(task(config["dataset"]).train))
        / 546
    )


def stored_images(name: str) -> float:
    """Bytes of the training images: arrays, or the training share of the files of a folder."""
    found = study_set(name)
    place = data_folder() / found.images if not Path(found.images).is_absolute() else Path(found.images)
    if place.suffix == ".npz":
        with np.load(place) as archive:
            if "train_images" in archive.files:
                return float(archive["train_images"].nbytes)
    files = [place] if place.is_file() else [f for f in place.rglob("*") if f.is_file() and ".locum" not in f.parts]
    splits = study_splits(name)
    return sum(f.stat().st_size for f in files) * len(splits["train"]) / sum(map(len, splits.values()))


def check_payload(config: Mapping[str, Any]) -> None:
    """Raise `DataError` for a set without images."""
    for name in config["datasets"]:
        if not study_set(name).images:
            raise DataError(f"The payload is compared with images, and the set {name!r} has none: give it as images.")


def payload_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    def make(name: str) -> Cell:
        def cell(seed: int) -> dict[str, float]:
            train = study_splits(name)["train"]
            sizes = {
                "images as stored": stored_images(name) / 1e6,
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
    "replica-results": Study(
        "Figure 2 and Table 1 of the replica paper",
        cells,
        render,
        sets=SetNeeds("datasets"),
        check=check_settings,
    ),
    "replica-fig3": Study(
        "Figure 3 of the replica paper: t-SNE of real and released vectors",
        fig3_cells,
        fig3_render,
        fig3_minutes,
        sets=SetNeeds("dataset", per_class=largest_k),
    ),
    "replica-payload": Study(
        "Payload of the replica paper: decoder against images and embeddings",
        payload_cells,
        payload_render,
        sets=SetNeeds("datasets", parts=("train",)),
        check=check_payload,
    ),
}
