"""The verb `embed` through the real program: what it writes, what it says, and being killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from locum.data import read_splits

PROGRAM = [sys.executable, "-m", "locum"]
IMAGES = 60
KILLS = 6
Run = Callable[..., Any]


def locum(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *map(str, words)], capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    for i in range(IMAGES):
        label = tmp_path / "images" / ("cat", "dog")[i % 2]
        label.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(label / f"MILLER-{i:03d}.png")
    return tmp_path / "images"


def test_it_writes_vectors_and_says_so(folder: Path, program: Run, tmp_path: Path) -> None:
    (folder / "cat" / "MILLER-bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = locum("embed", folder, "-o", tmp_path / "v.npz", "--index", tmp_path / "rows.csv")
    assert done.returncode == 0, done.stderr
    assert f"{IMAGES} images of 2 classes" in done.stdout
    assert "skipped     1 image that cannot be read" in done.stdout
    assert "MILLER" not in done.stdout + done.stderr
    assert "MILLER-bad.png" in (tmp_path / "v.skipped.csv").read_text()
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert rows[1] == "all,0,cat/MILLER-000.png"
    assert len(rows) == 1 + IMAGES
    for name in ("v.npz", "v.skipped.csv", "rows.csv"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    data = read_splits(tmp_path / "v.npz")["all"]
    assert data.X.shape == (IMAGES, 1280)
    assert data.info.backbone == "efflite0"
    assert data.info.class_names == ("cat", "dog")
    again = program("embed", folder, "-o", tmp_path / "v.npz")
    assert again.code == 2
    assert "--force" in again.err
    told = program("embed", folder, "-o", tmp_path / "v.npz", "--force", "--json").json
    assert (told["images"], told["computed"], told["skipped"]) == (IMAGES, 0, 1)


def test_strict_ends_with_2_and_leaves_no_vectors(folder: Path, program: Run, tmp_path: Path) -> None:
    (folder / "cat" / "MILLER-bad.png").write_bytes(b"")
    done = program("embed", folder, "-o", tmp_path / "v.npz", "--strict")
    assert done.code == 2
    assert "empty file" in done.err
    assert "MILLER" not in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "v.npz").exists()
    assert "MILLER-bad" in (tmp_path / "v.skipped.csv").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere", "-o", "v.npz"], "There is no"),
        ([".", "-o", "v.npz", "--window", "5"], "LOW,HIGH"),
        ([".", "-o", "v.npz", "--backbone", "magic"], "There is no backbone"),
        ([".", "-o", "v.txt"], "no suffix that can be written"),
        ([".", "-o", "."], "is not a folder that Locum wrote"),
        ([".", "-o", "nowhere/v.npz"], "its folder does not exist"),
        ([".", "-o", "v.npz", "--window", "nan,1"], "A window is two finite numbers"),
        ([".", "-o", "v.npz", "--index", "rows.txt"], "ends in .csv"),
        ([".", "-o", "folder.npz", "--force"], "is a folder"),
        ([".", "-o", "v.csv", "--index", "v.csv"], "both the output and the index"),
        ([".", "-o", "v.npz", "--index", "v.skipped.csv"], "both the index and the list of skipped images"),
        ([".", "-o", "v.npz", "--cache", "./v.npz"], "both the output and the cache"),
        ([".", "-o", "v.npz", "--index", "v.csv", "--cache", "v.csv"], "both the index and the cache"),
        ([".", "-o", "v.npz", "--cache", "notes.txt"], "not a cache"),
        (["set.npz", "-o", "a/../set.npz", "--force"], "both the output and the input"),
        (["table.csv", "-o", "table.csv", "--force"], "both the output and the input"),
        (["table.csv", "-o", "v.npz", "--index", "link.csv", "--force"], "both the index and the input"),
        (["t.skipped.csv", "-o", "t.npz"], "both the list of skipped images and the input"),
        (["a", "-o", "v.npz"], "no classes"),
        (["set.npz", "-o", "v.parquet"], "only an .npz file can hold several"),
    ],
)
def test_wrong_input_is_one_sentence_and_changes_nothing(
    words: list[str], told: str, tmp_path: Path, program: Run
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "folder.npz").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a" / "0.png")
    pixels = np.zeros((2, 4, 4), np.uint8)
    np.savez(tmp_path / "set.npz", train_images=pixels, train_labels=[0, 1], test_images=pixels, test_labels=[0, 1])
    for name in ("table.csv", "t.skipped.csv"):
        (tmp_path / name).write_text("path,label\na/0.png,a\n")
    (tmp_path / "link.csv").symlink_to("table.csv")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "notes.txt").chmod(0o644)
    before = state(tmp_path)
    ran = program("embed", *words)
    assert ran.code == 2, ran.out
    assert told in ran.err
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    # No cache either: what is wrong was told before the first image was embedded.
    assert state(tmp_path) == before


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its mode and content."""
    return {
        str(p): (p.stat().st_mode, p.read_bytes() if p.is_file() else b"")
        for p in folder.rglob("*")
        if p.name != ".locum"
    }


def test_one_of_each_is_told_in_the_singular(tmp_path: Path, program: Run) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "images" / "a" / "0.png")
    (tmp_path / "images" / "a" / "notes.txt").write_text("")
    (tmp_path / "t.csv").write_text("path,label,subject\nimages/a/0.png,a,p\nimages/a/1.png,a,q\n")
    ran = program("embed", "images", "-o", "v.npz")
    assert "1 image of 1 class became vectors" in ran.out
    assert "ignored     1 file without an image's suffix" in ran.out
    ran = program("embed", "t.csv", "-o", "w.npz")
    assert "they belong to 1 subject" in ran.out


MANY = 600


def many(tmp_path: Path) -> Path:
    """More different images than are embedded before a signal comes."""
    (tmp_path / "images" / "a").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(MANY):
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(
            tmp_path / "images" / "a" / f"{i:03d}.png"
        )
    return tmp_path / "images"


def stopped(by: signal.Signals, *words: str | Path, **env: str) -> tuple[int, str]:
    """Exit code and standard error of a run that gets a signal in the middle of its work."""
    command = [*PROGRAM, *map(str, words)]
    running = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
        # A shell that runs the tests in the background ignores SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # The engine is loaded right before the first image.
    until = time.monotonic() + 100
    while "onnxruntime" not in Path(f"/proc/{running.pid}/maps").read_text() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(1.5)
    assert running.poll() is None, "it was done before the signal"
    running.send_signal(by)
    told = running.communicate(timeout=100)[1]
    return running.returncode, told


def test_stopped_it_says_how_to_go_on(program: Run, tmp_path: Path) -> None:
    words = ("embed", many(tmp_path), "-o", tmp_path / "v.npz", "--workers", "1")
    code, told = stopped(signal.SIGINT, *words)
    assert (code, told) == (130, "stopped; run the same command again to resume\n")
    assert not (tmp_path / "v.npz").exists()
    done = program(*words, "--json")
    assert done.json["images"] == MANY
    assert done.json["computed"] < MANY


def test_terminated_without_a_cache_it_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    words = ("embed", many(tmp_path), "-o", tmp_path / "v.npz", "--no-cache", "--workers", "1")
    code, told = stopped(signal.SIGTERM, *words, TMPDIR=str(tmp_path / "tmp"), SQLITE_TMPDIR=str(tmp_path / "tmp"))
    assert (code, told) == (143, "stopped; nothing was kept\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images", "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_splits_of_medmnist_stay_apart(real_data: Path, program: Run, tmp_path: Path) -> None:
    with np.load(real_data / "breastmnist.npz") as source:
        np.savez(tmp_path / "few.npz", **{key: source[key][:12] for key in source.files})
    done = program("embed", tmp_path / "few.npz", "-o", tmp_path / "v.npz")
    assert done.code == 0, done.err
    splits = read_splits(tmp_path / "v.npz")
    assert {name: len(part) for name, part in splits.items()} == {"train": 12, "val": 12, "test": 12}
    with np.load(real_data / "breastmnist_efflite0.npz") as shared:
        expected = shared["val_x"][:12].astype(np.float32)
    np.testing.assert_allclose(splits["val"].X, expected, atol=0.02)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_if_it_never_was(folder: Path, program: Run, tmp_path: Path) -> None:
    """SIGKILL at a random moment, again and again; then one run to the end."""
    started = time.monotonic()
    unbroken = locum("embed", folder, "-o", tmp_path / "unbroken.npz", "--no-cache", "--workers", "1")
    usual = time.monotonic() - started
    assert unbroken.returncode == 0, unbroken.stderr
    chance = random.Random(0)
    killed = 0
    while killed < KILLS:
        # A run that is not killed in time would end the story early: each starts with what the last one kept.
        command = [*PROGRAM, "embed", str(folder), "-o", str(tmp_path / "v.npz"), "--force", "--workers", "1"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.3, 0.8) * usual)
        running.send_signal(signal.SIGKILL)
        if running.wait() == -signal.SIGKILL:
            killed += 1
        else:
            (folder.parent / ".locum" / "vectors.sqlite").unlink(missing_ok=True)
    done = program("embed", folder, "-o", tmp_path / "v.npz", "--force")
    assert done.code == 0, done.err
    ours, theirs = read_splits(tmp_path / "v.npz")["all"], read_splits(tmp_path / "unbroken.npz")["all"]
    np.testing.assert_array_equal(ours.X, theirs.X)
    np.testing.assert_array_equal(ours.y, theirs.y)
    assert ours.info == theirs.info
    assert (tmp_path / "v.npz").read_bytes() == (tmp_path / "unbroken.npz").read_bytes()
    # A kill while the result is written cannot be caught: what it leaves is private, and no result by its name.
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in tmp_path.glob(".locum-*.part"))


def test_copies_are_listed_by_name_in_a_private_file_only(program: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 4)):
        for i in range(count):
            file = tmp_path / "images" / split / ("cat", "dog")[i % 2] / f"MILLER-{split}-{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(file)
    images = tmp_path / "images"
    # The same pixels in another file; the same file under another label; and one that is a test image too.
    first = images / "train" / "cat" / "MILLER-train-0.png"
    with Image.open(first) as image:
        image.save(images / "train" / "cat" / "MILLER-zoe.bmp")
    shutil.copy(first, images / "train" / "dog" / "MILLER-zac.png")
    shutil.copy(first, images / "test" / "cat" / "MILLER-test-9.png")
    done = program("embed", images, "-o", tmp_path / "v.npz")
    assert done.code == 0, done.err
    assert "duplicates  2 images equal another of the same split, 1 one of an earlier split" in done.out
    assert "--drop-duplicates" in done.out
    assert "MILLER" not in done.out + done.err
    listing = tmp_path / "v.duplicates.csv"
    assert stat.S_IMODE(listing.stat().st_mode) == 0o600
    assert listing.read_text().splitlines() == [
        "split,row,image,equals_split,equals_row,equals_image,label,subject",
        "train,3,train/cat/MILLER-zoe.bmp,train,0,train/cat/MILLER-train-0.png,same,unknown",
        "train,7,train/dog/MILLER-zac.png,train,0,train/cat/MILLER-train-0.png,other,unknown",
        "test,2,test/cat/MILLER-test-9.png,train,0,train/cat/MILLER-train-0.png,same,unknown",
    ]
    parts = read_splits(tmp_path / "v.npz")
    assert {name: len(part) for name, part in parts.items()} == {"train": 8, "test": 5}
    for name in ("train/cat/MILLER-zoe.bmp", "train/dog/MILLER-zac.png", "test/cat/MILLER-test-9.png"):
        (images / name).unlink()
    clean = program("embed", images, "-o", tmp_path / "v.npz", "--force", "--json").json
    assert (clean["repeated"], clean["shared"], clean["duplicates_file"]) == (0, 0, None)
    assert not listing.exists()
