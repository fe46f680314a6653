"""Rare classes in a federation: what they gain from joining, and what the noise costs them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fed_methods import HEAD, SUMS, Guesses, Method, fedavg, federation, trusted_center
from fed_sets import Deal

from locum.data import partition_dirichlet, partition_iid
from locum.metrics import accuracy, balanced_accuracy
from locum.recipes import StudyResults, study_splits
from locum.recipes.study import Cell, markdown_table

# A tenth of one of 12,406 records would be 8e-6.
DELTA = 1e-6
TAIL, FRONT = (7, 8, 9), (0, 1, 2)
KINDS = ("local", "interpolated", "global")


def methods() -> dict[str, Method]:
    """With and without heads that weight all classes equally."""
    out: dict[str, Method] = {
        "FedAvg": fedavg(),
        "FedAvg, balanced": fedavg(balanced=True),
        "FedAvg, epsilon 1": fedavg(epsilon=1.0),
        "trusted center, epsilon 1": trusted_center(1.0),
    }
    for epsilon in (1.0, 3.0, None):
        title = "no privacy" if epsilon is None else f"epsilon {epsilon:g}"
        out[f"ours: head, {title}"] = federation(HEAD, epsilon)
        out[f"ours: head, {title}, balanced"] = federation(HEAD, epsilon, balanced=True)
        out[f"ours: masked sums, {title}, balanced"] = federation(SUMS, epsilon, balanced=True)
    return out


def dealt(name: str, how: str, sites: int, seed: int) -> Deal:
    """CIFAR-10 with classes of 5,000 down to 50 records, at sites that are alike or differ."""
    rng, splits = np.random.default_rng(seed), study_splits(name)
    train, test = splits["train"], splits["test"]
    if how == "dirichlet":
        parts = partition_dirichlet(train, sites, 0.3, rng, min_records=50)
    else:
        parts = partition_iid(train, sites, rng)
    return Deal(parts, dict.fromkeys(parts, test), delta=DELTA)


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per partition and method."""
    known = methods()

    def cell(how: str, method: str, seed: int) -> Mapping[str, float]:
        deal = dealt(config["set"], how, config["sites"], seed)
        return figures(known[method](deal, seed), deal)

    return {f"{how}/{m}": partial(cell, how, m) for how in config["partitions"] for m in known}


def figures(found: Guesses, deal: Deal) -> dict[str, float]:
    """Accuracies of every head: all classes, frequent ones, and rare ones where a site has them or not."""
    test = next(iter(deal.test.values()))
    counts = np.array([np.bincount(p.y, minlength=10) for p in deal.train.values()])
    out = {"lambda": float(np.median(found.lams))} if found.lams else {}
    out["sites without a rare class"] = float((counts[:, TAIL] == 0).mean())
    for kind in found.sites[0]:
        guesses = [site[kind] for site in found.sites]
        recall = np.array([[accuracy(test.y[test.y == c], g[test.y == c]) for c in range(10)] for g in guesses])
        out[f"{kind} bacc"] = float(np.mean([balanced_accuracy(test.y, g) for g in guesses]))
        out[f"{kind} front"] = float(recall[:, FRONT].mean())
        out[f"{kind} tail"] = float(recall[:, TAIL].mean())
        rare, has = recall[:, TAIL], counts[:, TAIL] > 0
        out[f"{kind} tail, seen"] = float(rare[has].mean())
        if (~has).any():
            out[f"{kind} tail, unseen"] = float(rare[~has].mean())
    return out


def render(results: StudyResults, out: Path) -> str:
    """One table per partition."""
    text = []
    titles = {"iid": "10 sites, alike", "dirichlet": "10 sites, Dirichlet 0.3"}
    columns = ("bacc", "front", "tail", "tail, seen", "tail, unseen")
    for how in results.config["partitions"]:
        rows = []
        for method in methods():
            cell = f"{how}/{method}"
            first = results.raw[cell][str(results.config["seeds"][0])]
            for kind in KINDS:
                # The local head is the same with and without noise elsewhere.
                alone = ("ours: head, epsilon 1", "ours: head, epsilon 1, balanced")
                if f"{kind} bacc" not in first or (kind == "local" and method not in alone):
                    continue
                title = f"local{', balanced' * ('balanced' in method)}" if kind == "local" else f"{method}: {kind}"
                rows.append([title, *(_shown(results, cell, f"{kind} {c}") for c in columns)])
        share = results.estimate(f"{how}/FedAvg", "sites without a rare class").value
        text += [
            f"## {titles[how]}",
            markdown_table(["head", *columns], sorted(rows, key=lambda r: not str(r[0]).startswith("local"))),
            f"Pairs of site and rare class without a record: {share:.0%}.",
        ]
    text.append(
        "CIFAR-10 with 5,000 down to 50 records per class, 12,406 in all, tested on 300 others per class. Mean "
        "accuracy over all classes, the three most frequent (front) and the three rarest (tail); tail also over the "
        "pairs of site and class where the site has records of the class (seen) or none. "
        f"Delta {DELTA:g}; means over sites and {len(results.config['seeds'])} seeds with 95 % intervals over seeds. "
        "Balanced: heads that weight all classes equally (FedAvg: the class frequencies of all sites are taken off "
        "the scores, which a guarantee would have to pay for)."
    )
    return "\n\n".join(text)


def _shown(results: StudyResults, cell: str, metric: str) -> str:
    if metric not in results.raw[cell][str(results.config["seeds"][0])]:
        return "-"
    if len(results.config["seeds"]) > 1 and all(metric in run for run in results.raw[cell].values()):
        return f"{results.estimate(cell, metric):.3f}"
    return f"{results.raw[cell][str(results.config['seeds'][0])][metric]:.3f}"
