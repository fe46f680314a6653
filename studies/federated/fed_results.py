"""Two studies: methods side by side on every set, and one factor at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fed_averaged import averaged_cgan
from fed_methods import (
    HEAD,
    PAPER,
    SUMS,
    Method,
    as_sharp,
    centralized,
    fedavg,
    federation,
    summary,
    the_paper,
    together,
    trusted_center,
)
from fed_sets import DELTA, FEWEST, PAPER_DELTA, Array, check_sites, deals

from locum.errors import ConfigError
from locum.metrics import compare, mean_interval
from locum.recipes import SetNeeds, StudyResults, StudySet, study_set, study_splits
from locum.recipes.study import Cell, markdown_table
from locum.recipes.study_sets import backbone_label

BEST = "ours: head, epsilon 1"
SHARP = "ours: head, epsilon 1, as sharp as its release"
CENTER = "trusted center, epsilon 1"


def methods(config: Mapping[str, Any]) -> dict[str, Method]:
    """Every method by its name in the tables; local-only is part of every federation, as lambda 1."""
    rounds = int(config["paper_rounds"])
    return {
        BEST: federation(HEAD, 1.0),
        SHARP: as_sharp(1.0),
        "ours: head, epsilon 3": federation(HEAD, 3.0),
        "ours: head, no privacy": federation(HEAD, None),
        "ours: masked sums, epsilon 1": federation(SUMS, 1.0),
        CENTER: trusted_center(1.0),
        "trusted center, epsilon 3": trusted_center(3.0),
        "FedAvg": fedavg(),
        "FedAvg, as in the paper": fedavg(rounds=50, whiten=False),
        "FedProx": fedavg(proximal=0.05),
        "FedLambda": fedavg(mixed=True),
        "FedAvg, epsilon 1": fedavg(epsilon=1.0),
        "FedAvg, epsilon 3": fedavg(epsilon=3.0),
        "the paper, its noise": the_paper("published", rounds),
        "the paper, epsilon 1": the_paper(1.0, rounds),
        "the paper, no privacy": the_paper(None, rounds),
        "DP-CGAN, averaged": averaged_cgan(1.0, int(config["cgan_rounds"])),
        "centralized": centralized,
    }


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per set and method."""
    known = methods(config)

    def cell(name: str, method: str, seed: int) -> Mapping[str, float | str]:
        return summary(*together(known[method], deals(name, seed), seed))

    out: dict[str, Cell] = {f"{s}/{m}": partial(cell, s, m) for s in config["sets"] for m in known}
    return {name: found for name, found in out.items() if not name.startswith(tuple(config["without"]))}


def other_sets(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Given sets, without the methods that train networks at every site."""
    return {"sets": list(names), "without": [f"{name}/{method}" for name in names for method in config["slow"]]}


def check(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` or `DataError` for what would only fail later."""
    names = {f"{s}/{m}" for s in config["sets"] for m in methods(config)}
    for start in config["without"]:
        if not any(name.startswith(start.partition("/")[0]) for name in names):
            continue
        if not any(name.startswith(start) for name in names):
            raise ConfigError(f"`without` holds {start!r}, and no cell begins so; they are SET/METHOD.")
    check_sites(config["sets"])


NEEDS = SetNeeds("sets", choose=other_sets)


def render(results: StudyResults, out: Path) -> str:
    """A summary, then one table per set with differences over pairs of site and seed."""
    text = ["## In short", _short(results)]
    columns = ["interpolated acc", "interpolated bacc", "global bacc", "local bacc", "lambda", "epsilon"]
    for name in results.config["sets"]:
        rows = []
        for method in [m for m in methods(results.config) if f"{name}/{m}" in results.raw]:
            known = results.raw[f"{name}/{method}"][str(results.config["seeds"][0])]
            rows.append([method, *(_shown(results, f"{name}/{method}", c) if c in known else "-" for c in columns)])
        text += [f"## {study_set(name).title}", markdown_table(["method", *columns], rows), _pairs(results, name)]
        if study_set(name).more.get("site_names"):
            text.append(_by_hospital(results, name))
    text.append(
        f"Means over sites and {len(results.config['seeds'])} seeds, with 95 % intervals over seeds. bacc: mean "
        "accuracy over classes, on a fifth of each site's records, on 3,000 others for sites of 100, on other "
        "patients for chest X-rays, and in five folds for hospitals. Interpolated: the share lambda from the site's "
        "own head, "
        "the rest from the global one; local: lambda 1, that is local-only; global: lambda 0. epsilon: the cost of a "
        f"real run at delta {DELTA:g} (the paper's rows: its own {PAPER_DELTA:g}), per record, and per patient for "
        "chest X-rays."
    )
    return "\n\n".join(t for t in text if t)


def _shown(results: StudyResults, cell: str, metric: str) -> str:
    if len(results.config["seeds"]) > 1:
        return f"{results.estimate(cell, metric):.3f}"
    return f"{results.runs(cell, metric)[0]:.3f}"


def _kind(results: StudyResults, cell: str) -> str:
    """The head that a method recommends: the mix, if it has one."""
    first = results.raw[cell][str(results.config["seeds"][0])]
    return "interpolated" if "interpolated sites" in first else "global"


def _sites(results: StudyResults, cell: str, kind: str) -> Array:
    return np.concatenate([json.loads(t) for t in results.texts(cell, f"{kind} sites")])


def _short(results: StudyResults) -> str:
    """Balanced accuracy of the main methods, and what ours gains."""
    header = [
        "set",
        "local",
        "ours, epsilon 1",
        "ours - local",
        "as sharp as its release - local",
        "trusted center - local",
        "ours - FedAvg at epsilon 1",
    ]
    header += ["ours, epsilon 3", "FedAvg, no privacy", "share of FedAvg's gain at epsilon 3", "worst site"]
    rows = []
    for name in results.config["sets"]:

        def of(method: str, kind: str = "", where: str = name) -> Array | None:
            cell = f"{where}/{method}"
            return _sites(results, cell, kind or _kind(results, cell)) if cell in results.raw else None

        ours, local, center = of(BEST), of(BEST, "local"), of(CENTER)
        three, free, noisy = of("ours: head, epsilon 3"), of("FedAvg"), of("FedAvg, epsilon 1")
        if ours is None or local is None:
            continue
        worst = (ours - local).reshape(len(results.config["seeds"]), -1).mean(axis=0).min()
        gain = "-" if free is None or three is None else _ratio(three - local, free - local)
        rows.append(
            [
                study_set(name).title,
                f"{local.mean():.3f}",
                f"{ours.mean():.3f}",
                _difference(ours, local),
                _difference(of(SHARP), local),
                _difference(center, local),
                _difference(ours, noisy),
                "-" if three is None else f"{three.mean():.3f}",
                "-" if free is None else f"{free.mean():.3f}",
                gain,
                f"{worst:+.3f}",
            ]
        )
    return (
        markdown_table(header, rows)
        + "\n\nBalanced accuracy, means over sites and seeds; differences are paired over sites and seeds. Worst "
        "site: the smallest mean gain of a site over the seeds (in artificial partitions a site is another sample "
        "with each seed)."
    )


def _difference(a: Array | None, b: Array | None) -> str:
    if a is None or b is None:
        return "-"
    found = mean_interval(a - b)
    return f"{found:+.3f}" + (" (tie)" if compare(found) == "tie" else "")


def _ratio(a: Array, b: Array) -> str:
    return "-" if b.mean() <= 0.005 else f"{a.mean() / b.mean():.2f}"


def _pairs(results: StudyResults, name: str) -> str:
    """Differences of balanced accuracy, site by site and seed by seed."""
    if f"{name}/{BEST}" not in results.raw:
        return ""
    ours = _sites(results, f"{name}/{BEST}", "interpolated")
    rows = [["local only", _difference(ours, _sites(results, f"{name}/{BEST}", "local"))]]
    for method in methods(results.config):
        cell = f"{name}/{method}"
        if method != BEST and cell in results.raw:
            rows.append([method, _difference(ours, _sites(results, cell, _kind(results, cell)))])
    table = markdown_table([f"{BEST}, interpolated bacc, minus", "difference"], rows)
    return (
        f"{table}\n\nPaired over {len(ours)} pairs of site and seed. Sites of one seed share the global head, and "
        "some sets their test records: intervals would be wider for independent pairs."
    )


def _by_hospital(results: StudyResults, name: str) -> str:
    """Balanced accuracy of each hospital; each of its records is tested once per seed."""
    names, seeds = study_set(name).more["site_names"], len(results.config["seeds"])
    rows = []
    for title, method, kind in (
        ("local only", BEST, "local"),
        (BEST, BEST, "interpolated"),
        (SHARP, SHARP, "interpolated"),
        ("ours: head, epsilon 3", "ours: head, epsilon 3", "interpolated"),
        (CENTER, CENTER, "interpolated"),
        ("FedAvg", "FedAvg", "global"),
        ("FedAvg, epsilon 1", "FedAvg, epsilon 1", "global"),
    ):
        cell = f"{name}/{method}"
        if cell in results.raw:
            found = _sites(results, cell, kind).reshape(seeds, -1)
            rows.append([title, *(f"{mean_interval(found[:, i]):.3f}" for i in range(len(names)))])
    return markdown_table(["by hospital", *names], rows)


# In the names of cells "efflite0" stands for the vectors of the set, whatever they were made with.
POINT = ("1", "10", "efflite0")
# How records may be dealt where the number of sites changes.
COUNTED = (None, "iid", "dirichlet")
# Settings, delta (None: that of the set), and whether lambda is chosen on held-out records.
FACTOR_METHODS: dict[str, tuple[dict[str, Any], float | None, bool]] = {
    "the paper": (PAPER, PAPER_DELTA, True),
    "ours: masked sums": (SUMS, None, False),
    "ours: head": (HEAD, None, False),
}


def own_vectors(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """A given set with its own vectors (other backbones are for CIFAR-10) and the sites that it has records for."""
    chosen = SetNeeds("set").chosen(config, names)
    splits = study_splits(chosen["set"])
    size = sum(len(splits[part]) for part in ("train", "val") if part in splits)
    sites = {k: [s for s in config[k] if FEWEST * int(s) <= size] for k in ("sites", "paper_sites")}
    return {**chosen, **sites, "backbones": [POINT[2]], "paper_backbones": [POINT[2]]}


FACTOR_NEEDS = SetNeeds("set", choose=own_vectors)


def check_factors(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` or `DataError` for a set, or numbers of sites, that cannot work."""
    name, backbones = config["set"], {*config["backbones"], *config["paper_backbones"]}
    if study_set(name).more.get("partition") not in COUNTED:
        raise ConfigError(f"This study changes the number of sites, and the set {name!r} has sites of its own.")
    if study_set(name).file != study_set("cifar10_12k").file and backbones != {POINT[2]}:
        raise ConfigError(
            f"This study embeds the images of CIFAR-10 alone: for the set {name!r}, `backbones` and "
            f"`paper_backbones` must be {[POINT[2]]!r}, which stands for its vectors; got {sorted(backbones)!r}."
        )
    for sites in sorted({int(POINT[1]), *map(int, (*config["sites"], *config["paper_sites"]))}):
        check_sites([name], sites)


def factor_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One factor at a time around sites of 100 records: epsilon, number of sites, backbone."""

    def cell(method: str, epsilon: str, sites: str, backbone: str, seed: int) -> Mapping[str, float | str]:
        settings, delta, validation = FACTOR_METHODS[method]
        if settings is PAPER:
            settings = settings | {"rounds": config["paper_rounds"]}
        given = deals(config["set"], seed, int(sites), backbone)
        budget = None if epsilon == "inf" else float(epsilon)
        return summary(*together(federation(settings, budget, delta=delta, validation=validation), given, seed))

    out: dict[str, Cell] = {}
    for method in FACTOR_METHODS:
        of = "paper_" if method == "the paper" else ""
        for epsilon in config[f"{of}epsilons"]:
            out[f"{method}/{epsilon}/10/efflite0"] = partial(cell, method, epsilon, *POINT[1:])
        for sites in config[f"{of}sites"]:
            out[f"{method}/1/{sites}/efflite0"] = partial(cell, method, "1", sites, "efflite0")
        for backbone in config[f"{of}backbones"]:
            out[f"{method}/1/10/{backbone_label(backbone)}"] = partial(cell, method, "1", "10", backbone)
    return out


def factor_render(results: StudyResults, out: Path) -> str:
    """A table per factor, the curve of balanced accuracy by epsilon, and the parameters."""
    text = []
    for place, (title, key) in enumerate((("epsilon", "epsilons"), ("sites", "sites"), ("backbone", "backbones"))):
        rows: list[list[str]] = []
        shown = [backbone_label(b) if key == "backbones" else b for b in results.config[key]]
        if len(shown) < 2:
            continue
        for method in FACTOR_METHODS:
            values = [list(POINT) for _ in shown]
            for where, value in zip(values, shown, strict=True):
                where[place] = value
            names = ["/".join([method, *where]) for where in values]
            if sum(name in results.raw for name in names) < 2:
                continue
            for kind in ("interpolated", "global", "local"):
                rows.append([f"{method}, {kind}", *(_known(results, n, f"{kind} bacc") for n in names)])
            rows.append([f"{method}, lambda", *(_known(results, n, "lambda") for n in names)])
        text += [f"## By {title}", markdown_table([f"balanced accuracy by {title}", *shown], rows)]
    _draw_epsilons(results, out)
    text.append("![balanced accuracy by epsilon](federated-factors.svg)")
    found = study_set(results.config["set"])
    each, vectors = found.more.get("each"), "its own vectors" if found.given else POINT[2]
    size = f" of {each} records" if each else ", which share all training records"
    tested = "3,000 other records" if each else "test records"
    delta = f"{DELTA:g}" if "partition" in found.more else f"at most {DELTA:g}"
    text += ["## Parameters", parameters(found)]
    text.append(
        f"Around {POINT[1]} sites{size}, epsilon {POINT[0]}, {vectors}; means over sites and "
        f"{len(results.config['seeds'])} seeds with 95 % intervals over seeds; tested on {tested}. The "
        f"paper runs {results.config['paper_rounds']} rounds at its own delta of {PAPER_DELTA:g}; ours have "
        f"{delta}. inf: noise off, nothing else changed."
    )
    return "\n\n".join(text)


def _known(results: StudyResults, cell: str, metric: str) -> str:
    return _shown(results, cell, metric) if cell in results.raw else "-"


def _draw_epsilons(results: StudyResults, out: Path) -> None:
    """Privacy against utility: balanced accuracy of each method by epsilon; local-only needs none."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = results.config["epsilons"]
    with plt.rc_context({"svg.hashsalt": "locum"}):
        figure, axes = plt.subplots(figsize=(6.4, 3.8))
        for method in FACTOR_METHODS:
            x = [i for i, e in enumerate(names) if f"{method}/{e}/10/efflite0" in results.raw]
            cells = [f"{method}/{names[i]}/10/efflite0" for i in x]
            y = [results.estimate(c, "interpolated bacc").value for c in cells]
            axes.plot(x, y, marker="o", label=method)
        local = results.estimate(f"ours: head/{names[0]}/10/efflite0", "local bacc").value
        axes.axhline(local, color="gray", linestyle="--", label="local only")
        axes.set_xticks(list(range(len(names))), names)
        axes.set_xlabel("epsilon of each site, over all rounds")
        axes.set_ylabel("balanced accuracy, interpolated")
        axes.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(out / "federated-factors.svg", metadata={"Date": None})
        plt.close(figure)


def parameters(found: StudySet) -> str:
    """What is trained and what leaves a site, counted from the networks."""
    from locum.nets import plain_cgan, plain_cvae

    rows: list[list[object]] = []
    features, classes = 1280, 10
    if found.file != study_set("cifar10_12k").file:
        train = study_splits(found.name)["train"]
        features, classes = train.dim, len(train.info.class_names)
    for title, d, c, layers in (
        (f"here: {features} features, {classes} classes", features, classes, 3),
        ("the paper's code: 768 features, 11 classes, 3 hidden layers", 768, 11, 3),
        ("the paper's text: 3 linear layers, so 2 hidden ones", 768, 11, 2),
    ):
        cvae, cgan = plain_cvae(d, c, (256,) * layers, 100, sigmoid=True), plain_cgan(d, c)
        size = {
            "CVAE": cvae,
            "its decoder": cvae.decoder,
            "CGAN": cgan,
            "its generator": cgan.generator,
        }
        counts = {k: sum(p.numel() for p in net.parameters()) for k, net in size.items()}
        rows.append(
            [
                title,
                *(f"{n:,}" for n in counts.values()),
                f"{counts['CGAN'] / counts['CVAE']:.2f}",
                f"{counts['its generator'] / counts['its decoder']:.2f}",
                f"{counts['CGAN'] / counts['its decoder']:.2f}",
                f"{c * (d + 1):,}",
            ]
        )
    header = ["networks", "CVAE", "its decoder", "CGAN", "its generator", "CGAN / CVAE", "generator / decoder"]
    return markdown_table([*header, "CGAN / decoder", "a linear head"], rows)
