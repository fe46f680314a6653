"""The verb `embed` through the real program: what it writes, what it says, and being killed."""

from __future__ import annotations

import json
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from understudy.data import read_splits

PROGRAM = [sys.executable, "-m", "understudy"]
KILLS = 20


def understudy(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *map(str, words)], capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    for i in range(120):
        label = tmp_path / "images" / ("cat", "dog")[i % 2]
        label.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(label / f"MILLER-{i:03d}.png")
    return tmp_path / "images"


def test_it_writes_vectors_and_says_so(folder: Path, tmp_path: Path) -> None:
    (folder / "cat" / "MILLER-bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = understudy("embed", folder, "-o", tmp_path / "v.npz", "--index", tmp_path / "rows.csv")
    assert done.returncode == 0, done.stderr
    assert "120 images of 2 classes" in done.stdout
    assert "skipped     1 images" in done.stdout
    assert "MILLER" not in done.stdout + done.stderr
    assert "MILLER-bad.png" in (tmp_path / "v.skipped.csv").read_text()
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert rows[1] == "all,0,cat/MILLER-000.png"
    assert len(rows) == 121
    for name in ("v.npz", "v.skipped.csv", "rows.csv"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    data = read_splits(tmp_path / "v.npz")["all"]
    assert data.X.shape == (120, 1280)
    assert data.info.backbone == "efflite0"
    assert data.info.class_names == ("cat", "dog")
    again = understudy("embed", folder, "-o", tmp_path / "v.npz")
    assert again.returncode == 2
    assert "--force" in again.stderr
    told = json.loads(understudy("embed", folder, "-o", tmp_path / "v.npz", "--force", "--json").stdout)
    assert (told["images"], told["computed"], told["skipped"]) == (120, 0, 1)


def test_strict_ends_with_2_and_leaves_no_vectors(folder: Path, tmp_path: Path) -> None:
    (folder / "cat" / "MILLER-bad.png").write_bytes(b"")
    done = understudy("embed", folder, "-o", tmp_path / "v.npz", "--strict")
    assert done.returncode == 2
    assert "empty file" in done.stderr
    assert "MILLER" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "v.npz").exists()
    assert "MILLER-bad" in (tmp_path / "v.skipped.csv").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere", "-o", "v.npz"], "There is no"),
        ([".", "-o", "v.npz", "--window", "5"], "LOW,HIGH"),
        ([".", "-o", "v.npz", "--backbone", "magic"], "There is no backbone"),
        ([".", "-o", "v.txt"], "no suffix that can be written"),
        ([".", "-o", "nowhere/v.npz"], "its folder does not exist"),
    ],
)
def test_wrong_input_is_one_sentence(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a" / "0.png")
    monkeypatch.chdir(tmp_path)
    done = understudy("embed", *words)
    assert done.returncode == 2, done.stdout
    assert told in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_splits_of_medmnist_stay_apart(real_data: Path, tmp_path: Path) -> None:
    with np.load(real_data / "breastmnist.npz") as source:
        np.savez(tmp_path / "few.npz", **{key: source[key][:12] for key in source.files})
    done = understudy("embed", tmp_path / "few.npz", "-o", tmp_path / "v.npz")
    assert done.returncode == 0, done.stderr
    splits = read_splits(tmp_path / "v.npz")
    assert {name: len(part) for name, part in splits.items()} == {"train": 12, "val": 12, "test": 12}
    with np.load(real_data / "breastmnist_efflite0.npz") as shared:
        expected = shared["val_x"][:12].astype(np.float32)
    np.testing.assert_allclose(splits["val"].X, expected, atol=0.02)
    parquet = understudy("embed", tmp_path / "few.npz", "-o", tmp_path / "v.parquet")
    assert parquet.returncode == 2
    assert "only an .npz file can hold several" in parquet.stderr


@pytest.mark.slow
def test_killed_twenty_times_it_ends_as_if_it_never_was(folder: Path, tmp_path: Path) -> None:
    """SIGKILL at a random moment, again and again; then one run to the end."""
    started = time.monotonic()
    unbroken = understudy("embed", folder, "-o", tmp_path / "unbroken.npz", "--no-cache", "--workers", "1")
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
            (folder.parent / ".understudy" / "vectors.sqlite").unlink(missing_ok=True)
    done = understudy("embed", folder, "-o", tmp_path / "v.npz", "--force")
    assert done.returncode == 0, done.stderr
    ours, theirs = read_splits(tmp_path / "v.npz")["all"], read_splits(tmp_path / "unbroken.npz")["all"]
    np.testing.assert_array_equal(ours.X, theirs.X)
    np.testing.assert_array_equal(ours.y, theirs.y)
    assert ours.info == theirs.info
    assert (tmp_path / "v.npz").read_bytes() == (tmp_path / "unbroken.npz").read_bytes()
    # A kill while the result is written cannot be caught: what it leaves is private, and no result by its name.
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in tmp_path.glob(".understudy-*.part"))
