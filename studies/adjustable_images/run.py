"""The adjustable paper on images: CIFAR-10 published as animal or vehicle, attacked for its ten classes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import image_presets
import numpy as np
import numpy.typing as npt

from locum.obfuscate import ImageObfuscator, Labeled, Masking
from locum.obfuscate.baselines import BASELINES, strengths
from locum.obfuscate.evaluation import Originals
from locum.obfuscate.judges import label_only, majority_guess
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table

Array = npt.NDArray[Any]
Config = Mapping[str, Any]
ANIMALS = (2, 3, 4, 5, 6, 7)
NAMES = {
    "substitute": "ours, substitute (collages)",
    "ours": "ours, calibrated",
    "paper": "the paper's preset",
    "gaussian": "Gaussian noise",
    "learned-noise": "learned noise",
    "gap": "GAP",
    "tiprdc": "TIPRDC",
}
PRESETS = {"substitute": "substitute", "ours": "calibrated", "paper": "paper"}
KINDS = ("network", "patches")
ROLES = {
    "weak": "weak attacker",
    "strong": "strong attacker",
    "informed": "who knows the label",
    "utility": "receiver on original images",
    "released": "receiver on released images",
}
# What else an attacker can do.
WEAKER = {"strong": ("weak", "strong"), "informed": ("weak", "strong", "informed"), "known": ("private", "informed")}
BINS = 20
SHOWN = 6


@cache
def images(split: str) -> tuple[Array, Labeled]:
    """Pixels, and the same between 0 and 1 with their codes."""
    with np.load(data_folder() / "cifar10_12k.npz", allow_pickle=False) as file:
        pixels, classes = file[f"{split}_images"], file[f"{split}_labels"].astype(np.int64)
    matrix = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32) / 255
    return pixels, Labeled(matrix, np.isin(classes, ANIMALS).astype(np.int64), classes)


@cache
def originals(seed: int, most: int, epochs: int) -> Originals:
    """What the paper's networks and windows find where nothing is hidden."""
    rows = np.random.default_rng(seed).permutation(len(images("train")[1]))[:most]
    return Originals.learn(images("train")[1].take(rows), images("test")[1], KINDS, seed=seed, epochs=epochs)


def learned_from(config: Config, seed: int) -> Array:
    """Positions of the images that obfuscators learn from."""
    return np.random.default_rng(seed).permutation(len(images("train")[1]))[: config["images"]]


def fitted(method: str, seed: int, config: Config) -> ImageObfuscator:
    """Ours or the paper's."""
    epochs = config["paper_epochs"] if method == "paper" else None
    model = ImageObfuscator(PRESETS[method], max_epochs=epochs, random_state=seed)
    rows = learned_from(config, seed)
    shows = {"show_quarters": True} if method == "substitute" else {}
    return model.fit(images("train")[0][rows], images("train")[1].utility[rows], **shows)


def judged(found: Originals, masking: Masking) -> dict[str, float]:
    """Accuracies of one release, and how near it is to the images."""
    seen = found.judge(masking, copies=1)
    by = {
        "weak": seen.weak,
        "strong": seen.strong,
        "informed": seen.informed,
        "utility": seen.utility_original,
        "released": seen.utility_released,
    }
    out = {f"{role} {kind}": one.value for role, found in by.items() for kind, one in found.items()}
    test = found.test
    error = np.square(masking(test.X, test.utility, np.random.default_rng(found.seed)) - test.X).mean()
    return out | {"psnr": float(-10 * np.log10(max(error, 1e-10)))}


def obfuscated(method: str, seed: int, config: Config, found: Originals) -> dict[str, float | str]:
    """Every pair of knobs, the loss of every epoch, the histogram of C's scores, and a grid of images."""
    model = fitted(method, seed, config)
    out: dict[str, float | str] = {"released": model.parameters_, "trained": model.parameters_}
    for i, (a, b) in enumerate(zip(model.history_.train_loss, model.history_.validation_loss, strict=True), start=1):
        out |= {f"loss/{i}": a, f"validation loss/{i}": b}
    rows = [images("test")[0][:SHOWN]]
    for lambda_ in config[f"{method}_lambdas"]:
        for noise in config[f"{method}_noises"]:
            figures = judged(found, model.masking(noise=noise, lambda_=lambda_))
            out |= {f"{noise:g}, {lambda_:g}/{name}": value for name, value in figures.items()}
            utility = found.test.utility[:SHOWN]
            rows.append(model.transform(rows[0], utility, noise=noise, lambda_=lambda_, random_state=seed))
    if method == "paper":
        out |= decorrelation(model, found.test, config["paper_lambdas"][0])
    return out | {"grid": picture(rows).hex()}


def decorrelation(model: ImageObfuscator, test: Labeled, lambda_: float) -> dict[str, float]:
    """What C sees in images rebuilt with each label, whatever their own: counts of its score for animal.

    Every image gets both labels, so that the rest of an image and the label are independent by construction.
    """
    mask, out = model.masking(noise=0, lambda_=lambda_), {}
    for label in (0, 1):
        forced = mask(test.X, np.full(len(test), label), np.random.default_rng(label))
        scores = np.exp(model._split(model._inputs(forced))[0][:, 1])
        counts, _ = np.histogram(scores, bins=BINS, range=(0, 1))
        out |= {f"forced {label}/{i}": float(n) for i, n in enumerate(counts)}
    return out


def picture(rows: list[Array]) -> bytes:
    """A PNG with one setting a row."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in rows])).save(file, "png")
    return file.getvalue()


def baselines(method: str, seed: int, config: Config) -> Iterator[tuple[float, Masking, Mapping[str, int]]]:
    """Strengths, what is released at each, and how many numbers were trained."""
    rows = images("train")[1].take(learned_from(config, seed))
    for strength in strengths(method, "image"):
        baseline = BASELINES[method](strength)
        baseline.fit(rows.X, rows.utility, rows.private, seed=seed, epochs=config["baseline_epochs"])
        yield strength, baseline.masking(), baseline.parameters


def cells(config: Config) -> dict[str, Cell]:
    """One cell per method, with all its strengths; and one for the original images."""

    def found(seed: int) -> Originals:
        return originals(seed, config["judge_images"], config["judge_epochs"])

    def original(seed: int) -> Mapping[str, float]:
        seen = found(seed)
        out = {
            "label only": label_only(seen.train, seen.test).value,
            "utility majority": majority_guess(seen.train.utility, seen.test.utility).value,
        }
        for kind in KINDS:
            out |= {f"private {kind}": seen.private[kind].value, f"utility {kind}": seen.utility[kind].value}
            out[f"informed {kind}"] = seen.informed[kind].value
        return out

    def baseline(name: str, seed: int) -> Mapping[str, float]:
        out: dict[str, float] = {}
        for strength, masking, sizes in baselines(name, seed, config):
            out |= {f"{strength:g}/{figure}": value for figure, value in judged(found(seed), masking).items()} | sizes
        return out

    def ours(name: str, seed: int) -> Mapping[str, float | str]:
        return obfuscated(name, seed, config, found(seed))

    def scenes(seed: int) -> tuple[image_presets.Scene, image_presets.Scene]:
        def some(split: str, most: int) -> image_presets.Scene:
            pixels, codes = images(split)
            rows = np.random.default_rng(seed).permutation(len(codes))[:most]
            return image_presets.Scene(pixels[rows], codes.take(rows), rows)

        return some("train", config["pretrained_images"]), some("test", config["pretrained_test_images"])

    made: dict[str, Cell] = {"original": original} | image_presets.judged_cells(scenes, config)
    return made | {name: partial(ours if name in PRESETS else baseline, name) for name in config["methods"]}


# What is written about them.


def value(results: StudyResults, cell: str, metric: str) -> float:
    """The mean over seeds."""
    return results.estimate(cell, metric).value


def best(results: StudyResults, cell: str, role: str) -> float:
    """Of the judge who finds most; who knows the label can also do what others do."""
    point, _, name = role.rpartition("/")
    roles = WEAKER.get(name, (name,))
    return max(value(results, cell, f"{point}/{r} {k}".lstrip("/")) for r in roles for k in KINDS)


def settings(results: StudyResults, method: str) -> list[str]:
    """Names of the points, by lambda and by rising noise or strength."""
    some = results.raw[method][str(results.config["seeds"][0])]
    names = [m.removesuffix("/psnr") for m in some if m.endswith("/psnr")]
    return sorted(names, key=lambda name: [float(part) for part in name.split(", ")][::-1])


def hidden(results: StudyResults, method: str, point: str) -> float:
    """Share of the strongest attacker's advantage over the label alone that is gone."""
    alone, whole = value(results, "original", "label only"), best(results, "original", "known")
    return 1 - (best(results, method, f"{point}/informed") - alone) / (whole - alone)


def lost(results: StudyResults, method: str, point: str) -> float:
    """By how much the best receiver falls on original images."""
    return best(results, "original", "utility") - best(results, method, f"{point}/utility")


def render(results: StudyResults, out: Path) -> str:
    """Curves and histograms, what each method reaches, all points, images."""
    draw(results, out / "cifar-curves.svg")
    c, told = results.config, partial(value, results)
    text = [
        "![Curves, decorrelation and losses](cifar-curves.svg)",
        "Where nothing is hidden an attacker finds the class with "
        f"{told('original', 'private network'):.3f} (the paper's network) or "
        f"{told('original', 'private patches'):.3f} (windows), a receiver animal or vehicle with "
        f"{told('original', 'utility network'):.3f} or {told('original', 'utility patches'):.3f}. "
        "Who knows only animal or vehicle finds the class with "
        f"{told('original', 'label only'):.3f}; a receiver guesses {told('original', 'utility majority'):.3f}.",
        "## What each method reaches",
        "Of the points where the best receiver loses at most 7 points, the one where the strongest attacker (weak, "
        "strong or who knows the label; network or windows) loses most of its advantage over the label alone. "
        "Failed: at its least strength the receiver is more than a point short.",
        markdown_table(
            [
                "method",
                "parameters that release",
                "that are trained",
                "point",
                "receiver loses",
                "advantage lost",
                "",
            ],
            [_reached(results, m) for m in c["methods"]],
        ),
        "## All points",
        markdown_table(
            [
                "method",
                "strength, or noise and lambda",
                *(f"{words}, {kind}" for words in ROLES.values() for kind in KINDS),
                "PSNR",
                "advantage lost",
            ],
            [
                [
                    NAMES[m],
                    point,
                    *(f"{told(m, f'{point}/{role} {kind}'):.3f}" for role in ROLES for kind in KINDS),
                    f"{told(m, f'{point}/psnr'):.1f}",
                    f"{hidden(results, m, point):.2f}",
                ]
                for m in c["methods"]
                for point in settings(results, m)
            ],
        ),
    ]
    if c.get("presets"):
        text += [
            "## Our presets, before judges who bring a pretrained network or windows, and who know the label",
            image_presets.judged_table(results),
        ]
    for m in (m for m in c["methods"] if m in PRESETS):
        (out / f"cifar-grid-{m}.png").write_bytes(bytes.fromhex(results.texts(m, "grid")[0]))
        knobs = "; ".join(settings(results, m))
        text += [
            f"## Images: {NAMES[m]}",
            f"![Images over noise and lambda](cifar-grid-{m}.png)",
            f"Rows: the images as they are, then noise and lambda {knobs}.",
        ]
    text.append(
        f"{len(c['seeds'])} seed(s): by the choice of test images alone an accuracy is good to 0.022. Obfuscators "
        f"learn from {c['images']:,} images, judges from {c['judge_images']:,} ({c['judge_epochs']} epochs at most); "
        f"all are tried on {len(images('test')[1]):,}. Epochs: the paper's preset {c['paper_epochs']}, baselines "
        f"{c['baseline_epochs']} for each strength; ours trains no network."
    )
    return "\n\n".join(text)


def _reached(results: StudyResults, method: str) -> list[object]:
    points = settings(results, method)
    good = [p for p in points if lost(results, method, p) <= 0.07]
    sizes = [f"{value(results, method, size):,.0f}" for size in ("released", "trained")]
    failed = "failed" if lost(results, method, points[0]) > 0.01 else ""
    if not good:
        return [NAMES[method], *sizes, "none", "", "", failed]
    most = max(good, key=lambda p: hidden(results, method, p))
    told = [f"{lost(results, method, most):+.3f}", f"{hidden(results, method, most):.2f}"]
    return [NAMES[method], *sizes, most, *told, failed]


def draw(results: StudyResults, path: Path) -> None:
    """Weak and strong curves, C's scores of images with a forced label, losses."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "cifar-curves", "svg.fonttype": "none"}):
        whole = "paper" in results.config["methods"]
        figure = Figure(figsize=(10, 8 if whole else 4), layout="constrained")
        axes = figure.subplots(2 if whole else 1, 2, squeeze=False)
        for axis, attacker in zip(axes[0], ("weak", "strong"), strict=True):
            for i, m in enumerate(results.config["methods"]):
                _curves(axis, results, m, attacker, i)
            axis.plot(
                *(best(results, "original", side) for side in ("private", "utility")),
                "k*",
                ms=10,
                label="as they are",
            )
            axis.axvline(value(results, "original", "label only"), color="0.5", ls="--", lw=1, label="label alone")
            axis.set_xlabel(f"accuracy of the {attacker} attacker (ten classes)")
            axis.set_ylabel("accuracy of the receiver, original images")
        axes[0][1].legend(fontsize=7)
        if whole:
            _draw_paper(axes[1], results)
        figure.savefig(path, metadata={"Date": None})


def _draw_paper(axes: Any, results: StudyResults) -> None:
    """What C says of images with each label, and how the loss fell."""
    for label, line in ((0, "--"), (1, "-")):
        counts = [value(results, "paper", f"forced {label}/{k}") for k in range(BINS)]
        told = f"told {'animal' if label else 'vehicle'}"
        axes[0].stairs(counts, np.linspace(0, 1, BINS + 1), color="C1", ls=line, label=told)
    some = results.raw["paper"][str(results.config["seeds"][0])]
    for name, line in (("loss", "--"), ("validation loss", "-")):
        epochs = range(1, 1 + sum(k.startswith(f"{name}/") for k in some))
        axes[1].plot(epochs, [value(results, "paper", f"{name}/{k}") for k in epochs], f"C1{line}", label=name)
    axes[0].set_xlabel("the paper's preset: C's score for animal, each image with each label")
    axes[0].set_ylabel("test images")
    axes[1].set_xlabel("epoch")
    axes[1].set_ylabel("the paper's preset: loss")
    for axis in axes:
        axis.legend(fontsize=7)


def _curves(axis: Any, results: StudyResults, method: str, attacker: str, i: int) -> None:
    """One line for each lambda."""
    lines: dict[str, list[str]] = {}
    for point in settings(results, method):
        lines.setdefault(point.partition(", ")[2], []).append(point)
    for (lambda_, points), style in zip(lines.items(), ("-", ":"), strict=False):
        xs, ys = ([best(results, method, f"{p}/{role}") for p in points] for role in (attacker, "utility"))
        name = f"{NAMES[method]}, lambda {lambda_}" if lambda_ else NAMES[method]
        axis.plot(xs, ys, f"{'osD^vP'[i % 6]}{style}", ms=4, lw=1, color=f"C{i}", label=name)


OWN = "What is kept and what is hidden are labels of its own images; `locum obfuscate trade-off` measures others."

STUDIES = {
    "cifar-curves": Study(
        "CIFAR-10 as animal or vehicle, attacked for its ten classes",
        cells,
        render,
        sets=OWN,
        names={"methods": NAMES},
    ),
    "nih-curves": Study(
        "Chest X-rays for view or effusion, attacked for sex and patient",
        image_presets.nih_cells,
        image_presets.nih_render,
        sets=OWN,
    ),
}
