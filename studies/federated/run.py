"""Training together: the federated paper with its true epsilon, our one-shot modes, and baselines."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import PoissonGaussian, epsilon_of, plan_sgd
from locum.data import load_reference, partition_dirichlet, partition_iid, read_embeddings, stratified_split
from locum.federated import FederationSettings, fit_personal, merge_releases, simulate
from locum.federated.baselines import federated_head, scores
from locum.federated.personal import pick_lambda
from locum.federated.site_file import SiteRecords
from locum.generate import CGANGenerator, ClassGaussian
from locum.heads import LinearHead
from locum.metrics import accuracy, balanced_accuracy, entropic_wasserstein, f1, mean_interval
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.release import load
from locum.types import DP, EmbeddingSet

Array = npt.NDArray[Any]
Parts = Mapping[str, EmbeddingSet]
# File, number of sites, partition, and records per site (0: all there are).
SETS: dict[str, tuple[str, int, str, int]] = {
    "cifar-iid": ("cifar10_12k_efflite0.npz", 10, "iid", 0),
    "cifar-dirichlet": ("cifar10_12k_efflite0.npz", 10, "dirichlet", 0),
    "pneumonia": ("pneumoniamnist_efflite0.npz", 5, "iid", 0),
    "low-10": ("cifar10_12k_efflite0.npz", 10, "iid", 100),
    "low-50": ("cifar10_12k_efflite0.npz", 50, "iid", 100),
    "low-pneumonia": ("pneumoniamnist_efflite0.npz", 5, "iid", 100),
}
TITLES = {
    "cifar-iid": "CIFAR-10, 10 sites of 1,000, alike",
    "cifar-dirichlet": "CIFAR-10, 10 sites, Dirichlet 0.3",
    "pneumonia": "PneumoniaMNIST, 5 sites, alike",
    "low-10": "CIFAR-10, 10 sites of 100",
    "low-50": "CIFAR-10, 50 sites of 100",
    "low-pneumonia": "PneumoniaMNIST, 5 sites of 100",
}
# The federated paper's network, rounds and batches; vectors are scaled by public statistics (faults F6, F7).
PAPER: dict[str, Any] = {
    "initial_query": "public",
    "beta": 0.1,
    "rounds": 50,
    "local_epochs": 5,
    "batch": 256,
    "clip": 1.5,
}
# Ours with a guarantee: the settings of the preset "private", in five rounds.
OURS: dict[str, Any] = {
    "initial_query": "class",
    "hidden": (256,),
    "latent": 32,
    "beta": 1.0,
    "rounds": 5,
    "local_epochs": 4,
    "batch": 2048,
    "clip": 1.0,
    "learning_rate": 5e-3,
}
DELTA = 1e-4
HEADS = ("interpolated", "global", "local")


def dealt(
    name: str, seed: int, sites: int | None = None, backbone: str = "efflite0"
) -> tuple[dict[str, EmbeddingSet], EmbeddingSet | None]:
    """The records of each site, the same for all methods of a seed; for small sites also common test records."""
    file, count, how, each = SETS[name]
    count, rng = sites or count, np.random.default_rng(seed)
    data = read_embeddings(data_folder() / file, "train") if backbone == "efflite0" else embedded(backbone)
    test = None
    if each:
        some = stratified_split(data, {"train": count * each, "test": min(3000, len(data) - count * each)}, rng=rng)
        data, test = some["train"], some["test"]
    if how == "dirichlet":
        return partition_dirichlet(data, count, 0.3, rng, min_records=20), test
    return partition_iid(data, count, rng), test


@cache
def embedded(backbone: str) -> EmbeddingSet:
    """CIFAR-10 through another backbone; vectors are cached in `out/`."""
    from locum.embed import embed_images

    folder = Path("out/federated-factors")
    folder.mkdir(parents=True, exist_ok=True)
    with embed_images(data_folder() / "cifar10_12k.npz", backbone, cache=folder / f"{backbone}.sqlite") as found:
        return found.sets()["train"]


def budget_of(parts: Parts, epsilon: float) -> DP:
    """Each site declares the mean number of training records, rounded down to tens."""
    n = max(10, 10 * int(0.08 * float(np.mean([len(p) for p in parts.values()]))))
    return DP(epsilon, min(DELTA, 1 / (10 * n)), n_public=n)


def published(parts: Parts) -> float:
    """What the paper's noise really costs: calibrated to epsilon 1 for 20 passes, used for 250."""
    budget = budget_of(parts, 1.0)
    short = plan_sgd(budget, batch=256, epochs=20)
    steps = PAPER["rounds"] * max(1, round(PAPER["local_epochs"] * budget.size() / short.batch))
    return epsilon_of([PoissonGaussian(short.rate, short.noise_multiplier, steps)], budget.delta, budget.relation)


def summary(
    found: Sequence[Mapping[str, Mapping[str, float]]], lams: Sequence[float], **more: float
) -> dict[str, Any]:
    """Means over sites, and every site's balanced accuracy for pairing."""
    out: dict[str, Any] = {"lambda": float(np.median(lams)), **more}
    for kind in found[0]:
        for metric in ("acc", "bacc", "f1"):
            out[f"{kind} {metric}"] = float(np.mean([site[kind][metric] for site in found]))
        out[f"{kind} sites"] = json.dumps([round(site[kind]["bacc"], 6) for site in found])
    return out


def scored(y: Array, guess: Array) -> dict[str, float]:
    return {"acc": accuracy(y, guess), "bacc": balanced_accuracy(y, guess), "f1": f1(y, guess)}


def federation(
    settings: Mapping[str, Any],
    epsilon: float | None,
    validation: bool,
    parts: Parts,
    test: EmbeddingSet | None,
    seed: int,
    reference: str = "efflite0",
) -> dict[str, Any]:
    """A simulation with the code of a real run."""
    first = next(iter(parts.values()))
    terms = FederationSettings(
        classes=first.info.class_names, dim=first.dim, reference=reference, seed=seed, **settings
    )
    privacy = None if epsilon is None else budget_of(parts, epsilon)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        found = simulate(
            parts, terms, privacy, out=work / "out", work=work / "sites", seed=seed, validation=validation, test=test
        )
        release = load(found.release)
    by_site = [{"interpolated": {"acc": s.acc.value, "bacc": s.bacc, "f1": s.f1}, **s.alone} for s in found.sites]
    real = np.concatenate([p.X for p in parts.values()])
    rng = np.random.default_rng(0)
    some = real[rng.choice(len(real), min(500, len(real)), replace=False)]
    distance = entropic_wasserstein(some, release.sample(500, random_state=0)[0])
    spent = found.sites[0].epsilon_spent
    return summary(
        by_site,
        [s.lam for s in found.sites],
        wasserstein=float(getattr(distance, "value", distance)),
        **({} if spent is None else {"epsilon": spent}),
    )


def alone(kind: str, parts: Parts, common: EmbeddingSet | None, seed: int) -> dict[str, Any]:
    """Baselines that share a head, a mixture, or nothing at all."""
    first = next(iter(parts.values()))
    classes, reference = len(first.info.class_names), load_reference("efflite0", first.dim)
    train, test = list(parts.values()), [common] * len(parts)
    if common is None:
        shares = {"test": 0.2, "train": 0.8}
        split = [stratified_split(p, shares, rng=np.random.default_rng([seed, i])) for i, p in enumerate(train)]
        train, test = [s["train"] for s in split], [s["test"] for s in split]
    pooled = (np.concatenate([t.X for t in train]), np.concatenate([t.y for t in train]))
    budget = budget_of(parts, 1.0)
    if kind == "centralized":
        head = LinearHead(random_state=seed).fit(*pooled)
        found = [{"global": scored(t.y, head.predict(t.X))} for t in test]
        return summary(found, [0.0])
    if kind in ("centralized, epsilon 1", "DP-CGAN, mixture"):
        if kind.startswith("central"):
            size = budget.size() * len(train)
            budget = DP(1.0, min(DELTA, 1 / (10 * size)), n_public=size)
            model = ClassGaussian(
                privacy=budget,
                classes=list(range(classes)),
                reference="efflite0",
                insecure_seed=seed,
                random_state=seed,
            )
            release = model.fit(*pooled).release()
        else:
            fitted = [
                CGANGenerator(
                    privacy=budget,
                    classes=list(range(classes)),
                    reference="efflite0",
                    insecure_seed=1000 * seed + i,
                    random_state=seed,
                ).fit(t.X, t.y)
                for i, t in enumerate(train)
            ]
            release = merge_releases([m.release() for m in fitted])
        return personal(release, train, test, seed)
    whiten, settings = True, {"rounds": 20}
    if kind.endswith("as in the paper"):
        whiten, settings = False, {"rounds": 50}
    if kind.startswith("FedProx"):
        settings |= {"proximal": 0.05}
    if kind.endswith("epsilon 1"):
        settings = {"rounds": 10, "privacy": budget}
    shared = federated_head(train, classes, reference, whiten=whiten, seed=seed, **settings)
    by_site, lams = [], []
    for mine, other in zip(train, test, strict=True):
        theirs = scores(shared, other.X, reference, whiten=whiten)
        found = {"global": scored(other.y, theirs.argmax(axis=1))}
        if kind.startswith("FedLambda"):
            ours, lam = _interpolated(mine, shared, reference, whiten, classes, seed)
            lams.append(lam)
            found["interpolated"] = scored(other.y, (lam * ours(other.X) + (1 - lam) * theirs).argmax(axis=1))
        by_site.append(found)
    return summary(by_site, lams or [0.0])


def personal(release: Any, train: Sequence[EmbeddingSet], test: Sequence[EmbeddingSet], seed: int) -> dict[str, Any]:
    """The two heads of each site, given a common release."""
    by_site, lams = [], []
    for mine, other in zip(train, test, strict=True):
        model = fit_personal(release, SiteRecords(mine), seed=seed)
        lams.append(model.lam)
        by_site.append(
            {k: scored(other.y, model.predict(other.X, v)) for k, v in zip(HEADS, (None, 0.0, 1.0), strict=True)}
        )
    return summary(by_site, lams)


def _interpolated(
    mine: EmbeddingSet, shared: Any, reference: Any, whiten: bool, classes: int, seed: int
) -> tuple[Callable[[Array], Array], float]:
    """A site's own head, and the lambda by five folds; only classes that it has seen get a probability."""
    from sklearn.model_selection import KFold

    def fitted(rows: Array) -> Callable[[Array], Array]:
        head = LinearHead(
            batch_size=len(rows), max_epochs=100, weight_decay=5e-4, patience=None, random_state=seed
        ).fit(mine.X[rows], mine.y[rows])

        def proba(X: Array) -> Array:
            out = np.zeros((len(X), classes))
            out[:, head.classes_] = head.predict_proba(X)
            return out

        return proba

    ours = np.empty((len(mine), classes))
    for a, b in KFold(5, shuffle=True, random_state=seed).split(mine.X):
        ours[b] = fitted(a)(mine.X[b])
    theirs, rows = scores(shared, mine.X, reference, whiten=whiten), np.arange(len(mine))
    return fitted(rows), pick_lambda(ours, theirs, mine.y)


FEDERATIONS: dict[str, tuple[dict[str, Any], float | str | None, bool]] = {
    "the paper, its noise": (PAPER, "published", True),
    "the paper, epsilon 1": (PAPER, 1.0, True),
    "the paper, no privacy": (PAPER, None, True),
    "ours: decoders, epsilon 1": (OURS, 1.0, False),
    "ours: sums, epsilon 1": ({"mode": "sums"}, 1.0, False),
    "ours: masked sums, epsilon 1": ({"mode": "sums", "secure": True}, 1.0, False),
    "ours: sums, no privacy": ({"mode": "sums"}, None, False),
}
BASELINES = (
    "FedAvg",
    "FedAvg, as in the paper",
    "FedProx",
    "FedLambda",
    "FedAvg, epsilon 1",
    "FedLambda, epsilon 1",
    "DP-CGAN, mixture",
    "centralized",
    "centralized, epsilon 1",
)
BEST = "ours: masked sums, epsilon 1"


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per set and method; local-only is part of every federation, as lambda 1."""

    def federated(name: str, method: str, seed: int) -> Mapping[str, float | str]:
        parts, test = dealt(name, seed)
        settings, epsilon, validation = FEDERATIONS[method]
        spent = published(parts) if epsilon == "published" else epsilon
        if "rounds" in settings and settings is PAPER:
            settings = settings | {"rounds": config["paper_rounds"]}
        return federation(settings, spent, validation, parts, test, seed)  # type: ignore[arg-type]

    def baseline(name: str, method: str, seed: int) -> Mapping[str, float | str]:
        return alone(method, *dealt(name, seed), seed)

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out |= {f"{name}/{method}": partial(federated, name, method) for method in FEDERATIONS}
        out |= {f"{name}/{method}": partial(baseline, name, method) for method in BASELINES}
    return {name: cell for name, cell in out.items() if not name.startswith(tuple(config["without"]))}


def render(results: StudyResults, out: Path) -> str:
    """One table per set, then pairs of sites and seeds."""
    text = []
    columns = ["interpolated acc", "interpolated bacc", "interpolated f1", "global bacc", "local bacc", "lambda"]
    columns += ["wasserstein", "epsilon"]
    for name in results.config["sets"]:
        rows = []
        for method in [m for m in (*FEDERATIONS, *BASELINES) if f"{name}/{m}" in results.raw]:
            known = results.raw[f"{name}/{method}"][str(results.config["seeds"][0])]
            shown = [
                f"{results.estimate(f'{name}/{method}', c):.3f}"
                if c in known and len(results.config["seeds"]) > 1
                else f"{known[c]:.3f}"
                if c in known
                else "-"
                for c in columns
            ]
            rows.append([method, *shown])
        text += [f"## {TITLES[name]}", markdown_table(["method", *columns], rows)]
        text.append(_pairs(results, name))
    text.append(
        f"Means over sites and {len(results.config['seeds'])} seeds, with 95 % intervals over seeds. bacc: mean "
        "accuracy over classes, on a fifth of each site's records, or, for sites of 100, on 3,000 others. "
        "Interpolated: the share lambda from the site's own head, the rest from the global one; local: lambda 1, "
        f"that is local-only; global: lambda 0. epsilon: the cost of a real run at delta {DELTA:g} (or a tenth of "
        "one record), for each site over all rounds."
    )
    return "\n\n".join(text)


def _pairs(results: StudyResults, name: str) -> str:
    """Differences of balanced accuracy, site by site and seed by seed."""
    if f"{name}/{BEST}" not in results.raw:
        return ""

    def sites(method: str, kind: str) -> Array:
        return np.concatenate([json.loads(t) for t in results.texts(f"{name}/{method}", f"{kind} sites")])

    ours, rows, first = sites(BEST, "interpolated"), [], str(results.config["seeds"][0])
    others = [("local only", BEST, "local")]
    others += [(m, m, "interpolated") for m in FEDERATIONS if m != BEST and f"{name}/{m}" in results.raw]
    others += [
        (m, m, "interpolated" if "interpolated sites" in results.raw[f"{name}/{m}"][first] else "global")
        for m in BASELINES
        if f"{name}/{m}" in results.raw
    ]
    for title, method, kind in others:
        found = mean_interval(ours - sites(method, kind))
        word = " (tie)" if found.low <= 0 <= found.high else ""
        rows.append([title, f"{found:+.3f}{word}"])
    table = markdown_table([f"{BEST}, interpolated bacc, minus", "difference"], rows)
    return (
        f"{table}\n\nPaired over {len(ours)} pairs of site and seed. Sites of one seed share the global head, and "
        "sites of 100 their test records: intervals would be wider for independent pairs."
    )


CENTER = ("1", "10", "efflite0")
# For each method its federation with a guarantee; without one, noise is off and nothing else changes.
FACTOR_METHODS = {
    "the paper": "the paper, epsilon 1",
    "ours: sums": "ours: sums, epsilon 1",
    "ours: masked sums": BEST,
}


def factor_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One factor at a time around sites of 100 records: epsilon, number of sites, backbone."""

    def cell(method: str, epsilon: str, sites: str, backbone: str, seed: int) -> Mapping[str, float | str]:
        settings, _, validation = FEDERATIONS[FACTOR_METHODS[method]]
        if settings is PAPER:
            settings = settings | {"rounds": config["paper_rounds"]}
        parts, test = dealt("low-10", seed, int(sites), backbone)
        budget = None if epsilon == "inf" else float(epsilon)
        return federation(settings, budget, validation, parts, test, seed, backbone)

    out: dict[str, Cell] = {}
    for method in FACTOR_METHODS:
        for epsilon in config["epsilons"]:
            out[f"{method}/{epsilon}/10/efflite0"] = partial(cell, method, epsilon, *CENTER[1:])
        if method not in config["epsilon_only"]:
            for sites in config["sites"]:
                out[f"{method}/1/{sites}/efflite0"] = partial(cell, method, "1", sites, "efflite0")
            for backbone in config["backbones"]:
                out[f"{method}/1/10/{backbone}"] = partial(cell, method, "1", "10", backbone)
    return out


def factor_render(results: StudyResults, out: Path) -> str:
    """A table per factor, the curve of balanced accuracy by epsilon, and the parameters."""
    text = []
    for place, (title, key) in enumerate((("epsilon", "epsilons"), ("sites", "sites"), ("backbone", "backbones"))):
        rows = []
        for method in FACTOR_METHODS:
            values = [list(CENTER) for _ in results.config[key]]
            for where, value in zip(values, results.config[key], strict=True):
                where[place] = value
            names = ["/".join([method, *where]) for where in values]
            if not all(name in results.raw for name in names):
                continue
            for kind in ("interpolated", "global"):
                rows.append([f"{method}, {kind}", *(f"{results.estimate(n, f'{kind} bacc'):.3f}" for n in names)])
            rows.append([f"{method}, lambda", *(f"{results.estimate(n, 'lambda'):.2f}" for n in names)])
            local = [f"{results.estimate(n, 'local bacc'):.3f}" for n in names]
            if method in ("the paper", "ours: masked sums"):
                rows.append([f"{method}, local", *local])
        text += [f"## By {title}", markdown_table([f"balanced accuracy by {title}", *results.config[key]], rows)]
    _draw_epsilons(results, out)
    text.append("![balanced accuracy by epsilon](federated-factors.svg)")
    text += ["## Parameters", _parameters()]
    text.append(
        f"Around {CENTER[1]} sites of 100 records, epsilon {CENTER[0]}, {CENTER[2]}; means over sites and "
        f"{len(results.config['seeds'])} seeds with 95 % intervals over seeds; tested on 3,000 other records. The "
        f"paper runs {results.config['paper_rounds']} rounds. inf: noise off, nothing else changed."
    )
    return "\n\n".join(text)


def _draw_epsilons(results: StudyResults, out: Path) -> None:
    """Privacy against utility: balanced accuracy of each method by epsilon; local-only needs none."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, x = results.config["epsilons"], range(len(results.config["epsilons"]))
    with plt.rc_context({"svg.hashsalt": "locum"}):
        figure, axes = plt.subplots(figsize=(6.4, 3.8))
        for method in FACTOR_METHODS:
            found = [results.estimate(f"{method}/{e}/10/efflite0", "interpolated bacc") for e in names]
            axes.plot(x, [f.value for f in found], marker="o", label=method)
        local = results.estimate(f"ours: masked sums/{names[0]}/10/efflite0", "local bacc").value
        axes.axhline(local, color="gray", linestyle="--", label="local only")
        axes.set_xticks(list(x), names)
        axes.set_xlabel("epsilon of each site, over all rounds")
        axes.set_ylabel("balanced accuracy, interpolated")
        axes.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(out / "federated-factors.svg", metadata={"Date": None})
        plt.close(figure)


def _parameters() -> str:
    """What is trained and what leaves a site, counted from the networks at ten classes and 1280 features."""
    from locum.federated.terms import requested_sums
    from locum.generate.private import query_sums
    from locum.nets import plain_cvae

    one, terms = np.zeros((1, 1280)), FederationSettings(tuple(map(str, range(10))), 1280, mode="sums")
    sums = query_sums(one, np.zeros(1, int), None, 10, load_reference("efflite0", 1280), requested_sums(terms))
    rows: list[list[object]] = []
    for title, hidden, latent in (("the paper", (256,) * 3, 100), ("ours: decoders", OURS["hidden"], OURS["latent"])):
        net = plain_cvae(1280, 10, hidden, latent, sigmoid=False)
        whole = sum(p.numel() for p in net.parameters())
        leaves = sum(p.numel() for p in net.decoder.parameters())
        rows.append([title, f"{whole:,}", f"{leaves:,}"])
    rows.append(["ours: sums, masked or not", "none", f"{len(sums):,}, once"])
    rows.append(["a linear head (FedAvg)", f"{10 * 1281:,}", f"{10 * 1281:,}"])
    return markdown_table(["method", "parameters trained at a site", "numbers that leave per round"], rows)


STUDIES: dict[str, Study] = {
    "federated-results": Study("Training together", cells, render),
    "federated-factors": Study("Training together, one factor at a time", factor_cells, factor_render),
}
