"""The adjustable paper on UCI Adult: what receivers learn of income and attackers of sex, by method and strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data import TableCodec, read_adult
from locum.metrics import paired_difference
from locum.obfuscate import ATTACKERS, Labeled, Masking, TableObfuscator, hull_auc
from locum.obfuscate.baselines import BASELINES, strengths
from locum.obfuscate.evaluation import Originals
from locum.obfuscate.judges import label_only, majority_guess
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.types import Estimate

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
Pair = tuple[float, float]
TEST = 9045
LAMBDA = -50.0
# Table 4 of the paper: its obfuscator as printed, and PUPET with its utility provider and adversary.
TABLE4 = {"proposed": 88_494, "PUPET": 338_214}
NAMES = {
    "ours": "ours, calibrated",
    "paper": "the paper's preset",
    "gaussian": "Gaussian noise",
    "learned-noise": "learned noise",
    "gap": "GAP",
    "emb-g-filter": "emb-g-filter",
    "ae-pupet": "AE-PUPET",
    "uae-pupet": "UAE-PUPET",
    "vae-pupet": "VAE-PUPET",
    "beta-vae-pupet": "beta-VAE-PUPET",
    "vfae": "VFAE",
    "lmifr": "LMIFR",
    "tiprdc": "TIPRDC",
    "sanitizer": "Sanitizer",
}
PRESETS = {"ours": "calibrated", "paper": "paper"}
KINDS = ("network", "trees")
# The attackers and receivers of each view: the paper's networks, or the best of all judges.
VIEWS = {
    "network": ("Strong attacker and receiver with the paper's network", ["strong network"], ["utility network"]),
    "strongest": (
        "The strongest of all attackers, the best of all receivers",
        [f"{role} {kind}" for role in ATTACKERS for kind in KINDS],
        ["utility network", "utility trees"],
    ),
}
ORIGINS: tuple[Pair, ...] = ((0.0, 0.0), (0.5, 0.5))


@cache
def adult() -> tuple[pd.DataFrame, TableCodec, Labeled]:
    """All rows without income and sex, as a table and as numbers, and how they are written.

    Categories and bounds are those of all rows, including test rows: they are assumed to be public.
    """
    table = read_adult(data_folder() / "adult")
    frame = table.drop(columns=["income", "sex"])
    codec = TableCodec.fit(frame)
    codes = [
        (table[name] == value).to_numpy().astype(np.int64) for name, value in (("income", ">50K"), ("sex", "Male"))
    ]
    return frame, codec, Labeled(codec.encode(frame), *codes)


def dealt(seed: int, rows: int) -> tuple[Array, Array]:
    """Positions to learn from and to test on."""
    order = np.random.default_rng(seed).permutation(len(adult()[2]))
    return order[TEST:][:rows], order[:TEST]


@cache
def originals(seed: int, rows: int, epochs: int) -> Originals:
    """What judges who learn from `rows` rows find where nothing is hidden."""
    learned, tried = dealt(seed, rows)
    whole = adult()[2]
    return Originals.learn(whole.take(learned), whole.take(tried), seed=seed, epochs=epochs)


def judged(found: Originals, masking: Masking, copies: int) -> dict[str, float]:
    """Accuracies of every attacker and receiver."""
    seen = found.judge(masking, copies)
    roles = {role: getattr(seen, role) for role in ATTACKERS}
    roles |= {"utility": seen.utility_original, "released": seen.utility_released}
    return {f"{role} {kind}": by[kind].value for role, by in roles.items() for kind in KINDS}


def maskings(method: str, seed: int, config: Mapping[str, Any]) -> Iterator[tuple[float, Masking, Mapping[str, int]]]:
    """Strengths, what is released at each, and how many numbers were trained."""
    frame, codec, whole = adult()
    learned, _ = dealt(seed, config["rows"])
    if method in PRESETS:
        model = TableObfuscator(PRESETS[method], max_epochs=config[f"{method}_epochs"], random_state=seed)
        model.fit(frame.iloc[learned], whole.utility[learned], codec=codec)
        for noise in config[f"{method}_noises"]:
            size = model.parameters_
            yield noise, model.masking(noise=noise, lambda_=LAMBDA), {"released": size, "trained": size}
        return
    rows = whole.take(learned)
    for strength in strengths(method, "table"):
        baseline = BASELINES[method](strength)
        baseline.fit(
            rows.X, rows.utility, rows.private, blocks=codec.blocks, seed=seed, epochs=config["baseline_epochs"]
        )
        yield strength, baseline.masking(), baseline.parameters


def curve_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per method, with all its strengths; and one for the original rows."""

    def found(seed: int) -> Originals:
        return originals(seed, config["judge_rows"], config["judge_epochs"])

    def original(seed: int) -> Mapping[str, float]:
        seen = found(seed)
        out = {"label only": label_only(seen.train, seen.test).value}
        for name, part in (("majority", "private"), ("utility majority", "utility")):
            out[name] = majority_guess(getattr(seen.train, part), getattr(seen.test, part)).value
        for kind in KINDS:
            for name, by in (("private", seen.private), ("informed", seen.informed), ("utility", seen.utility)):
                out[f"{name} {kind}"] = by[kind].value
        return out

    def method(name: str, seed: int) -> Mapping[str, float]:
        out: dict[str, float] = {}
        for strength, masking, sizes in maskings(name, seed, config):
            figures = judged(found(seed), masking, config["copies"])
            out |= {f"{strength:g}/{figure}": value for figure, value in figures.items()} | sizes
        return out

    cells: dict[str, Cell] = {"original": original}
    return cells | {name: partial(method, name) for name in config["methods"]}


# What is written about them.


def knobs(results: StudyResults, method: str) -> list[str]:
    """Strengths in the order in which they were tried."""
    some = results.raw[method][str(results.config["seeds"][0])]
    return list(dict.fromkeys(sorted((m.split("/")[0] for m in some if "/" in m), key=float)))


def best_of(results: StudyResults, cell: str, metrics: Sequence[str]) -> list[float]:
    """The largest of several figures, one per seed."""
    return [max(run) for run in zip(*(results.runs(cell, m) for m in metrics), strict=True)]


def curve(results: StudyResults, method: str, view: str) -> list[list[Pair]]:
    """(attacker, receiver) at each strength: a list for each seed."""
    _, attackers, receivers = VIEWS[view]
    by_knob = [
        list(
            zip(
                *(best_of(results, method, [f"{knob}/{m}" for m in side]) for side in (attackers, receivers)),
                strict=True,
            )
        )
        for knob in knobs(results, method)
    ]
    return [list(points) for points in zip(*by_knob, strict=True)]


def corners(results: StudyResults, view: str) -> list[Pair]:
    """(attacker, receiver) where nothing is hidden, one per seed."""
    figures = {
        "network": (["private network"], ["utility network"]),
        "strongest": (
            [f"{side} {kind}" for side in ("private", "informed") for kind in KINDS],
            [f"utility {kind}" for kind in KINDS],
        ),
    }
    return list(zip(*(best_of(results, "original", side) for side in figures[view]), strict=True))


def areas(results: StudyResults, method: str, view: str, origin: Pair, closed: bool) -> list[float]:
    """Hull AUC of each seed; `closed` adds the point of the original rows, which anyone could publish."""
    pairs = zip(curve(results, method, view), corners(results, view), strict=True)
    return [hull_auc(points, origin, corner=corner if closed else None) for points, corner in pairs]


def missing(results: StudyResults, method: str) -> Estimate:
    """How far its least strength stays below the best receiver of the rows as they are; above 0.01 it has failed."""
    pairs = zip(curve(results, method, "strongest"), corners(results, "strongest"), strict=True)
    return Estimate.from_runs([corner[1] - points[0][1] for points, corner in pairs])


def kept(results: StudyResults, method: str, limit: float) -> list[float] | None:
    """The best receiver where the strongest attacker stays at `limit` or below; none if a seed has no such point."""
    runs = [[y for x, y in points if x <= limit] for points in curve(results, method, "strongest")]
    return [max(run) for run in runs] if all(runs) else None


def curve_render(results: StudyResults, out: Path) -> str:
    """The figure, a summary, hull AUCs by view, then all points."""
    draw(results, out / "adult-curves.svg")
    whole = {
        name: _shown(results.estimate("original", name), ".3f")
        for name in results.raw["original"][str(results.config["seeds"][0])]
    }
    text = [
        "![Curves](adult-curves.svg)",
        f"Where nothing is hidden an attacker finds sex with {whole['private trees']} (trees) or "
        f"{whole['private network']} (network), a receiver income with {whole['utility trees']} or "
        f"{whole['utility network']}. By a guess: {whole['majority']} and {whole['utility majority']}; who knows the "
        f"income alone finds sex with {whole['label only']}.",
        "## Summary",
        "Failed: at its least strength more than a point below the best receiver of the rows as they are.",
        _summary(results),
        _table4(results),
    ]
    for view, (title, _, _) in VIEWS.items():
        text += [f"## Hull AUC. {title}", _hulls(results, view), _told(results, view)]
    text += ["## All points", _points(results)]
    c = results.config
    text.append(
        f"{len(c['seeds'])} seed(s), each of which deals the rows out anew; intervals are over seeds, and one has "
        "none: by the choice of test rows alone an accuracy is good to 0.01. "
        f"Obfuscators learn from {c['rows']:,} rows, judges from {c['judge_rows']:,}; all are tried on {TEST:,}. "
        f"Epochs: ours {c['ours_epochs']}, the paper's preset {c['paper_epochs']}, baselines {c['baseline_epochs']} "
        f"for each strength, judging networks {c['judge_epochs']} at most. Averaging attackers hold {c['copies']} "
        "releases of each record."
    )
    return "\n\n".join(text)


def _summary(results: StudyResults) -> str:
    rows = []
    theirs = kept(results, "paper", 0.70) if "paper" in results.config["methods"] else None

    def less(own: list[float] | None, method: str) -> str:
        if own is None or theirs is None or method == "paper":
            return ""
        return _shown(paired_difference(theirs, own), "+.3f")

    for m in results.config["methods"]:
        gap = missing(results, m)
        held = [kept(results, m, limit) for limit in (0.70, 0.75)]
        sizes = [f"{results.runs(m, size)[0]:,.0f}" for size in ("released", "trained")]
        failed = "failed" if gap.value > 0.01 else ""
        rows.append(
            [
                NAMES[m],
                *sizes,
                _shown(gap, ".3f"),
                failed,
                *("never" if k is None else _shown(Estimate.from_runs(k), ".3f") for k in held),
                less(held[0], m),
            ]
        )
    header = ["method", "parameters that release", "that are trained", "short of unobfuscated at least strength", ""]
    limits = ["receiver, attacker at most .70", "attacker at most .75", "the paper's preset less this one, at .70"]
    return markdown_table([*header, *limits], rows)


def _table4(results: StudyResults) -> str:
    """The paper's numbers of parameters beside ours."""
    kinds, methods = ("released", "trained"), results.config["methods"]
    sizes = {m: [f"{results.runs(m, size)[0]:,.0f}" for size in kinds] for m in methods}
    told = f"Table 4 of the paper gives {TABLE4['proposed']:,} parameters for its obfuscator"
    if "paper" in sizes:
        told += f" ({sizes['paper'][0]} here: F15)"
    told += f", and {TABLE4['PUPET']:,} for the PUPETs with their utility provider and adversary"
    if "beta-vae-pupet" in sizes:
        released, trained = sizes["beta-vae-pupet"]
        told += f" (beta-VAE-PUPET here: {trained} with both, {released} that release)"
    return told + "."


def _hulls(results: StudyResults, view: str) -> str:
    columns = [(origin, closed) for closed in (False, True) for origin in ORIGINS]
    base = [areas(results, "ours", view, *column) for column in columns]
    rows = []
    for m in results.config["methods"]:
        row: list[object] = [NAMES[m]]
        for column, ours in zip(columns, base, strict=True):
            its = areas(results, m, view, *column)
            less = Estimate.from_runs([a - b for a, b in zip(ours, its, strict=True)])
            row += [_shown(Estimate.from_runs(its), ".4f"), "" if m == "ours" else _shown(less, "+.4f")]
        rows.append(row)
    header = ["method"]
    for origin, closed in columns:
        header += [f"origin {origin[0]:g}{', with the original' if closed else ''}", "ours minus this"]
    return markdown_table(header, rows)


def _told(results: StudyResults, view: str) -> str:
    """Ours beside the best of the others, in words."""
    said = []
    for closed in (False, True):
        for origin in ORIGINS:
            means = {m: float(np.mean(areas(results, m, view, origin, closed))) for m in results.config["methods"]}
            best = max((m for m in means if m != "ours"), key=lambda m: means[m])
            name = f"origin {origin[0]:g}{', with the original' if closed else ''}"
            said.append(f"{name}: ours {means['ours'] - means[best]:+.4f} beside {NAMES[best]}")
    return "Ours beside the best of the others, " + "; ".join(said) + "."


def _shown(found: Estimate, digits: str) -> str:
    """With its interval where there is one: a single seed has none."""
    return format(found.value, digits) if found.n == 1 else format(found, digits)


def _points(results: StudyResults) -> str:
    shown = [f"{role} {kind}" for role in (*ATTACKERS, "utility", "released") for kind in KINDS]
    rows = [
        [NAMES[m], knob, *(_shown(results.estimate(m, f"{knob}/{figure}"), ".3f") for figure in shown)]
        for m in results.config["methods"]
        for knob in knobs(results, m)
    ]
    return markdown_table(["method", "strength", *shown], rows)


def draw(results: StudyResults, path: Path) -> None:
    """Attackers to the right, receivers upwards; means over seeds."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "adult-curves", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 5), layout="constrained")
        axes = figure.subplots(1, 2)
        for axis, (view, (title, _, _)) in zip(axes, VIEWS.items(), strict=True):
            for i, m in enumerate(results.config["methods"]):
                mean = np.mean(curve(results, m, view), axis=0)
                mark, width = "osD^vPX<>ph"[i % 11], 2.2 if m == "ours" else 1.0
                axis.plot(
                    *mean.T, f"{mark}-", ms=4, lw=width, color=f"C{i % 10}" if m != "ours" else "k", label=NAMES[m]
                )
            axis.plot(*np.mean(corners(results, view), axis=0), "k*", ms=11, label="nothing hidden")
            axis.axvline(
                results.estimate("original", "label only").value, color="0.5", ls="--", lw=1, label="income alone"
            )
            axis.axhline(results.estimate("original", "utility majority").value, color="0.7", ls=":", lw=1)
            axis.set_title(title, fontsize=9)
            axis.set_xlabel("accuracy of the attacker (sex)")
            axis.set_ylabel("accuracy of the receiver (income)")
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, fontsize=8, loc="outside right upper")
        figure.savefig(path, metadata={"Date": None})


STUDIES = {
    "adult-curves": Study(
        "UCI Adult: what receivers learn of income and attackers of sex, by method and strength",
        curve_cells,
        curve_render,
        sets="It keeps UCI Adult's income and hides its sex; `locum obfuscate trade-off` measures other tables.",
        names={"methods": NAMES},
    ),
}
