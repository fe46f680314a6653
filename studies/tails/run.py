"""The thesis on rare classes: what latents hold (Tables 2, 3, Figure 8), how good generated embeddings are over
sampling variances (Figure 9), and what they add to rare classes (Figures 10, 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import read_embeddings
from locum.generate import CVAEGenerator, VAEGenerator
from locum.metrics import FrechetByClass, coverage_by_class, sphere_by_class
from locum.rebalance import (
    diversity_by_class,
    frechet_over_variances,
    latent_study,
    plot_by_class,
    plot_frechet,
    sample_like,
)
from locum.rebalance.analyses import VARIANCES
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.types import Estimate

Array = npt.NDArray[Any]
Labeled = tuple[Array, Array]
FILES = {"long tail": "cifar10lt_efflite0.npz", "balanced": "cifar10_12k_efflite0.npz"}
CLASSES = range(10)
PRESETS = ("small", "large")
# Those of Figures 10 and 11.
WIDTHS = (1.0, 2.0)
MEASURES = {
    "frechet": "Frechet distance",
    "thesis": "Frechet distance as the thesis computes it: each set standardized by itself (F10)",
}


@cache
def records(name: str, split: str) -> Labeled:
    """Vectors and labels of one split."""
    found = read_embeddings(data_folder() / FILES[name], split)
    return found.X, found.y


def at_most(found: Labeled, n: int, rng: np.random.Generator) -> Labeled:
    """`n` records of each class at random, or all where there are fewer."""
    X, y = found
    keep = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n] for c in np.unique(y)])
    return X[keep], y[keep]


def unseen(n: int, rng: np.random.Generator) -> Labeled:
    """`n` a class of those balanced records that the long-tailed set lacks; classes with fewer are left out."""
    X, y = records("balanced", "train")
    seen = {row.tobytes() for row in records("long tail", "train")[0]}
    fresh = np.array([row.tobytes() not in seen for row in X])
    enough = np.bincount(y[fresh], minlength=len(CLASSES))[y] >= n
    return at_most((X[fresh & enough], y[fresh & enough]), n, rng)


# Tables 2 and 3, Figure 8.

MODELS = {"CVAE": CVAEGenerator, "VAE": VAEGenerator}
# One scaling for both: the one by class would tell the CVAE alone where its classes lie.
PENALTIES: dict[str, dict[str, Any]] = {
    "thesis": {"authors_compat": True},
    "right": {"scaling": "minmax", "decoder_noise": "none"},
}
PENALTY_NAMES = {
    "thesis": "The penalty that the thesis ran (F1: the prior learned is N(0, 1/2))",
    "right": "The right KL term, to N(0, 1)",
}
# Accuracy and error, with standard deviations over five runs.
SEED_TABLE2 = {"CVAE": ("0.13 (0.02)", "10.70 (0.10)"), "VAE": ("0.72 (0.07)", "12.56 (0.11)")}
# One run: dimension 1 / dimension 2 of each class.
SEED_TABLE3 = {
    "CVAE": "0.14/0.14 0.15/0.15 0.088/0.15 0.14/0.16 0.17/0.14 0.17/0.13 0.2/0.16 0.13/0.15 0.3/0.14 0.21/0.19",
    "VAE": "0.24/0.61 0.59/0.42 0.28/0.34 0.55/0.45 0.69/0.56 0.45/0.52 0.48/0.43 0.47/0.64 0.4/0.4 0.47/0.48",
}


def latent_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One network per cell; the first seed keeps its latents for the figure."""

    def cell(penalty: str, model: str, seed: int) -> Mapping[str, float | str]:
        fitted = MODELS[model](
            "small",
            latent=2,
            beta=0.1,
            max_epochs=config["epochs"],
            batch_size=config["batch_size"],
            random_state=seed,
            **PENALTIES[penalty],
        ).fit(*records("long tail", "train"))
        X, y = records("long tail", "test")
        found = latent_study(fitted, X, y, np.random.default_rng(seed))
        out: dict[str, float | str] = {"accuracy": found.separability.value, "error": found.error.value}
        for c, statistic, p in zip(found.ks.classes, found.ks.statistic, found.ks.pvalue, strict=True):
            # Dimensions of two networks do not belong to each other, their mean does.
            out |= {f"ks/{c}": float(statistic.mean()), f"ks/{c}/1": statistic[0], f"ks/{c}/2": statistic[1]}
            out[f"significant/{c}"] = float((p < 0.01).sum())
        if seed == config["seeds"][0]:
            mean, std = fitted.encode(X, y)
            # The random stream of `latent_study`: the figure shows what was measured.
            Z = mean + std * np.random.default_rng(seed).standard_normal(mean.shape)
            out["latents"] = Z.astype(np.float16).tobytes().hex()
        return out

    return {f"{p}/{m}": partial(cell, p, m) for p in PENALTIES for m in MODELS}


def latent_render(results: StudyResults, out: Path) -> str:
    """Figure 8, then Tables 2 and 3 for each penalty."""
    latent_figure(results, out)
    text = [
        "![Latents of the test set](thesis-fig8.svg)\n\nFigure 8: latents of the test records, one color per class, "
        "first seed; rings are one and two standard deviations of N(0, 1)."
    ]
    for penalty, title in PENALTY_NAMES.items():
        cells = {model: f"{penalty}/{model}" for model in MODELS}
        rows = []
        for model, cell in cells.items():
            accuracy, error = results.estimate(cell, "accuracy").clipped(0, 1), results.estimate(cell, "error")
            rows.append([model, f"{accuracy:.2f}", SEED_TABLE2[model][0], f"{error:.1f}", SEED_TABLE2[model][1]])
        gaps = [results.difference(cells["CVAE"], cells["VAE"], m) for m in ("accuracy", "error")]
        rows.append(["CVAE minus VAE", f"{gaps[0]:+.2f}", "", f"{gaps[1]:+.1f}", ""])
        header = ["latents of", "accuracy", "thesis (sd)", "squared error", "thesis (sd)"]
        text += [f"## {title}", "Table 2: separability and reconstruction.", markdown_table(header, rows)]
        rows = []
        for c in CLASSES:
            row: list[object] = [c]
            for model, cell in cells.items():
                row += [f"{results.estimate(cell, f'ks/{c}').clipped(0, 1):.2f}", SEED_TABLE3[model].split()[c]]
            rows.append(row)
        header = ["class", "CVAE", "thesis", "VAE", "thesis"]
        text += [
            "Table 3: Kolmogorov-Smirnov statistics, mean of the two dimensions (thesis: each of them, one run).",
            markdown_table(header, rows),
            _told(results, cells),
        ]
    text.append(
        f"{results.config['epochs']} epochs, {len(results.config['seeds'])} seeds with 95 % intervals; 300 test "
        "records a class, of which a fifth scores the classifier; chance is 0.10. Errors are sums over 1280 raw "
        "features here, over 768 of another scale in the thesis: only their order compares."
    )
    return "\n\n".join(text)


def _told(results: StudyResults, cells: Mapping[str, str]) -> str:
    ks = {m: np.array([results.runs(cell, f"ks/{c}") for c in CLASSES]) for m, cell in cells.items()}
    tests = 2 * ks["CVAE"].size
    means = {m: Estimate.from_runs(ks[m].mean(axis=0).tolist()).clipped(0, 1) for m in cells}
    beyond = {m: sum(sum(results.runs(cell, f"significant/{c}")) for c in CLASSES) for m, cell in cells.items()}
    return (
        f"Mean over classes: CVAE {means['CVAE']:.2f}, VAE {means['VAE']:.2f}. The CVAE's is the lower one in "
        f"{(ks['CVAE'] < ks['VAE']).sum()} of {ks['CVAE'].size} pairs of class and seed. Beyond the 99 % level: "
        f"{beyond['CVAE']:.0f} and {beyond['VAE']:.0f} of {tests} tests."
    )


def latent_figure(results: StudyResults, out: Path) -> None:
    """Points are pictures within the drawing: twelve thousand shapes would be a large file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    y = records("long tail", "test")[1]
    seed = str(results.config["seeds"][0])
    with rc_context({"svg.hashsalt": "thesis-fig8", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 8), layout="constrained")
        axes = figure.subplots(2, 2)
        for row, penalty in zip(axes, PENALTIES, strict=True):
            for axis, model in zip(row, MODELS, strict=True):
                packed = bytes.fromhex(results.raw[f"{penalty}/{model}"][seed]["latents"])
                Z = np.frombuffer(packed, dtype=np.float16).astype(float).reshape(-1, 2)
                for c in CLASSES:
                    axis.scatter(*Z[y == c].T, s=3, lw=0, color=f"C{c}", label=str(c), rasterized=True)
                for radius in (1, 2):
                    axis.add_patch(Circle((0, 0), radius, fill=False, lw=0.8, color="0.3"))
                axis.set_aspect("equal", "datalim")
                axis.set_title(f"{model}, {'penalty of the thesis' if penalty == 'thesis' else 'right KL term'}")
        handles, names = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, names, title="class", fontsize=8, markerscale=4, loc="outside right upper")
        figure.savefig(out / "thesis-fig8.svg", dpi=110, metadata={"Date": None})


# Figures 9, 10 and 11.

KINDS: dict[str, dict[str, Any]] = {"thesis": {"authors_compat": True}, "ours": {}}


def tail_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One CVAE per cell, for the figures of all three; and real records, for comparison."""

    def fitted(name: str, preset: str, seed: int) -> Mapping[str, float]:
        model = CVAEGenerator(
            preset,
            max_epochs=config["epochs"],
            batch_size=config["batch_size"],
            random_state=seed,
            **KINDS[config["kind"]],
        ).fit(*records(name, "train"))
        out: dict[str, float] = {}
        for measure in MEASURES:
            found = frechet_over_variances(
                model, *records("long tail", "test"), random_state=seed, authors_compat=measure == "thesis"
            )
            out |= {f"{measure}/{v:g}": result.average for v, result in found.items()}
        return out | (diversity(model, seed) if name == "long tail" else {})

    def diversity(model: CVAEGenerator, seed: int) -> dict[str, float]:
        reference, (hidden, y_hidden) = records("balanced", "train"), unseen(config["unseen"], _coins(seed))
        real = _thinned(seed)
        sets = {"reconstructed": (model.reconstruct(*reference), reference[1])}
        covering = {"reconstructed": (model.reconstruct(hidden, y_hidden), y_hidden)}
        out: dict[str, float] = {}
        for v in WIDTHS:
            sets[f"generated {v:g}"] = sample_like(model, reference[1], variance=v, random_state=seed)
            sets[f"as few {v:g}"] = sample_like(model, real[1], variance=v, random_state=seed)
            covering[f"generated {v:g}"] = sample_like(model, y_hidden, variance=v, random_state=seed)
            out |= _by_class(f"radius/rebalanced {v:g}", sphere_by_class(*_filled(real, sets[f"generated {v:g}"])))
        for name, found in diversity_by_class(sets, *reference).items():
            out |= _by_class(f"coverage/{name}", found.coverage) | _by_class(f"radius/{name}", found.radius)
        for name, (X, y) in covering.items():
            out |= _by_class(f"unseen/{name}", coverage_by_class(X, y, hidden, y_hidden))
        return out

    def real(seed: int) -> Mapping[str, float]:
        reference, test = records("balanced", "train"), records("long tail", "test")
        out: dict[str, float] = {}
        for measure in MEASURES:
            compat = measure == "thesis"
            by_class = frechet_over_variances(_Real(), *test, (1.0,), random_state=seed, authors_compat=compat)[1.0]
            out |= {measure: by_class.average, f"{measure}/shrinkage": by_class.by_class[0].shrinkage}
        found = diversity_by_class({"long tail": _thinned(seed)}, *reference)["long tail"]
        out |= _by_class("coverage/long tail", found.coverage) | _by_class("radius/long tail", found.radius)
        out |= _by_class("radius/balanced", sphere_by_class(*reference))
        hidden = unseen(config["unseen"], _coins(seed))
        for name, (X, y) in (("long tail", records("long tail", "train")), ("fresh", test)):
            same = at_most((X, y), config["unseen"], _coins(seed))
            out |= _by_class(f"unseen/{name}", coverage_by_class(*same, *hidden))
        return out

    cells: dict[str, Cell] = {"real": real}
    return cells | {f"{s}/{p}": partial(fitted, s, p) for s in config["sets"] for p in PRESETS}


class _Real:
    """Balanced training records in a generator's place."""

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        random_state: int | None = None,
    ) -> Labeled:
        """As many records of each class as are asked for, which must be equally many."""
        assert per_class is not None
        return at_most(records("balanced", "train"), *set(per_class.values()), np.random.default_rng(random_state))


def _coins(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _thinned(seed: int) -> Labeled:
    """The long tail with no class larger than in the reference: larger sets cover more and are wider."""
    return at_most(records("long tail", "train"), 1000, _coins(seed))


def _filled(real: Labeled, generated: Labeled) -> Labeled:
    """The long tail, each class filled up with generated vectors to the size that it has among those."""
    X, y = [real[0]], [real[1]]
    for c in np.unique(real[1]):
        more = generated[0][generated[1] == c][(real[1] == c).sum() :]
        X.append(more)
        y.append(np.full(len(more), c))
    return np.concatenate(X), np.concatenate(y)


def _by_class(prefix: str, found: Mapping[Any, float]) -> dict[str, float]:
    return {f"{prefix}/{c}": value for c, value in found.items()}


# Title, file and digits.
FIGURES = {
    "coverage": ("Figure 10: coverage of the balanced training set", "fig10", ".3f"),
    "radius": ("Figure 11: radius of the smallest ball", "fig11", ".2f"),
    "unseen": ("Coverage of balanced records that are not in the long-tailed set", "unseen", ".3f"),
}


def tail_render(results: StudyResults, out: Path) -> str:
    """Figure 9 by both measures, then Figures 10 and 11 and coverage of unseen records, for each network."""
    text = ["## Figure 9: distance of generated to test records, over sampling variances"]
    for measure, title in MEASURES.items():
        text += [f"### {title}", *_frechet(results, out, measure)]
    text += ["## Figures 10 and 11 in short: means over classes", *_summary(results)]
    for figure, (title, _, _) in FIGURES.items():
        text.append(f"## {title}")
        for preset in PRESETS:
            text += [f"### The {preset} CVAE", *_diversity(results, out, figure, preset)]
    seeds, n = len(results.config["seeds"]), results.config["unseen"]
    text.append(
        f"{results.config['epochs']} epochs; {seeds} seeds with 95 % intervals. Sets for Figures 10 and 11 have "
        "1,000 vectors a class; the long tail has what it has, at most 1,000, and "
        '"as few" has just as many. For unseen records the reference and all sets have '
        f"{n} a class, the long tail at most that many."
    )
    return "\n\n".join(text)


def _frechet(results: StudyResults, out: Path, measure: str) -> Sequence[str]:
    names = {f"{p}, {s}": f"{s}/{p}" for s in results.config["sets"] for p in PRESETS}
    header = ["CVAE, trained on", *(f"{v:g}" for v in VARIANCES), "largest / smallest"]
    rows, curves = [], {}
    for name, cell in names.items():
        found = [results.estimate(cell, f"{measure}/{v:g}") for v in VARIANCES]
        runs = np.array([results.runs(cell, f"{measure}/{v:g}") for v in VARIANCES])
        ratio = Estimate.from_runs((runs.max(axis=0) / runs.min(axis=0)).tolist())
        rows.append([name, *(f"{e:.1f}" for e in found), f"{ratio:.2f}"])
        curves[name] = {v: FrechetByClass({}, e.value, ()) for v, e in zip(VARIANCES, found, strict=True)}
    floor = results.estimate("real", measure)
    curves["real training records"] = {v: FrechetByClass({}, floor.value, ()) for v in VARIANCES}
    shrinkage = results.estimate("real", f"{measure}/shrinkage").value
    shrunk = f"all covariances are shrunk by {shrinkage:.2f}" if shrinkage else "nothing is shrunk"
    path = f"{_prefix(results)}-fig9-{measure}.svg"
    plot_frechet(curves, out / path)
    pairs = [(f"large minus small, {s}", f"{s}/large", f"{s}/small") for s in results.config["sets"]]
    if len(results.config["sets"]) > 1:
        pairs += [(f"long tail minus balanced, {p}", f"long tail/{p}", f"balanced/{p}") for p in PRESETS]
    gaps = [
        [name, *(_signed(results.difference(a, b, f"{measure}/{v:g}")) for v in VARIANCES)] for name, a, b in pairs
    ]
    return [
        f"![{MEASURES[measure]}]({path})",
        markdown_table(header, rows),
        f"Real training records (balanced, 300 a class as the test has): {floor:.1f}. There are fewer test records a "
        f"class than features; {shrunk}.",
        "Paired by seed:",
        markdown_table(["difference", *header[1:-1]], gaps),
    ]


def _signed(difference: Estimate, digits: str = ".1f") -> str:
    return f"{difference:+{digits}}" + (" (tie)" if difference.low <= 0 <= difference.high else "")


SHOWN = {
    "long tail": "long tail itself",
    "balanced": "balanced",
    "fresh": "fresh test records",
    "reconstructed": "reconstructed",
    "generated": "generated",
    "rebalanced": "rebalanced",
    "as few": "as few",
}
GROUPS = {"frequent": range(4), "rare": range(8, 10)}


def _summary(results: StudyResults) -> Sequence[str]:
    columns = [(figure, group) for figure in FIGURES for group in GROUPS if (figure, group) != ("unseen", "frequent")]
    rows, gaps = [], []
    for cell in ("real", *(f"long tail/{p}" for p in PRESETS)):
        for name in dict.fromkeys(m.split("/")[1] for m in _metrics(results, cell)):
            title = _shown(name) if cell == "real" else f"{cell.split('/')[1]}: {_shown(name)}"
            row, gap = [title], [title]
            for figure, group in columns:
                mine = _means(results, cell, f"{figure}/{name}", group)
                its = _means(results, "real", f"{figure}/long tail", group)
                digits = FIGURES[figure][2]
                row.append(f"{_possible(figure, Estimate.from_runs(mine)):{digits}}" if mine else "")
                gap.append(_signed(Estimate.from_runs(np.subtract(mine, its).tolist()), digits) if mine else "")
            rows.append(row)
            gaps.append(gap)
    header = ["set", *(f"{figure}, {group}" for figure, group in columns)]
    return [
        "Frequent classes have over 1,000 records in the long tail, rare ones 100 or fewer.",
        markdown_table(header, rows),
        "Minus the long tail itself, paired by seed:",
        markdown_table(header, gaps[1:]),
    ]


def _metrics(results: StudyResults, cell: str) -> list[str]:
    """Names of figures by class, which are kind, set and class, in the order in which sets are shown."""
    names = [m for m in results.raw[cell][str(results.config["seeds"][0])] if m.split("/")[0] in FIGURES]
    return sorted(names, key=lambda m: [m.split("/")[1].startswith(kind) for kind in SHOWN], reverse=True)


def _possible(figure: str, found: Estimate) -> Estimate:
    """Without what shares and lengths cannot be."""
    return found.clipped(0, np.inf if figure == "radius" else 1)


def _means(results: StudyResults, cell: str, metric: str, group: str) -> list[float]:
    """One mean over the classes of a group a seed, or none where the figure is lacking."""
    known = [f"{metric}/{c}" for c in GROUPS[group] if f"{metric}/{c}" in _metrics(results, cell)]
    runs: list[float] = np.mean([results.runs(cell, m) for m in known], axis=0).tolist() if known else []
    return runs


def _shown(name: str) -> str:
    """As tables and figures call a set."""
    kind, _, variance = name.rpartition(" ")
    return f"{SHOWN[kind]}, variance {variance}" if variance.isdigit() else SHOWN[name]


def _diversity(results: StudyResults, out: Path, figure: str, preset: str) -> Sequence[str]:
    found: dict[str, dict[int, Estimate]] = {}
    for cell in ("real", f"long tail/{preset}"):
        for metric in _metrics(results, cell):
            kind, name, c = metric.split("/")
            # What Figure 11 shows are rebalanced sets; generated ones alone are in the raw figures.
            if kind == figure and not (kind == "radius" and name.startswith("generated")):
                found.setdefault(_shown(name), {})[int(c)] = _possible(kind, results.estimate(cell, metric))
    sizes = np.bincount(records("long tail", "train")[1])
    counts = {c: int(sizes[c]) for c in next(iter(found.values()))}
    title, stem, digits = FIGURES[figure]
    path = f"{_prefix(results)}-{stem}-{preset}.svg"
    curves = {
        name: {c: e.value for c, e in by.items()} for name, by in found.items() if not name.startswith("as few")
    }
    plot_by_class(curves, counts, out / path, ylabel="radius" if figure == "radius" else "coverage")
    rows = [[c, n, *(f"{by[c]:{digits}}" for by in found.values())] for c, n in counts.items()]
    return [f"![{title}, {preset}]({path})", markdown_table(["class", "records", *found], rows)]


def _prefix(results: StudyResults) -> str:
    return "thesis-tails" if results.config["kind"] == "thesis" else "thesis-tails-ours"


PAIR = "It compares a long-tailed CIFAR-10 with a balanced one that shares its classes; other sets have no such pair."

STUDIES = {
    "thesis-latents": Study(
        "Tables 2 and 3 and Figure 8 of the thesis: what latents hold", latent_cells, latent_render, sets=PAIR
    ),
    "thesis-tails": Study(
        "Figures 9, 10 and 11 of the thesis: quality and diversity of generated embeddings",
        tail_cells,
        tail_render,
        sets=PAIR,
    ),
    "thesis-tails-ours": Study(
        "Figures 9, 10 and 11 of the thesis, with our defaults", tail_cells, tail_render, sets=PAIR
    ),
}
