"""The machinery of studies, on a study made for the purpose."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from locum.errors import ConfigError, DataError, MissingExtraError
from locum.recipes import (
    StudyResults,
    apply_settings,
    check_study,
    expect_time,
    find_studies,
    load_studies,
    render_study,
    run_study,
)
from locum.recipes.study import data_folder

RUN = """
from pathlib import Path
from locum.recipes.study import Study, markdown_table

def cells(config):
    def make(name):
        def cell(seed):
            Path(config["log"]).open("a").write(f"{name}{seed}\\n")
            if config.get("die_at") == f"{name}{seed}":
                raise KeyboardInterrupt
            return {"x": config["base"] + seed / 10, "y": 1.0}
        return cell
    return {"a": make("a"), "b": make("b")}

def render(results, out):
    return markdown_table(["cell", "x"], [[c, results.estimate(c, "x")] for c in results.raw])

STUDIES = {"tiny": Study("A tiny study", cells, render)}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "studies" / "made-up"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text(RUN)
    config = f'[tiny]\nseeds = [0, 1, 2]\nbase = 5\nlog = "{tmp_path / "log"}"\n[tiny.quick]\nseeds = [0, 1]\n'
    (folder / "config.toml").write_text(config)
    return tmp_path / "studies"


def test_results_are_written_with_intervals(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    results = run_study(found, quick=False, out=tmp_path / "out")
    assert results.estimate("a", "x").value == pytest.approx(5.1)
    assert results.difference("a", "b", "x").value == 0
    saved = json.loads((tmp_path / "out" / "tiny.json").read_text())
    assert saved["estimates"]["b"]["x"]["n"] == 3
    assert "| a | 5.100 [4.852, 5.348] |" in (tmp_path / "out" / "tiny.md").read_text()


def test_seeds_that_differ_are_told() -> None:
    results = StudyResults({"a": {"0": {"x": 0.1, "y": 0.50}, "1": {"x": 0.9, "y": 0.52}}}, {"seeds": [0, 1]}, False)
    assert results.told("a", "x", ".2f", spread=0.03) == "0.50 (0.10 to 0.90)"
    assert results.told("a", "y", ".2f", spread=0.03) == "0.51"


def test_several_processes_give_the_same(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    one = run_study(found, quick=False, out=tmp_path / "one")
    two = run_study(found, quick=False, out=tmp_path / "two", jobs=2)
    assert one.raw == two.raw
    assert [list(seeds) for seeds in two.raw.values()] == [["0", "1", "2"]] * 2
    with pytest.raises(ConfigError, match="jobs"):
        run_study(found, quick=False, out=tmp_path / "two", jobs=0)


def test_tables_can_be_written_again_without_computing(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    run_study(found, quick=False, out=tmp_path / "out")
    text, log = (tmp_path / "out" / "tiny.md").read_text(), (tmp_path / "log").read_text()
    (tmp_path / "out" / "tiny.md").unlink()
    render_study(found, tmp_path / "out" / "tiny.json")
    assert (tmp_path / "out" / "tiny.md").read_text() == text
    assert (tmp_path / "log").read_text() == log


def test_a_figure_that_is_text_is_kept_and_has_no_estimate(root: Path, tmp_path: Path) -> None:
    run = root / "made-up" / "run.py"
    run.write_text(run.read_text().replace('"y": 1.0}', '"y": 1.0, "bits": f"0{seed}"}'))
    found = find_studies(root)["tiny"]
    results = run_study(found, quick=False, out=tmp_path / "out")
    assert results.texts("b", "bits") == ["00", "01", "02"]
    saved = json.loads((tmp_path / "out" / "tiny.json").read_text())
    assert set(saved["estimates"]["a"]) == {"x", "y"}
    assert set(check_study(found, tmp_path / "out" / "tiny.json", "a")["figures"]) == {"x", "y"}


def test_quick_says_what_differs(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    run_study(found, quick=True, out=tmp_path / "out")
    assert (
        "Quick run, for a first look: `seeds` differs from a full run." in (tmp_path / "out" / "tiny.md").read_text()
    )
    assert (tmp_path / "log").read_text().split() == ["a0", "a1", "b0", "b1"]
    # What was typed is the same in a full run.
    run_study(found.with_seeds(2), quick=True, out=tmp_path / "two")
    assert "with these settings a full run is the same" in (tmp_path / "two" / "tiny.md").read_text()


def test_results_of_other_settings_are_replaced_only_if_asked(root: Path, tmp_path: Path) -> None:
    found, out = find_studies(root)["tiny"], tmp_path / "out"
    run_study(found, quick=False, out=out)
    before = (out / "tiny.json").read_bytes()
    other = found.changed(["base=6"])
    with pytest.raises(ConfigError, match=r"results of 'tiny' with other settings \(base\).* --force"):
        run_study(other, quick=False, out=out)
    assert (out / "tiny.json").read_bytes() == before
    run_study(found, quick=False, out=out)
    assert run_study(other, quick=False, out=out, overwrite=True).runs("a", "x")[0] == 6
    # Cells of a run that stopped are hours of work too.
    (out / "tiny.json").rename(out / "tiny.partial.json")
    with pytest.raises(ConfigError, match="with other settings"):
        run_study(found, quick=False, out=out)


@pytest.mark.parametrize(("typed", "meant"), [("bsae=6", "base"), ("sedes=[1]", "seeds")])
def test_a_mistyped_setting_is_told_what_it_may_mean(root: Path, tmp_path: Path, typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"Did you mean {meant}\?"):
        apply_settings(find_studies(root)["tiny"], [typed], place=tmp_path)


def test_a_killed_study_goes_on_where_it_stopped(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    config = (found.folder / "config.toml").read_text()
    module = (found.folder / "run.py").read_text()
    (found.folder / "run.py").write_text(module.replace('config.get("die_at")', '"b1"'))
    with pytest.raises(KeyboardInterrupt):
        run_study(find_studies(root)["tiny"], quick=False, out=tmp_path / "out")
    (found.folder / "run.py").write_text(module)
    assert config
    run_study(find_studies(root)["tiny"], quick=False, out=tmp_path / "out")
    assert (tmp_path / "log").read_text().split() == ["a0", "a1", "a2", "b0", "b1", "b1", "b2"]
    assert not (tmp_path / "out" / "tiny.partial.json").exists()


def test_a_few_timed_cells_tell_about_how_long_it_takes(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    cells = len(found.study.cells(found.config)) * len(found.config["seeds"])
    assert expect_time(found, quick=False, out=tmp_path / "out").seconds is None
    for timed, seconds, said in (({"a": 2.0, "b": 4.0}, 3, "by a few cells"), ({"a": 2.0, "b": None}, 6, "or more")):
        (root / "seconds.json").write_text(json.dumps({"limit": 10, "cells": {"tiny": timed}}))
        expected = expect_time(found, quick=False, out=tmp_path / "out")
        assert expected.seconds == pytest.approx(seconds * cells)
        assert said in expected.sentence()
    # Quick settings have other cells.
    assert expect_time(found, quick=True, out=tmp_path / "out").seconds is None


def test_with_more_seeds_the_committed_cells_are_kept(root: Path, tmp_path: Path) -> None:
    few = find_studies(root)["tiny"].changed(["seeds=[0, 2]"])
    with pytest.raises(ConfigError, match="no results of 'tiny' to keep"):
        run_study(few, quick=False, out=tmp_path / "out", keep=True)
    run_study(few, quick=False, out=root / "made-up" / "results")
    (tmp_path / "log").write_text("")
    found = find_studies(root)["tiny"]
    assert expect_time(found, quick=False, out=tmp_path / "out", keep=True).done == 4
    kept = run_study(found, quick=False, out=tmp_path / "out", keep=True)
    assert (tmp_path / "log").read_text().split() == ["a1", "b1"]
    assert kept.raw == run_study(found, quick=False, out=tmp_path / "new").raw
    for other in (["base=6"], ["seeds=[0, 1]"]):
        with pytest.raises(ConfigError, match=f"cannot be kept: '{other[0].partition('=')[0]}' was"):
            run_study(found.changed(other), quick=False, out=tmp_path / "out", keep=True)


def test_check_agrees_and_can_disagree(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    run_study(found, quick=False, out=tmp_path / "out")
    results = tmp_path / "out" / "tiny.json"
    assert check_study(found, results, "b")["agrees"]
    saved = json.loads(results.read_text())
    saved["config"]["base"] = 9
    results.write_text(json.dumps(saved))
    told = check_study(found, results, None)
    assert not told["agrees"]
    assert told["figures"]["y"]["agrees"]
    with pytest.raises(ConfigError, match="no cell 'zebra'"):
        check_study(found, results, "zebra")
    with pytest.raises(ConfigError, match="run the study first"):
        check_study(found, tmp_path / "none.json", None)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="source tree"):
        find_studies(tmp_path / "nowhere")
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    with pytest.raises(DataError, match="LOCUM_DATA"):
        data_folder()


def test_a_study_whose_extra_is_missing_does_not_hide_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = root / "other"
    other.mkdir()
    (other / "run.py").write_text("import imblearn\n" + RUN.replace('"tiny":', '"large":'))
    (other / "config.toml").write_text("[large]\nseeds = [0]\n")
    monkeypatch.setitem(sys.modules, "imblearn", None)
    found, missing = load_studies(root)
    assert list(found) == ["tiny"]
    assert {name: error.extra for name, error in missing.items()} == {"large": "rebalance"}
    with pytest.raises(MissingExtraError, match=r"locum\[rebalance\]"):
        find_studies(root)
    # A package that no extra brings is a bug of the study, and is not hidden.
    (other / "run.py").write_text("import a_package_that_nobody_has\n")
    with pytest.raises(ModuleNotFoundError, match="nobody_has"):
        load_studies(root)


def test_a_run_that_could_not_draw_stops_before_the_first_cell(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_studies(root)["tiny"]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for run in (
        lambda: run_study(found, quick=False, out=tmp_path / "out"),
        lambda: apply_settings(found, [], place=tmp_path),
    ):
        with pytest.raises(MissingExtraError, match=r"locum\[figures\]"):
            run()
    assert not (tmp_path / "log").exists()
    run_study(replace(found, study=replace(found.study, draws=False)), quick=False, out=tmp_path / "out")
    assert (tmp_path / "log").exists()


def test_the_project_s_own_studies_can_be_listed() -> None:
    found = find_studies(Path(__file__).parents[2] / "studies")
    assert "generator-defaults" in found
    assert all(s.config["seeds"] for s in found.values())


def test_a_committed_number_can_be_computed_again(real_data: Path) -> None:
    """One cell of the committed table of the replica seed, from the real records."""
    root = Path(__file__).parents[2] / "studies"
    found = find_studies(root)["replica-results"]
    told = check_study(found, found.folder / "results" / "replica-results.json", "breastmnist_efflite0/5-Same")
    assert told["agrees"], told
    assert told["figures"]["offline/auc0"]["recomputed"]["value"] > 0.7


def test_one_seed_must_agree_closely(root: Path, tmp_path: Path) -> None:
    found = find_studies(root)["tiny"]
    (found.folder / "config.toml").write_text((found.folder / "config.toml").read_text().replace("[0, 1, 2]", "[0]"))
    found = find_studies(root)["tiny"]
    run_study(found, quick=False, out=tmp_path / "out")
    results = tmp_path / "out" / "tiny.json"
    assert check_study(found, results, "a")["agrees"]
    saved = json.loads(results.read_text())
    saved["estimates"]["a"]["x"]["value"] *= 1000
    results.write_text(json.dumps(saved))
    assert not check_study(found, results, "a")["agrees"]
