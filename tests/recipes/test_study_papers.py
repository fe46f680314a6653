"""Presets of whole papers, and checks of cells by chance, on studies made for the purpose."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from locum.cli.main import main
from locum.data import write_embeddings
from locum.errors import ConfigError
from locum.recipes import check_at_random, find_papers, find_studies, run_paper, run_study
from locum.types import EmbeddingInfo, EmbeddingSet

RUN = """
from pathlib import Path
from locum.recipes import SetNeeds, Study, study_splits
from locum.recipes.study import markdown_table

def cells(config):
    def make(name):
        def cell(seed):
            Path(config["log"]).open("a").write(f"{name}{seed} ")
            return {"x": config["base"] + seed / 10 + len(study_splits(name)["train"])}
        return cell
    return {f"{name}/mean": make(name) for name in config["sets"]}

def render(results, out):
    return markdown_table(["cell", "x"], [[c, results.estimate(c, "x")] for c in results.raw])

def lone(config):
    return {"a": lambda seed: {"x": config["base"] + float(seed)}}

STUDIES = {
    "table1": Study("Table 1", cells, render, sets=SetNeeds("sets", per_class=lambda config: config["least"])),
    "figure1": Study("Figure 1", lone, render, sets="It draws its own seeds."),
}
"""
CONFIG = """
[table1]
seeds = [0, 1]
sets = ["common"]
base = 5
least = 2
log = "{log}"
[table1.quick]
seeds = [0]
[figure1]
seeds = [0, 1, 2]
base = 1
"""
PAPERS = """
[pets-paper]
title = "The paper on pets"
[[pets-paper.parts]]
study = "table1"
what = "Table 1"
sets = ["cats", "dogs"]
settings = { base = 7 }
[[pets-paper.parts]]
study = "figure1"
what = "Figure 1"
data = "seeds"
exact = true
"""
SETS = """
[cats]
file = "cats_vectors.npz"
title = "Cats"
images = "cats.npz"
backbone = "efflite0"
[dogs]
file = "dogs_vectors.npz"
title = "Dogs"
"""


def some(n: int = 60) -> EmbeddingSet:
    rng, y = np.random.default_rng(0), np.arange(n) % 2
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return EmbeddingSet(X, y, info=EmbeddingInfo(class_names=("a", "b")))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, data = tmp_path / "studies" / "pets", tmp_path / "data"
    folder.mkdir(parents=True)
    data.mkdir()
    (folder / "run.py").write_text(RUN)
    (folder / "config.toml").write_text(CONFIG.format(log=tmp_path / "log"))
    (folder.parent / "papers.toml").write_text(PAPERS)
    (folder.parent / "sets.toml").write_text(SETS)
    parts = {"train": some().X, "test": some(20).X}
    np.savez(data / "common.npz", **{f"{k}_x": v for k, v in parts.items()}, train_y=some().y, test_y=some(20).y)
    monkeypatch.setenv("LOCUM_DATA", str(data))
    monkeypatch.chdir(tmp_path)
    return folder.parent


def test_a_paper_runs_on_stand_ins_and_says_so(root: Path, tmp_path: Path) -> None:
    results = run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out")
    assert [r.state for r in results] == ["stand-ins", "the paper's data"]
    assert results[0].why == "not at hand: Cats, Dogs"
    page = (tmp_path / "out" / "pets-paper.md").read_text()
    assert "| Table 1 | [table1](table1.md) | Cats, Dogs | common | **stand-ins** | 2 |" in page
    assert "stand-ins for the paper's data" in page
    # What is finished is not computed again.
    before = (tmp_path / "log").read_text()
    run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out")
    assert (tmp_path / "log").read_text() == before == "common0 common1 "


def test_the_paper_s_own_sets_come_first_with_its_settings(root: Path, tmp_path: Path) -> None:
    write_embeddings(tmp_path / "data" / "dogs_vectors.npz", some())
    told: list[str] = []
    results = run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out", tell=told.append)
    assert results[0].state == "part of the paper's data"
    assert (results[0].ran_on, results[0].why) == ("Dogs", "not at hand: Cats")
    saved = json.loads((tmp_path / "out" / "table1.json").read_text())
    assert set(saved["raw"]) == {"dogs/mean"}
    assert saved["config"]["base"] == 7
    # 42 of 60 records are for training.
    assert saved["raw"]["dogs/mean"]["0"]["x"] == 7 + 42
    assert told[0].startswith("table1 on Dogs: 2 cells")
    cats = tmp_path / "elsewhere.npz"
    write_embeddings(cats, some(80))
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").glob("*.*")}
    paper, given = find_papers(root)["pets-paper"], [f"cats={cats}"]
    with pytest.raises(ConfigError, match="with other settings"):
        run_paper(paper, root, out=tmp_path / "out", given=given, quick=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").glob("*.*")} == before
    results = run_paper(paper, root, out=tmp_path / "out", given=given, quick=True, overwrite=True)
    assert results[0].state == "the paper's data"
    assert results[0].ran_on == "Cats, Dogs"
    assert results[0].seeds == 1


def test_images_of_a_paper_are_embedded_with_its_backbone(root: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, size=(40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "data" / "cats.npz", train_images=images, train_labels=np.arange(40) % 2)
    results = run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out", quick=True)
    assert results[0].ran_on == "Cats"
    saved = json.loads((tmp_path / "out" / "table1.json").read_text())
    assert saved["config"]["given"]["cats"]["backbone"] == "efflite0"


def test_a_study_that_cannot_run_is_told_and_the_others_go_on(root: Path, tmp_path: Path) -> None:
    results = run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out", given=["least=500"])
    assert [r.state for r in results] == ["not run", "the paper's data"]
    assert "needs 500" in results[0].why
    mine = tmp_path / "mine.npz"
    write_embeddings(mine, some())
    results = run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "own", given=[f"mine={mine}"], seeds=3)
    assert [r.state for r in results] == ["given sets", "not run"]
    assert "It draws its own seeds." in results[1].why
    assert results[0].seeds == 3
    with pytest.raises(ConfigError, match=r"not a setting of a study of 'pets-paper'.* There are"):
        run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out", given=["zebra=1"])
    with pytest.raises(ConfigError, match=r"Did you mean least"):
        run_paper(find_papers(root)["pets-paper"], root, out=tmp_path / "out", given=["leats=1"])


def test_random_cells_agree_and_can_disagree(root: Path) -> None:
    found = find_studies(root)
    for study in found.values():
        run_study(study, quick=False, out=study.folder / "results")
    told = list(check_at_random(found.values(), seed=3))
    assert [t["agrees"] for t in told] == [True, True]
    assert told == list(check_at_random(found.values(), seed=3))
    assert all(len(t["seeds"]) == 1 for t in told)
    assert {t["seeds"][0] for s in range(12) for t in check_at_random([found["figure1"]], seed=s)} == {0, 1, 2}
    file = found["figure1"].folder / "results" / "figure1.json"
    saved = json.loads(file.read_text())
    # Seeds 0, 1 and 2 give 1, 2 and 3, with an interval of 2 +- 2.48: only a figure that is further off disagrees.
    for shift, agrees in ((2.0, True), (4.0, False)):
        raw = {seed: {"x": figures["x"] + shift} for seed, figures in saved["raw"]["a"].items()}
        file.write_text(json.dumps({**saved, "raw": {"a": raw}}))
        assert next(check_at_random([found["figure1"]], seed=0))["agrees"] is agrees
    file.write_text(json.dumps({**saved, "seconds": {"a": {"0": 5.0}}}))
    assert next(check_at_random([found["figure1"]], 0, most_seconds=1))["skipped"] == "no cell takes 1 s or less"
    # A cell that the study had and no longer has is no missing data.
    file.write_text(json.dumps({**saved, "raw": {"gone": saved["raw"]["a"]}}))
    told_gone = next(check_at_random([found["figure1"]], 0))
    assert told_gone["agrees"] is False
    assert "has no cell 'gone'" in told_gone["problem"]


def test_a_random_cell_is_stopped_when_the_time_is_over(root: Path) -> None:
    found = find_studies(root)["figure1"]
    run_study(found, quick=False, out=found.folder / "results")
    # What a cell took is not known, or was measured on a faster machine: the clock alone bounds it.
    assert next(check_at_random([found], 0, most_seconds=60))["agrees"] is True
    told = next(check_at_random([found], 0, most_seconds=0.05))
    assert told["skipped"].endswith("took longer than 0.05 s")


def test_the_command_line_runs_lists_and_checks(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["locum", "study", *words, "--studies", str(root)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    code, out, err = run("run", "table1", "--seeds", "3", "--quick")
    assert code == 0
    assert "table1: 3 cells; how long they take is not known yet" in err
    assert "3/3 common/mean seed 2, 0 s" in err
    code, out, _ = run("run", "pets-paper", "--quick")
    assert (code, "# The paper on pets" in out) == (0, True)
    assert "pets-paper" in run("list")[1]
    code, _, err = run("check", "pets-paper")
    assert code == 2
    assert "is a whole paper" in err
    assert run("run", "table1")[0] == 0
    code, out, err = run("check", "--all", "--seed", "1")
    assert code == 0
    assert "Cells are drawn with --seed 1." in err
    assert "figure1: skipped, no committed results." in out
    for words in (("check",), ("check", "table1", "--all"), ("check", "table1", "--seed", "1")):
        assert run(*words)[0] == 2
    code, _, err = run("run", "figure1", "--set", f"mine={root}")
    assert code == 2
    assert "cannot run on another set. It draws its own seeds." in err
