"""Encounters of diabetes patients: guarantees per encounter and per patient, attacks on both, and the two splits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pat_attacks import NAMES, attacked, budget
from pat_nih import attack_tables
from sklearn.ensemble import HistGradientBoostingClassifier

from locum.data import read_diabetes
from locum.generate.table import CategoryColumn, NumberColumn, PrivateTable, TableDomain, TableLearner, row_weights
from locum.metrics import auc_macro
from locum.recipes import StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
# What is declared about the table is that of the study of private tables.
DOMAIN = Path(__file__).parents[1] / "private_tables" / "diabetes130.json"
LABEL, POSITIVE = "readmitted", "yes"
TARGETS = {"readmitted": "yes", "gender": "Male"}
# Next to no noise: a count is off by less than one.
QUIET = 1e-3
HELD = 0.2


@cache
def domain() -> TableDomain:
    return TableDomain.from_file(DOMAIN)


@cache
def encounters() -> pd.DataFrame:
    """All encounters: the declared columns, and the column `patient`."""
    rows = read_diabetes(data_folder() / "diabetes130")
    rows["readmitted"] = np.where(rows["readmitted"] == "NO", "no", "yes")
    out = rows[list(domain().names)].copy()
    for column in domain().columns:
        out[column.name] = out[column.name].astype(int if isinstance(column, NumberColumn) else str)
    return out.assign(patient=rows["patient"].astype(str))


@cache
def divided(by: str, seed: int) -> npt.NDArray[np.bool_]:
    """Which encounters are held out: a fifth of the patients, or of the encounters."""
    rows = encounters()
    units = rows["patient"].factorize()[0] if by == "patient" else np.arange(len(rows))
    count = int(units.max()) + 1
    return np.isin(units, np.random.default_rng(seed).permutation(count)[: round(HELD * count)])


def features(rows: pd.DataFrame, target: str) -> Floats:
    """Numbers as they are, categories by their code."""
    columns = [c for c in domain().columns if c.name != target]
    parts = [c.codes(rows[c.name]) if isinstance(c, CategoryColumn) else rows[c.name] for c in columns]
    return np.stack([np.asarray(part, dtype=np.float64) for part in parts], axis=1)


def judged(rows: pd.DataFrame, test: pd.DataFrame, target: str, seed: int) -> float:
    """The AUC of boosted trees that learn `target` from `rows`."""
    kinds = [isinstance(c, CategoryColumn) for c in domain().columns if c.name != target]
    model = HistGradientBoostingClassifier(max_iter=100, random_state=seed, categorical_features=kinds)
    value = TARGETS[target]
    model.fit(features(rows, target), (rows[target] == value).to_numpy())
    truth = (test[target] == value).to_numpy().astype(np.int64)
    return auc_macro(truth, model.predict_proba(features(test, target)), np.arange(2))


def utility(config: Mapping[str, Any], name: str, seed: int) -> Mapping[str, float]:
    """The label learned from as many drawn rows as there are training encounters; test patients are others."""
    rows, held = encounters(), divided("patient", seed)
    train, test = rows[~held], rows[held]
    given = train[list(domain().names)]
    drawn = given
    if name == "none":
        learner, codes = TableLearner(domain(), LABEL, QUIET), domain().codes(given)
        while not learner.done:
            learner.take(learner.query.sums(codes, row_weights(len(codes))).to_array())
        drawn = learner.model().sample(len(given), random_state=seed)
    elif name != "real":
        privacy = budget(name, config["delta"])
        assert privacy is not None
        model = PrivateTable(domain(), LABEL, privacy, insecure_seed=seed)
        owners = train["patient"].tolist() if privacy.unit == "subject" else None
        drawn = model.fit(given, owners).sample(len(given), random_state=seed)
    return {"auc": judged(drawn, test, LABEL, seed)}


def split_by(by: str, seed: int) -> Mapping[str, float]:
    """Boosted trees on real encounters, tested on a fifth of the patients or of the encounters."""
    rows, held = encounters(), divided(by, seed)
    train, test = rows[~held], rows[held]
    out = {target: judged(train, test, target, seed) for target in TARGETS}
    return out | {"known patients": float(test["patient"].isin(set(train["patient"])).mean())}


@cache
def vectors(patients: int, seed: int) -> EmbeddingSet:
    """Encounters of some patients as vectors: numbers over their declared range, and 0 or 1 for each category.

    Half of the patients have one encounter, half have more: most of all have one.
    """
    rows, rng = encounters(), np.random.default_rng(seed)
    counts = rows["patient"].value_counts().sort_index()
    chosen: list[str] = []
    for some in (counts.index[counts == 1], counts.index[counts > 1]):
        chosen += rng.permutation(some.to_numpy().astype(str))[: patients // 2].tolist()
    rows = rows[rows["patient"].isin(chosen)]
    parts = []
    for column in domain().columns:
        if column.name == LABEL:
            continue
        if isinstance(column, CategoryColumn):
            parts.append(np.eye(column.cells)[column.codes(rows[column.name])])
        else:
            values = rows[column.name].to_numpy(dtype=np.float64)
            span = max(float(column.edges[-1] - column.edges[0]), 1.0)
            parts.append(((values - column.edges[0]) / span)[:, None])
    X = np.concatenate(parts, axis=1).astype(np.float32)
    return EmbeddingSet.from_arrays(
        X, rows[LABEL].to_numpy().astype(str), subject=rows["patient"].to_numpy().astype(str)
    )


def diabetes_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Utility of tables, attacks on vectors, and the two ways to split."""

    def attack(name: str, by: str, seed: int) -> Mapping[str, float | str]:
        return attacked(config, vectors(config["patients"], seed), name, by, "none", seed)

    out: dict[str, Cell] = {
        f"utility/{name}": partial(utility, config, name) for name in ("real", *config["releases"])
    }
    for name in config["releases"]:
        out |= {f"attack/{name}/by {by}": partial(attack, name, by) for by in ("patient", "record")}
    return out | {f"split/by {by}": partial(split_by, by) for by in ("patient", "record")}


def render_diabetes(results: StudyResults, out: Path) -> str:
    """Utility, attacks, limits, and splits."""
    config = results.config
    words = {**NAMES, "none": "none (the same table model without noise)", "real": "real encounters"}
    rows = [
        [words[name], f"{results.estimate(f'utility/{name}', 'auc'):.3f}"] for name in ("real", *config["releases"])
    ]
    text = [
        "### What a receiver learns (readmitted, AUC on other patients)",
        markdown_table(["guarantee", "AUC"], rows),
    ]
    text += attack_tables(results, list(config["releases"]))
    rows = []
    for target in TARGETS:
        both = [f"{results.estimate(f'split/by {by}', target):.3f}" for by in ("patient", "record")]
        gap = results.difference("split/by record", "split/by patient", target)
        rows.append([target, *both, f"{gap:+.3f}"])
    known = results.estimate("split/by record", "known patients").value
    text.append(
        "### How much too good a test on known patients looks\n\n"
        + markdown_table(["label", "split by patient", "split by encounter", "too good by"], rows)
        + f"\n\nIn a split by encounter {known:.0%} of the test encounters are of a patient with training encounters."
    )
    text.append(
        f"UCI Diabetes 130. Receivers: boosted trees on rows of a private table. Attacks: on ClassGaussian releases "
        f"of encounters as vectors, of {config['patients'] // 2} members among {config['patients']} patients, half "
        f"of whom have more than one encounter. Delta {config['delta']:g}. Means over {len(config['seeds'])} seeds "
        "with 95 % intervals over seeds."
    )
    return "\n\n".join(text)


def diabetes_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    return len(config["seeds"]) * (0.35 * (1 + len(config["releases"])) + 0.2 * len(config["releases"]) + 0.6)
