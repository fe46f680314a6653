"""Chest X-rays of real patients: what a guarantee per image leaves open, and what a split by image pretends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pat_attacks import BINS, NAMES, attacked, budget, limit, probe, released
from sklearn.neighbors import KNeighborsClassifier

from locum.data import read_embeddings
from locum.generate import ClassGaussian
from locum.metrics import auc_macro
from locum.recipes import StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.types import EmbeddingSet

Codes = npt.NDArray[np.int64]
PARTS = ("train", "val", "test")
LABELS = {"sex": "sex (of a patient)", "effusion": "effusion (of an image)"}


@cache
def images(part: str) -> EmbeddingSet:
    return read_embeddings(data_folder() / "nih_cxr14_efflite0.npz", part)


@cache
def everyone() -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], dict[str, Codes]]:
    """Vectors, patients and both labels of all three splits."""
    sets = [images(part) for part in PARTS]
    effusion = np.concatenate([np.asarray(s.attributes["effusion"]).astype(str) for s in sets])
    labels = {
        "sex": np.concatenate([s.y for s in sets]),
        "effusion": np.unique(effusion, return_inverse=True)[1].astype(np.int64),
    }
    return np.concatenate([s.X for s in sets]), np.concatenate([np.asarray(s.subject) for s in sets]), labels


def utility(config: Mapping[str, Any], name: str, seed: int) -> Mapping[str, float]:
    """The probe on samples of a release of the training split; patients of the test split are others."""
    train, test = images("train"), images("test")
    X, y = train.X, train.y
    if name != "real":
        release = released(name, train, config["delta"], "efflite0", seed)
        many = None if release.manifest.kind == "data" else config["samples"]
        X, y = release.sample(many, random_state=seed)
    fitted = probe().fit(X, y)
    return {"auc": auc_macro(test.y, fitted.predict_proba(test.X), fitted.classes_)}


def split_by(config: Mapping[str, Any], by: str, seed: int) -> Mapping[str, float]:
    """The AUC on a random 30 %, of patients or of images: a linear probe on real and on drawn vectors, and 1-NN."""
    X, patients, labels = everyone()
    rng = np.random.default_rng(seed)
    units = np.unique(patients, return_inverse=True)[1] if by == "patient" else np.arange(len(X))
    count = int(units.max()) + 1
    held = np.isin(units, rng.permutation(count)[: round(0.3 * count)])
    out = {"known patients": float(np.isin(patients[held], patients[~held]).mean())}
    for label, y in labels.items():
        release = ClassGaussian(random_state=seed).fit(X[~held], y[~held]).release(no_dp=True)
        learned = {
            "real": probe().fit(X[~held], y[~held]),
            "drawn": probe().fit(*release.sample(config["samples"], random_state=seed)),
            "nearest": KNeighborsClassifier(1).fit(X[~held], y[~held]),
        }
        for how, model in learned.items():
            out[f"{label}/{how}"] = auc_macro(y[held], model.predict_proba(X[held]), model.classes_)
    return out


def nih_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Utility, attacks for members by patient and by image, and the two ways to split."""

    def attack(name: str, by: str, seed: int) -> Mapping[str, float | str]:
        return attacked(config, images("train"), name, by, "efflite0", seed)

    out: dict[str, Cell] = {
        f"utility/{name}": partial(utility, config, name) for name in ("real", *config["releases"])
    }
    for name in config["releases"]:
        out[f"attack/{name}/by patient"] = partial(attack, name, "patient")
        if name != "5-same-patients":
            out[f"attack/{name}/by record"] = partial(attack, name, "record")
    return out | {f"split/by {by}": partial(split_by, config, by) for by in ("patient", "record")}


def strongest(results: StudyResults, cell: str, metric: str) -> str:
    """The attack with the highest mean over seeds."""
    some = next(iter(results.raw[cell].values()))
    names = [key.removesuffix(f"/{metric}") for key in some if key.endswith(f"/{metric}")]
    names = [name for name in names if "/" not in name]
    return max(names, key=lambda name: results.estimate(cell, f"{name}/{metric}").value)


def attack_tables(results: StudyResults, releases: list[str], first: str = "") -> list[str]:
    """What the strongest attack finds of a record and of patients, and then the verdicts by the way to divide."""
    config, text, rows = results.config, [], []
    for name in releases:
        cell = f"{first}attack/{name}/by patient"
        best = strongest(results, cell, "patient/auc")
        known = next(iter(results.raw[cell].values()))
        row: list[object] = [NAMES[name], best]
        row += [f"{results.estimate(cell, f'{best}/{m}/auc'):.3f}" for m in ("record", "patient")]
        for words in BINS:
            metric = f"{best}/patient/{words}/auc"
            everywhere = all(metric in figures for figures in results.raw[cell].values())
            row.append(f"{results.estimate(cell, metric):.3f}" if metric in known and everywhere else "-")
        rows.append(row)
    header = [
        "guarantee",
        "attack",
        "one record",
        "patient, all records",
        *(f"{words} record{'s' * (words != '1')}" for words in BINS),
    ]
    text.append("### Is this record in? Is this patient in?\n\n" + markdown_table(header, rows))
    rows = []
    for name in releases:
        privacy = budget(name, config["delta"])
        if privacy is not None:
            per = privacy.unit == "record"
            sizes = [1, 2, 5, 10, 20]
            shown = [f"{limit(privacy.epsilon, config['delta'], n if per else 1):.3f}" for n in sizes]
            rows.append([NAMES[name], *shown])
    header = ["guarantee", *(f"{n} record{'s' * (n > 1)} of a patient" for n in (1, 2, 5, 10, 20))]
    text.append("### The highest AUC that any attack can have, by the plan\n\n" + markdown_table(header, rows))
    rows = []
    for name in releases:
        right, wrong = (f"{first}attack/{name}/by {by}" for by in ("patient", "record"))
        if wrong not in results.raw:
            continue
        best = strongest(results, right, "record/auc")
        gap = results.difference(wrong, right, f"{best}/record/auc")
        rows.append(
            [
                NAMES[name],
                best,
                *(_verdict(results, name, c, f"{best}/record") for c in (right, wrong)),
                f"{gap:+.3f}",
            ]
        )
    header = [
        "guarantee",
        "attack",
        "members and others share no patient",
        "patients are on both sides",
        "difference",
    ]
    text.append("### What an audit says, by how members and others were divided\n\n" + markdown_table(header, rows))
    return text


def _verdict(results: StudyResults, name: str, cell: str, metric: str) -> str:
    """The mean AUC, and how often which verdict; below the limit of one unit there is nothing to blame it for."""
    verdicts, privacy = results.texts(cell, f"{metric}/verdict"), budget(name, results.config["delta"])
    if privacy is not None:
        bound = limit(privacy.epsilon, privacy.delta, 1)
        runs = results.runs(cell, f"{metric}/auc")
        verdicts = ["within the proven limit" if auc <= bound else "above the limit" for auc in runs]
    told = ", ".join(f"{v} {verdicts.count(v)}/{len(verdicts)}" for v in dict.fromkeys(verdicts))
    return f"{results.estimate(cell, f'{metric}/auc'):.3f} ({told})"


def render_nih(results: StudyResults, out: Path) -> str:
    """Utility, attacks, limits, and splits."""
    config = results.config
    rows = [
        [words, f"{results.estimate(f'utility/{name}', 'auc'):.3f}"]
        for name, words in {"real": "real images", **NAMES}.items()
        if f"utility/{name}" in results.raw
    ]
    text = ["### What a receiver learns (sex, AUC on other patients)", markdown_table(["guarantee", "AUC"], rows)]
    text += attack_tables(results, [name for name in NAMES if name in config["releases"]])
    rows = []
    for label, words in LABELS.items():
        for how, learned in (
            ("real", "probe on real images"),
            ("drawn", "probe on ClassGaussian"),
            ("nearest", "1-NN"),
        ):
            metric = f"{label}/{how}"
            both = [f"{results.estimate(f'split/by {by}', metric):.3f}" for by in ("patient", "record")]
            gap = results.difference("split/by record", "split/by patient", metric)
            rows.append([words, learned, *both, f"{gap:+.3f}"])
    known = results.estimate("split/by record", "known patients").value
    text.append(
        "### How much too good a test on known patients looks\n\n"
        + markdown_table(["label", "learned", "split by patient", "split by image", "too good by"], rows)
        + f"\n\nIn a split by image {known:.0%} of the test images are of a patient with training images."
    )
    text.append(
        f"NIH ChestX-ray14, EfficientNet-Lite0. Attacks: half of the 934 patients of the training split (or of its "
        f"3,491 images) are members; one image of each patient is attacked, or the scores of all images of a patient "
        f"are added up. Delta {config['delta']:g}. Means over {len(config['seeds'])} seeds with 95 % intervals over "
        "seeds, which draw members, noise and splits. Each cell of attacks shows the attack with the highest mean."
    )
    return "\n\n".join(text)


def nih_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    return len(config["seeds"]) * (0.3 + 0.45 * len(config["releases"]) + 0.5)
