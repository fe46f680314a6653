"""Studies on sets that they do not know: other classes, other widths, images; and sets that cannot work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.data import ledger_for, read_splits, write_embeddings
from locum.errors import ConfigError, DataError
from locum.recipes import (
    FoundStudy,
    SetNeeds,
    apply_settings,
    check_study,
    expect_time,
    find_papers,
    find_studies,
    prepare_set,
    run_study,
)
from locum.recipes.study import saved_results
from locum.recipes.study_sets import using_sets
from locum.types import EmbeddingInfo, EmbeddingSet

ROOT = Path(__file__).parents[2] / "studies"
CLASSES = ("adipose", "lymph", "mucus")


@pytest.fixture(scope="module")
def studies() -> dict[str, FoundStudy]:
    return find_studies(ROOT)


def vectors(sizes: tuple[int, ...] = (120, 90, 60), d: int = 6, **more: Any) -> EmbeddingSet:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = (rng.normal(size=(len(y), d)) + 3 * np.eye(d)[y]).astype(np.float32)
    return EmbeddingSet(X, y, info=EmbeddingInfo(class_names=CLASSES[: len(sizes)]), **more)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mine") / "tissue.npz"
    write_embeddings(file, vectors())
    return file


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of one's own needs no other data."""
    monkeypatch.delenv("LOCUM_DATA", raising=False)


def ready(found: FoundStudy, mine: Path, place: Path, *settings: str, seeds: int = 1) -> FoundStudy:
    return apply_settings(found, [f"mine={mine}", *settings], place=place, seeds=seeds)


# Settings that keep each study small; the cells that take long are left out by the study's own settings.
SMALL: dict[str, tuple[str, ...]] = {
    "private-epsilon": ("samples=200", "methods={head=[1.0], means=[1.0]}", "by_default=[1.0]"),
    "audit-table": (
        "steps={search=2, restarts=1, encoder=5}",
        "shadows={mine=0}",
        'generators={mine=["identity", "2-same", "gaussian", "gaussian-dp"]}',
    ),
    "rebalance-choice": ("folds=2",),
    "private-schedule": ('tasks=[["mine", 3.0]]',),
    "private-class-variance": ("epsilons=[0, 1.0]",),
    "private-baselines": ('methods=["means"]',),
    "private-tails": ("mechanisms=['means']",),
    "few-records": ("counts=[10]", "methods=['gaussian', '2-same', 'head-1']", "samples=90"),
    "min-distance": ("shares=[0.0, 0.5]", "drawn=300"),
}


@pytest.mark.parametrize("name", list(SMALL))
def test_a_study_runs_on_a_set_that_it_does_not_know(
    name: str, studies: dict[str, FoundStudy], mine: Path, tmp_path: Path
) -> None:
    found = ready(studies[name], mine, tmp_path / "sets", *SMALL[name])
    results = run_study(found, quick=True, out=tmp_path / "out")
    assert all(cell.startswith("mine") for cell in results.raw)
    text = (tmp_path / "out" / f"{name}.md").read_text()
    assert "mine: 3 classes, 6 features" in text
    assert "nan" not in text
    assert (tmp_path / "out" / f"{name}.json").stat().st_mode & 0o077 == 0


def test_the_replica_study_runs_on_a_set_of_one_s_own(
    studies: dict[str, FoundStudy], mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = studies["replica-results"]
    run = sys.modules[study.study.cells.__module__]
    few = {name: lambda seed, make=make: make(seed) for name, make in run.GENERATORS.items()}
    for name in ("cvae", "cvae-authors"):
        few[name] = lambda seed, make=run.GENERATORS[name]: make(seed).set_params(max_epochs=1)
    monkeypatch.setattr(run, "GENERATORS", few)
    monkeypatch.setattr(run, "probe", lambda seed: run.LinearHead(standardize=False, max_epochs=2, random_state=seed))
    found = ready(study, mine, tmp_path / "sets", "ks=[2]", "noise=[0]", "variances=[1.0]")
    run_study(found, quick=False, out=tmp_path / "out")
    saved = saved_results(tmp_path / "out" / "replica-results.json")
    assert set(saved["raw"]) == {f"mine/{c}" for c in ("real", "2-Same", "gaussian", "cvae-authors", "cvae")}
    assert saved["environment"]["numpy"] == np.__version__
    assert len(saved["data"]["mine"]) == 64
    assert saved["seconds"]["mine/real"]["0"] >= 0
    told = check_study(found, tmp_path / "out" / "replica-results.json", "mine/2-Same")
    assert told["agrees"], told
    text = (tmp_path / "out" / "replica-results.md").read_text()
    assert "## mine" in text
    # No figure of the paper stands beside a set that is not the paper's.
    assert "BreastMNIST" not in text
    assert "[one run] not decided" in text
    assert " tie " not in text
    # The smallest class has 42 training records, which are then one group: 42 times their mean.
    with using_sets(found.settings(quick=False)):
        X, y = run.same(run.task("mine").train, 60, 0)
    assert len(np.unique(X[y == 2].round(4), axis=0)) == 1


def test_sites_are_dealt_from_any_set_and_by_an_attribute(
    studies: dict[str, FoundStudy], mine: Path, tmp_path: Path
) -> None:
    study = studies["federated-results"]
    found = ready(study, mine, tmp_path / "sets")
    config = found.settings(quick=False)
    found.check(config)
    assert not any(c.endswith("the paper, epsilon 1") for c in study.study.cells(config))
    own = vectors(attributes={"hospital": np.array(["east", "north", "west"])[np.arange(270) % 3]})
    write_embeddings(tmp_path / "own.npz", own)
    found = ready(study, tmp_path / "own.npz", tmp_path / "sets")
    with using_sets(found.settings(quick=False)):
        (deal,) = sys.modules["fed_sets"].deals("mine", 0)
        cells = study.study.cells(found.settings(quick=False))
        figures = {c: cells[f"mine/{c}"](0) for c in ("centralized", "ours: head, epsilon 1")}
    assert set(deal.train) == {"east", "north", "west"}
    assert figures["centralized"]["global bacc"] > 0.5
    assert set(found.given["mine"]["site_names"]) == set(deal.train)


def test_images_are_embedded_split_and_kept_private(studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name, tint in (("dark", 40), ("light", 200)):
        (tmp_path / "scans" / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.clip(rng.normal(tint, 20, size=(16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "scans" / name / f"{i}.png")
    # The same image twice must not be trained on and tested.
    (tmp_path / "scans" / "dark" / "copy.png").write_bytes((tmp_path / "scans" / "dark" / "0.png").read_bytes())
    given = [f"scans={tmp_path / 'scans'}", "ks=[2]"]
    found = apply_settings(studies["replica-results"], given, place=tmp_path / "sets", backbone="efflite0", seeds=2)
    facts = found.given["scans"]
    assert facts["backbone"] == "efflite0"
    assert sum(facts["parts"].values()) == 25
    file = Path(facts["file"])
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent == tmp_path / ".locum"
    splits = read_splits(file)
    keys = [{row.tobytes() for row in part.X} for part in splits.values()]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 24
    config = found.settings(quick=False)
    found.check(config)
    assert config["datasets"] == ["scans"]
    assert config["seeds"] == [0, 1]


def test_subjects_stay_together(tmp_path: Path, studies: dict[str, FoundStudy]) -> None:
    own = vectors(subject=np.array([f"p{i // 3}" for i in range(270)]))
    write_embeddings(tmp_path / "own.npz", own)
    found = ready(studies["private-epsilon"], tmp_path / "own.npz", tmp_path / "sets")
    splits = read_splits(found.given["mine"]["file"])
    who = [set(part.subject.tolist()) for part in splits.values()]
    assert sum(map(len, who)) == len(set.union(*who)) == 90
    assert found.given["mine"]["unit"] == "subject"
    assert found.given["mine"]["records"] == len(who[0])


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("replica-fig3", ["mine={mine}", "ks=[2, 500]"], "needs 500"),
        ("replica-results", ["mine={mine}", "noise=[0.5]"], "whole numbers, and 0 among them"),
        ("replica-results", ["mine={mine}", "variances=[2.0]"], "must hold 1.0"),
        ("replica-results", ["mine={nowhere}"], "not a setting of 'replica-results' .* no file or folder"),
        ("replica-results", ["my/set={mine}"], "name of a set has only letters"),
        ("replica-results", ["mine={one}"], "one class"),
        ("replica-results", ['datasets=["zebra"]'], "LOCUM_DATA"),
        ("replica-payload", ["mine={mine}"], "compared with images"),
        ("replica-fig3", ["mine={mine}", "other={mine}"], "one set at a time"),
        ("private-epsilon", ["mine={mine}", "methods={zebra=[1.0]}"], "no method 'zebra'"),
        ("private-epsilon", ["mine={mine}", "methods={means=[1.0]}"], "must have 'head'"),
        ("private-class-variance", ["mine={mine}", "seeds=[0, 7]"], "are folds, 0 to 3"),
        ("federated-results", ["mine={mine}", "seeds=[]"], "list of whole numbers"),
        ("federated-results", ["mine={mine}", 'without=["mine/zebra"]'], "no cell begins so"),
        ("federated-results", ["mine={few}"], "a federation needs 3 sites"),
        ("audit-table", ["mine={few}"], "members"),
        ("audit-table", ["mine={mine}", 'generators={mine=["zebra"]}'], "no generator 'zebra'"),
        ("rebalance-choice", ["mine={mine}", "folds=100"], "needs 100"),
        ("few-records", ["mine={mine}", "counts=[10, 30]"], "this study needs 60"),
        ("few-records", ["mine={mine}", "counts=[3]"], "5 or more with these methods"),
        ("min-distance", ["mine={patients}"], "names subjects"),
        ("min-distance", ["mine={mine}", "members=4"], "of the 4 members of the set 'mine' are of class"),
        ("corruptions", ["mine={mine}"], "gray images of 28 x 28 pixels"),
        ("generated-weights", ["mine={mine}"], "`rebalance-methods` takes other sets"),
        ("thesis-tails", ["mine={mine}", "ratio=50"], "from 1 to 8 for the set 'mine'"),
        ("thesis-tails", ["mine={mine}", "unseen=4"], "an `unseen` of 5 or more"),
        ("thesis-tails", ["mine={mine}", 'sets=["balanced"]'], "must hold 'long tail'"),
        ("thesis-tails", ["mine={mine}", "other={mine}"], "--set long_tail=PATH"),
        ("thesis-tails-ours", ["mine={few}"], "needs 10 training records"),
        ("thesis-latents", ["mine={one}"], "one class"),
        ("federated-factors", ["mine={mine}"], "gives 10 sites"),
        ("federated-factors", ["mine={mine}", 'backbones=["efflite1"]'], "the images of CIFAR-10 alone"),
        ("federated-factors", ["set=zebra"], "LOCUM_DATA"),
        ("adult-curves", ["mine={mine}"], "cannot run on another set. It keeps UCI Adult's income"),
        ("celeba-curves", [], "needs CelebA"),
        ("federated-table1", [], "LOCUM_DATA"),
    ],
)
def test_what_cannot_work_is_one_sentence_before_anything_is_computed(
    name: str, settings: list[str], sentence: str, studies: dict[str, FoundStudy], mine: Path, tmp_path: Path
) -> None:
    write_embeddings(tmp_path / "one.npz", vectors((40,)))
    write_embeddings(tmp_path / "few.npz", vectors((20, 18, 16)))
    places = {"mine": mine, "one": tmp_path / "one.npz", "few": tmp_path / "few.npz", "nowhere": tmp_path / "nowhere"}
    write_embeddings(tmp_path / "patients.npz", vectors(subject=np.array([f"p{i // 3}" for i in range(270)])))
    places["patients"] = tmp_path / "patients.npz"
    paths = ("mine={", "other={", "my/set={")
    given = [pair.format(**places) if pair.startswith(paths) else pair for pair in settings]

    def run() -> None:
        run_study(apply_settings(studies[name], given, place=tmp_path / "sets"), quick=False, out=tmp_path / "out")

    with pytest.raises((ConfigError, DataError), match=sentence) as error:
        run()
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_backbone_is_for_images_alone(studies: dict[str, FoundStudy], mine: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        apply_settings(studies["replica-results"], [f"mine={mine}"], place=tmp_path, backbone="efflite0")


def test_seeds_are_the_first_of_the_settings_and_then_the_next(studies: dict[str, FoundStudy]) -> None:
    assert studies["adult-curves"].with_seeds(5).settings(quick=True)["seeds"] == [1, 2, 3, 4, 5]
    assert studies["audit-planted"].with_seeds(2).settings(quick=False)["seeds"] == [0, 1]
    with pytest.raises(ConfigError, match="1 or more"):
        studies["adult-curves"].with_seeds(0)


def test_a_time_comes_from_the_seconds_of_committed_results(
    studies: dict[str, FoundStudy], mine: Path, tmp_path: Path
) -> None:
    found = ready(studies["private-epsilon"], mine, tmp_path / "sets", "methods={head=[1.0]}", "by_default=[]")
    # Committed before seconds were stored, or after: either nothing is known, or a time above 0.
    told = expect_time(found, quick=True, out=tmp_path / "out")
    assert told.cells == 3
    assert told.seconds is None or told.seconds > 0
    folder = tmp_path / "studies" / "private"
    (folder / "results").mkdir(parents=True)
    seconds = {"breastmnist/real": {"0": 2.0, "1": 4.0}, "breastmnist/head-1-1e-05": {"0": 10.0}}
    (folder / "results" / "private-epsilon.json").write_text(json.dumps({"seconds": seconds}))
    moved = FoundStudy(found.name, folder, found.study, found.config)
    # Real: 3, the head: 10, and what is not known: the mean of both.
    assert expect_time(moved, quick=True, out=tmp_path / "out").seconds == pytest.approx(3 + 10 + 6.5)
    assert "by the committed results" in expect_time(moved, quick=True, out=tmp_path / "out").sentence()


def test_every_study_runs_on_other_sets_or_says_why_not(studies: dict[str, FoundStudy]) -> None:
    for name, found in studies.items():
        assert isinstance(found.study.sets, SetNeeds) or found.study.sets.endswith("."), name


def test_every_part_of_a_paper_is_a_study_with_those_settings(studies: dict[str, FoundStudy]) -> None:
    papers = find_papers(ROOT)
    assert set(papers) == {"replica-paper", "thesis-paper", "federated-paper", "adjustable-paper"}
    assert not set(papers) & set(studies)
    for paper in papers.values():
        for part in paper.parts:
            assert {*part.settings, *part.stand_in, *part.quick} <= set(studies[part.study].config), part.study
            assert bool(part.sets) != bool(part.data), part.study


def test_prepared_vectors_name_the_ledger_of_the_data(mine: Path, tmp_path: Path) -> None:
    """A fit of the file that a study keeps spends the budget of the data, not a new one."""
    facts = prepare_set("own", str(mine), place=tmp_path / "place")
    assert ledger_for(facts["file"]) == ledger_for(mine).resolve()
