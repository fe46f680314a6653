"""The study of private tables: its cells are those of its settings, and what it declares fits the data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from locum.generate.table import TableDomain
from locum.recipes import FoundStudy, StudyResults, find_studies

ROOT = Path(__file__).parents[2] / "studies"
METRICS = ("utility_auc", "utility_accuracy", "attacker_auc", "pairs", "alone_attacker_auc", "alone_utility_majority")


def found() -> FoundStudy:
    return find_studies(ROOT)["private-tables"]


def test_every_method_and_epsilon_is_in_the_table(tmp_path: Path) -> None:
    study, rng = found(), np.random.default_rng(0)
    config = study.settings(quick=False)
    cells = study.study.cells(config)
    raw = {
        cell: {str(seed): {m: float(rng.uniform(0.5, 0.9)) for m in METRICS} for seed in config["seeds"]}
        for cell in cells
    }
    text = study.study.render(StudyResults(raw, config, quick=False), tmp_path)
    for words in ("UCI Adult", "Diabetes 130", "private table (ours)", "without noise", "| 3 |", "Delta 1e-06"):
        assert words in text
    assert {"adult/tree-1", "diabetes130/independent-3", "adult/real"} <= set(cells)


def test_declared_domains_and_bins_belong_together() -> None:
    bins = json.loads((ROOT / "private_tables" / "bins.json").read_text())
    for name, label in (("adult", "income"), ("diabetes130", "readmitted")):
        domain = TableDomain.from_file(ROOT / "private_tables" / f"{name}.json")
        assert label in domain.names
        numbers = {column.name: column for column in domain.columns if hasattr(column, "edges")}
        assert set(bins[name]) == set(numbers)
        for column, edges in bins[name].items():
            ends = numbers[column].edges  # type: ignore[union-attr]
            assert (edges[0], edges[-1]) == (ends[0], ends[-1])


def test_the_readme_quotes_the_committed_figures() -> None:
    text = (ROOT / "private_tables" / "README.md").read_text()
    figures = (ROOT / "private_tables" / "results" / "private-tables.md").read_text()
    for quoted in ("0.892 [0.882, 0.901]", "0.669 [0.660, 0.679]", "-0.007 [-0.014, +0.000]", "+0.002, +0.007"):
        assert quoted in text
        assert quoted in figures
