"""Folders of shards: the vectors of one file, whatever stopped the run that wrote them."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from locum.data import EMBEDDED, SPLITS, read_splits
from locum.embed import ImageItem, open_images
from locum.embed.shards import _shards
from locum.embed.sources import ArraySource
from locum.errors import ConfigError, DataError
from locum.recipes import embed_to_file, embed_to_folder

Same = Callable[..., None]
PROGRAM = [sys.executable, "-m", "locum", "embed"]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def note(folder: Path) -> dict[str, Any]:
    return json.loads((folder / EMBEDDED).read_bytes())


@pytest.fixture(scope="module")
def whole(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete folder; tests that change one make a copy."""
    out = tmp_path_factory.mktemp("whole") / "vectors"
    embed_to_folder(str(scans), f"{out}/", rows_per_file=8)
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    out = tmp_path / "vectors"
    out.mkdir()
    for name, raw in contents(whole).items():
        (out / name).write_bytes(raw)
    return out


def test_a_folder_holds_what_one_file_holds(whole: Path, in_one_file: Any, same: Same) -> None:
    assert len(contents(whole)) == 1 + 6 + 3
    same(whole, in_one_file)


def test_a_table_keeps_subjects_and_attributes(tmp_path: Path, scans: Path, same: Same) -> None:
    lines = ["path,label,subject,attr_sex"]
    for i, file in enumerate(sorted(scans.rglob("*.png"))):
        lines.append(f"{file},{file.parent.name},p{i // 3},{'fm'[i % 2]}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    embed_to_file(str(tmp_path / "table.csv"), tmp_path / "one.npz", cache=False)
    embed_to_folder(str(tmp_path / "table.csv"), str(tmp_path / "many"), rows_per_file=7)
    same(tmp_path / "many", read_splits(tmp_path / "one.npz"))


def test_files_are_private_and_name_no_image(whole: Path, scans: Path) -> None:
    for file in whole.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"MILLER" not in file.read_bytes()
    told = note(whole)
    assert (told["files"], told["settings"]["images"], told["settings"]["rows_per_file"]) == (9, 61, 8)
    assert "MILLER-bad" in (whole.parent / "vectors.skipped.csv").read_text()
    bad = [item.name for item in open_images(scans).items].index("train/benign/MILLER-bad.png")
    assert [pair for entry in told["shards"].values() for pair in entry["skipped"]] == [[bad, "cut off"]]


def test_the_index_says_which_image_a_row_is(scans: Path, tmp_path: Path) -> None:
    embed_to_folder(str(scans), str(tmp_path / "out"), index=tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines[1 + 3] == f"train,3,{open_images(scans).items[3].name}"
    assert stat.S_IMODE((tmp_path / "rows.csv").stat().st_mode) == 0o600


def test_a_repeated_run_keeps_what_is_finished_and_repairs_the_rest(copy: Path, whole: Path, scans: Path) -> None:
    (copy / "part-000001.parquet").unlink()
    (copy / "part-000003.parquet").write_bytes(b"PAR1 of somebody else")
    told = note(copy)
    del told["shards"]["part-000005.parquet"]
    (copy / EMBEDDED).write_text(json.dumps(told))
    (copy / ".locum-left.part").write_bytes(b"of a killed run")
    unchanged = (copy / "part-000000.parquet").stat().st_mtime_ns
    done = embed_to_folder(str(scans), str(copy), rows_per_file=8)
    assert (done["files"], done["resumed"], done["images"], done["computed"]) == (9, 6, 60, 17)
    assert contents(copy) == contents(whole)
    assert (copy / "part-000000.parquet").stat().st_mtime_ns == unchanged


def test_other_settings_and_other_images_are_refused(copy: Path, whole: Path, scans: Path, tmp_path: Path) -> None:
    before = contents(copy)
    with pytest.raises(ConfigError, match="with other settings"):
        embed_to_folder(str(scans), str(copy), rows_per_file=9)
    with pytest.raises(ConfigError, match="with other settings"):
        embed_to_folder(str(scans), str(copy), rows_per_file=8, window=(0, 255))
    more = tmp_path / "more"
    for file in scans.rglob("*.png"):
        target = more / file.relative_to(scans)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file)
    with pytest.raises(ConfigError, match="of other images"):
        embed_to_folder(str(more), str(copy), rows_per_file=8)
    (copy / EMBEDDED).write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        embed_to_folder(str(scans), str(copy), rows_per_file=8)
    (copy / EMBEDDED).unlink()
    with pytest.raises(ConfigError, match="is not a folder that Locum wrote"):
        embed_to_folder(str(scans), str(copy), rows_per_file=8)
    assert contents(copy) == {name: raw for name, raw in before.items() if name != EMBEDDED}


def test_a_folder_that_is_not_complete_is_not_read(copy: Path) -> None:
    (copy / "part-000002.parquet").unlink()
    with pytest.raises(DataError, match="53 of 60 vectors"):
        read_splits(copy)
    told = note(copy)
    del told["shards"]["part-000002.parquet"]
    (copy / EMBEDDED).write_text(json.dumps(told))
    with pytest.raises(DataError, match="8 of 9 files"):
        read_splits(copy)


def test_images_that_cannot_be_read_leave_gaps(tmp_path: Path) -> None:
    for i in range(9):
        label = tmp_path / "images" / "ab"[i % 2]
        label.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (i, i, i)).save(label / f"{i}.png")
    # Rows 0 to 4 are a/0 to a/8: the second file has no row at all.
    for name in ("a/6.png", "a/8.png", "b/1.png"):
        (tmp_path / "images" / name).write_bytes(b"")
    done = embed_to_folder(str(tmp_path / "images"), str(tmp_path / "out"), rows_per_file=3)
    assert (done["files"], done["skipped"], done["images"]) == (3, 3, 6)
    assert read_splits(tmp_path / "out")["all"].attributes["row"].tolist() == [0, 1, 2, 6, 7, 8]
    assert not (tmp_path / "out" / "part-000001.parquet").exists()
    assert embed_to_folder(str(tmp_path / "images"), str(tmp_path / "out"), rows_per_file=3)["computed"] == 0
    for file in (tmp_path / "images").rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match="No image can be read, of 9"):
        embed_to_folder(str(tmp_path / "images"), str(tmp_path / "none"), rows_per_file=3)


def test_strict_stops_and_names_the_image_in_a_private_file_only(scans: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--strict was given") as told:
        embed_to_folder(str(scans), str(tmp_path / "out"), strict=True)
    assert "MILLER" not in str(told.value)
    assert "MILLER-bad" in (tmp_path / "out.skipped.csv").read_text()
    assert contents(tmp_path / "out").keys() == {EMBEDDED}


def test_strict_also_counts_what_an_earlier_run_left_out(copy: Path, scans: Path, whole: Path) -> None:
    with pytest.raises(DataError, match="--strict was given"):
        embed_to_folder(str(scans), str(copy), rows_per_file=8, strict=True)
    assert embed_to_folder(str(scans), str(copy), rows_per_file=8)["resumed"] == 8
    assert contents(copy) == contents(whole)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.integers(1, 9))
def test_shards_cover_each_row_once_and_no_two_splits(sizes: list[int], rows: int) -> None:
    items = [ImageItem(str(i), split) for split, n in zip(SPLITS, sizes, strict=True) for i in range(n)]
    shards = _shards(ArraySource(home=Path(), items=items, arrays={}), rows)
    assert [item for shard in shards for item in shard.items] == items
    assert all(b.start == a.start + len(a.items) and b.number == a.number + 1 for a, b in pairwise(shards))
    assert all(len(shard.items) <= rows and {i.split for i in shard.items} == {shard.split} for shard in shards)
    assert len(shards) == sum(-(-n // rows) for n in sizes)


def test_a_killed_run_is_finished_by_the_next(scans: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors"
    words = [*PROGRAM, str(scans), "-o", f"{out}/", "--rows-per-file", "8", "--workers", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (out / "part-000002.parquet").exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = contents(out)
    for name, raw in left.items():
        if name.endswith(".parquet"):
            assert raw == (whole / name).read_bytes(), "a file is complete or not there"
    assert len(note(out)["shards"]) < 9
    done = subprocess.run([*words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] == len(json.loads(left[EMBEDDED])["shards"])
    assert contents(out) == contents(whole)


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """A disk of 100 kB (as root), else a limit on the size of a file; and how to set and to lift the limit."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        try:
            yield (
                lambda: None,
                lambda: subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True) and None,
            )
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    else:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)), lambda: None


def test_a_full_disk_is_one_sentence_and_the_next_run_finishes(scans: Path, whole: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as (limit, lift):
        out = tmp_path / "disk" / "vectors"
        words = [*PROGRAM, str(scans), "-o", f"{out}/", "--rows-per-file", "8"]
        full = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit)
        assert full.returncode == 1
        assert full.stderr.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in full.stderr
        assert "MILLER" not in full.stderr
        for name, raw in contents(out).items():
            assert name == EMBEDDED or raw == (whole / name).read_bytes()
        lift()
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert contents(out) == contents(whole)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "v.npz", "--rows-per-file", "5"], "for a folder"),
        (["-o", "v.npz", "--engine", "ray"], "for a folder"),
        (["-o", "v/", "--actors", "2"], "add --engine ray"),
        (["-o", "v/", "--address", "auto"], "add --engine ray"),
        (["-o", "v/", "--cache", "c.sqlite"], "needs no --cache"),
        (["-o", "v/", "--force"], "--force is for a file"),
        (["-o", "v/", "--ledger", "l.sqlite"], "--ledger is for images in a store"),
        (["-o", "v/", "--index", "rows.txt"], "ends in .csv"),
        (["-o", "s3://bucket/v.npz"], "end 's3://bucket/v.npz' in /"),
        (["-o", "ftp://host/v/"], "address of a kind that cannot be read"),
    ],
)
def test_wrong_words_are_one_sentence(words: list[str], told: str, scans: Path, tmp_path: Path) -> None:
    code = "import sys\nfrom locum.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, "embed", str(scans), *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_images_are_known_by_their_pixels(tmp_path: Path, same: Same) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
    for name, images in (("a", pixels), ("b", pixels + 1)):
        np.savez(tmp_path / f"{name}.npz", train_images=images, train_labels=[0, 1] * 3)
    embed_to_file(str(tmp_path / "a.npz"), tmp_path / "one.npz", cache=False)
    embed_to_folder(str(tmp_path / "a.npz"), str(tmp_path / "out"), rows_per_file=4)
    same(tmp_path / "out", read_splits(tmp_path / "one.npz"))
    with pytest.raises(ConfigError, match="of other images"):
        embed_to_folder(str(tmp_path / "b.npz"), str(tmp_path / "out"), rows_per_file=4)


def test_an_attribute_called_row_is_refused(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "i.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1], train_attr_row=["a", "b"]
    )
    with pytest.raises(ConfigError, match="an attribute `row`"):
        embed_to_folder(str(tmp_path / "i.npz"), str(tmp_path / "out"))


def test_patients_of_dicom_files_are_the_same_in_a_folder(tmp_path: Path, same: Same) -> None:
    samples = Path(pytest.importorskip("pydicom").__file__).parent / "data" / "test_files"
    if not (samples / "CT_small.dcm").is_file():
        pytest.skip("pydicom came without its test files")
    images = tmp_path / "in" / "images"
    for label in "ab":
        (images / label).mkdir(parents=True)
        Image.new("RGB", (8, 8), (ord(label), 0, 0)).save(images / label / "plain.png")
    (images / "b" / "MILLER.dcm").write_bytes((samples / "CT_small.dcm").read_bytes())
    embed_to_file(str(images), tmp_path / "one.npz", cache=False)
    embed_to_folder(str(images), str(tmp_path / "many"), rows_per_file=1)
    expected = read_splits(tmp_path / "one.npz")
    assert len(set(expected["all"].subject)) == 3
    same(tmp_path / "many", expected)
    (images / "b" / "MILLER.dcm").rename(images / "b" / "MILLER.png")
    with pytest.raises(DataError, match=r"rename them to end in \.dcm"):
        embed_to_folder(str(images), str(tmp_path / "other"), rows_per_file=1)
