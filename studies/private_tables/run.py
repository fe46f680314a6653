"""Private tables: what boosted trees learn from sampled rows, and how far pairs of columns are off, beside others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from table_sets import LABEL, PRIVATE, TITLES, UNITS, bins, domain, judged, label_alone, records, table

from locum.generate.table import LabelTree, PrivateTable, TableDomain, TableLearner, TableModel, row_weights
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, markdown_table
from locum.types import DP

# Next to no noise: a count is off by less than one.
QUIET = 1e-3
BASELINES = {"mst": "OpenDP, MST", "aim": "OpenDP, AIM"}
FIGURES = Path(__file__).parent / "results" / "opendp.json"


def fitted(name: str, given: TableDomain, epsilon: float, delta: float, rows: int, seed: int) -> PrivateTable:
    """A private table. The insecure seed makes figures reproducible; the noise is distributed the same."""
    unit = UNITS[name]
    model = PrivateTable(
        given, LABEL[name], DP(epsilon, delta, unit), rows_per_subject=rows if unit == "subject" else 1,
        insecure_seed=seed,
    )  # fmt: skip
    return model.fit(records(name, "train"), table(name, "train")["patient"].tolist() if unit == "subject" else None)


def without_noise(name: str, seed: int, *, tree: bool) -> TableModel:
    """Our structure from counts without noise; or columns that are independent given the label."""
    given = domain(name)
    codes = given.codes(records(name, "train"))
    learner, weights = TableLearner(given, LABEL[name], QUIET), row_weights(len(codes))
    while not learner.done:
        learner.take(learner.query.sums(codes, weights).to_array())
    return learner.model() if tree else independent(learner.model())


def independent(model: TableModel) -> TableModel:
    """The same distribution of each column given the label, without the tree."""
    label = model.label
    held = LabelTree(model.parents, model.conditionals, label)
    parts = [part.sum(axis=1, keepdims=True) for part in held.marginals()]
    alone = tuple(
        np.broadcast_to(part / part.sum(axis=2, keepdims=True), old.shape).copy()
        for part, old in zip(parts, model.conditionals, strict=True)
    )
    return TableModel(
        model.domain, model.utility, model.parents, model.groups, label, alone, model.within, model.count
    )


def judged_baselines(config: Mapping[str, Any], name: str, epsilon: float) -> list[str]:
    """Those with figures for every seed; they are drawn in another environment, by `opendp_tables.py`."""
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    wanted = {str(seed) for seed in config["seeds"]}
    return [kind for kind in config["baselines"] if wanted <= set(known.get(f"{name}/{kind}-{epsilon:g}", {}))]


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Real rows, models without noise, and each method at each epsilon."""
    delta, rows = config["delta"], config["rows_per_subject"]

    def real(name: str, seed: int) -> Mapping[str, float]:
        return judged(name, records(name, "train"), seed) | {f"alone_{k}": v for k, v in label_alone(name).items()}

    def open_(name: str, tree: bool, seed: int) -> Mapping[str, float]:
        model = without_noise(name, seed, tree=tree)
        return judged(name, model.sample(len(records(name, "train")), random_state=seed), seed)

    def private(name: str, kind: str, epsilon: float, seed: int) -> Mapping[str, float]:
        given = bins(name) if kind == "bins" else domain(name)
        model = fitted(name, given, epsilon, delta, rows, seed).model_
        model = independent(model) if kind == "independent" else model
        return judged(name, model.sample(len(records(name, "train")), random_state=seed), seed)

    def baseline(name: str, kind: str, epsilon: float, seed: int) -> Mapping[str, float]:
        figures: dict[str, float] = json.loads(FIGURES.read_text())[f"{name}/{kind}-{epsilon:g}"][str(seed)]
        return figures

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        out[f"{name}/real"] = partial(real, name)
        out[f"{name}/tree-open"] = partial(open_, name, True)
        out[f"{name}/independent-open"] = partial(open_, name, False)
        for epsilon in config["epsilons"]:
            for kind in ("tree", "bins", "independent"):
                out[f"{name}/{kind}-{epsilon:g}"] = partial(private, name, kind, epsilon)
            for kind in judged_baselines(config, name, epsilon):
                out[f"{name}/{kind}-{epsilon:g}"] = partial(baseline, name, kind, epsilon)
    return out


ROWS = {
    "tree": "private table (ours)",
    "bins": "private table (ours), on the bins of the baselines",
    "independent": "the same, columns independent given the label",
    **BASELINES,
}
METRICS = {
    "utility_auc": "label, AUC",
    "utility_accuracy": "label, accuracy",
    "attacker_auc": "sex, AUC",
    "pairs": "error of pairs",
}


def render(results: StudyResults, out: Path) -> str:
    """For each set one table, and the differences of ours from each other method."""
    config, known, text = results.config, set(results.raw), []
    for name in config["sets"]:
        text.append(f"## {TITLES[name]}")

        def row(words: str, epsilon: str, cell: str) -> list[str]:
            return [words, epsilon, *(f"{results.estimate(cell, metric):.3f}" for metric in METRICS)]

        rows = [
            row("real rows", "", f"{name}/real"),
            row("tree, without noise", "none", f"{name}/tree-open"),
            row("independent given the label, without noise", "none", f"{name}/independent-open"),
        ]
        kinds = {
            epsilon: [
                "tree",
                "bins",
                "independent",
                *(k for k in config["baselines"] if f"{name}/{k}-{epsilon:g}" in known),
            ]
            for epsilon in config["epsilons"]
        }
        for epsilon in config["epsilons"]:
            rows += [row(ROWS[kind], f"{epsilon:g}", f"{name}/{kind}-{epsilon:g}") for kind in kinds[epsilon]]
        text.append(markdown_table(["rows to learn from", "epsilon", *METRICS.values()], rows))
        alone = {
            k: results.estimate(f"{name}/real", f"alone_{k}").value for k in ("attacker_auc", "utility_majority")
        }
        text.append(
            f"Who sees the label alone guesses {PRIVATE[name][0]} with an AUC of {alone['attacker_auc']:.3f}; the "
            f"most frequent label is right in {alone['utility_majority']:.3f}."
        )
        gaps = []
        for epsilon in config["epsilons"]:
            for kind in kinds[epsilon][1:]:
                pair = (f"{name}/tree-{epsilon:g}", f"{name}/{kind}-{epsilon:g}")
                shown = [f"{results.difference(*pair, metric):+.3f}" for metric in METRICS]
                gaps.append([ROWS[kind], f"{epsilon:g}", *shown])
        text.append(markdown_table(["ours minus, paired by seed", "epsilon", *METRICS.values()], gaps))
    text.append(
        f"Boosted trees learn on as many sampled rows as there are training rows, and are tested on real test rows. "
        f"Error of pairs: mean total variation distance over all pairs of columns from the training rows, on "
        f"declared bins. Delta {config['delta']:g}, {len(config['seeds'])} seeds, 95 % intervals over seeds."
    )
    return "\n\n".join(text)


STUDIES = {
    "private-tables": Study(
        "Tables with a guarantee, beside simpler ones and OpenDP's",
        cells,
        render,
        sets="Its tables have public domains that were written by hand; `locum obfuscate` takes others.",
    )
}
