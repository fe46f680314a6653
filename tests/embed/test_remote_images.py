"""Images and vectors in an object store: the same as on this machine, also when the store fails now and then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto")

from tests.object_store import Store, flaky_proxy, object_store

from locum.data import EMBEDDED, read_splits
from locum.embed import ImageItem, embed_images, holds_images, open_images
from locum.embed.shards import ShardFolder
from locum.embed.sources import RemoteSource, image_errors
from locum.errors import ConfigError, DataError, PrivacyError
from locum.recipes import embed_to_file, embed_to_folder

Same = Callable[..., None]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def remote(store: Store, scans: Path) -> str:
    """The scans in a bucket of their own."""
    address = f"{store.bucket()}/data/scans"
    store.upload(scans, address)
    return address


@pytest.fixture(scope="module")
def expected(remote: str, store: Store) -> dict[str, bytes]:
    """Objects of an undisturbed run."""
    out = f"{store.bucket()}/vectors"
    embed_to_folder(remote, f"{out}/", rows_per_file=8)
    return store.objects(out)


def test_names_classes_and_order_are_those_of_the_folder(remote: str, scans: Path) -> None:
    there, here = open_images(remote), open_images(scans)
    assert list(there.items) == list(here.items)
    assert (there.class_names, there.ignored) == (here.class_names, here.ignored)
    assert there.read(3) == here.read(3)
    assert list(open_images(f"{remote}/").items) == list(here.items)
    assert holds_images(remote)


def test_a_public_set_in_a_store_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.pgm").write_bytes(b"P2 1 1 255 9")
    (tmp_path / "Data_Entry_2017.csv").write_text("Image Index,Patient ID\n1.pgm,1\n")
    address = f"{store.bucket()}/chest"
    store.upload(tmp_path, address)
    with pytest.raises(DataError, match="holds ChestX-ray14, which is read from a folder of this machine"):
        open_images(address)


def test_odd_names_hidden_files_and_dicom_without_a_suffix(store: Store, tmp_path: Path) -> None:
    dicom = b"\0" * 128 + b"DICM" + b"\0" * 20
    files = {
        "a/x+y z%20ü.PNG": b"p", "a/.hidden.png": b"p", ".h/1.png": b"p", "a/1.2.840": dicom, "b/deep/er/1.jpg": b"p",
        "b/notes": b"short", "b/notes.md": b"x" * 200,
    }  # fmt: skip
    for name, raw in files.items():
        (tmp_path / "odd" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "odd" / name).write_bytes(raw)
    address = f"{store.bucket()}/odd"
    store.upload(tmp_path / "odd", address)
    there, here = open_images(address), open_images(tmp_path / "odd")
    assert list(there.items) == list(here.items)
    assert there.ignored == here.ignored == 2
    assert [there.read(i) for i in range(3)] == [here.read(i) for i in range(3)]
    with pytest.raises(PrivacyError, match="patient numbers"):
        there.subject(dicom)


def test_one_file_from_a_store_equals_one_from_the_folder(remote: str, in_one_file: Any, tmp_path: Path) -> None:
    done = embed_to_file(remote, tmp_path / "v.npz")
    assert done.computed == 60
    found = read_splits(tmp_path / "v.npz")
    for split, part in in_one_file.items():
        assert found[split].X.tobytes() == part.X.tobytes()
        assert found[split].labels.tolist() == part.labels.tolist()
        assert found[split].info.ledger == "", "nothing lies beside images in a store"
    # Nothing but the result: no cache, no copy of an image.
    assert {file.name for file in tmp_path.iterdir()} == {"v.npz", "v.skipped.csv"}
    embed_to_file(remote, tmp_path / "w.npz", ledger=tmp_path / "budget.sqlite")
    assert read_splits(tmp_path / "w.npz")["train"].info.ledger == str((tmp_path / "budget.sqlite").resolve())


def test_images_of_a_store_go_through_python_too(remote: str, in_one_file: Any) -> None:
    with embed_images(open_images(remote).only("test")) as embedded:
        assert embedded.vectors().tobytes() == in_one_file["test"].X.tobytes()
        assert embedded.store.file is None


def test_in_and_out_equal_this_machine(
    expected: dict[str, bytes], in_one_file: Any, same: Same, tmp_path: Path
) -> None:
    for name, raw in expected.items():
        (tmp_path / name).write_bytes(raw)
        assert b"MILLER" not in raw
    same(tmp_path, in_one_file, ledger=False)


def test_a_store_that_fails_now_and_then_changes_nothing(store: Store, remote: str) -> None:
    out, images = store.bucket(), f"{remote}/test"
    embed_to_folder(images, f"{out}/quiet/", rows_per_file=8)
    with flaky_proxy(store, fail=0.15, delay=0.2, seconds=0.05) as proxy:
        done = embed_to_folder(images, f"{out}/flaky/", rows_per_file=8)
    assert done["skipped"] == 0, "an image that the store does not give at once is not one that cannot be read"
    assert proxy.failed > 3
    assert proxy.delayed > 3
    assert store.objects(f"{out}/flaky") == store.objects(f"{out}/quiet")


def test_a_large_object_is_whole_after_failures(store: Store) -> None:
    """Above 10 MB an object is sent in parts, any of which may fail."""
    out, raw = f"{store.bucket()}/vectors", os.urandom(12 * 2**20)
    with flaky_proxy(store, fail=0.45, delay=0.0, seed=0) as proxy:
        ShardFolder(out).write("part.parquet", raw)
    assert proxy.failed > 0
    assert store.objects(out) == {"part.parquet": raw}


def test_an_object_whose_parts_do_not_all_arrive_is_not_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Eight attempts, each after a longer wait, take a minute.
    monkeypatch.setattr("locum.io.remote._ATTEMPTS", 2)
    out, raw = f"{store.bucket()}/vectors", os.urandom(24 * 2**20)
    failing = flaky_proxy(store, fail=0.0, delay=0.0, refuse=lambda method, path: "partNumber=2" in path)
    with failing, pytest.raises(DataError, match="cannot be used"):
        ShardFolder(out).write("part.parquet", raw)
    assert store.objects(out) == {}
    ShardFolder(out).write("part.parquet", raw)
    assert store.objects(out) == {"part.parquet": raw}


def test_an_image_that_the_store_never_gives_stops_the_run_and_is_not_named(
    store: Store, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locum.io.remote._ATTEMPTS", 2)
    out = f"{store.bucket()}/vectors"
    name = open_images(remote).only("test").items[12].name
    failing = flaky_proxy(store, fail=0.0, delay=0.0, refuse=lambda method, path: path.split("?")[0].endswith(name))
    with failing, pytest.raises(DataError, match=r"An image in .* cannot be read: ") as told:
        embed_to_folder(f"{remote}/test", f"{out}/", rows_per_file=8)
    assert "MILLER" not in str(told.value)
    assert set(store.objects(out)) == {EMBEDDED, "part-000000.parquet"}
    assert embed_to_folder(f"{remote}/test", f"{out}/", rows_per_file=8)["resumed"] == 1


def test_a_run_that_was_killed_is_finished_by_the_next(store: Store, remote: str, expected: dict[str, bytes]) -> None:
    out = f"{store.bucket()}/vectors"
    words = [sys.executable, "-m", "locum", "embed", remote, "-o", f"{out}/", "--rows-per-file", "8", "--json"]
    process = subprocess.Popen([*words, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while "part-000002.parquet" not in store.objects(out):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = store.objects(out)
    assert all(raw == expected[name] for name, raw in left.items() if name != EMBEDDED)
    assert len(left) < len(expected)
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] == len(json.loads(left[EMBEDDED])["shards"])
    assert store.objects(out) == expected


def test_objects_that_were_changed_are_made_again(store: Store, remote: str, expected: dict[str, bytes]) -> None:
    out = f"{store.bucket()}/vectors"
    folder = ShardFolder(out)
    for name, raw in expected.items():
        folder.write(name, raw)
    folder.remove("part-000004.parquet")
    folder.write("part-000006.parquet", b"PAR1")
    assert embed_to_folder(remote, f"{out}/", rows_per_file=8)["resumed"] == 7
    assert store.objects(out) == expected
    with pytest.raises(ConfigError, match="with other settings"):
        embed_to_folder(remote, f"{out}/", rows_per_file=9)


def test_strict_gives_a_row_and_no_name(store: Store, remote: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it is row 20 ") as told:
        embed_to_folder(remote, f"{store.bucket()}/v/", strict=True, index=tmp_path / "rows.csv")
    assert "MILLER" not in str(told.value)
    assert (tmp_path / "rows.csv").read_text().splitlines()[1 + 20].endswith("MILLER-bad.png")


def test_an_object_that_is_gone_is_missing_and_one_that_fails_stops_the_run(remote: str) -> None:
    with pytest.raises(FileNotFoundError):
        RemoteSource(address=remote, items=[ImageItem("train/benign/MILLER-gone.png")]).read(0)
    answer = "When reading 'MILLER.png' in 'b': AWS Error ACCESS_DENIED during GetObject operation: MILLER.png"
    with pytest.raises(DataError, match="AWS Error ACCESS_DENIED during GetObject operation") as told:  # noqa: SIM117
        with image_errors(remote):
            raise OSError(answer)
    assert "MILLER" not in str(told.value)
    assert told.value.__suppress_context__


def test_places_that_cannot_be_used_are_one_sentence(store: Store, remote: str) -> None:
    with pytest.raises(DataError, match="There is nothing at"):
        open_images(f"{store.bucket()}/nowhere")
    with pytest.raises(DataError, match="no-such-bucket"):
        embed_to_folder(remote, "s3://no-such-bucket/v/", rows_per_file=8)
    other = f"{store.bucket()}/full"
    ShardFolder(other).write("theirs.txt", b"x")
    with pytest.raises(ConfigError, match="holds something else"):
        embed_to_folder(remote, f"{other}/", rows_per_file=8)
    assert store.objects(other) == {"theirs.txt": b"x"}
