"""The adjustable paper on UCI Adult, one question per cell: knobs, epochs, labels, parts, what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data import TableCodec, read_adult
from locum.metrics import paired_difference
from locum.obfuscate import Labeled, Masking, TableObfuscator, hull_auc
from locum.obfuscate.evaluation import Originals
from locum.obfuscate.judges import TreesJudge, label_only
from locum.obfuscate.noise import PaperNoise, ShapedNoise
from locum.recipes import Study, StudyResults
from locum.recipes.study import SPREAD, Cell, data_folder, markdown_table
from locum.types import Estimate

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
Config = Mapping[str, Any]
TEST = 9045
LAMBDA = -50.0
FIGURES = ("weak", "strong", "utility", "released")
SHOWN = ("weak attacker", "strong attacker", "receiver on original rows", "receiver on released rows")


@cache
def adult() -> pd.DataFrame:
    """All complete rows, with income and sex as codes."""
    table = read_adult(data_folder() / "adult")
    return table.assign(income=(table["income"] == ">50K").astype(int), sex=(table["sex"] == "Male").astype(int))


class Rows:
    """The rows of one seed without some columns, to learn from and to test on, as tables and as numbers."""

    def __init__(
        self, seed: int, most: int, without: Sequence[str] = ("income", "sex"), needs: Sequence[str] = ("income",)
    ):
        table = adult()
        order = np.random.default_rng(seed).permutation(len(table))
        self.seed, places = seed, (order[TEST:][:most], order[:TEST])
        # Categories and bounds of all rows are taken to be public.
        self.codec = TableCodec.fit(table.drop(columns=list(without)))
        self.train_frame, self.test_frame = (table.iloc[p].drop(columns=list(without)) for p in places)
        self.needed, self.needed_test = (table.iloc[p][list(needs)] for p in places)
        codes = [np.unique(table[n], return_inverse=True)[1].astype(np.int64) for n in needs]
        utility = codes[0] if len(codes) == 1 else np.stack(codes, axis=1)
        private = table["sex"].to_numpy(dtype=np.int64)
        self.train, self.test = (
            Labeled(self.codec.encode(frame), utility[p], private[p])
            for frame, p in zip((self.train_frame, self.test_frame), places, strict=True)
        )

    def fit(self, **settings: Any) -> TableObfuscator:
        """An obfuscator of these rows."""
        return TableObfuscator(random_state=self.seed, **settings).fit(
            self.train_frame, self.needed, codec=self.codec
        )

    def originals(self, most: int) -> Originals:
        """Trees who learn from `most` rows."""
        return Originals.learn(
            self.train.take(np.arange(min(most, len(self.train)))), self.test, ["trees"], self.seed
        )


@cache
def rows_of(seed: int, most: int) -> Rows:
    """Those that most cells work on."""
    return Rows(seed, most)


@cache
def fitted(seed: int, most: int, preset: str, epochs: int) -> TableObfuscator:
    """One fit for all cells that ask for it."""
    return rows_of(seed, most).fit(preset=preset, max_epochs=epochs)


def judged(found: Originals, masking: Masking) -> dict[str, float]:
    """The four accuracies of a release."""
    seen = found.judge(masking, copies=1)
    by = (seen.weak, seen.strong, seen.utility_original, seen.utility_released)
    return {name: one["trees"].value for name, one in zip(FIGURES, by, strict=True)}


def prefixed(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    """The same figures under longer names."""
    return {f"{prefix}/{name}": value for name, value in figures.items()}


# One function a question.


def noise(config: Config, seed: int) -> Mapping[str, float]:
    """Every noise with g (the label is written) and without (C's own view); epsilon; valid rows."""
    rows, model = rows_of(seed, config["rows"]), fitted(seed, config["rows"], "calibrated", config["ours_epochs"])
    found = rows.originals(config["judge_rows"])
    out = {"original/private": found.private["trees"].value, "original/utility": found.utility["trees"].value}
    out["label only"] = label_only(rows.train, rows.test).value
    for c in config["noises"]:
        for name, lambda_ in (("g", LAMBDA), ("C", None)):
            out |= prefixed(f"{c:g}/{name}", judged(found, model.masking(noise=c, lambda_=lambda_)))
        if c:
            out[f"{c:g}/epsilon"] = model.local_epsilon(c, delta=config["delta"])
        released = model.transform(rows.test_frame, rows.needed_test, noise=c, random_state=seed)
        out[f"{c:g}/valid"] = valid(released, adult())
    everything = rows.originals(len(rows.train))
    out |= {"all/private": everything.private["trees"].value, "all/utility": everything.utility["trees"].value}
    for c in config["all_rows_noises"]:
        out |= prefixed(f"all {c:g}", judged(everything, model.masking(noise=c, lambda_=LAMBDA)))
    return out


def valid(released: pd.DataFrame, known: pd.DataFrame) -> float:
    """Share of rows of which every value is a category that exists, or a whole number within its column's range."""
    good = np.ones(len(released), dtype=bool)
    for name, column in released.items():
        if column.dtype.kind == "i":
            good &= column.between(known[name].min(), known[name].max()).to_numpy()
        else:
            good &= column.isin(known[name].unique()).to_numpy()
    same = (released.dtypes == known.drop(columns=["income", "sex"]).dtypes).all()
    return float(good.mean()) if same else 0.0


def lambdas(config: Config, seed: int) -> Mapping[str, float]:
    """How plainly the label is written, at one noise."""
    rows, model = rows_of(seed, config["rows"]), fitted(seed, config["rows"], "calibrated", config["ours_epochs"])
    found, out = rows.originals(config["judge_rows"]), {}
    for value in config["lambdas"]:
        out |= prefixed(f"{value:g}", judged(found, model.masking(noise=config["lambda_noise"], lambda_=value)))
    return out


def stages(config: Config, seed: int) -> Mapping[str, float]:
    """Early against late epochs, of both presets."""
    rows = rows_of(seed, config["rows"])
    found, out = rows.originals(config["judge_rows"]), {}
    for preset, name, noises in (("calibrated", "ours", (0.0, 1.0)), ("paper", "paper", (1.0, 10.0))):
        for epochs in (*config[f"{name}_stages"], config[f"{name}_epochs"]):
            model = fitted(seed, config["rows"], preset, epochs)
            for c in noises:
                out |= prefixed(f"{name}/{epochs}/{c:g}", judged(found, model.masking(noise=c, lambda_=LAMBDA)))
    return out


def labels(config: Config, seed: int) -> Mapping[str, float]:
    """The true label written, against C's guess of it."""
    rows, model = rows_of(seed, config["rows"]), fitted(seed, config["rows"], "calibrated", config["ours_epochs"])
    found = rows.originals(config["judge_rows"])
    out = {"accuracy of C": float((model.predict(rows.test_frame)["income"] == rows.test.utility).mean())}
    for c in config["label_noises"]:
        for name, true in (("true", True), ("guessed", False)):
            masking = model.masking(noise=c, lambda_=LAMBDA, use_true_label=true)
            out |= prefixed(f"{c:g}/{name}", judged(found, masking))
    return out


def several(config: Config, seed: int) -> Mapping[str, float]:
    """Income and marital status kept, against income alone, on a table without the column of marital status."""
    without, needs = ("income", "sex", "marital-status"), ("income", "marital-status")
    both = Rows(seed, config["rows"], without, needs)
    model = both.fit(max_epochs=config["ours_epochs"])
    one = TableObfuscator(random_state=seed, max_epochs=config["ours_epochs"])
    one.fit(both.train_frame, both.needed[["income"]], codec=both.codec)
    out = {"label only/both": label_only(both.train, both.test).value}
    for place, name in enumerate(needs):
        # Receivers are judged by the first attribute.
        order = [place, 1 - place]
        train, test = (Labeled(p.X, p.utility[:, order], p.private) for p in (both.train, both.test))
        found = Originals.learn(train.take(np.arange(config["judge_rows"])), test, ["trees"], seed)
        out |= {f"original/{name}": found.utility["trees"].value, "original/private": found.private["trees"].value}
        for c in config["several_noises"]:
            for kept, obfuscator, told in (("both", model, order), ("income", one, [place])):
                seen = judged(found, _ordered(obfuscator.masking(noise=c, lambda_=LAMBDA), told))
                out |= {f"{c:g}/{kept}/{name}": seen["utility"], f"{c:g}/{kept}/strong": seen["strong"]}
    return out


def _ordered(masking: Masking, columns: Sequence[int]) -> Masking:
    """A masking that gets some of the columns of codes."""
    return lambda X, codes, rng: masking(X, codes[:, columns], rng)


class Likeliest(TableObfuscator):
    """Writes the likeliest value of every column where ours draws one."""

    def _outputs(self, out: Array, rng: np.random.Generator) -> Array:
        chosen = np.zeros_like(out)
        for block in self._blocks:
            chosen[np.arange(len(out)), block.start + out[:, block].argmax(axis=1)] = 1
        return self.codec_.snap(self.bins_.join(chosen, rng))


def parts(config: Config, seed: int) -> Mapping[str, float]:
    """What makes the difference: training, noise, drawing, beta. Hull AUC with the rows as they are, origin 0.5."""
    rows = rows_of(seed, config["rows"])
    found, out = rows.originals(config["judge_rows"]), {}
    ours = fitted(seed, config["rows"], "calibrated", config["ours_epochs"])
    theirs = fitted(seed, config["rows"], "paper", config["paper_epochs"])
    codes = rows.train.utility[:, None]
    likeliest = copy(ours)
    likeliest.__class__ = Likeliest
    variants: dict[str, tuple[TableObfuscator, Sequence[float]]] = {
        "ours": (ours, config["parts_noises"]),
        "ours, likeliest values": (likeliest, config["parts_noises"]),
        "ours, the paper's noise": (
            _noised(ours, rows, partial(PaperNoise.fit, authors_compat=False, per_batch=False)),
            config["paper_noises"],
        ),
        "the paper's preset": (theirs, config["paper_noises"]),
        "the paper's preset, our noise": (
            _noised(theirs, rows, partial(ShapedNoise.fit, codes=codes, blur=1e-4)),
            config["parts_noises"],
        ),
    }
    for beta in config["betas"]:
        variants[f"ours, beta {beta:g}"] = (
            rows.fit(max_epochs=config["ours_epochs"], beta=beta),
            config["parts_noises"],
        )
    corner = (found.private["trees"].value, found.utility["trees"].value)
    for name, (model, noises) in variants.items():
        points = []
        for c in noises:
            seen = judged(found, model.masking(noise=c, lambda_=LAMBDA))
            points.append((seen["strong"], seen["utility"]))
            out |= prefixed(f"{name}/{c:g}", seen)
        out[f"{name}/hull"] = hull_auc(points, (0.5, 0.5), corner=corner)
    return out


def _noised(model: TableObfuscator, rows: Rows, fit: Callable[[Array], PaperNoise | ShapedNoise]) -> TableObfuscator:
    """The same weights under another noise."""
    out = copy(model)
    out.noise_ = fit(model._split(model._inputs(rows.train.X))[1])
    return out


def left(config: Config, seed: int) -> Mapping[str, float]:
    """What trees who read a release (and the label) find of each column of a record, and who has the label alone."""
    rows, model = rows_of(seed, config["rows"]), fitted(seed, config["rows"], "calibrated", config["ours_epochs"])
    few = rows.train.take(np.arange(config["judge_rows"]))
    out: dict[str, float] = {}
    for c in (0.0, 1.0, 100.0, np.inf):
        mask, rng = model.masking(noise=c, lambda_=LAMBDA), np.random.default_rng([seed, 7])
        train, test = (np.column_stack([mask(p.X, p.utility, rng), p.utility]) for p in (few, rows.test))
        for name in rows.train_frame.columns:
            wanted = halves(rows.train_frame[name])
            y, y_test = wanted(rows.train_frame[name])[: len(few)], wanted(rows.test_frame[name])
            alone = label_only(Labeled(few.X, few.utility, y), Labeled(rows.test.X, rows.test.utility, y_test)).value
            attack = float((TreesJudge(50).fit(train, y, seed)(test) == y_test).mean())
            out |= {f"{c:g}/{name}": attack, f"alone/{name}": alone}
    return out


def halves(column: pd.Series) -> Callable[[pd.Series], Array]:
    """A yes-or-no question about a column: above its median, or its most frequent category."""
    if column.dtype.kind == "i":
        middle = column.median()
        return lambda values: (values > middle).to_numpy().astype(np.int64)
    common = column.mode()[0]
    return lambda values: (values == common).to_numpy().astype(np.int64)


def cells(config: Config) -> dict[str, Cell]:
    """One cell per question."""
    return {name: partial(QUESTIONS[name][0], config) for name in config["questions"]}


# What is written about them.


def four(results: StudyResults, cell: str, prefix: str) -> list[str]:
    """The four accuracies of a release."""
    return [results.told(cell, f"{prefix}/{figure}") for figure in FIGURES]


def render(results: StudyResults, out: Path) -> str:
    """One section a question."""
    c = results.config
    text = [
        f"{len(c['seeds'])} seed(s). Obfuscators learn from {c['rows']:,} rows, boosted trees judge, who learn from "
        f"{c['judge_rows']:,} and are tried on {TEST:,}: by the choice of test rows alone an accuracy is good to "
        f"0.01. Lambda is {LAMBDA:g} where nothing else is said. Means over seeds; where these differ by more than "
        f"{SPREAD:g}, the lowest and the highest follow.",
        f"On rows as they are: attacker {results.told('noise', 'original/private')}, receiver "
        f"{results.told('noise', 'original/utility')}; an attacker who knows the income alone "
        f"{results.told('noise', 'label only')}.",
    ]
    for name in c["questions"]:
        text += QUESTIONS[name][1](results)
    return "\n\n".join(text)


def _noise(results: StudyResults) -> list[str]:
    c = results.config
    rows = []
    for noise_ in c["noises"]:
        for name, shown in (("g", "g: the label"), ("C", "C's own view")):
            epsilon = results.told("noise", f"{noise_:g}/epsilon", ".2f") if noise_ else "none"
            extra = [results.told("noise", f"{noise_:g}/valid"), epsilon] if name == "g" else ["", ""]
            rows.append([f"{noise_:g}", shown, *four(results, "noise", f"{noise_:g}/{name}"), *extra])
    header = ["noise", "written", *SHOWN, "valid rows", f"local epsilon at delta {c['delta']:g}"]
    more = [[f"{n:g}", *four(results, "noise", f"all {n:g}")] for n in c["all_rows_noises"]]
    return [
        "## Noise, with g and without (Figures 5 to 7)",
        markdown_table(header, rows),
        f"Judges who learn from all {c['rows']:,} rows (on rows as they are, attacker "
        f"{results.told('noise', 'all/private')}, receiver {results.told('noise', 'all/utility')}):",
        markdown_table(["noise", *SHOWN], more),
    ]


def _lambda(results: StudyResults) -> list[str]:
    rows = [[f"{v:g}", *four(results, "lambda", f"{v:g}")] for v in results.config["lambdas"]]
    title = f"## Lambda, at noise {results.config['lambda_noise']:g} (Figures 11, 12)"
    return [title, markdown_table(["lambda", *SHOWN], rows)]


def _epochs(results: StudyResults) -> list[str]:
    rows = []
    for name, noises in (("ours", (0, 1)), ("paper", (1, 10))):
        for epochs in (*results.config[f"{name}_stages"], results.config[f"{name}_epochs"]):
            rows += [[name, epochs, n, *four(results, "epochs", f"{name}/{epochs}/{n}")] for n in noises]
    return ["## Early and late epochs (Figures 9, 10)", markdown_table(["preset", "epochs", "noise", *SHOWN], rows)]


def _label(results: StudyResults) -> list[str]:
    names = {"true": "true", "guessed": "C's guess"}
    rows = [
        [f"{n:g}", shown, *four(results, "label", f"{n:g}/{name}")]
        for n in results.config["label_noises"]
        for name, shown in names.items()
    ]
    said = f"C is right about {results.told('label', 'accuracy of C')} of the test rows."
    return ["## The true label, or C's guess of it", said, markdown_table(["noise", "label", *SHOWN], rows)]


def _several(results: StudyResults) -> list[str]:
    rows = [
        [
            f"{n:g}",
            kept,
            *(results.told("several", f"{n:g}/{kept}/{m}") for m in ("strong", "income", "marital-status")),
        ]
        for n in results.config["several_noises"]
        for kept in ("income", "both")
    ]
    whole = [results.told("several", f"original/{m}") for m in ("private", "income", "marital-status")]
    rows.append(["rows as they are", "", *whole])
    header = ["noise", "kept", "strong attacker", "receiver of income", "receiver of marital status"]
    said = (
        "The table is without the column of marital status. An attacker who knows income and marital status alone "
        f"finds sex with {results.told('several', 'label only/both')}."
    )
    return ["## Several attributes to keep", said, markdown_table(header, rows)]


def _parts(results: StudyResults) -> list[str]:
    some = results.raw["parts"][str(results.config["seeds"][0])]
    names = sorted(m.removesuffix("/hull") for m in some if m.endswith("/hull"))

    def hull(name: str) -> list[float]:
        return results.runs("parts", f"{name}/hull")

    def against(name: str) -> str:
        return "" if name == "ours" else f"{paired_difference(hull(name), hull('ours')):+.4f}"

    hulls = [[name, f"{Estimate.from_runs(hull(name)):.4f}", against(name)] for name in names]
    rows = []
    for name in names:
        knobs = dict.fromkeys(m.split("/")[1] for m in some if m.startswith(f"{name}/") and not m.endswith("/hull"))
        rows += [[name, knob, *four(results, "parts", f"{name}/{knob}")] for knob in sorted(knobs, key=float)]
    return [
        "## What makes the difference",
        "Hull AUC for the strong attacker, origin 0.5, the rows as they are included:",
        markdown_table(["variant", "hull AUC", "difference from ours, by seed"], hulls),
        markdown_table(["variant", "noise", *SHOWN], rows),
    ]


def _left(results: StudyResults) -> list[str]:
    some = results.raw["left"][str(results.config["seeds"][0])]
    columns = [m.removeprefix("alone/") for m in some if m.startswith("alone/")]
    knobs = sorted({m.split("/")[0] for m in some} - {"alone"}, key=float)
    rows = [[n, *(results.told("left", f"{k}/{n}") for k in ("alone", *knobs))] for n in columns]
    gaps = {
        k: max(
            results.estimate("left", f"{k}/{n}").value - results.estimate("left", f"alone/{n}").value for n in columns
        )
        for k in knobs
    }
    said = "; ".join(f"noise {k}: {gap:+.3f}" for k, gap in gaps.items())
    return [
        "## What is left of a record beside its label",
        "Whether a number is above its median, or a text the most frequent one, as trees tell who read the release "
        "and the label, against who has the label alone.",
        markdown_table(["column", "label alone", *(f"noise {k}" for k in knobs)], rows),
        f"The largest gain over the label alone, of all columns: {said}.",
    ]


Asks = Callable[[Config, int], Mapping[str, float]]
Writes = Callable[[StudyResults], list[str]]
QUESTIONS: dict[str, tuple[Asks, Writes]] = {
    "noise": (noise, _noise),
    "left": (left, _left),
    "label": (labels, _label),
    "lambda": (lambdas, _lambda),
    "parts": (parts, _parts),
    "several": (several, _several),
    "epochs": (stages, _epochs),
}

STUDIES = {
    "adult-analyses": Study(
        "UCI Adult: what noise, lambda, epochs, labels and parts do",
        cells,
        render,
        sets="It keeps UCI Adult's income and hides its sex; `locum obfuscate trade-off` measures other tables.",
    )
}
