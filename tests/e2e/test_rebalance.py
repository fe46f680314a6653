"""`locum rebalance` and `locum rebalance compare` as users type them, and as they mistype them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingInfo, EmbeddingSet
from locum.data import load_digit_images, read_embeddings, write_embeddings
from locum.generate import PRESETS
from locum.rebalance import METHODS

Run = Callable[..., Any]
SLOW = ["cvae-small", "cvae-large", "algorithm-1", "algorithm-1-remix"]


def one_sentence(err: str) -> str:
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    return lines[0]


def test_help_shows_both_and_each_has_its_own(program: Run) -> None:
    def shown(*words: str) -> str:
        ran = program(*words)
        assert ran.code == 0
        return " ".join(ran.out.replace("│", "").split())

    both = shown("rebalance", "--help")
    for words in (
        "[run] DATA -o FILE | compare DATA --test DATA",
        "that fill up rare classes",
        "Train a linear head with",
    ):
        assert words in both
    for own in (shown("rebalance", "run", "--help"), shown("rebalance", "train.npz", "-h")):
        for words in ("rebalance run [OPTIONS] DATA", "--amount", "guarantees no privacy"):
            assert words in own
    other = shown("rebalance", "compare", "--help")
    assert "--figure" in other
    assert "--amount" not in other
    assert "rebalance" in shown("--help")


def test_a_file_with_or_without_the_word_run(
    locum: Run, program: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    ran = locum("rebalance", files["train"], "-o", "b.npz")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    real, made = read_embeddings(files["train"]), read_embeddings(tmp_path / "b.npz")
    assert real.counts.tolist() == [84, 42, 21]
    assert made.counts.tolist() == [84, 84, 84]
    assert (made.attributes["generated"] == "yes").sum() == 42 + 63
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["bee", "42", "42", "84"] in lines
    assert ["cat", "21", "63", "84"] in lines
    assert "holds the real records" in ran.out
    assert "guarantees no privacy" in ran.out
    again = program("rebalance", "run", "-o", "c.npz", files["train"], "--json")
    assert again.code == 0, again.err
    assert (again.json["records"], again.json["added"]) == (147, 105)
    assert "no privacy" in again.json["privacy"]
    np.testing.assert_array_equal(read_embeddings(tmp_path / "c.npz").X, made.X)


def test_compare_shows_a_table_and_a_picture(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = program(
        *("rebalance", "compare", files["train"], "--test", files["test"], "--methods", "weights, gaussian,smote"),
        *("--seeds", 2, "--head", "thesis", "--figure", "f.png"),
    )
    assert ran.code == 0, ran.err
    assert ran.err == ""
    for word in (
        "weights",
        "gaussian",
        "smote",
        "reference",
        "all classes",
        "few",
        "against weights",
        "over 2 seeds",
        "at least one of the two includes 0",
    ):
        assert word in " ".join(ran.out.split())
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_compare_as_json_has_every_method(program: Run, files: dict[str, Path]) -> None:
    ran = program(
        "rebalance", "compare", files["train"], "--test", files["test"], "--seeds", 1, "--head", "thesis", "--json"
    )
    assert ran.code == 0, ran.err
    assert ran.json["left_out"] == SLOW
    assert [row["method"] for row in ran.json["rows"]] == [m for m in METHODS if m not in SLOW]
    assert ran.json["reference"] in ran.json["simple"]
    for row in ran.json["rows"]:
        assert set(row["scores"]) == {"balanced_accuracy", "accuracy", "medium"}
        assert row["verdict"] == ("reference" if row["method"] == ran.json["reference"] else "one run")
        assert [c["label"] for c in row["by_class"]] == ["ant", "bee", "cat"]


def test_all_adds_the_slow_ones(program: Run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    # They are slow by their 500 epochs; which ones are added, and that each gives a row, shows after 5.
    for name in ("small", "large"):
        monkeypatch.setitem(PRESETS, name, replace(PRESETS[name], max_epochs=5))
    words = ("rebalance", "compare", files["train"], "--test", files["test"], "--all", "--seeds", 1)
    ran = program(*words, "--head", "thesis", "--json")
    assert ran.code == 0, ran.err
    assert [row["method"] for row in ran.json["rows"]] == list(METHODS)
    assert ran.json["left_out"] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nothing.npz", "-o", "b.npz"), "nothing.npz"),
        (("train.npz", "-o", "b.doc"), ".doc"),
        (("train.npz", "-o", "no/b.npz"), "folder does not exist"),
        (("train.npz", "-o", "test.npz"), "already exists"),
        (("train.npz", "-o", "train.npz", "--force"), "is never overwritten"),
        (("train.npz#train", "-o", "b.npz"), "train"),
        (("one.npz", "-o", "b.npz"), "one class"),
        (("train.npz", "-o", "b.npz", "--strategy", "majority"), "--strategy takes auto"),
        (("train.npz", "-o", "b.npz", "--strategy", "nan"), "--strategy takes auto"),
        (("train.npz", "-o", "b.npz", "--strategy", "0.5"), "float only when"),
        (("two.npz", "-o", "b.npz", "--strategy", "0.01"), "increase the ratio"),
        (("train.npz", "-o", "b.npz", "--per-class", "dog=100"), "no class 'dog'"),
        (("train.npz", "-o", "b.npz", "--per-class", "ant=3"), "none is removed"),
        (("train.npz", "-o", "b.npz", "--per-class", "ant"), "NAME=COUNT"),
        (("train.npz", "-o", "b.npz", "--per-class", "cat=90", "--amount", "0.5"), "exact sizes"),
        (("train.npz", "-o", "b.npz", "--per-class", f"cat={10**11}"), "memory"),
        (("train.npz", "-o", "b.npz", "--amount", "2"), "amount"),
        (("train.npz", "-o", "b.npz", "--variance", "-1"), "variance"),
        (("train.npz", "-o", "b.npz", "--generator", "smote"), "--generator takes gaussian"),
        (("train.npz", "-o", "b.npz", "--generator", "."), "manifest"),
        (("train.npz", "-o", "b.npz", "--backbone", "efflite0"), "leave --backbone out"),
        (("compare", "nothing.npz", "--test", "test.npz"), "nothing.npz"),
        (("compare", "train.npz", "--test", "train.npz"), "equal a training record"),
        (("compare", "train.npz", "--test", "wide.npz"), "features"),
        (("compare", "train.npz", "--test", "other.npz"), "not among the known classes"),
        (("compare", "train.npz", "--test", "backbone.npz"), "cannot be mixed"),
        (("compare", "train.npz", "--test", "one.npz"), "one class"),
        (("compare", "train.npz", "--test", "test.npz", "--methods", "none,magic"), "no method 'magic'"),
        (("compare", "train.npz", "--test", "test.npz", "--methods", ","), "at least one"),
        (("compare", "train.npz", "--test", "test.npz", "--methods", "none", "--all"), "cannot be combined"),
        (("compare", "train.npz", "--test", "test.npz", "--seeds", "0"), "seeds"),
        (("compare", "train.npz", "--test", "test.npz", "--figure", "f.txt"), "must end in"),
        (("compare", "train.npz", "--test", "test.npz", "--figure", "no/f.png"), "folder does not exist"),
        (("compare", "train.npz", "--test", "test.npz", "--figure", "test.png"), "already exists"),
    ],
)
def test_wrong_input_gets_one_sentence_and_leaves_nothing(
    program: Run, files: dict[str, Path], tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    train = read_embeddings(files["train"])
    info = EmbeddingInfo("toy", "1", "p", train.info.class_names)
    write_embeddings(files["train"], EmbeddingSet(train.X, train.y, info=info))
    y = np.arange(20) % 2
    X = np.random.default_rng(0).normal(size=(20, 8))
    np.savez(tmp_path / "one.npz", X=X, y=np.full(20, "ant"))
    np.savez(tmp_path / "two.npz", X=X, y=np.array(["ant", "bee"])[y])
    np.savez(tmp_path / "wide.npz", X=np.ones((20, 9)), y=np.array(["ant", "bee"])[y])
    np.savez(tmp_path / "other.npz", X=X, y=np.array(["ant", "dog"])[y])
    write_embeddings(tmp_path / "backbone.npz", EmbeddingSet(train.X, train.y, info=EmbeddingInfo("other", "2")))
    (tmp_path / "test.png").touch()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    ran = program("rebalance", *arguments)
    assert ran.code == 2, ran.out + ran.err
    assert word in one_sentence(ran.err)
    assert ran.out == ""
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_a_folder_of_images(program: Run, tmp_path: Path) -> None:
    from PIL import Image

    images, labels = load_digit_images()
    for digit, n in ((0, 8), (1, 3)):
        place = tmp_path / "images" / ("zero", "one")[digit]
        place.mkdir(parents=True)
        for k in np.flatnonzero(labels == digit)[:n]:
            Image.fromarray(images[k]).save(place / f"{k}.png")
    ran = program("rebalance", "images", "-o", "b.npz", "--json")
    assert ran.code == 0, ran.err
    assert {c["name"]: (c["records"], c["added"]) for c in ran.json["classes"]} == {"zero": (8, 0), "one": (3, 5)}
    made = read_embeddings(tmp_path / "b.npz")
    assert (made.info.backbone, made.dim) == ("efflite0", 1280)
