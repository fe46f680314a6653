"""Each verb as it is used, and what it says on wrong use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.data import read_embeddings

Run = Callable[..., Any]


def test_from_file_to_release_to_table(locum: Run, program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    fitted = locum("fit", files["train"], "-o", "release", "--no-dp", "--generator", "cvae", "--epochs", 20, "--json")
    assert fitted.code == 0, fitted.err
    assert fitted.json["claim"]["kind"] == "none"
    assert fitted.json["membership"]["verdict"] in ("leak", "no excess risk found", "inconclusive")
    assert fitted.json["records"] + fitted.json["held_out"] == len(read_embeddings(files["train"]))
    assert not list((tmp_path / ".locum").glob("*"))

    checked = program("verify", "release")
    assert checked.code == 0
    assert fitted.json["fingerprint"] in checked.out
    assert "not covered: membership" in checked.out

    drawn = program("sample", "release", "-n", 30, "-o", "s.parquet", "--seed", 1)
    assert drawn.code == 0
    assert "30 vectors of 8 features" in drawn.out
    assert read_embeddings(tmp_path / "s.parquet").info.class_names == ("ant", "bee", "cat")

    words = ("--test", files["test"], "--train", files["train"], "--seeds", 2, "--json")
    judged = program("evaluate", "release", *words)
    assert judged.code == 0, judged.err
    rows = {row["method"]: row for row in judged.json["rows"]}
    assert list(rows) == ["release (CVAEGenerator)", "real data", "2-Same", "5-Same", "10-Same", "15-Same"]
    assert rows["real data"]["scores"]["auc"]["value"] > 0.9
    assert rows["2-Same"]["distance"]["value"] < rows["15-Same"]["distance"]["value"]
    assert rows["real data"]["distance"] is None
    assert rows["real data"]["distance_ratio"] is None
    # D itself says nothing to a reader; as a multiple of what is usual among records it does.
    ratios = {row["distance"]["value"] / row["distance_ratio"]["value"] for row in rows.values() if row["distance"]}
    assert max(ratios) - min(ratios) < 1e-9
    real = read_embeddings(files["train"]).X
    z = (real - real.mean(axis=0)) / real.std(axis=0)
    apart = np.sqrt(((z[:, None] - z[None]) ** 2).sum(axis=2)) + np.diag(np.full(len(z), np.inf))
    assert ratios.pop() == pytest.approx(float(np.median(apart.min(axis=1))), rel=1e-3)
    shown = program("evaluate", "release", *words[:-1])
    assert "nearest record" in shown.out
    assert "the usual distance between a record and the nearest other one" in " ".join(shown.out.split())
    assert f" {rows['15-Same']['distance_ratio']['value']:.2f} ± " in shown.out
    # Without the records there is nothing to compare with.
    assert "nearest record" not in program("evaluate", "release", "--test", files["test"], "--seeds", 2).out
    assert judged.json["membership"] is not None


def test_scores_by_group_of_real_patients(program: Run, real_data: Path) -> None:
    file = real_data / "nih_cxr14_efflite0.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in LOCUM_DATA")
    assert program("fit", file, "-o", "r", "--no-dp").code == 0
    test = ("evaluate", "r", "--test", file, "--samples", 1000, "--seeds", 2)
    ran = program(*test, "--by", "view", "--by", "effusion", "--json")
    assert ran.code == 0, ran.err
    view, effusion = ran.json["groups"]
    assert (view["attribute"], effusion["attribute"]) == ("view", "effusion")
    assert {g["value"]: g["records"] for g in view["groups"]} == {"AP": 328, "PA": 698}
    assert sum(g["records"] for g in effusion["groups"]) == ran.json["test_records"]
    for group in (*view["groups"], *effusion["groups"]):
        auc = group["scores"]["auc"]
        assert 0.5 < auc["low"] < auc["value"] < auc["high"] <= 1
    assert view["gaps"]["auc"]["best"] == "PA"

    shown = program(*test, "--by", "view,effusion")
    assert "by effusion, trained on: release (ClassGaussian)" in shown.out
    assert "PA is best, AP worst" in shown.out
    assert "Intervals cover seeds and test subjects" in shown.out
    for name, words in (("age", "has 79 values"), ("sex", "no attribute 'sex': they have view, age, effusion")):
        wrong = program(*test, "--by", name)
        assert wrong.code == 2
        assert words in wrong.err
        assert len(wrong.err.strip().splitlines()) == 1


@pytest.mark.parametrize("generator", ["gaussian", "ksame"])
def test_other_generators(program: Run, files: dict[str, Path], generator: str) -> None:
    assert program("fit", files["train"], "-o", "r", "--no-dp", "--generator", generator).code == 0
    shown = program("evaluate", "r", "--test", files["test"], "--head", "mlp", "--seeds", 1)
    assert shown.code == 0, shown.err
    assert "A classifier (mlp) on" in shown.out


def test_exact_counts_by_class_name(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    program("fit", files["train"], "-o", "r", "--no-dp", "--generator", "gaussian")
    assert program("sample", "r", "--per-class", "ant=3,cat=4", "-o", "s.npz").code == 0
    assert read_embeddings(tmp_path / "s.npz").counts.tolist() == [3, 0, 4]


def test_samples_can_keep_their_distance(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    from locum.metrics import nearest

    program("fit", files["train"], "-o", "r", "--no-dp", "--generator", "gaussian")
    ran = program("sample", "r", "-n", 40, "-o", "s.npz", "--min-distance", 3.0, "--real", files["train"])
    assert ran.code == 0, ran.err
    real = read_embeddings(files["train"])
    assert nearest(read_embeddings(tmp_path / "s.npz").X, real.X)[0].min() >= 3.0


def test_a_leak_can_gate(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    ran = program(
        "fit",
        files["train"],
        "-o",
        "r",
        "--no-dp",
        "--generator",
        "ksame",
        "--k",
        2,
        "--fail-on-leak",
        "--non-members",
        files["test"],
    )
    assert ran.code == 3
    assert "found a leak" in one_sentence(ran.err)
    assert not (tmp_path / "r").exists()


def test_doctor_is_content_here(program: Run) -> None:
    ran = program("doctor", "--json")
    assert ran.code == 0
    assert ran.json["ok"]
    assert {"numpy", "extra train", "torch runs", "Python"} <= {f["what"] for f in ran.json["findings"]}
    assert all(f["missing"] == f["found"].startswith(("not installed", "not set")) for f in ran.json["findings"])


def one_sentence(err: str) -> str:
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("fit", "nothing.npz", "-o", "r", "--no-dp"), "nothing.npz"),
        (("fit", "train.npz", "-o", "r", "--no-dp", "--generator", "cvae", "--preset", "huge"), "preset"),
        (("fit", "train.npz", "-o", "r", "--no-dp", "--generator", "gaussian", "--k", "3"), "no setting 'k'"),
        (("fit", "train.npz", "-o", "r", "--no-dp", "--holdout", "0"), "holdout"),
        (("fit", "train.npz#val", "-o", "r", "--no-dp"), "val"),
        (("fit", "train.npz", "-o", "r", "--no-dp", "--generator", "cvae", "--condition-on", "sex"), "sex"),
        (("fit", "nan.npz", "-o", "r", "--no-dp"), "finite"),
        (("fit", "one.npz", "-o", "r", "--no-dp"), "class"),
        (("fit", "cut.npz", "-o", "r", "--no-dp"), "cut.npz"),
        (("fit", "objects.npz", "-o", "r", "--no-dp"), "object"),
        (("verify", "nothing"), "not a folder"),
        (("sample", "nothing", "-n", "3", "-o", "s.npz"), "not a folder"),
        (("evaluate", "nothing", "--test", "test.npz"), "not a folder"),
        (("study", "run", "nothing"), "studies"),
    ],
)
def test_wrong_input_gets_one_sentence_and_code_2(
    program: Run, files: dict[str, Path], tmp_path: Path, arguments: tuple, word: str
) -> None:
    X, y = np.ones((8, 2)), np.arange(8) % 2
    np.savez(tmp_path / "nan.npz", X=X * np.nan, y=y)
    np.savez(tmp_path / "one.npz", X=X, y=np.zeros(8, int))
    np.savez(tmp_path / "objects.npz", X=np.array([[object()]] * 8, dtype=object), y=y)
    (tmp_path / "cut.npz").write_bytes(files["train"].read_bytes()[:500])
    before = sorted(p.name for p in tmp_path.iterdir())
    ran = program(*arguments)
    assert ran.code == 2, ran.out + ran.err
    assert word in one_sentence(ran.err)
    assert ran.out == ""
    left = sorted(p.name for p in tmp_path.iterdir() if p.name != ".locum")
    assert left == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("sample", "r", "-o", "s.npz"), "how many"),
        (("sample", "r", "-n", "3", "-o", "s.doc"), ".doc"),
        (("sample", "r", "--per-class", "dog=3", "-o", "s.npz"), "no class 'dog'"),
        (("sample", "r", "--per-class", "dog", "-o", "s.npz"), "NAME=COUNT"),
        (("sample", "r", "-n", "3", "-o", "test.npz"), "already exists"),
        (("sample", "r", "-n", "3", "-o", "s.npz", "--min-distance", "1"), "belong together"),
        (("fit", "train.npz", "-o", "r", "--no-dp"), "already exists"),
        (("evaluate", "r", "--test", "wide.npz"), "features"),
        (("evaluate", "r", "--test", "other.npz"), "not among the known classes"),
        (("evaluate", "r", "--test", "backbone.npz"), "Embed them in the same way"),
    ],
)
def test_wrong_use_of_a_release(
    program: Run, files: dict[str, Path], tmp_path: Path, arguments: tuple, word: str
) -> None:
    from locum import EmbeddingInfo, EmbeddingSet
    from locum.data import write_embeddings
    from locum.recipes import fit_release

    train = read_embeddings(files["train"])
    info = EmbeddingInfo("efflite0", "", "abc", train.info.class_names)
    write_embeddings(files["train"], EmbeddingSet(train.X, train.y, info=info))
    fit_release(str(files["train"]), tmp_path / "r", generator="gaussian", no_dp=True)
    y = np.arange(20) % 2
    np.savez(tmp_path / "wide.npz", X=np.ones((20, 9)), y=np.array(["ant", "bee"])[y])
    np.savez(tmp_path / "other.npz", X=np.ones((20, 8)), y=np.array(["ant", "dog"])[y])
    other = EmbeddingInfo("dinov2", "", "xyz", train.info.class_names)
    write_embeddings(tmp_path / "backbone.npz", EmbeddingSet(train.X, train.y, info=other))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    ran = program(*arguments)
    assert ran.code == 2, ran.out + ran.err
    assert word in one_sentence(ran.err)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


def test_no_traceback_from_the_installed_program(locum: Run) -> None:
    ran = locum("verify", "nothing")
    assert ran.code == 2
    assert "nothing" in one_sentence(ran.err)


def test_usage_errors_are_code_2(locum: Run, program: Run) -> None:
    assert program("fit").code == 2
    assert locum("nonsense").code == 2
    assert program("--version").out.startswith("locum 0.")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_leave_to_write(locum: Run, files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    ran = locum("fit", files["train"], "-o", "locked/r", "--no-dp", "--generator", "gaussian")
    assert ran.code in (1, 2)
    one_sentence(ran.err)


def test_a_hostile_release_cannot_drive_the_terminal(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    import json

    assert "error" not in program("fit", files["train"], "-o", "r", "--no-dp").err
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    manifest["claim"]["not_covered"] = ["\x1b[2J\x1b]0;owned\x07 all is well [bold]:dog:"]
    manifest["class_names"][0] = "\x1b[31mred"
    (tmp_path / "r" / "manifest.json").write_text(json.dumps(manifest))
    shown = program("verify", "r")
    assert "all is well [bold]:dog:" in shown.out
    for text in (shown.out, program("sample", "r", "--per-class", "x=1", "-o", "s.npz").err):
        assert "\x1b" not in text
        assert "\x07" not in text


def test_rare_classes_that_are_not_drawn_count_as_missed(
    program: Run, tmp_path: Path, rng: np.random.Generator
) -> None:
    y = np.repeat([0, 1, 2], [300, 290, 4])
    X = rng.normal(size=(len(y), 3)) + y[:, None]
    np.savez(tmp_path / "d.npz", train_x=X, train_y=y, test_x=X + 0.1, test_y=y)
    assert program("fit", "d.npz", "-o", "r", "--no-dp").code == 0
    ran = program("evaluate", "r", "--test", "d.npz", "--samples", 30, "--seeds", 1, "--json")
    assert ran.code == 0, ran.err
    assert 0.3 < ran.json["rows"][0]["scores"]["balanced_accuracy"]["value"] < 0.8
    assert ran.json["rows"][0]["scores"]["auc"]["low"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("sample", "r", "-n", 10**13, "-o", "s.npz"),
        ("sample", "r", "-n", 3, "-o", "s.npz", "--seed", -1),
        ("sample", "r", "--per-class", "ant=²", "-o", "s.npz"),
        ("sample", "r", "--per-class", f"ant={10**23}", "-o", "s.npz"),
        ("fit", "train.npz", "-o", "r2", "--no-dp", "--variance", 1e7),
        ("fit", "long.npz", "-o", "r2", "--no-dp"),
    ],
)
def test_too_much_of_a_thing(program: Run, files: dict[str, Path], tmp_path: Path, arguments: tuple) -> None:
    np.savez(
        tmp_path / "long.npz", X=np.random.default_rng(0).normal(size=(90, 2)), y=np.array(["a" * 300, "b"] * 45)
    )
    program("fit", files["train"], "-o", "r", "--no-dp")
    ran = program(*arguments)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert ran.out == ""
    assert not (tmp_path / "s.npz").exists()
    assert not (tmp_path / "r2").exists()


def test_studies_are_listed_without_the_extras_of_some(
    program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, needs in (("plain", "math"), ("tails", "imblearn")):
        folder = tmp_path / "studies" / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f"[{name}]\nseeds = [0]\n")
        made = f'Study("About {name}", lambda config: {{}}, lambda results, out: "")'
        (folder / "run.py").write_text(
            f'import {needs}\nfrom locum.recipes import Study\nSTUDIES = {{"{name}": {made}}}\n'
        )
    monkeypatch.setitem(sys.modules, "imblearn", None)
    shown = program("study", "list")
    assert shown.code == 0, shown.err
    assert "About plain" in shown.out
    assert "locum[rebalance]" in shown.out
    rows = {row["name"]: row["needs"] for row in program("study", "list", "--json").json}
    assert rows == {"plain": None, "tails": "locum[rebalance]"}
    refused = program("study", "run", "tails")
    assert refused.code == 2
    assert "pip install 'locum[rebalance]'" in refused.err.replace("\n", " ")
    everything = program("study", "check", "--all")
    assert everything.code == 0, everything.err
    assert "tails: skipped" in everything.out


@pytest.mark.parametrize("group", ["study", "obfuscate", "ledger"])
def test_the_usage_of_a_group_uses_the_word_of_its_sections(program: Run, group: str) -> None:
    shown = program(group, "--help").out
    assert "VERB ..." in shown
    assert "COMMAND" not in shown
