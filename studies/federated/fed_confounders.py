"""Confounders in a federation: sites whose X-rays differ in the view, and what that does to groups of patients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fed_methods import HEAD, Guesses, Method, fedavg, federation, trusted_center
from fed_sets import Array, Deal, xrays

from locum.errors import ConfigError
from locum.metrics import accuracy, balanced_accuracy
from locum.recipes import StudyResults
from locum.recipes.study import Cell, markdown_table
from locum.types import EmbeddingSet

# The share of a kind of patient that goes to its half of the sites.
SKEW = 0.9
TITLES = {
    "sex/by view": "Label sex; half of the sites have 90 % of the patients with mostly AP views",
    "sex/shortcut": "Label sex; at each site the view tells the sex, one way or the other",
    "effusion/shortcut": "Label effusion; at each site the view tells the effusion, one way or the other",
}
COLUMNS = ("bacc", "AP", "PA", "gap of views", "gap of ages", "worst group")
KINDS = ("local", "interpolated", "global")


def methods(balanced: bool) -> dict[str, Method]:
    """Effusion is rare, so its heads weight both classes equally."""
    return {
        "ours: head, epsilon 1": federation(HEAD, 1.0, balanced=balanced),
        "ours: head, epsilon 3": federation(HEAD, 3.0, balanced=balanced),
        "ours: head, no privacy": federation(HEAD, None, balanced=balanced),
        "trusted center, epsilon 1": trusted_center(1.0, balanced=balanced),
        "FedAvg": fedavg(balanced=balanced),
        "FedAvg, epsilon 1": fedavg(epsilon=1.0, balanced=balanced),
    }


def dealt(scenario: str, sites: int, seed: int) -> Deal:
    """Patients dealt out by what most of their images show; all images of a patient are at one site."""
    label, _, how = scenario.partition("/")
    train, test = xrays(label)
    rng = np.random.default_rng(seed)
    assert train.subject is not None
    names, who = np.unique(train.subject, return_inverse=True)
    of_patient = np.bincount(who)
    mostly_ap = np.bincount(who, train.attributes["view"] == "AP") / of_patient > 0.5
    positive = np.bincount(who, train.y) > (0 if label == "effusion" else of_patient / 2)
    if how == "by view":
        first = mostly_ap
    elif how == "shortcut":
        first = mostly_ap == positive
    else:
        raise ConfigError(f"A scenario ends in 'by view' or 'shortcut'; got {scenario!r}.")
    first = np.where(rng.random(len(names)) < SKEW, first, ~first)
    site = rng.integers(sites // 2, size=len(names)) + np.where(first, 0, sites // 2)
    parts = {f"site-{i}": train.take(np.flatnonzero(site[who] == i)) for i in range(sites)}
    return Deal(parts, dict.fromkeys(parts, test), unit="subject")


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per scenario and method."""

    def cell(scenario: str, method: str, seed: int) -> Mapping[str, float]:
        deal = dealt(scenario, config["sites"], seed)
        found = methods(scenario.startswith("effusion"))[method](deal, seed)
        return figures(found, next(iter(deal.test.values())))

    return {f"{s}/{m}": partial(cell, s, m) for s in config["scenarios"] for m in methods(False)}


def figures(found: Guesses, test: EmbeddingSet) -> dict[str, float]:
    """Means over sites: balanced accuracy in all and per group, gaps, and the accuracy of the worst group."""
    out = {"lambda": float(np.median(found.lams))} if found.lams else {}
    for kind in found.sites[0]:
        by_site = [_of(test, site[kind]) for site in found.sites]
        out |= {f"{kind} {k}": float(np.mean([s[k] for s in by_site])) for k in by_site[0]}
    return out


def _of(test: EmbeddingSet, guess: Array) -> dict[str, float]:
    views, old = test.attributes["view"], test.attributes["age"].astype(int) >= 50
    by_view = {v: balanced_accuracy(test.y[views == v], guess[views == v]) for v in ("AP", "PA")}
    by_age = [balanced_accuracy(test.y[old == v], guess[old == v]) for v in (False, True)]
    groups = [(views == v) & (test.y == c) for v in ("AP", "PA") for c in range(2)]
    out = {
        "bacc": balanced_accuracy(test.y, guess),
        **by_view,
        "gap of views": abs(by_view["AP"] - by_view["PA"]),
        "gap of ages": abs(by_age[0] - by_age[1]),
        "worst group": min(accuracy(test.y[g], guess[g]) for g in groups),
    }
    if "sex" in test.attributes:
        sex = test.attributes["sex"]
        by_sex = [balanced_accuracy(test.y[sex == v], guess[sex == v]) for v in np.unique(sex)]
        out["gap of sexes"] = abs(by_sex[0] - by_sex[1])
    return out


def render(results: StudyResults, out: Path) -> str:
    """One table per scenario."""
    text = []
    for scenario in results.config["scenarios"]:
        columns = (*COLUMNS, "gap of sexes") if scenario.startswith("effusion") else COLUMNS
        rows = []
        for method in methods(False):
            cell = f"{scenario}/{method}"
            first = results.raw[cell][str(results.config["seeds"][0])]
            for kind in KINDS:
                if f"{kind} bacc" not in first or (kind == "local" and method != "ours: head, epsilon 1"):
                    continue
                title = "local" if kind == "local" else f"{method}: {kind}"
                rows.append([title, *(_shown(results, cell, f"{kind} {c}") for c in columns)])
        text += [f"## {TITLES[scenario]}", markdown_table(["head", *columns], rows)]
    text.append(
        f"NIH chest X-rays, {results.config['sites']} sites, patients kept together, epsilon per patient; tested on "
        "1,026 images of other patients. AP, PA: balanced accuracy among images of that view. Gaps: difference "
        "between the balanced accuracies of two groups (views; below and from 50 years; sexes), its mean over sites. "
        "Worst group: lowest accuracy among the four combinations of label and view. Means over sites and "
        f"{len(results.config['seeds'])} seeds with 95 % intervals over seeds."
    )
    return "\n\n".join(text)


def _shown(results: StudyResults, cell: str, metric: str) -> str:
    if len(results.config["seeds"]) > 1:
        return f"{results.estimate(cell, metric):.3f}"
    return f"{results.runs(cell, metric)[0]:.3f}"
