"""Image presets side by side, with pretrained judges who know the label, and patients matched across releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.obfuscate import ImageObfuscator, Judgment, Labeled
from locum.obfuscate.evaluation import Originals
from locum.obfuscate.linear_judges import BackboneJudge
from locum.recipes import StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table

Array = npt.NDArray[Any]
Config = Mapping[str, Any]
PRESETS = {"collages": "substitute, collages", "donors": "substitute, donors", "calibrated": "calibrated"}


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Images with what is kept, what is hidden, and whose they are."""

    pixels: Array
    rows: Labeled
    subject: Array

    def take(self, rows: Array) -> Scene:
        return Scene(self.pixels[rows], self.rows.take(rows), self.subject[rows])


@cache
def xrays(split: str, keep: str) -> Scene:
    """Chest X-rays: `keep` is the view or effusion, sex is hidden."""
    with np.load(data_folder() / "nih_cxr14.npz", allow_pickle=False) as file:
        pixels, sex = file[f"{split}_images"], file[f"{split}_labels"].astype(np.int64)
        kept, subject = file[f"{split}_attr_{keep}"], file[f"{split}_subject"]
    codes = np.unique(kept, return_inverse=True)[1].astype(np.int64)
    return Scene(pixels, Labeled(pixels[:, None].astype(np.float32) / 255, codes, sex), subject)


def balanced(scene: Scene, seed: int) -> Scene:
    """As many images of each utility label, so that an accuracy is a balanced accuracy."""
    rng, codes = np.random.default_rng(seed), scene.rows.utility
    fewest = np.bincount(codes).min()
    return scene.take(
        np.sort(np.concatenate([rng.permutation(np.flatnonzero(codes == c))[:fewest] for c in np.unique(codes)]))
    )


def halves(scene: Scene, seed: int) -> tuple[Array, Array]:
    """Positions of two parts that share no subject: one to obfuscate, one that lends donors."""
    subjects = np.random.default_rng(seed).permutation(np.unique(scene.subject))
    first = np.isin(scene.subject, subjects[: len(subjects) // 2])
    return np.flatnonzero(first), np.flatnonzero(~first)


def fitted(preset: str, scene: Scene, seed: int) -> ImageObfuscator:
    """Collages and noise are made of all of `scene`; with donors, half of the subjects lend them."""
    if preset != "donors":
        model = ImageObfuscator("substitute" if preset == "collages" else preset, random_state=seed)
        if preset == "collages":
            return model.fit(scene.pixels, scene.rows.utility, show_quarters=True, subject=scene.subject)
        return model.fit(scene.pixels, scene.rows.utility)
    own, lent = (scene.take(part) for part in halves(scene, seed))
    return ImageObfuscator().fit(own.pixels, own.rows.utility, donors=(lent.pixels, lent.rows.utility))


def judged(seen: Judgment, kinds: Sequence[str]) -> dict[str, float]:
    """The strongest attacker with one release and with several, and the best receiver; then each judge's."""
    one = {k: max(role[k].value for role in (seen.weak, seen.strong, seen.informed)) for k in kinds}
    out = {
        "attacker": max(one.values()),
        "attacker, several": max(e.value for e in seen.averaged.values()),
        "receiver": seen.utility.value,
    }
    return (
        out
        | {f"receiver {k}": seen.utility_original[k].value for k in kinds}
        | {f"attacker {k}": value for k, value in one.items()}
    )


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Scenes to learn from and to be tried on, and what judges find in them."""

    train: Scene
    test: Scene
    originals: Originals

    def vectors(self, X: Array) -> Array:
        """What the backbone makes of images."""
        return self.originals.judges.get("backbone", BackboneJudge()).read(X)


def look(find: Callable[[int], tuple[Scene, Scene]], config: Config, seed: int) -> Found:
    """Learn from the originals; the same for all presets."""
    train, test = find(seed)
    return Found(train, test, Originals.learn(train.rows, test.rows, tuple(config["judges"]), seed))


def cell(learned: Callable[[int], Found], preset: str, config: Config, seed: int) -> dict[str, float]:
    """One preset at every noise."""
    found = learned(seed)
    train, test, kinds = found.train, found.test, tuple(config["judges"])
    model = fitted(preset, train, seed)
    out: dict[str, float] = {}
    for noise in config[f"{preset}_noises"]:
        mask = model.masking(noise=noise)
        figures = judged(found.originals.judge(mask, copies=config["copies"]), kinds)
        released = mask(test.rows.X, test.rows.utility, np.random.default_rng([seed, 77]))
        error = float(np.square(released - test.rows.X).mean())
        figures["psnr"] = -10 * math.log10(max(error, 1e-10))
        out |= {f"{noise:g}/{name}": value for name, value in (figures | copies_of(released, train)).items()}
        if len(np.unique(test.subject)) < len(test.subject):
            matched = matching(found.vectors(released), test.subject) | {
                f"pixels {k}": v for k, v in matching(released.reshape(len(released), -1), test.subject).items()
            }
            out |= {f"{noise:g}/{name}": value for name, value in matched.items()}
    return out


def originals(learned: Callable[[int], Found], config: Config, seed: int) -> dict[str, float]:
    """What is found where nothing is hidden, and what the label alone tells."""
    found = learned(seed)
    test, kinds = found.test, tuple(config["judges"])
    seen = found.originals.judge(lambda X, codes, rng: X, copies=1)
    out = judged(seen, kinds) | {"label only": seen.label_only.value, "guess": seen.utility_majority.value}
    if len(np.unique(test.subject)) < len(test.subject):
        out |= matching(found.vectors(test.rows.X), test.subject) | {"matching by chance": chance(test.subject)}
        pixels = matching(test.rows.X.reshape(len(test.rows), -1), test.subject)
        out |= {f"pixels {name}": value for name, value in pixels.items()}
    return out


def copies_of(released: Array, train: Scene) -> dict[str, float]:
    """The correlation of released images with the fitted image that they are most like."""
    a, b = (_unit(x.reshape(len(x), -1)) for x in (released, train.rows.X))
    near = (a @ b.T).max(axis=1)
    return {"nearest fitted image": float(np.median(near)), "copies": float((near > 0.99).mean())}


def matching(found: Array, subject: Array) -> dict[str, float]:
    """How well pairs of one subject are told from others, and how often the nearest image is of the same subject."""
    from sklearn.metrics import roc_auc_score

    scaled = _unit((found - found.mean(axis=0)) / (found.std(axis=0) + 1e-6))
    like = scaled @ scaled.T
    first, second = np.triu_indices(len(like), 1)
    auc = roc_auc_score(subject[first] == subject[second], like[first, second])
    np.fill_diagonal(like, -np.inf)
    many = _many(subject)
    return {"pairs": float(auc), "rank 1": float((subject[like.argmax(axis=1)] == subject)[many].mean())}


def chance(subject: Array) -> float:
    """Rank 1 of a match at random."""
    _, which, counts = np.unique(subject, return_inverse=True, return_counts=True)
    return float(((counts[which] - 1) / (len(subject) - 1))[_many(subject)].mean())


def _many(subject: Array) -> Array:
    """Images whose subject has another one."""
    _, which, counts = np.unique(subject, return_inverse=True, return_counts=True)
    many: Array = counts[which] > 1
    return many


def _unit(rows: Array) -> Array:
    centered = rows - rows.mean(axis=1, keepdims=True)
    out: Array = centered / (np.linalg.norm(centered, axis=1, keepdims=True) + 1e-9)
    return out


def nih_cells(config: Config) -> dict[str, Cell]:
    """For each attribute that is kept: the originals, and each preset."""

    def find(keep: str, seed: int) -> tuple[Scene, Scene]:
        pair = xrays("train", keep), xrays("test", keep)
        return tuple(balanced(scene, seed) for scene in pair) if keep == "effusion" else pair  # type: ignore[return-value]

    made: dict[str, Cell] = {}
    for keep in config["keep"]:
        learned = cache(partial(look, partial(find, keep), config))
        made[f"{keep}/original"] = partial(originals, learned, config)
        for preset in config["presets"]:
            made[f"{keep}/{preset}"] = partial(cell, learned, preset, config)
    return made


def judged_cells(find: Callable[[int], tuple[Scene, Scene]], config: Config) -> dict[str, Cell]:
    """The originals and each preset of `config`, by name."""
    learned = cache(partial(look, find, config))
    made: dict[str, Cell] = {"judged/original": partial(originals, learned, config)} if config["presets"] else {}
    return made | {f"judged/{preset}": partial(cell, learned, preset, config) for preset in config["presets"]}


def judged_table(results: StudyResults) -> str:
    """What the strongest attackers and the best receivers find, for each preset and noise."""
    c, whole = results.config, "judged/original"

    def told(cell: str, metric: str) -> float:
        return results.estimate(cell, metric).value

    alone, most = told(whole, "label only"), told(whole, "attacker")
    rows: list[list[object]] = [
        ["nothing hidden", "", f"{most:.3f}", "", "", f"{told(whole, 'receiver'):.3f}", "", ""]
    ]
    for preset in c["presets"]:
        for noise in c[f"{preset}_noises"]:
            name, at = f"judged/{preset}", f"{noise:g}/"
            found = [told(name, at + role) for role in ("attacker", "attacker, several")]
            rows.append(
                [
                    PRESETS[preset],
                    f"{noise:g}",
                    *(f"{value:.3f}" for value in found),
                    f"{1 - (max(found) - alone) / (most - alone):.2f}",
                    *(f"{told(name, at + figure):.3f}" for figure in ("receiver", "copies")),
                    f"{told(name, at + 'psnr'):.1f}",
                ]
            )
    return markdown_table(
        [
            "preset",
            "noise",
            "strongest attacker",
            f"with {c['copies']} releases",
            "advantage lost",
            "best receiver, original images",
            "copies of fitted images",
            "PSNR",
        ],
        rows,
    )


def nih_render(results: StudyResults, out: Path) -> str:
    """One table for each attribute that is kept."""
    text, c = [], results.config

    def told(cell: str, metric: str) -> str:
        return f"{results.estimate(cell, metric).value:.3f}"

    names = ("attacker", "attacker, several", "receiver", "pairs", "rank 1")
    for keep in c["keep"]:
        whole = f"{keep}/original"
        rows = [["nothing hidden", "", *(told(whole, name) for name in names), "", ""]]
        for preset in c["presets"]:
            for noise in c[f"{preset}_noises"]:
                shown = [told(f"{keep}/{preset}", f"{noise:g}/{name}") for name in (*names, "copies", "psnr")]
                rows.append([PRESETS[preset], f"{noise:g}", *shown])
        text += [
            f"## Kept: {keep}; hidden: sex",
            f"The label alone gives an attacker {told(whole, 'label only')}, a receiver guesses "
            f"{told(whole, 'guess')}, a match at random is right in {told(whole, 'matching by chance')}.",
            markdown_table(
                [
                    "preset",
                    "noise",
                    "strongest attacker",
                    f"with {c['copies']} releases",
                    "best receiver, original images",
                    "pairs of one patient, AUC",
                    "nearest is the same patient",
                    "copies of fitted images",
                    "PSNR",
                ],
                rows,
            ),
        ]
    text.append(
        "Accuracies; for effusion on as many images with it as without. Splits share no patient. Attackers know the "
        "label."
    )
    return "\n\n".join(text)
