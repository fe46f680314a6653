"""Image corruptions: heads trained on real and released vectors, tested on vectors of corrupted images."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter
from que_sets import NAMES, PLAIN, records

from locum.embed import load_backbone
from locum.heads import LinearHead
from locum.metrics import auc_macro
from locum.recipes import StudyResults, study_set
from locum.recipes.study import Cell, data_folder, markdown_table

Pixels = npt.NDArray[np.uint8]
Vectors = npt.NDArray[np.float32]
# Three severities each, for 28 pixels: noise and brightness in gray levels, blur in pixels, JPEG by quality.
CORRUPTIONS: dict[str, tuple[float, float, float]] = {
    "noise": (10, 20, 40),
    "blur": (0.5, 1.0, 1.5),
    "contrast": (0.7, 0.4, 0.2),
    "brightness": (25, 50, 100),
    "jpeg": (50, 20, 8),
}
SEVERITIES = (1, 2, 3)


@cache
def images(name: str, part: str) -> Pixels:
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as file:
        found: Pixels = file[f"{part}_images"]
    return found


def corrupted(pixels: Pixels, kind: str, severity: int) -> Pixels:
    """Gray images with one corruption; noise is seeded by the kind and the severity, and the same for all methods."""
    amount = CORRUPTIONS[kind][severity - 1]
    values = pixels.astype(np.float64)
    if kind == "noise":
        values += np.random.default_rng(severity).normal(scale=amount, size=values.shape)
    elif kind == "brightness":
        values += amount
    elif kind == "contrast":
        mean = values.mean(axis=(1, 2), keepdims=True)
        values = mean + amount * (values - mean)
    else:
        return np.stack([_filtered(image, kind, amount) for image in pixels])
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _filtered(image: Pixels, kind: str, amount: float) -> Pixels:
    opened = Image.fromarray(image)
    if kind == "blur":
        return np.asarray(opened.filter(ImageFilter.GaussianBlur(amount)))
    written = io.BytesIO()
    opened.save(written, "JPEG", quality=int(amount))
    return np.asarray(Image.open(written))


@cache
def embedded(name: str, kind: str, severity: int) -> Vectors:
    """Vectors of the test images with one corruption; the same for every seed."""
    backbone = load_backbone("efflite0", device="cpu")
    pixels = images(name, "test") if kind == "clean" else corrupted(images(name, "test"), kind, severity)
    out, batch = [], backbone.batch
    for start in range(0, len(pixels), batch):
        rows = [backbone.preprocessing.apply(Image.fromarray(image)) for image in pixels[start : start + batch]]
        out.append(backbone.run(np.stack(rows)))
    return np.concatenate(out)


def learned(config: Mapping[str, Any], name: str, method: str, seed: int) -> tuple[LinearHead, Vectors, Vectors]:
    """The head of the replica study, and the mean and spread that all methods share: those of the real records."""
    train, val = records(name, "train"), records(name, "val")
    spread = train.X.std(axis=0)
    mean, spread = train.X.mean(axis=0), np.where(spread > 1e-6, spread, 1)
    X, y = train.X, train.y
    if method != "real":
        model = PLAIN[method](seed)
        if method == "cvae-paper" and config["cvae_epochs"]:
            model.set_params(max_epochs=config["cvae_epochs"])
        model.fit(X, y, validation=(val.X, val.y))
        if method.endswith("same"):
            # Not as a release: that is refused where two equal images are a group, as some of PneumoniaMNIST are.
            X, y = model.sample()
        else:
            counts = {c: int(n) for c, n in enumerate(train.counts)}
            X, y = model.release(train.info, no_dp=True).sample(per_class=counts, random_state=seed)
    head = LinearHead(standardize=False, random_state=seed)
    return head.fit((X - mean) / spread, y, validation=((val.X - mean) / spread, val.y)), mean, spread


def judged(config: Mapping[str, Any], name: str, method: str, seed: int) -> Mapping[str, float]:
    """The AUC on clean and corrupted images, and on vectors with noise, as in the paper."""
    head, mean, spread = learned(config, name, method, seed)
    test = records(name, "test")

    def auc(X: Vectors) -> float:
        return auc_macro(test.y, head.predict_proba(X), head.classes_)

    clean = (test.X - mean) / spread
    out = {"clean": auc(clean), "gap": float(np.abs(embedded(name, "clean", 0) - test.X).max())}
    for kind in CORRUPTIONS:
        for severity in SEVERITIES:
            out[f"{kind}/{severity}"] = auc((embedded(name, kind, severity) - mean) / spread)
    rng = np.random.default_rng(seed)
    for sigma in SEVERITIES:
        runs = [auc((clean + sigma * rng.normal(size=clean.shape)).astype(np.float32)) for _ in range(3)]
        out[f"vectors/{sigma}"] = float(np.mean(runs))
    for severity in SEVERITIES:
        out[f"mean/{severity}"] = float(np.mean([out[f"{kind}/{severity}"] for kind in CORRUPTIONS]))
    return out


def corruption_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each method on each set."""
    return {f"{name}/{m}": partial(judged, config, name, m) for name in config["sets"] for m in config["methods"]}


def render_corruptions(results: StudyResults, out: Path) -> str:
    """Per set: the mean over corruptions by severity beside noise on vectors, then each kind at the worst."""
    config, text = results.config, []
    for name in config["sets"]:
        cells = {method: f"{name}/{method}" for method in config["methods"]}
        metrics = ["clean", *(f"mean/{s}" for s in SEVERITIES), *(f"vectors/{s}" for s in SEVERITIES)]
        header = ["trained on", "clean", *(f"corrupted images, severity {s}" for s in SEVERITIES)]
        header += [f"noise {s} on vectors" for s in SEVERITIES]
        rows = [[NAMES[m], *(f"{results.estimate(c, x):.3f}" for x in metrics)] for m, c in cells.items()]
        text += [f"## {study_set(name).title}", markdown_table(header, rows)]
        rows = [[NAMES[m], *(f"{results.estimate(c, f'{k}/3'):.3f}" for k in CORRUPTIONS)] for m, c in cells.items()]
        text.append(markdown_table(["severity 3", *CORRUPTIONS], rows))
        rows = []
        for method, cell in cells.items():
            if method not in ("real", "cvae-paper") and "cvae-paper" in cells:
                gaps = [results.difference(cells["cvae-paper"], cell, x) for x in ("clean", "mean/3", "vectors/3")]
                rows.append([NAMES[method], *(f"{gap:+.3f}" for gap in gaps)])
        header = ["the paper's CVAE minus", "clean", "corrupted images, severity 3", "noise 3 on vectors"]
        text.append(markdown_table(header, rows))
    epochs = config["cvae_epochs"]
    text.append(
        f"AUC on test images; {', '.join(CORRUPTIONS)} at three severities, before the image is scaled up and "
        f"embedded. Means over {len(config['seeds'])} seeds, 95 % intervals over seeds: the test images and their "
        f"corruptions are the same. The CVAE is trained {'at most ' + str(epochs) if epochs else 'up to 1,000'} "
        "epochs and stops early on validation records, as in the paper."
    )
    return "\n\n".join(text)


def corruption_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core: images once, and fits for each seed."""
    sizes = {"breastmnist": (156, 0.15), "pneumoniamnist": (624, 1.5)}
    total = 0.0
    for name in config["sets"]:
        tested, fit = sizes.get(name, sizes["pneumoniamnist"])
        total += 16 * tested / 50 / 60 + len(config["seeds"]) * fit
    return total
