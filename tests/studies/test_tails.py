"""The studies of the thesis on rare classes, on made records: who is compared with whom, and what pages say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from locum.data import write_embeddings
from locum.recipes import FoundStudy, apply_settings, find_papers, find_studies, run_paper, run_study, study_splits
from locum.recipes.study_sets import using_sets
from locum.types import EmbeddingInfo, EmbeddingSet

ROOT = Path(__file__).parents[2] / "studies"
SIZES = (60, 24, 6)


@pytest.fixture(scope="module")
def studies() -> dict[str, FoundStudy]:
    return find_studies(ROOT)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A long tail and a balanced set that holds most of it, under the names of the real ones."""
    rng = np.random.default_rng(0)

    def some(*sizes: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(3), sizes)
        return (rng.normal(size=(len(y), 6)) + 3 * np.eye(6)[y]).astype(np.float32), y

    (X, y), (X_test, y_test) = some(40, 40, 40), some(20, 20, 20)
    rows = np.concatenate([np.flatnonzero(y == c)[:n] for c, n in enumerate(SIZES)])
    more, y_more = some(SIZES[0] - 40, 0, 0)
    tail = np.concatenate([X[rows], more]), np.concatenate([y[rows], y_more])
    test = {"test_x": X_test, "test_y": y_test}
    np.savez(tmp_path / "cifar10lt_efflite0.npz", train_x=tail[0], train_y=tail[1], **test)
    np.savez(tmp_path / "cifar10_12k_efflite0.npz", train_x=X, train_y=y, **test)
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    return tmp_path


def own(studies: dict[str, FoundStudy]) -> ModuleType:
    return sys.modules[studies["thesis-tails"].study.cells.__module__]


def test_latents_are_measured_and_shown(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    results = run_study(studies["thesis-latents"].changed(["epochs=1"]), quick=True, out=tmp_path / "out")
    for model in ("CVAE", "VAE"):
        figures = results.raw[f"right/{model}"]["0"]
        assert figures["ks/2"] == pytest.approx((figures["ks/2/1"] + figures["ks/2/2"]) / 2)
        assert np.frombuffer(bytes.fromhex(figures["latents"]), np.float16).size == 2 * 60
    text = (tmp_path / "out" / "thesis-latents.md").read_text()
    # The set stands in for the thesis' own, whose figures stand beside.
    assert "| CVAE | " in text
    assert "| 0.13 (0.02) |" in text
    assert "| 0.13/0.15 |" not in text
    assert "20 test records a class, of which a fifth scores the classifier; chance is 0.33." in text
    assert "6 raw features here, over 768" in text
    assert (tmp_path / "out" / "thesis-fig8.svg").is_file()


@pytest.mark.parametrize("name", ["thesis-tails", "thesis-tails-ours"])
def test_a_long_tail_inside_a_balanced_set_covers_itself(
    name: str, made: Path, studies: dict[str, FoundStudy], tmp_path: Path
) -> None:
    results = run_study(studies[name].changed(["epochs=1"]), quick=True, out=tmp_path / "out")
    real = results.raw["real"]["0"]
    assert [real[f"coverage/long tail/{c}"] for c in (1, 2)] == [24 / 40, 6 / 40]
    # Half of the 34 records of the rarest class that the long tail lacks; only it has so many.
    unseen = {metric.rpartition("/")[2] for metric in real if metric.startswith("unseen/")}
    assert unseen == {"2"}
    assert {"long tail/small", "long tail/large"} < set(results.raw)
    text = (tmp_path / "out" / f"{name}.md").read_text()
    assert "Frequent classes have over 12 records in the long tail, rare ones 6 or fewer." in text
    assert "have 40 vectors a class; the long tail has what it has, at most 40," in text
    assert "the reference and all sets have 17 a class" in text
    assert "(balanced, 20 a class as the test has)" in text
    assert (tmp_path / "out" / f"{name}-fig9-frechet.svg").is_file()


def test_unseen_records_are_not_in_the_long_tail(made: Path, studies: dict[str, FoundStudy]) -> None:
    run, config = own(studies), studies["thesis-tails"].settings(quick=True)
    X, y = run.unseen(config, np.random.default_rng(0))
    tail = {row.tobytes() for row in run.long_tail(config)[0]}
    balanced = {row.tobytes() for row in run.balanced(config)[0]}
    found = {row.tobytes() for row in X}
    assert found < balanced
    assert not found & tail
    assert np.bincount(y).tolist() == [0, 0, 17]


def test_one_set_of_one_s_own_is_balanced_and_thinned(
    studies: dict[str, FoundStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    rng, y = np.random.default_rng(0), np.repeat(np.arange(3), (120, 100, 80))
    X = (rng.normal(size=(300, 6)) + 3 * np.eye(6)[y]).astype(np.float32)
    write_embeddings(tmp_path / "mine.npz", EmbeddingSet(X, y, info=EmbeddingInfo(class_names=("a", "b", "c"))))
    found = apply_settings(studies["thesis-tails"], [f"mine={tmp_path / 'mine.npz'}"], place=tmp_path / "sets")
    config = found.settings(quick=True)
    found.check(config)
    run = own(studies)
    with using_sets(config):
        assert study_splits("mine")["train"].counts.tolist() == [84, 70, 56]
        # The rarest class keeps five of 56 records.
        assert config["ratio"] == 11
        assert np.bincount(run.long_tail(config)[1]).tolist() == [56, 16, 5]
        assert np.bincount(run.balanced(config)[1]).tolist() == [56, 56, 56]
    latents = apply_settings(
        studies["thesis-latents"], [f"mine={tmp_path / 'mine.npz'}", "epochs=1"], place=tmp_path / "sets"
    )
    run_study(latents, quick=True, out=tmp_path / "out")
    text = (tmp_path / "out" / "thesis-latents.md").read_text()
    # No figure of the thesis stands beside another set.
    assert "| latents of | accuracy | squared error |" in text
    assert "thesis: each of them" not in text


def test_the_thesis_runs_on_its_own_sets(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    """Small files under the names of the papers' sets; 70 % of them are for training."""
    for name, n in (("cifar10_dinov2", 300), ("cifar100_dinov2", 100)):
        rng, y = np.random.default_rng(n), np.repeat(np.arange(3), n)
        X = (rng.normal(size=(3 * n, 6)) + 3 * np.eye(6)[y]).astype(np.float32)
        write_embeddings(made / f"{name}.npz", EmbeddingSet(X, y, info=EmbeddingInfo(class_names=("a", "b", "c"))))
    paper = find_papers(ROOT)["thesis-paper"]
    parts = tuple(p for p in paper.parts if p.study in ("thesis-latents", "thesis-tails"))
    small = type(paper)(paper.name, paper.title, parts)
    found = run_paper(small, ROOT, out=tmp_path / "paper", quick=True, given=["epochs=1", "unseen=10"])
    assert [(r.state, r.ran_on) for r in found] == [
        ("the paper's data", "CIFAR-10 LT"),
        ("the paper's data", "CIFAR-100"),
    ], [r.why for r in found]
    text = (tmp_path / "paper" / "thesis-latents.md").read_text()
    assert "thesis (sd)" in text
    assert "thinned to a ratio of 14." in (tmp_path / "paper" / "thesis-tails.md").read_text()
