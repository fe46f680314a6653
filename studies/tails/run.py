"""The thesis on rare classes: what latents hold (Tables 2, 3, Figure 8), how good generated embeddings are over
sampling variances (Figure 9), and what they add to rare classes (Figures 10, 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import long_tail_counts
from locum.errors import ConfigError, DataError
from locum.generate import CVAEGenerator, VAEGenerator
from locum.metrics import FrechetByClass, compare, coverage_by_class, sphere_by_class
from locum.rebalance import (
    diversity_by_class,
    frechet_over_variances,
    latent_study,
    plot_by_class,
    plot_frechet,
    sample_like,
)
from locum.rebalance.analyses import VARIANCES
from locum.recipes import SetNeeds, Study, StudyResults, study_set, study_splits
from locum.recipes.study import Cell, markdown_table
from locum.recipes.study_sets import set_key
from locum.types import Estimate

Array = npt.NDArray[Any]
Labeled = tuple[Array, Array]
# What a CVAE can be trained on, in cells and on pages.
TAIL, BALANCED = "long tail", "balanced"
# The fewest records of a class, and the thesis' ratio of the largest to the rarest one.
FEWEST, RATIO = 5, 100
# Where the thesis ran Tables 2 and 3; 768 features.
PUBLISHED, FEATURES = "CIFAR-10 LT", 768
PRESETS = ("small", "large")
# Those of Figures 10 and 11.
WIDTHS = (1.0, 2.0)
MEASURES = {
    "frechet": "Frechet distance",
    "thesis": "Frechet distance as the thesis computes it: each set standardized by itself (F10)",
}


def labeled(name: str, split: str) -> Labeled:
    """Vectors and labels of one split."""
    found = study_splits(name)[split]
    return found.X, found.y


def at_most(found: Labeled, n: int | Sequence[int], rng: np.random.Generator) -> Labeled:
    """`n` records of each class at random, or all where there are fewer."""
    X, y = found
    most = np.broadcast_to(n, int(y.max(initial=0)) + 1)
    keep = np.concatenate([rng.permutation(np.flatnonzero(y == c))[: most[c]] for c in np.unique(y)])
    return X[keep], y[keep]


def balanced(config: Mapping[str, Any]) -> Labeled:
    """Training records with classes of one size: that of the smallest, where they differ."""
    return _balanced(*set_key(config["balanced"]), config["balanced"])


@lru_cache(maxsize=2)
def _balanced(path: str, changed: int, name: str) -> Labeled:
    X, y = labeled(name, "train")
    sizes = np.bincount(y)
    return (X, y) if len(set(sizes)) == 1 else at_most((X, y), int(sizes.min()), np.random.default_rng(0))


def long_tail(config: Mapping[str, Any]) -> Labeled:
    """Training records of the long-tailed set, which `ratio` thins unless it is 0."""
    return _long_tail(*set_key(config["long_tail"]), config["long_tail"], config["ratio"])


@lru_cache(maxsize=2)
def _long_tail(path: str, changed: int, name: str, ratio: int) -> Labeled:
    X, y = labeled(name, "train")
    if not ratio:
        return X, y
    sizes = np.bincount(y)
    return at_most((X, y), long_tail_counts(int(sizes.min()), len(sizes), ratio), np.random.default_rng(0))


def fresh(config: Mapping[str, Any]) -> Labeled:
    """Those balanced records that the long-tailed set lacks."""
    X, y = balanced(config)
    seen = {row.tobytes() for row in long_tail(config)[0]}
    keep = np.array([row.tobytes() not in seen for row in X])
    return X[keep], y[keep]


def unseen_size(config: Mapping[str, Any]) -> int:
    """Unseen records per class: at most as many as the settings say, and as half of the class with the most."""
    return min(int(config["unseen"]), int(np.bincount(fresh(config)[1]).max(initial=0)) // 2)


def unseen(config: Mapping[str, Any], rng: np.random.Generator) -> Labeled:
    """Equally many unseen records of each class; classes with fewer are left out."""
    (X, y), n = fresh(config), unseen_size(config)
    enough = np.bincount(y)[y] >= n
    return at_most((X[enough], y[enough]), n, rng)


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
        ).fit(*labeled(config["set"], "train"))
        X, y = labeled(config["set"], "test")
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
    X, y = labeled(results.config["set"], "test")
    classes, sizes = np.unique(y, return_counts=True)
    published = study_set(results.config["set"]).published == PUBLISHED

    def shown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        """The thesis' figures stand only beside its own set or a stand-in for it."""
        keep = [i for i, title in enumerate(header) if published or not title.startswith("thesis")]
        return markdown_table([header[i] for i in keep], [[row[i] for i in keep] for row in rows])

    text = [
        "![Latents of the test set](thesis-fig8.svg)\n\nFigure 8: latents of the test records, one color per class, "
        "first seed; rings are one and two standard deviations of N(0, 1)."
    ]
    for penalty, title in PENALTY_NAMES.items():
        cells = {model: f"{penalty}/{model}" for model in MODELS}
        rows: list[list[object]] = []
        for model, cell in cells.items():
            accuracy, error = results.estimate(cell, "accuracy").clipped(0, 1), results.estimate(cell, "error")
            thesis = SEED_TABLE2[model] if published else ("", "")
            rows.append([model, f"{accuracy:.2f}", thesis[0], f"{error:.1f}", thesis[1]])
        gaps = [results.difference(cells["CVAE"], cells["VAE"], m) for m in ("accuracy", "error")]
        rows.append(["CVAE minus VAE", f"{gaps[0]:+.2f}", "", f"{gaps[1]:+.1f}", ""])
        header = ["latents of", "accuracy", "thesis (sd)", "squared error", "thesis (sd)"]
        text += [f"## {title}", "Table 2: separability and reconstruction.", shown(header, rows)]
        rows = []
        for c in classes:
            row: list[object] = [c]
            for model, cell in cells.items():
                thesis_ks = SEED_TABLE3[model].split()[c] if published else ""
                row += [f"{results.estimate(cell, f'ks/{c}').clipped(0, 1):.2f}", thesis_ks]
            rows.append(row)
        note = " (thesis: each of them, one run)" if published else ""
        text += [
            f"Table 3: Kolmogorov-Smirnov statistics, mean of the two dimensions{note}.",
            shown(["class", "CVAE", "thesis", "VAE", "thesis"], rows),
            _told(results, cells, classes.tolist()),
        ]
    scale = f"Errors are sums over {X.shape[1]} raw features"
    if published and X.shape[1] != FEATURES:
        scale += f" here, over {FEATURES} of another scale in the thesis: only their order compares"
    text.append(
        f"{results.config['epochs']} epochs, {len(results.config['seeds'])} seeds with 95 % intervals; "
        f"{_span(sizes)} test records a class, of which a fifth scores the classifier; chance is "
        f"{1 / len(classes):.2f}. {scale}."
    )
    return "\n\n".join(text)


def _span(sizes: npt.ArrayLike) -> str:
    """Class sizes in words: one number, or the smallest and the largest."""
    low, high = int(np.min(sizes)), int(np.max(sizes))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _told(results: StudyResults, cells: Mapping[str, str], classes: Sequence[int]) -> str:
    ks = {m: np.array([results.runs(cell, f"ks/{c}") for c in classes]) for m, cell in cells.items()}
    tests = 2 * ks["CVAE"].size
    means = {m: Estimate.from_runs(ks[m].mean(axis=0).tolist()).clipped(0, 1) for m in cells}
    beyond = {m: sum(sum(results.runs(cell, f"significant/{c}")) for c in classes) for m, cell in cells.items()}
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

    y = labeled(results.config["set"], "test")[1]
    seed = str(results.config["seeds"][0])
    with rc_context({"svg.hashsalt": "thesis-fig8", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 8), layout="constrained")
        axes = figure.subplots(2, 2)
        for row, penalty in zip(axes, PENALTIES, strict=True):
            for axis, model in zip(row, MODELS, strict=True):
                packed = bytes.fromhex(results.raw[f"{penalty}/{model}"][seed]["latents"])
                Z = np.frombuffer(packed, dtype=np.float16).astype(float).reshape(-1, 2)
                for c in np.unique(y):
                    axis.scatter(*Z[y == c].T, s=3, lw=0, color=f"C{c}", label=str(c), rasterized=True)
                for radius in (1, 2):
                    axis.add_patch(Circle((0, 0), radius, fill=False, lw=0.8, color="0.3"))
                axis.set_aspect("equal", "datalim")
                axis.set_title(f"{model}, {'penalty of the thesis' if penalty == 'thesis' else 'right KL term'}")
        handles, names = axes[0][0].get_legend_handles_labels()
        # Colors repeat after ten classes, and a longer legend would not fit.
        figure.legend(handles[:20], names[:20], title="class", fontsize=8, markerscale=4, loc="outside right upper")
        figure.savefig(out / "thesis-fig8.svg", dpi=110, metadata={"Date": None})


# Figures 9, 10 and 11.

KINDS: dict[str, dict[str, Any]] = {"thesis": {"authors_compat": True}, "ours": {}}


def tail_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One CVAE per cell, for the figures of all three; and real records, for comparison."""

    trained_on = {TAIL: long_tail, BALANCED: balanced}

    def test() -> Labeled:
        return labeled(config["long_tail"], "test")

    def fitted(name: str, preset: str, seed: int) -> Mapping[str, float]:
        model = CVAEGenerator(
            preset,
            max_epochs=config["epochs"],
            batch_size=config["batch_size"],
            random_state=seed,
            **KINDS[config["kind"]],
        ).fit(*trained_on[name](config))
        out: dict[str, float] = {}
        for measure in MEASURES:
            compat = measure == "thesis"
            found = frechet_over_variances(model, *test(), random_state=seed, authors_compat=compat)
            out |= {f"{measure}/{v:g}": result.average for v, result in found.items()}
        return out | (diversity(model, seed) if name == TAIL else {})

    def diversity(model: CVAEGenerator, seed: int) -> dict[str, float]:
        reference, (hidden, y_hidden) = balanced(config), unseen(config, _coins(seed))
        real = _thinned(config, seed)
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
        reference, n = balanced(config), unseen_size(config)
        out: dict[str, float] = {}
        for measure in MEASURES:
            compat = measure == "thesis"
            floor = _Real(reference)
            by_class = frechet_over_variances(floor, *test(), (1.0,), random_state=seed, authors_compat=compat)[1.0]
            out |= {measure: by_class.average, f"{measure}/shrinkage": by_class.by_class[0].shrinkage}
        found = diversity_by_class({TAIL: _thinned(config, seed)}, *reference)[TAIL]
        out |= _by_class("coverage/long tail", found.coverage) | _by_class("radius/long tail", found.radius)
        out |= _by_class("radius/balanced", sphere_by_class(*reference))
        hidden = unseen(config, _coins(seed))
        for name, found_there in ((TAIL, long_tail(config)), ("fresh", test())):
            same = at_most(found_there, n, _coins(seed))
            out |= _by_class(f"unseen/{name}", coverage_by_class(*same, *hidden))
        return out

    cells: dict[str, Cell] = {"real": real}
    return cells | {f"{s}/{p}": partial(fitted, s, p) for s in config["sets"] for p in PRESETS}


@dataclass(frozen=True)
class _Real:
    """Balanced training records in a generator's place."""

    records: Labeled

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        random_state: int | None = None,
    ) -> Labeled:
        """As many records of each class as are asked for, or all where there are fewer."""
        assert per_class is not None
        wanted = [per_class.get(c, 0) for c in range(int(self.records[1].max()) + 1)]
        return at_most(self.records, wanted, np.random.default_rng(random_state))


def _coins(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def reference_size(config: Mapping[str, Any]) -> int:
    """Records per class of the balanced set."""
    return int(np.bincount(balanced(config)[1]).max())


def _thinned(config: Mapping[str, Any], seed: int) -> Labeled:
    """The long tail with no class larger than in the reference: larger sets cover more and are wider."""
    return at_most(long_tail(config), reference_size(config), _coins(seed))


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
    config = results.config
    size = f"{reference_size(config):,}"
    text.append(
        f"{config['epochs']} epochs; {len(config['seeds'])} seeds with 95 % intervals. Sets for Figures 10 and 11 "
        f"have {size} vectors a class; the long tail has what it has, at most {size}, and "
        '"as few" has just as many. For unseen records the reference and all sets have '
        f"{unseen_size(config)} a class, the long tail at most that many."
        + (f" The long tail is the set thinned to a ratio of {config['ratio']}." if config["ratio"] else "")
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
        pairs += [(f"{TAIL} minus {BALANCED}, {p}", f"{TAIL}/{p}", f"{BALANCED}/{p}") for p in PRESETS]
    gaps = [
        [name, *(_signed(results.difference(a, b, f"{measure}/{v:g}")) for v in VARIANCES)] for name, a, b in pairs
    ]
    X, y = labeled(results.config["long_tail"], "test")
    sizes = np.unique(y, return_counts=True)[1]
    real = np.minimum(sizes, reference_size(results.config))
    as_test = " as the test has" if (real == sizes).all() else ""
    few = "There are fewer test records a class than features; " if sizes.max() < X.shape[1] else ""
    return [
        f"![{MEASURES[measure]}]({path})",
        markdown_table(header, rows),
        f"Real training records (balanced, {_span(real)} a class{as_test}): {floor:.1f}. "
        f"{few or 'In distances, '}{shrunk}.",
        "Paired by seed:",
        markdown_table(["difference", *header[1:-1]], gaps),
    ]


def _signed(difference: Estimate, digits: str = ".1f") -> str:
    return f"{difference:+{digits}}" + (" (tie)" if compare(difference) == "tie" else "")


SHOWN = {
    "long tail": "long tail itself",
    "balanced": "balanced",
    "fresh": "fresh test records",
    "reconstructed": "reconstructed",
    "generated": "generated",
    "rebalanced": "rebalanced",
    "as few": "as few",
}


def _groups(config: Mapping[str, Any]) -> tuple[dict[str, list[int]], int, int]:
    """Frequent and rare classes, and the sizes above and up to which they are: a fifth, a fiftieth of the largest."""
    sizes = np.bincount(long_tail(config)[1])
    above, up_to = int(sizes.max() // 5), int(max(sizes.max() // 50, sizes.min()))
    groups = {"frequent": np.flatnonzero(sizes > above).tolist(), "rare": np.flatnonzero(sizes <= up_to).tolist()}
    return groups, above, up_to


def _summary(results: StudyResults) -> Sequence[str]:
    groups, above, up_to = _groups(results.config)
    columns = [(figure, group) for figure in FIGURES for group in groups if (figure, group) != ("unseen", "frequent")]
    rows, gaps = [], []
    for cell in ("real", *(f"{TAIL}/{p}" for p in PRESETS)):
        for name in dict.fromkeys(m.split("/")[1] for m in _metrics(results, cell)):
            title = _shown(name) if cell == "real" else f"{cell.split('/')[1]}: {_shown(name)}"
            row, gap = [title], [title]
            for figure, group in columns:
                mine = _means(results, cell, f"{figure}/{name}", groups[group])
                its = _means(results, "real", f"{figure}/{TAIL}", groups[group])
                digits = FIGURES[figure][2]
                row.append(f"{_possible(figure, Estimate.from_runs(mine)):{digits}}" if mine else "")
                gap.append(_signed(Estimate.from_runs(np.subtract(mine, its).tolist()), digits) if mine else "")
            rows.append(row)
            gaps.append(gap)
    header = ["set", *(f"{figure}, {group}" for figure, group in columns)]
    return [
        f"Frequent classes have over {above:,} records in the long tail, rare ones {up_to:,} or fewer.",
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


def _means(results: StudyResults, cell: str, metric: str, classes: Sequence[int]) -> list[float]:
    """One mean over some classes a seed, or none where the figure is lacking."""
    known = [f"{metric}/{c}" for c in classes if f"{metric}/{c}" in _metrics(results, cell)]
    runs: list[float] = np.mean([results.runs(cell, m) for m in known], axis=0).tolist() if known else []
    return runs


def _shown(name: str) -> str:
    """As tables and figures call a set."""
    kind, _, variance = name.rpartition(" ")
    return f"{SHOWN[kind]}, variance {variance}" if variance.isdigit() else SHOWN[name]


def _diversity(results: StudyResults, out: Path, figure: str, preset: str) -> Sequence[str]:
    found: dict[str, dict[int, Estimate]] = {}
    for cell in ("real", f"{TAIL}/{preset}"):
        for metric in _metrics(results, cell):
            kind, name, c = metric.split("/")
            # What Figure 11 shows are rebalanced sets; generated ones alone are in the raw figures.
            if kind == figure and not (kind == "radius" and name.startswith("generated")):
                found.setdefault(_shown(name), {})[int(c)] = _possible(kind, results.estimate(cell, metric))
    sizes = np.bincount(long_tail(results.config)[1])
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


def one_set(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """One set as the balanced one and, thinned by the thesis' ratio or as far as its records go, as the long tail."""
    if len(names) > 1:
        raise ConfigError(
            f"This study takes one set, or two as `--set long_tail=PATH --set balanced=PATH`; got {', '.join(names)}."
        )
    (name,) = names
    smallest = int(np.bincount(labeled(name, "train")[1]).min())
    return {"long_tail": name, "balanced": name, "ratio": max(1, min(RATIO, smallest // FEWEST))}


def check(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` or `DataError` for a pair of sets that cannot be compared."""
    if TAIL not in config["sets"] or not set(config["sets"]) <= {TAIL, BALANCED}:
        raise ConfigError(f"`sets` must hold {TAIL!r}, and may hold {BALANCED!r}; got {config['sets']!r}.")
    names, ratio = (config["long_tail"], config["balanced"]), config["ratio"]
    a, b = (study_splits(name)["train"] for name in names)
    if a.info.class_names != b.info.class_names or a.dim != b.dim:
        raise DataError(
            f"The sets {names[0]!r} and {names[1]!r} must have the same classes and features; they have "
            f"{len(a.info.class_names)} and {len(b.info.class_names)} classes, {a.dim} and {b.dim} features."
        )
    if ratio < 0 or (ratio and a.counts.min() // ratio < FEWEST):
        raise ConfigError(
            f"`ratio` must be 0, or from 1 to {a.counts.min() // FEWEST} for the set {names[0]!r}, to leave {FEWEST} "
            f"records of its rarest class; got {ratio!r}."
        )
    if unseen_size(config) < FEWEST:
        raise DataError(
            f"This study needs {2 * FEWEST} training records of one class of {names[1]!r} that the long-tailed set "
            f"lacks, and an `unseen` of {FEWEST} or more: give sets with more records, or raise `unseen`."
        )


PAIR = SetNeeds(
    "long_tail",
    per_class=lambda config: FEWEST,
    settings=("long_tail", "balanced"),
    choose=one_set,
    names=lambda config: [config["long_tail"], config["balanced"]],
)

STUDIES = {
    "thesis-latents": Study(
        "Tables 2 and 3 and Figure 8 of the thesis: what latents hold",
        latent_cells,
        latent_render,
        sets=SetNeeds("set"),
    ),
    "thesis-tails": Study(
        "Figures 9, 10 and 11 of the thesis: quality and diversity of generated embeddings",
        tail_cells,
        tail_render,
        sets=PAIR,
        check=check,
    ),
    "thesis-tails-ours": Study(
        "Figures 9, 10 and 11 of the thesis, with our defaults", tail_cells, tail_render, sets=PAIR, check=check
    ),
}
