"""`train` and `predict` as a receiver uses them: what is said where, and what is said of mistakes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingInfo, EmbeddingSet
from locum.data import read_embeddings, write_embeddings
from locum.recipes import fit_release, train_head

Run = Callable[..., Any]


def one_sentence(err: str) -> str:
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in err
    return lines[0]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the release and the head lie that every test gets a copy of."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def release(files: dict[str, Path], tmp_path: Path, kept: Path) -> Path:
    """Of the training file, whose vectors say where they come from."""
    for path in files.values():
        part = read_embeddings(path)
        info = EmbeddingInfo("efflite0", "", "abc", part.info.class_names)
        write_embeddings(path, EmbeddingSet(part.X, part.y, info=info))
    if not (kept / "release").exists():
        fit_release(str(files["train"]), kept / "release", no_dp=True)
    return shutil.copytree(kept / "release", tmp_path / "release")


@pytest.fixture
def head(release: Path, tmp_path: Path, kept: Path) -> Path:
    if not (kept / "head.safetensors").exists():
        train_head(release, kept / "head.safetensors", samples=600)
    return shutil.copy(kept / "head.safetensors", tmp_path / "head.safetensors")


def test_the_receiver_s_story(
    locum: Run, program: Run, release: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    trained = locum("train", "release", "-o", "head.safetensors")
    assert trained.code == 0, trained.err
    assert "trained on  10000 vectors of the release" in trained.out
    # The caveat comes before the figures.
    caveat = trained.out.index("on the release's own samples, which say nothing about real records")
    assert caveat < trained.out.index("accuracy")
    assert "not covered: membership" in trained.out

    told = program("predict", "head.safetensors", files["test"], "-o", "p.csv")
    assert told.code == 0, told.err
    assert told.err == ""
    records = len(read_embeddings(files["test"]))
    assert f"{records} predicted with head.safetensors" in told.out
    assert f"on {records} labeled records" in told.out
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert len(rows) == records
    labels = read_embeddings(files["test"]).labels
    assert np.mean([row["label"] == label for row, label in zip(rows, labels, strict=True)]) > 0.8
    assert (tmp_path / "p.csv").stat().st_mode & 0o777 == 0o600
    assert program("verify", "release").code == 0


def test_the_table_goes_to_standard_output_and_all_else_beside_it(
    program: Run, head: Path, files: dict[str, Path]
) -> None:
    ran = program("predict", head, files["test"])
    assert ran.code == 0
    rows = list(csv.reader(io.StringIO(ran.out)))
    assert rows[0] == ["record", "label", "probability", "p_ant", "p_bee", "p_cat"]
    assert len(rows) == 1 + len(read_embeddings(files["test"]))
    assert "labeled records" in ran.err
    assert "error:" not in ran.err


def test_json_is_one_document(program: Run, release: Path, files: dict[str, Path]) -> None:
    trained = program("train", release, "-o", "h.safetensors", "--head", "mlp", "--samples", 300, "--json")
    assert trained.code == 0, trained.err
    assert trained.json["kind"] == "mlp"
    assert trained.json["rows"] == 300
    assert trained.json["scored_on"] == "the release's own samples, which say nothing about real records"
    names = {"accuracy", "balanced_accuracy", "auc", "f1_macro", "calibration_error"}
    assert set(trained.json["scores"]) == names
    assert trained.json["calibration"] is None
    inline = program("predict", "h.safetensors", files["test"], "--json")
    assert inline.json["release"] == trained.json["release"]
    assert len(inline.json["predictions"]) == inline.json["records"]
    written = program("predict", "h.safetensors", files["test"], "--json", "-o", "p.csv")
    assert written.json["file"] == "p.csv"
    assert written.json["scores"] == inline.json["scores"]
    assert "predictions" not in written.json


def test_calibrated_probabilities(program: Run, release: Path, files: dict[str, Path]) -> None:
    plain = program("train", release, "-o", "plain.safetensors", "--samples", 600, "--json")
    told = program("train", release, "-o", "h.safetensors", "--samples", 600, "--calibrate")
    assert told.code == 0, told.err
    assert "calibrated  temperature" in told.out
    assert "Fitted to the release: real records differ from its samples." in told.out
    ran = program("train", release, "-o", "h.safetensors", "--samples", 600, "--calibrate", "--force", "--json")
    assert ran.json["calibration"]["rows"] == 2000
    assert ran.json["calibration"]["after"] == ran.json["scores"]["calibration_error"]
    assert ran.json["scores"]["accuracy"] == plain.json["scores"]["accuracy"]
    assert ran.json["calibration"]["before"]["value"] == plain.json["scores"]["calibration_error"]["value"]
    shown = program("predict", "h.safetensors", files["test"], "-o", "p.csv")
    assert "calibration error" in shown.out


def test_force_overwrites(program: Run, head: Path, release: Path, files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("mine")
    refused = program("predict", head, files["test"], "-o", "p.csv")
    assert refused.code == 2
    assert "--force" in one_sentence(refused.err)
    assert (tmp_path / "p.csv").read_text() == "mine"
    assert program("predict", head, files["test"], "-o", "p.csv", "--force").code == 0
    before = head.read_bytes()
    assert program("train", release, "-o", head).code == 2
    assert program("train", release, "-o", head, "--samples", 100, "--seed", 7, "--force").code == 0
    assert head.read_bytes() != before


def test_unknown_labels_are_told(program: Run, head: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=np.zeros((4, 8)), y=np.array(["ant", "bee", "wasp", "wasp"]))
    ran = program("predict", head, "d.npz", "-o", "p.csv")
    assert ran.code == 0
    assert "2 records with a label unknown to the head" in ran.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("train", "nothing", "-o", "h.safetensors"), "not a folder"),
        (("train", "release", "-o", "h"), ".safetensors"),
        (("train", "release", "-o", "release/h.safetensors"), "damage the release"),
        (("train", "release", "-o", "no/h.safetensors"), "'no/h.safetensors'"),
        (("train", "release", "-o", "h.safetensors", "--samples", "3"), "two of each class"),
        (("predict", "nothing.safetensors", "test.npz"), "no head at"),
        (("predict", "release", "test.npz"), "is a folder"),
        (("predict", "test.npz", "test.npz"), "pickles are never opened"),
        (("predict", "release/decoder.safetensors", "test.npz"), "not a head"),
        (("predict", "head.safetensors", "nothing.npz"), "nothing.npz"),
        (("predict", "head.safetensors", "test.npz#val"), "val"),
        (("predict", "head.safetensors", "wide.npz"), "8 features"),
        (("predict", "head.safetensors", "backbone.npz"), "Embed them in the same way"),
        (("predict", "head.safetensors", "test.npz", "-o", "p.txt"), ".csv"),
        (("predict", "head.safetensors", "test.npz", "-o", "no/p.csv"), "'no/p.csv'"),
    ],
)
def test_mistakes_get_one_sentence_and_code_2(
    program: Run, head: Path, tmp_path: Path, arguments: tuple, word: str
) -> None:
    X, y = np.ones((6, 9)), np.array(["ant", "bee"] * 3)
    np.savez(tmp_path / "wide.npz", X=X, y=y)
    other = EmbeddingInfo("dinov2", "", "xyz", ("ant", "bee"))
    write_embeddings(tmp_path / "backbone.npz", EmbeddingSet(X[:, :8], np.arange(6) % 2, info=other))
    before = sorted(tmp_path.rglob("*"))
    ran = program(*arguments)
    assert ran.code == 2, ran.out + ran.err
    assert word in one_sentence(ran.err)
    assert ran.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_usage_errors_are_code_2(program: Run) -> None:
    assert program("train", "release").code == 2
    assert program("predict", "head.safetensors").code == 2
    assert program("train", "release", "-o", "h.safetensors", "--head", "forest").code == 2


def test_a_hostile_head_cannot_drive_the_terminal(program: Run, head: Path, files: dict[str, Path]) -> None:
    from safetensors.numpy import load, save

    raw = head.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    said = json.loads(header["__metadata__"]["locum"])
    said["class_names"] = ["\x1b[2Jant", "=1+1", "\x1b]0;owned\x07[bold]"]
    head.write_bytes(save(load(raw), {"locum": json.dumps(said)}))
    shown = program("predict", head, files["test"])
    assert shown.code == 0, shown.err
    assert ",'=1+1," in shown.out
    for text in (shown.out, shown.err, program("predict", head, files["test"], "-o", "p.csv").out):
        assert "\x1b" not in text
        assert "\x07" not in text
