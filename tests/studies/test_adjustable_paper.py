"""The adjustable paper's remaining figures: hulls of its own points, linkage, the authors' pipeline, CelebA."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, DataError
from locum.obfuscate import evaluation, hull_auc
from locum.obfuscate.judges import NetworkJudge, TreesJudge
from locum.recipes import FoundStudy, StudyResults, find_studies, run_study

ROOT = Path(__file__).parents[2] / "studies"


@pytest.fixture(scope="module", autouse=True)
def studies() -> dict[str, FoundStudy]:
    """Loading them also makes their modules known."""
    return find_studies(ROOT)


def module(name: str) -> ModuleType:
    return sys.modules[name]


@pytest.fixture
def quick_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer trees and rows to test on: whether a figure is there shows with any judge."""
    monkeypatch.setattr(module("adj_rows"), "TEST", 1000)
    for run in (module("adj_questions"), evaluation):
        monkeypatch.setattr(run, "TreesJudge", lambda *_: TreesJudge(5))


def test_the_authors_points_and_their_corner_give_table_3_to_four_digits() -> None:
    published = module("adj_published")
    for curve in published.ADULT.values():
        if curve.table3 is not None:
            assert hull_auc(curve.points, corner=published.ADULT_CORNER) == pytest.approx(curve.table3, abs=1e-4)
    for case, curve in published.CELEBA.items():
        strong = [(x, y) for _, x, y in curve.values()]
        table3 = published.CELEBA_TABLE3["proposed"][case]
        assert hull_auc(strong, corner=published.CELEBA_CORNER[case]) == pytest.approx(table3, abs=1e-4)
        assert hull_auc(strong, corner=published.CELEBA_OWN[case]) < table3 - 0.02


@settings(max_examples=25, deadline=None)
@given(n=st.integers(4, 30), labels=st.integers(1, 3), seed=st.integers(0, 2**16))
def test_linkage_is_that_of_a_naive_twin(n: int, labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few different values, so that some originals are equally near.
    X, Z = rng.integers(0, 3, (2, n, 2)).astype(np.float32)
    codes = np.arange(n) % labels
    total = 0.0
    counted = [i for i in range(n) if (codes == codes[i]).sum() > 1]
    for i in counted:
        apart = {j: float(((Z[i] - X[j]) ** 2).sum()) for j in range(n) if codes[j] == codes[i]}
        nearest = [j for j, d in apart.items() if d == min(apart.values())]
        total += (i in nearest) / len(nearest)
    found = module("adj_linkage").linked(X, Z, codes, seed)
    assert found["rank-1"] == pytest.approx(total / len(counted))
    assert found["chance"] == pytest.approx(np.mean([1 / (codes == codes[i]).sum() for i in counted]))


def test_linkage_finds_a_copy_and_is_at_chance_for_strangers() -> None:
    rng, linked = np.random.default_rng(0), module("adj_linkage").linked
    X, Z = rng.normal(size=(2, 1500, 4))
    codes = np.arange(1500) % 2
    assert linked(X, X, codes, 0) == pytest.approx({"rank-1": 1.0, "AUC": 1.0, "chance": 1 / 750})
    strangers = linked(X, Z, codes, 0)
    assert strangers["rank-1"] < 0.01
    assert abs(strangers["AUC"] - 0.5) < 0.05


def test_noise_of_a_batch_has_one_scale_and_that_of_a_record_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    table3 = module("adj_table3")

    class Net:
        """R doubles the columns; the decoder returns its input."""

        def split(self, x: Any) -> tuple[Any, Any]:
            return x, 2 * x

        def join(self, needed: Any, rest: Any) -> Any:
            return torch.cat([needed, rest], dim=1)

    class Rows:
        def __init__(self, variant: Any) -> None:
            self.variant = variant

        def released(self, out: Any) -> Any:
            return out

    X = np.concatenate([np.zeros((64, 200)), np.ones((64, 200))]).astype(np.float32)
    X[0] = 1.0
    codes = np.arange(128) % 2
    spreads = {}
    for per_batch in (True, False):
        data = Rows(table3.Pipeline(per_batch=per_batch))
        out = table3.released(Net(), data, X, codes, 3.0, np.random.default_rng(0))
        # The label that is true is written as 0, the other as lambda.
        assert (out[np.arange(128), codes] == 0).all()
        assert (out[np.arange(128), 1 - codes] == -50).all()
        spreads[per_batch] = (out[:, 2:] - 2 * X).std(axis=1)
    assert spreads[True][:64] == pytest.approx(3 * 2 / 64, rel=0.3)
    assert spreads[False][1:64].max() == 0
    for found in (spreads[True][64:], spreads[False][64:], spreads[False][:1]):
        assert found == pytest.approx(6, rel=0.3)


@pytest.mark.usefixtures("real_data", "quick_judges")
def test_a_small_table_3_has_every_figure(studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    study = studies["adult-table3"]
    few = {
        "rows": 300,
        "epochs": 2,
        "judge_epochs": 2,
        "noises": [1, 10],
        "variants": list(module("adj_table3").VARIANTS),
    }
    config = {**study.settings(quick=True), **few, "seeds": [1]}
    raw = {name: {"1": dict(cell(1))} for name, cell in study.study.cells(config).items()}
    for name in few["variants"]:
        figures = raw[name]["1"]
        assert all(figures[f"1/{side} best"] >= figures[f"1/{side} last"] for side in ("weak", "strong", "utility"))
        assert figures["10/released last"] > 0.5
    text = study.study.render(StudyResults(raw, config, quick=True), tmp_path)
    assert "| proposed | 0.4183 | 0.4183 | 0.3375 |" in text
    assert all(words in text for words, _ in module("adj_table3").VARIANTS.values())


@pytest.mark.usefixtures("real_data", "quick_judges")
def test_small_questions_are_answered_and_written_about(studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    study = studies["adult-paper"]
    few: dict[str, Any] = {"rows": 600, "judge_rows": 200, "ours_epochs": 1, "paper_epochs": 1, "lambdas": [-50]}
    few |= {"curve_lambdas": [-50], "trace_epochs": [1], "linkage_rows": 100, "linkage_gaussian": [0.0]}
    few |= {"linkage_noises": {"ours": [0, 100], "paper": [0]}}
    config = {**study.settings(quick=True), **few, "seeds": [1]}
    raw = {name: {"1": dict(cell(1))} for name, cell in study.study.cells(config).items()}
    text = study.study.render(StudyResults(raw, config, quick=True), tmp_path)
    assert text.count("## ") == len(raw) == len(module("adj_questions").QUESTIONS) == 6
    # Without noise Gaussian noise releases the rows themselves.
    assert raw["linkage"]["1"]["gaussian/0/records AUC"] == 1.0
    assert raw["linkage"]["1"]["gaussian/0/records rank-1"] > 0.9


# CelebA in its own layout, made up.


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    """Faces of noise: bright where the subject smiles, reddish where male."""
    from PIL import Image

    rng, folder, names = np.random.default_rng(0), tmp_path / "faces", ("Male", "Smiling", "Mouth_Slightly_Open")
    (folder / "img_align_celeba").mkdir(parents=True)
    rows, parts = [], []
    for i in range(90):
        male, smiling = rng.integers(0, 2, 2)
        pixels = rng.integers(0, 100, (20, 16, 3)) + np.array([100 * male, 0, 0]) + 50 * smiling
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"img_align_celeba/{i:06d}.jpg")
        signs = [1 if yes else -1 for yes in (male, smiling, smiling, smiling)]
        rows.append(f"{i:06d}.jpg " + " ".join(map(str, signs)))
        parts.append(f"{i:06d}.jpg {0 if i < 60 else 2 if i < 85 else 1}")
    head = " ".join((*names, "High_Cheekbones"))
    (folder / "list_attr_celeba.txt").write_text(f"90\n{head}\n" + "\n".join(rows) + "\n")
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return folder


def test_celeba_runs_from_one_setting_and_goes_on_where_it_stopped(
    studies: dict[str, FoundStudy], celeba: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["epochs=1", "judge_epochs=1", "limit=0", "side=16", "stages=[]", 'cases=["CelebA-G-S"]', "noises=[0]"]
    study = studies["celeba-curves"].changed([f"celeba={celeba}", f"checkpoints={tmp_path}", *few])
    run = module("adj_celeba")
    train, test = run.faces(str(celeba), 0, 16)
    assert (len(train), len(test)) == (60, 25)
    done = []
    whole = run.judged

    def dies(*given: Any) -> Any:
        done.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(run, "judged", dies)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, quick=True, out=tmp_path / "out")
    results = run_study(study, quick=True, out=tmp_path / "out")
    # Every release but the first, which was there already.
    cells = [name for name in results.raw if any(part in name for part in ("/paper/", "/ours/", "/no g/"))]
    assert len(done) == len(cells) + 1
    text = (tmp_path / "out" / "celeba-curves.md").read_text()
    assert "| 0.5963 | 0.5337 | 0.5963 | 0.5743 | 0.5039 |" in text
    # The paper's strong attacker without noise.
    assert "0.894" in text
    told = results.raw["CelebA-G-S/forced"]["0"]
    assert set(told) == {f"told {label}, own {own}" for label in (0, 1) for own in (0, 1)}


def test_without_celeba_the_study_says_what_it_needs_before_any_work(
    studies: dict[str, FoundStudy], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"needs CelebA.*list_attr_celeba.*--set celeba=DIR"):
        run_study(studies["celeba-curves"], quick=True, out=tmp_path)
    assert not list(tmp_path.glob("*.md"))


def test_settings_are_replaced_by_name_and_type(studies: dict[str, FoundStudy]) -> None:
    study = studies["celeba-curves"]
    changed = study.changed(["celeba=a=b", "epochs=7", "noises=[1, 2.5]"])
    for quick in (True, False):
        config = changed.settings(quick)
        assert (config["celeba"], config["epochs"], config["noises"]) == ("a=b", 7, [1, 2.5])
    assert study.settings(quick=True)["epochs"] == 3
    for wrong in ("epochs", "zebra=1", "quick=1", "epochs=many", "epochs=[1]", "noises=5"):
        with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
            study.changed([wrong])


def test_networks_judge_faces_by_default(studies: dict[str, FoundStudy]) -> None:
    config = studies["celeba-curves"].settings(quick=False)
    made = evaluation.make_judges(config["judges"], np.zeros((2, 3, 64, 64), np.float32), config["judge_epochs"])
    assert [type(judge) for judge in made.values()] == [NetworkJudge]
