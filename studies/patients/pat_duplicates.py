"""Copies in the sets at hand, equal and nearly equal, and what they do to a test and to an attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pat_attacks import attacks_on, limit, probe, rank_auc, released

from locum.data import copies_of, drop_duplicates, find_duplicates, read_embeddings
from locum.metrics import auc_macro
from locum.recipes import StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.types import EmbeddingSet

Array = npt.NDArray[np.float32]
TITLES = {"breastmnist": "BreastMNIST", "pneumoniamnist": "PneumoniaMNIST", "nih_cxr14": "NIH chest X-rays"}
PARTS = ("train", "val", "test")
_ROWS = 1000


@cache
def pixels(name: str, part: str) -> Array:
    """Images as rows of pixels."""
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as file:
        key = f"{part}_images" if f"{part}_images" in file else f"{part}_x"
        found = file[key]
    return np.asarray(found, dtype=np.float32).reshape(len(found), -1)


@cache
def vectors(name: str, part: str) -> EmbeddingSet:
    return read_embeddings(data_folder() / f"{name}_efflite0.npz", part)


def alike(a: Array, b: Array, bar: float) -> npt.NDArray[np.bool_]:
    """Which pairs of images have pixels that correlate by `bar` or more; brightness and contrast do not count."""
    first, second = (_standard(part) for part in (a, b))
    return np.concatenate([first[i : i + _ROWS] @ second.T >= bar for i in range(0, len(first), _ROWS)])


def _standard(rows: Array) -> Array:
    centered = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centered, axis=1, keepdims=True)
    return np.asarray(centered / np.maximum(length, 1e-6), dtype=np.float32)


@cache
def near(name: str, part: str, other: str, bar: float) -> npt.NDArray[np.bool_]:
    """Which images of one split have a near copy in another. No seed changes it."""
    return alike(pixels(name, part), pixels(name, other), bar).any(axis=1)


@cache
def near_within(name: str, bar: float) -> tuple[int, float | None]:
    """How many training images have a near copy among the others, and the share of these pairs of one patient."""
    train = pixels(name, "train")
    pairs = alike(train, train, bar)
    np.fill_diagonal(pairs, False)
    owner = vectors(name, "train").subject
    known = owner is not None and pairs.any()
    return int(pairs.any(axis=1).sum()), float((owner[:, None] == owner)[pairs].mean()) if known else None


def counted(config: Mapping[str, Any], name: str, seed: int) -> Mapping[str, float]:
    """How many images have a copy, within training and between splits. No seed changes it."""
    out: dict[str, float] = {}
    train = pixels(name, "train")
    out["images"] = float(len(train))
    out["equal/within train"] = float((find_duplicates(train) != np.arange(len(train))).sum())
    # Lengths and labels do not matter: only whether the pixels are those of a training image.
    known = EmbeddingSet(train, np.zeros(len(train), dtype=int))
    for part in ("val", "test"):
        rows = pixels(name, part)
        out[f"equal/{part} in train"] = float(
            copies_of(EmbeddingSet(rows, np.zeros(len(rows), dtype=int)), known).sum()
        )
        out[f"images/{part}"] = float(len(rows))
    for bar in config["near"]:
        within, of_one = near_within(name, bar)
        out[f"{bar:g}/within train"] = float(within)
        if of_one is not None:
            out[f"{bar:g}/of one patient"] = of_one
        for part in ("val", "test"):
            out[f"{bar:g}/{part} in train"] = float(near(name, part, "train", bar).sum())
    return out


def usefulness(config: Mapping[str, Any], name: str, seed: int) -> Mapping[str, float]:
    """The probe on real vectors, with and without training images that have a (near) copy in the test set.

    As many training images, drawn at random, are left out for comparison.
    """
    train, test = vectors(name, "train"), vectors(name, "test")

    def auc(kept: npt.NDArray[Any], tested: npt.NDArray[Any]) -> float:
        fitted = probe().fit(train.X[kept], train.y[kept])
        return auc_macro(test.y[tested], fitted.predict_proba(test.X[tested]), fitted.classes_)

    every, rng = np.ones(len(test), dtype=bool), np.random.default_rng(seed)
    out = {"as it is": auc(np.ones(len(train), dtype=bool), every)}
    for bar in config["near"]:
        copied = near(name, "train", "test", bar)
        other = np.ones(len(train), dtype=bool)
        other[rng.permutation(len(train))[: copied.sum()]] = False
        out |= {f"{bar:g}/left out": float(copied.sum()), f"{bar:g}/without": auc(~copied, every)}
        out[f"{bar:g}/without others"] = auc(other, every)
    return out


def planted(config: Mapping[str, Any], name: str, guarantee: str, repeats: int, seed: int) -> Mapping[str, float]:
    """What attacks find of a few members that are in the data `repeats` times, and of the other members."""
    data, size, few = drop_duplicates(vectors(name, "train")), config["members"], config["planted"]
    # The unit is the record here: patients are another question.
    data = replace(data, subject=None)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside = data.take(order[:size]), data.take(order[size : 2 * size])
    many = inside.take(np.concatenate([np.repeat(np.arange(few), repeats), np.arange(few, size)]))
    release = released(guarantee, many, config["delta"], "efflite0", seed)
    out: dict[str, float] = {}
    for attack in attacks_on(guarantee, config["shadows"], seed):
        scores = attack.score(release, inside, outside, np.random.default_rng(seed))
        out[f"{attack.name}/repeated"] = rank_auc(scores.inside[:few], scores.outside)
        out[f"{attack.name}/others"] = rank_auc(scores.inside[few:], scores.outside)
    return out


def duplicate_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Counts and utility of each set; planted copies on the first."""
    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out |= {
            f"{name}/counts": partial(counted, config, name),
            f"{name}/utility": partial(usefulness, config, name),
        }
    first = config["sets"][0]
    for guarantee in ("none", "record-1"):
        for n in config["repeats"]:
            out[f"planted/{guarantee}/{n}"] = partial(planted, config, first, guarantee, n)
    return out


def render_duplicates(results: StudyResults, out: Path) -> str:
    """Counts, utility, and planted copies."""
    config, text, rows = results.config, [], []
    for name in config["sets"]:
        some = results.raw[f"{name}/counts"][str(config["seeds"][0])]
        for kind in ("equal", *(f"{bar:g}" for bar in config["near"])):
            words = "equal pixels" if kind == "equal" else f"correlation {kind} or more"
            shown = [f"{some[f'{kind}/{place}']:.0f}" for place in ("within train", "val in train", "test in train")]
            own = some.get(f"{kind}/of one patient")
            rows.append([TITLES[name], words, *shown, "-" if own is None else f"{own:.0%}"])
    header = [
        "set",
        "copies",
        "repeated within train",
        "val images in train",
        "test images in train",
        "pairs of one patient",
    ]
    text.append("### How many copies there are\n\n" + markdown_table(header, rows))
    rows = []
    for name in config["sets"]:
        cell = f"{name}/utility"
        for bar in config["near"]:
            gone = results.estimate(cell, f"{bar:g}/left out").value
            shown = [results.runs(cell, m) for m in ("as it is", f"{bar:g}/without", f"{bar:g}/without others")]
            rows.append([TITLES[name], f"{bar:g}", f"{gone:.0f}", *(f"{np.mean(values):.3f}" for values in shown)])
    header = [
        "set",
        "correlation",
        "training images left out",
        "AUC, all",
        "without near copies of test images",
        "without as many others",
    ]
    text.append("### What they do to a test\n\n" + markdown_table(header, rows))
    rows = []
    for guarantee, words in (("none", "none (ClassGaussian)"), ("record-1", "epsilon 1 per record")):
        for n in config["repeats"]:
            cell = f"planted/{guarantee}/{n}"
            names = [
                k.removesuffix("/repeated") for k in next(iter(results.raw[cell].values())) if k.endswith("/repeated")
            ]
            best = max(names, key=lambda a: results.estimate(cell, f"{a}/repeated").value)
            bound = f"{limit(1.0, config['delta'], n):.3f}" if guarantee == "record-1" else "-"
            figures = [f"{results.estimate(cell, f'{best}/{m}'):.3f}" for m in ("repeated", "others")]
            rows.append([words, n, best, *figures, bound])
    header = [
        "guarantee",
        "times in the data",
        "attack",
        "AUC, repeated members",
        "AUC, other members",
        "proven limit",
    ]
    text.append("### What they do to a member\n\n" + markdown_table(header, rows))
    text.append(
        f"Planted copies: {config['planted']} of {config['members']} members of {TITLES[config['sets'][0]]} are in "
        f"the data several times, against as many others. Means over {len(config['seeds'])} seeds, 95 % intervals "
        "over seeds. The limit for several copies is that of a group: the plan's noise over their number."
    )
    return "\n\n".join(text)


def duplicate_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    return len(config["seeds"]) * (0.15 * len(config["sets"]) + 0.05 * 2 * len(config["repeats"]))
