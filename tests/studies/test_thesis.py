"""The studies of the thesis, cut down to one seed and two epochs: cells run, tables and figures come out."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from locum.data import read_splits
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.recipes import FoundStudy, StudyResults, find_studies, render_study, run_study

ROOT = Path(__file__).parents[2] / "studies"


def tiny(name: str) -> FoundStudy:
    return replace(find_studies(ROOT)[name], config={"seeds": [0], "epochs": {"breastmnist": 2}})


@pytest.fixture(scope="module")
def table9(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResults, Path]:
    out = tmp_path_factory.mktemp("table9")
    return run_study(tiny("thesis-table9"), quick=False, out=out), out


@pytest.fixture(scope="module")
def fig12(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResults, Path]:
    out = tmp_path_factory.mktemp("fig12")
    return run_study(tiny("thesis-fig12"), quick=False, out=out), out


def test_table9_scores_every_row_both_ways(table9: tuple[StudyResults, Path]) -> None:
    results, out = table9
    for row in results.raw.values():
        for metric, value in row["0"].items():
            assert metric.split("/")[0] in ("own", "real")
            assert -1 <= value <= 1
    # Malignant is the rarer class: guessing "benign" for all has a kappa of 0.
    assert results.estimate("breastmnist/real", "own/cohen_kappa").value > 0.4
    text = (out / "thesis-table9.md").read_text()
    assert "| TissueMNIST | 0.635 / 0.550 |" in text
    # PathMNIST loses least and TissueMNIST most accuracy, DermaMNIST most agreement: 93.61 - 92.72, 63.47 - 55.02.
    assert "over its eight sets | -0.085 to -0.009 | -0.112 to -0.010 | -0.208 to -0.011 |" in text


def test_a_stand_in_has_the_class_counts_of_the_records(real_data: Path) -> None:
    released = sys.modules[tiny("thesis-table9").study.cells.__module__].released
    train = read_splits(real_data / "breastmnist_efflite0.npz")["train"]
    for model in (ClassGaussian(random_state=0), KSame(k=5, random_state=0)):
        X, y = released(train, model, 0)
        assert X.shape == train.X.shape
        assert np.array_equal(np.bincount(y), train.counts)


def test_within_real_is_what_it_says(fig12: tuple[StudyResults, Path], real_data: Path) -> None:
    """The naive twin: all distances at once, a record's own left out."""
    X = read_splits(real_data / "breastmnist_efflite0.npz")["train"].X.astype(np.float64)
    squares = (X**2).sum(axis=1)
    all_pairs = np.sqrt(np.maximum(squares[:, None] + squares - 2 * X @ X.T, 0))
    np.fill_diagonal(all_pairs, np.inf)
    expected = all_pairs.min(axis=1)
    found = fig12[0].raw["breastmnist/within"]["0"]
    assert found["mean"] == pytest.approx(expected.mean(), rel=1e-5)
    assert found["p50"] == pytest.approx(np.median(expected), rel=1e-5)
    # By its definition about a hundredth lies below the 1st percentile.
    assert found["closer"] == pytest.approx(0.01, abs=0.002)


def test_generated_vectors_are_no_copies(fig12: tuple[StudyResults, Path]) -> None:
    results, _ = fig12
    for which in ("cvae-authors", "cvae", "gaussian"):
        assert results.raw[f"breastmnist/{which}"]["0"]["copies"] == 0


def test_backbones_are_compared_on_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dark and light images, and a file of their vectors in float16, as it would have been made elsewhere."""
    study = find_studies(ROOT)["thesis-backbones"]
    own = sys.modules[study.study.cells.__module__]
    rng, arrays = np.random.default_rng(0), {}
    for part, n in (("train", 16), ("val", 4), ("test", 6)):
        y = np.arange(n) % 2
        pixels = rng.normal(60 + 120 * y[:, None, None], 20, size=(n, 28, 28))
        arrays |= {f"{part}_images": np.clip(pixels, 0, 255).astype(np.uint8), f"{part}_labels": y}
    np.savez(tmp_path / "breastmnist.npz", **arrays)
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "CVAEGenerator", partial(CVAEGenerator, max_epochs=1))
    own.embedded.cache_clear()
    vectors = {}
    for part, found in own.embedded("efflite0").items():
        vectors |= {f"{part}_x": found.X.astype(np.float16), f"{part}_y": found.y}
    np.savez(tmp_path / "breastmnist_efflite0.npz", **vectors)
    try:
        results = run_study(
            replace(study, config={**study.config, "quick": {"seeds": [0]}}).changed(
                ['backbones=["efflite0", "efflite1"]']
            ),
            quick=True,
            out=tmp_path / "out",
        )
    finally:
        own.embedded.cache_clear()
    agreement = results.raw["efflite0/agreement"]["0"]
    # Rounded, so near to each other but not equal.
    assert 0.9999 < agreement["cosine min"] < 1
    assert agreement["same labels"] == 1
    for backbone in ("efflite0", "efflite1"):
        assert results.raw[f"{backbone}/real"]["0"]["auc"] == 1
        assert results.raw[f"{backbone}/gaussian"]["0"]["auc"] > 0.9
    text = (tmp_path / "out" / "thesis-backbones.md").read_text()
    assert "| trained on | efflite0 | efflite1 |" in text
    assert "efflite1 from efflite0" in text
    assert "all labels agree" in text


def test_the_figure_is_drawn_again_from_raw_figures(fig12: tuple[StudyResults, Path]) -> None:
    _, out = fig12
    first = (out / "thesis-fig12.svg").read_text()
    render_study(tiny("thesis-fig12"), out / "thesis-fig12.json")
    assert (out / "thesis-fig12.svg").read_text() == first
    assert re.search(r"<svg", first)
