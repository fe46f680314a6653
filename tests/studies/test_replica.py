"""The studies of the replica paper: its CVAE and ours under their names, its Table 1 beside ours."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from locum.metrics import dispersion
from locum.recipes import FoundStudy, StudyResults, find_studies

ROOT = Path(__file__).parents[2] / "studies"


@pytest.fixture(scope="module")
def studies() -> dict[str, FoundStudy]:
    return find_studies(ROOT)


def module_of(study: FoundStudy) -> ModuleType:
    return sys.modules[study.study.cells.__module__]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes of sixty records in five dimensions."""
    rng, parts = np.random.default_rng(0), {}
    for part in ("train", "val", "test"):
        y = np.arange(60) % 2
        parts |= {f"{part}_x": (rng.normal(size=(60, 5)) + 2 * y[:, None]).astype(np.float32), f"{part}_y": y}
    np.savez(tmp_path / "made.npz", **parts)
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    return tmp_path


def test_figure_3_draws_the_paper_s_cvae_and_ours(
    made: Path, studies: dict[str, FoundStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = studies["replica-fig3"]
    run = module_of(study)
    few = {name: lambda seed, make=make: make(seed).set_params(max_epochs=2) for name, make in run.GENERATORS.items()
           if name != "gaussian"}  # fmt: skip
    monkeypatch.setattr(run, "GENERATORS", few)
    config = {"seeds": [0], "dataset": "made", "ks": [5]}
    found = study.study.cells(config)["tsne"](0)
    names = ["real", "5-Same", "CVAE as in the paper", "CVAE, our defaults"]
    assert set(found) == {f"dispersion {n}" for n in names} | {f"mixing {n}" for n in names[1:]}
    t = run.task("made")
    assert found["dispersion real"] == pytest.approx(dispersion(t.z(t.train.X)).mean)
    # Centroids of five records lie nearer to each other than the records.
    assert found["dispersion 5-Same"] < found["dispersion real"]
    text = study.study.render(StudyResults({"tsne": {"0": found}}, config, quick=False), tmp_path)
    assert (tmp_path / "replica-fig3.png").is_file()
    assert "| CVAE as in the paper |" in text
    assert "| CVAE, our defaults |" in text


def made_up(study: FoundStudy, config: dict[str, object]) -> StudyResults:
    rng, raw = np.random.default_rng(0), {}
    for cell in study.study.cells(config):
        prefixes = ["offline"] if cell.endswith(("real", "Same")) else [f"{m}/1.0" for m in ("offline", "online")]
        raw[cell] = {
            str(seed): {f"{p}/auc{s}": float(rng.uniform(0.5, 0.9)) for p in prefixes for s in (0, 2)}
            | {"D": 1.0, "dispersion": 7.0}
            for seed in (0, 1)
        }
    return StudyResults(raw, config, quick=False)


def test_the_paper_s_figures_stand_beside_ours_whatever_noise_was_run(
    studies: dict[str, FoundStudy], tmp_path: Path
) -> None:
    study = studies["replica-results"]
    config = {"seeds": [0, 1], "datasets": ["breastmnist_efflite0"], "ks": [5], "variances": [1.0], "noise": [0, 2]}
    text = study.study.render(made_up(study, config), tmp_path)
    row = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    # The paper's CVAE trains heads online; its row stands beside that one alone.
    assert "82.6 / 81.2 / 77.8 / 73.8" in row["CVAE as in the paper, online, variance 1.0"]
    assert row["CVAE as in the paper, offline, variance 1.0"].endswith("| 7.0 [7.0, 7.0] | - |") or row[
        "CVAE as in the paper, offline, variance 1.0"
    ].endswith("| 7.0 | - |")
    assert "orders of the paper at noise 2" in text
    assert "## The paper's Table 1, OCTDL: not at hand here" in text
    assert "maximum dispersion" in text


def test_table_1_falls_with_noise_as_it_must(studies: dict[str, FoundStudy]) -> None:
    """A typing error would show: AUC falls with noise in every row, and with k for k-Same at noise 0."""
    for table in sys.modules["rep_published"].TABLE1.values():
        assert len(table) == 7
        for row in table.values():
            assert list(row) == sorted(row, reverse=True)
        clean = [table[f"{k}-Same"][0] for k in (2, 5, 10, 15)]
        assert clean == sorted(clean, reverse=True)
