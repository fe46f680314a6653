"""CelebA, the adjustable paper's three cases: its network, knobs and judges, with its own figures beside."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from adj_published import (
    CELEBA,
    CELEBA_CORNER,
    CELEBA_FIGURE_12,
    CELEBA_LAMBDAS,
    CELEBA_NO_G,
    CELEBA_OWN,
    CELEBA_TABLE3,
)

from locum.embed import ImageTable, read_celeba
from locum.errors import DataError
from locum.obfuscate import ATTACKERS, ImageObfuscator, Labeled, Masking, hull_auc
from locum.obfuscate.evaluation import Originals, mean_release
from locum.obfuscate.judges import label_only, majority_guess
from locum.recipes import StudyResults
from locum.recipes.study import Cell, markdown_table

Array = npt.NDArray[Any]
Config = Mapping[str, Any]
PRIVATE = "Male"
UTILITY = {"CelebA-G-M": "Mouth_Slightly_Open", "CelebA-G-S": "Smiling", "CelebA-G-C": "High_Cheekbones"}
# The case of Figures 4 to 13.
MAIN = "CelebA-G-S"
NEEDS = (
    "This study needs CelebA (aligned and cropped images, for research only, from its authors' page): a folder with "
    "`img_align_celeba/`, `list_attr_celeba.txt` and `list_eval_partition.txt`, or with its folders `Img`, `Anno` "
    "and `Eval`. Name it: `locum study run celeba-curves --set celeba=DIR`. All 202,599 images take about "
    "40 GB of memory, and three fits of 183 epochs a GPU; `--quick` reads 3,000 images and needs neither."
)


def ready(config: Config) -> Path:
    """The folder, or what is needed."""
    folder = Path(str(config["celeba"]))
    if not config["celeba"] or not folder.is_dir():
        raise DataError(f"{NEEDS} `celeba` is {str(config['celeba'])!r} now, which is no folder.")
    return folder


def check(config: Config) -> None:
    """Raise `DataError` without CelebA."""
    ready(config)


@cache
def faces(folder: str, limit: int, side: int) -> tuple[ImageTable, ImageTable]:
    """To learn from and to test on: CelebA's own partitions, or of the first `limit` images the last fifth."""
    table = read_celeba(folder, side=side, attributes=[PRIVATE, *UTILITY.values()], limit=limit or None)
    if limit:
        cut = len(table) - len(table) // 5
        return table.take(np.arange(cut)), table.take(np.arange(cut, len(table)))
    if "partition" not in table.attributes:
        raise DataError(
            "There is no `list_eval_partition.txt` beside the list of attributes: add it, or set `limit`."
        )
    part = table.attributes["partition"]
    return table.take(part == 0), table.take(part == 2)


@cache
def labeled(folder: str, limit: int, side: int, case: str) -> tuple[Labeled, Labeled]:
    """Pixels between 0 and 1 with the codes of a case."""
    parts = []
    for table in faces(folder, limit, side):
        pixels = np.ascontiguousarray(table.images.transpose(0, 3, 1, 2), dtype=np.float32) / 255
        parts.append(Labeled(pixels, *(table.attributes[n].astype(np.int64) for n in (UTILITY[case], PRIVATE))))
    return parts[0], parts[1]


def rows_of(config: Config, case: str) -> tuple[Labeled, Labeled]:
    """The same, by the settings."""
    return labeled(str(ready(config)), config["limit"], config["side"], case)


@cache
def _originals(
    folder: str, limit: int, side: int, case: str, seed: int, epochs: int, kinds: tuple[str, ...]
) -> Originals:
    return Originals.learn(*labeled(folder, limit, side, case), kinds, seed, epochs)


def originals(config: Config, case: str, seed: int) -> Originals:
    """What judges find where nothing is hidden."""
    where = str(ready(config)), config["limit"], config["side"]
    return _originals(*where, case, seed, config["judge_epochs"], tuple(config["judges"]))


@cache
def _fitted(
    folder: str, limit: int, side: int, case: str, seed: int, preset: str, epochs: int, checkpoints: str
) -> ImageObfuscator:
    table = faces(folder, limit, side)[0]
    saved = Path(checkpoints) / f"{case}-{epochs}-{seed}.checkpoint" if checkpoints and preset == "paper" else None
    model = ImageObfuscator(
        preset,  # type: ignore[arg-type]
        max_epochs=epochs if preset == "paper" else None,
        random_state=seed,
        checkpoint=saved,
    )
    return model.fit(table.images, table.attributes[UTILITY[case]])


def fitted(config: Config, case: str, seed: int, preset: str = "paper", epochs: int | None = None) -> ImageObfuscator:
    """One fit for all cells that ask for it; with `checkpoints`, one that goes on where it stopped."""
    where = str(ready(config)), config["limit"], config["side"]
    return _fitted(*where, case, seed, preset, epochs or config["epochs"], str(config["checkpoints"]))


def judged(found: Originals, masking: Masking) -> dict[str, float]:
    """Every attacker and receiver, by kind, and how near releases are to the images."""
    seen = found.judge(masking, copies=1)
    sides = {role: getattr(seen, role) for role in ATTACKERS if role != "averaged"}
    sides |= {"utility": seen.utility_original, "released": seen.utility_released}
    out = {f"{role} {kind}": one.value for role, by in sides.items() for kind, one in by.items()}
    test = found.test
    error = np.square(mean_release(masking, test, np.random.default_rng(found.seed)) - test.X).mean()
    return out | {"psnr": float(-10 * np.log10(max(error, 1e-10)))}


def original_cell(config: Config, case: str, seed: int) -> Mapping[str, float]:
    """Where nothing is hidden, by the label alone and by a guess."""
    seen = originals(config, case, seed)
    out = {
        "label only": label_only(seen.train, seen.test).value,
        "majority": majority_guess(seen.train.private, seen.test.private).value,
        "utility majority": majority_guess(seen.train.utility, seen.test.utility).value,
    }
    for kind in config["judges"]:
        out |= {f"private {kind}": seen.private[kind].value, f"utility {kind}": seen.utility[kind].value}
    return out


def point_cell(
    config: Config, case: str, preset: str, epochs: int, noise: float, lambda_: float | None, seed: int
) -> Mapping[str, float]:
    """One release of a fit."""
    model = fitted(config, case, seed, preset, epochs)
    return judged(originals(config, case, seed), model.masking(noise=noise, lambda_=lambda_))


def grid_cell(config: Config, epochs: int, seed: int) -> Mapping[str, float]:
    """Figures 9, 11 and 12: what judges who learned on originals find in releases without noise, by lambda."""
    seen, model = originals(config, MAIN, seed), fitted(config, MAIN, seed, epochs=epochs)
    kind = config["judges"][0]
    learner = seen.judges[kind]
    user = learner.fit(learner.read(seen.train.X), seen.train.utility, seed)
    out: dict[str, float] = {}
    for value in (None, *config["grid_lambdas"]):
        shown = mean_release(model.masking(noise=0.0, lambda_=value), seen.test, np.random.default_rng([seed, 1]))
        key = "no g" if value is None else f"{value:g}"
        out |= {
            f"{key}/private": float((seen.attackers[kind](learner.read(shown)) == seen.test.private).mean()),
            f"{key}/utility": float((user(learner.read(shown)) == seen.test.utility).mean()),
        }
    history = model.history_
    for name, losses in (("loss", history.train_loss), ("validation loss", history.validation_loss)):
        out |= {f"{name}/{i}": loss for i, loss in enumerate(losses, start=1)}
    return out


def forced_cell(config: Config, seed: int) -> Mapping[str, float]:
    """Figure 13: a receiver's guesses for images rebuilt with each label, whatever their own, without noise."""
    seen, model = originals(config, MAIN, seed), fitted(config, MAIN, seed)
    learner = seen.judges[config["judges"][0]]
    mask = model.masking(noise=0.0, lambda_=config["lambda"])
    shown = mean_release(mask, seen.train, np.random.default_rng([seed, 2]))
    user = learner.fit(learner.read(shown), seen.train.utility, seed)
    out = {}
    for label in (0, 1):
        forced = Labeled(seen.test.X, np.full(len(seen.test), label), seen.test.private)
        guess = user(learner.read(mean_release(mask, forced, np.random.default_rng([seed, 3, label]))))
        for own in (0, 1):
            mine = seen.test.utility == own
            out[f"told {label}, own {own}"] = float((guess[mine] == label).mean()) if mine.any() else 0.0
    return out


def cells(config: Config) -> dict[str, Cell]:
    """One cell per release, so that an interrupted run loses little."""
    ready(config)
    made: dict[str, Cell] = {}
    for case in config["cases"]:
        made[f"{case}/original"] = partial(original_cell, config, case)
        for noise in config["noises"]:
            name = f"{case}/paper/{noise:g}, {config['lambda']:g}"
            made[name] = partial(point_cell, config, case, "paper", config["epochs"], noise, config["lambda"])
        for noise in config["ours_noises"]:
            name = f"{case}/ours/{noise:g}"
            made[name] = partial(point_cell, config, case, "calibrated", 0, noise, -50.0)
    if MAIN in config["cases"]:
        for noise in config["no_g_noises"]:
            made[f"{MAIN}/no g/{noise:g}"] = partial(point_cell, config, MAIN, "paper", config["epochs"], noise, None)
        for value in config["lambdas"]:
            for noise in config["lambda_noises"]:
                name = f"{MAIN}/paper/{noise:g}, {value:g}"
                made[name] = partial(point_cell, config, MAIN, "paper", config["epochs"], noise, value)
        for epochs in (*config["stages"], config["epochs"]):
            made[f"{MAIN}/grid/{epochs}"] = partial(grid_cell, config, epochs)
        made[f"{MAIN}/forced"] = partial(forced_cell, config)
    return made


# What is written about them.


def points(results: StudyResults, case: str, attacker: str) -> list[tuple[float, float]]:
    """(attacker, receiver) of the paper's network at each noise, means over seeds, by the first judge."""
    c = results.config
    kind = c["judges"][0]
    return [
        (results.estimate(cell, f"{attacker} {kind}").value, results.estimate(cell, f"utility {kind}").value)
        for noise in c["noises"]
        for cell in [f"{case}/paper/{noise:g}, {c['lambda']:g}"]
    ]


def render(results: StudyResults, out: Path) -> str:
    """Each case beside the paper, Table 3, then the figures of the case with smiling."""
    c = results.config
    kind = c["judges"][0]

    def told(cell: str, metric: str) -> str:
        return f"{results.estimate(cell, metric).value:.3f}"

    text = []
    for case in c["cases"]:
        x, y = CELEBA_OWN[case]
        text += [
            f"## {case}: {UTILITY[case]} kept, {PRIVATE} hidden (Figures 5, 6, 14 to 16)",
            f"Where nothing is hidden: attacker {told(f'{case}/original', f'private {kind}')} (paper {x:.3f}), "
            f"receiver {told(f'{case}/original', f'utility {kind}')} (paper {y:.3f}); by the label alone "
            f"{told(f'{case}/original', 'label only')}.",
        ]
        roles = [role for role in ATTACKERS if role != "averaged"]
        rows: list[list[object]] = []
        for noise in c["noises"]:
            cell = f"{case}/paper/{noise:g}, {c['lambda']:g}"
            theirs = CELEBA[case].get(noise)
            beside = [f"{figure:.3f}" for figure in theirs] if theirs else [""] * 3
            mine = [told(cell, f"{role} {kind}") for role in (*roles, "utility", "released")]
            rows.append(["the paper's", f"{noise:g}", *mine, told(cell, "psnr"), *beside])
        for noise in c["ours_noises"]:
            cell = f"{case}/ours/{noise:g}"
            mine = [told(cell, f"{role} {kind}") for role in (*roles, "utility", "released")]
            rows.append(["ours, calibrated", f"{noise:g}", *mine, told(cell, "psnr"), "", "", ""])
        header = ["method", "noise", *roles, "receiver", "receiver, released", "PSNR"]
        text.append(markdown_table([*header, "paper: weak", "paper: strong", "paper: receiver"], rows))
    text += ["## Table 3: hull AUC, strong attacker", _table3(results)]
    if MAIN in c["cases"]:
        text += _main(results)
    text.append(
        f"{len(c['seeds'])} seed(s). Epochs: obfuscators {c['epochs']}, judges {c['judge_epochs']}; "
        + (f"the first {c['limit']:,} images, a fifth of them to test on." if c["limit"] else "CelebA's partitions.")
    )
    return "\n\n".join(text)


def _table3(results: StudyResults) -> str:
    c, rows = results.config, []
    for case in c["cases"]:
        kind = c["judges"][0]
        corner = tuple(
            results.estimate(f"{case}/original", f"{side} {kind}").value for side in ("private", "utility")
        )
        curve = points(results, case, "strong")
        published = [(strong, utility) for _, strong, utility in CELEBA[case].values()]
        rows.append(
            [
                case,
                f"{CELEBA_TABLE3['proposed'][case]:.4f}",
                f"{CELEBA_TABLE3['Sanitizer'][case]:.4f}",
                f"{hull_auc(published, corner=CELEBA_CORNER[case]):.4f}",
                f"{hull_auc(published, corner=CELEBA_OWN[case]):.4f}",
                f"{hull_auc(published):.4f}",
                f"{hull_auc(curve, corner=(corner[0], corner[1])):.4f}",
                f"{hull_auc(curve):.4f}",
            ]
        )
    header = ["case", "Table 3, proposed", "Table 3, Sanitizer", "published points, the Sanitizer paper's corner"]
    header += ["with the authors' own corner", "without a corner", "here, with our corner", "here, without"]
    return markdown_table(header, rows)


def _main(results: StudyResults) -> list[str]:
    c = results.config
    kind = c["judges"][0]

    def told(cell: str, metric: str) -> str:
        return f"{results.estimate(cell, metric).value:.3f}"

    sides = ("weak", "strong", "utility")
    bare = [
        [
            f"{noise:g}",
            *(told(f"{MAIN}/no g/{noise:g}", f"{side} {kind}") for side in sides),
            *(f"{figure:.3f}" for figure in CELEBA_NO_G.get(noise, ())),
        ]
        for noise in c["no_g_noises"]
    ]
    others = []
    for value in c["lambdas"]:
        for noise in c["lambda_noises"]:
            theirs = CELEBA_LAMBDAS.get(value, {}).get(noise, ())
            cell = f"{MAIN}/paper/{noise:g}, {value:g}"
            mine = [told(cell, f"{side} {kind}") for side in ("weak", "utility")]
            others.append([f"{value:g}", f"{noise:g}", *mine, *(f"{figure:.3f}" for figure in theirs)])
    grid = []
    for epochs in (*c["stages"], c["epochs"]):
        for key in ("no g", *(f"{v:g}" for v in c["grid_lambdas"])):
            known = key != "no g" and epochs == c["epochs"]
            theirs = CELEBA_FIGURE_12.get(int(float(key)), ()) if known else ()
            mine = [told(f"{MAIN}/grid/{epochs}", f"{key}/{side}") for side in ("private", "utility")]
            grid.append([epochs, key, *mine, *(f"{figure:.3f}" for figure in theirs)])
    forced = [
        [f"told {label}", *(told(f"{MAIN}/forced", f"told {label}, own {own}") for own in (0, 1))] for label in (0, 1)
    ]
    return [
        f"## {MAIN} without g (Figure 5)",
        markdown_table(["noise", *sides, "paper: weak", "paper: strong", "paper: receiver"], _even(bare, 7)),
        f"## {MAIN}, other lambdas (Figure 7)",
        markdown_table(["lambda", "noise", "weak", "receiver", "paper: weak", "paper: receiver"], _even(others, 6)),
        f"## {MAIN}, early and late epochs, all lambdas, no noise (Figures 9, 11, 12)",
        "What judges who learned on originals find in releases.",
        markdown_table(["epochs", "lambda", "gender", "smiling", "paper: gender", "paper: smiling"], _even(grid, 6)),
        f"## {MAIN}, decorrelation (Figure 13)",
        "Share of images that a receiver takes for what they were told to be, by what they were:",
        markdown_table(["", "not smiling", "smiling"], forced),
    ]


def _even(rows: list[list[Any]], width: int) -> list[list[Any]]:
    """Rows of one length, where the paper has no figure."""
    return [[*row, *[""] * (width - len(row))] for row in rows]
