"""The tables of the study, their declared domains and bins, and the judges that all methods share."""

from __future__ import annotations

import gzip
import io
import json
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from locum.data import read_adult
from locum.generate.table import CategoryColumn, NumberColumn, TableDomain
from locum.metrics import auc_macro
from locum.recipes.study import data_folder
from locum.types import Unit

Codes = npt.NDArray[np.int64]
HERE = Path(__file__).parent
TITLES = {
    "adult": "UCI Adult, per record (30,162 to learn from, 15,060 to test on)",
    "diabetes130": "UCI Diabetes 130, per patient (57,214 patients to learn from, 14,304 to test on)",
}
# What must stay useful, and what an attacker wants.
LABEL = {"adult": "income", "diabetes130": "readmitted"}
POSITIVE = {"adult": ">50K", "diabetes130": "yes"}
PRIVATE = {"adult": ("sex", "Male"), "diabetes130": ("gender", "Male")}
UNITS: dict[str, Unit] = {"adult": "record", "diabetes130": "subject"}


def domain(name: str) -> TableDomain:
    """What is declared: categories from the codebook, ranges in round numbers."""
    return TableDomain.from_file(HERE / f"{name}.json")


@cache
def bins(name: str) -> TableDomain:
    """The same with few declared bins per number: others get these, and pairs are compared on them."""
    edges = json.loads((HERE / "bins.json").read_text())[name]
    columns = [
        NumberColumn(column.name, tuple(edges[column.name]), column.whole, missing=column.missing)
        if isinstance(column, NumberColumn)
        else column
        for column in domain(name).columns
    ]
    return TableDomain(tuple(columns))


@cache
def table(name: str, part: str) -> pd.DataFrame:
    """The training or test rows; of diabetes130 with the column `patient`, and no patient is in both."""
    if name == "adult":
        rows = read_adult(data_folder() / "adult" / ("adult.data" if part == "train" else "adult.test"))
        return rows[list(domain(name).names)]
    raw = gzip.decompress((data_folder() / "diabetes130" / "diabetic_data.csv.gz").read_bytes())
    # As text: "None" is a value of two columns, and "?" is a missing one.
    rows = pd.read_csv(io.BytesIO(raw), dtype=str, keep_default_na=False).sort_values("encounter_id", key=_numbers)
    rows["readmitted"] = np.where(rows["readmitted"] == "NO", "no", "yes")
    patients = np.unique(rows["patient_nbr"])
    held = np.random.default_rng(0).permutation(patients)[: len(patients) // 5]
    kept = rows[rows["patient_nbr"].isin(held) == (part == "test")].reset_index(drop=True)
    out = kept[list(domain(name).names)].copy()
    for column in domain(name).columns:
        if isinstance(column, NumberColumn):
            out[column.name] = out[column.name].astype(int)
    return out.assign(patient=kept["patient_nbr"])


def _numbers(series: pd.Series) -> pd.Series:
    return series.astype(int)


def records(name: str, part: str) -> pd.DataFrame:
    """The declared columns alone."""
    return table(name, part)[list(domain(name).names)]


def judged(name: str, rows: pd.DataFrame, seed: int) -> dict[str, float]:
    """What boosted trees find: a receiver of the label and an attacker of the sex learn on `rows`, and are tested on
    real ones. And how far all pairs of columns are from those of the training rows."""
    out = {}
    private, value = PRIVATE[name]
    for key, target, positive in (("utility", LABEL[name], POSITIVE[name]), ("attacker", private, value)):
        proba = _learned(name, rows, target, positive, seed)
        truth = (table(name, "test")[target] == positive).to_numpy()
        both = np.stack([1 - proba, proba], axis=1)
        out[f"{key}_auc"] = auc_macro(truth.astype(np.int64), both, np.arange(2))
        out[f"{key}_accuracy"] = float(((proba > 0.5) == truth).mean())
    out["pairs"] = pair_error(name, rows)
    return out


def _learned(name: str, rows: pd.DataFrame, target: str, positive: str, seed: int) -> npt.NDArray[np.float64]:
    features = [column for column in domain(name).columns if column.name != target]
    X, T = (_features(features, part) for part in (rows, table(name, "test")))
    y = (rows[target] == positive).to_numpy()
    if y.all() or not y.any():
        return np.full(len(T), float(y[0]))
    kinds = [isinstance(column, CategoryColumn) for column in features]
    model = HistGradientBoostingClassifier(max_iter=100, random_state=seed, categorical_features=kinds)
    out: npt.NDArray[np.float64] = model.fit(X, y).predict_proba(T)[:, 1]
    return out


def _features(columns: list[Any], rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Numbers as they are, categories by their code."""
    parts = [
        column.codes(rows[column.name]) if isinstance(column, CategoryColumn) else rows[column.name]
        for column in columns
    ]
    return np.stack([np.asarray(part, dtype=np.float64) for part in parts], axis=1)


def pair_error(name: str, rows: pd.DataFrame) -> float:
    """The mean over all pairs of columns of the total variation distance from the training rows, on declared bins."""
    cells, (found, real) = bins(name).cells, (bins(name).codes(part) for part in (rows, records(name, "train")))
    errors = []
    for a, b in combinations(range(len(cells)), 2):
        size = cells[a] * cells[b]
        p, q = (np.bincount(c[:, a] * cells[b] + c[:, b], minlength=size) / len(c) for c in (found, real))
        errors.append(float(np.abs(p - q).sum()) / 2)
    return float(np.mean(errors))


def label_alone(name: str) -> dict[str, float]:
    """The attacker who sees the label alone, and one who always says the same."""
    private, value = PRIVATE[name]
    train, test = records(name, "train"), records(name, "test")
    by_label = (train[private] == value).groupby(train[LABEL[name]]).mean()
    proba = test[LABEL[name]].map(by_label).to_numpy(dtype=np.float64)
    truth = (test[private] == value).to_numpy()
    both = np.stack([1 - proba, proba], axis=1)
    return {
        "attacker_auc": auc_macro(truth.astype(np.int64), both, np.arange(2)),
        "attacker_accuracy": float(((proba > 0.5) == truth).mean()),
        "majority": float(max(truth.mean(), 1 - truth.mean())),
        "utility_majority": float(max((test[LABEL[name]] == POSITIVE[name]).mean(),
                                      (test[LABEL[name]] != POSITIVE[name]).mean())),
    }  # fmt: skip
