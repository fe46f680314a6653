"""The manifest of the studies' data: true about the studies and the files, and exact about what differs."""

from __future__ import annotations

import gzip
import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError
from locum.recipes import check_data, contents_sha256, list_data, read_data_sets

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "studies"


def write_manifest(folder: Path, files: list[dict[str, Any]], name: str = "mine") -> Path:
    lines = [f"[{name}]", *(f'{key} = "-"' for key in ("what", "license", "source", "made"))]
    lines += ["studies = []", "originals = []"]
    for file in files:
        lines += [f"[[{name}.files]]", *(f"{k} = {v if isinstance(v, int) else repr(v)}" for k, v in file.items())]
    (folder / "data.toml").write_text("\n".join(lines) + "\n")
    return folder


def described(file: Path) -> dict[str, Any]:
    raw = file.read_bytes()
    return {"path": file.name, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def test_the_manifest_names_studies_that_exist_and_covers_those_that_read_data() -> None:
    folders = {n: file.parent for file in STUDIES.glob("*/config.toml") for n in tomllib.loads(file.read_text())}
    named = {study for one in read_data_sets(STUDIES).values() for study in one.studies}
    assert named <= set(folders)
    words = ("data_folder", "study_splits")
    reads = {
        n for n, folder in folders.items() if any(w in f.read_text() for w in words for f in folder.glob("*.py"))
    }
    # CelebA is named by a setting, not by LOCUM_DATA.
    assert reads - named <= {"celeba-curves"}


def test_every_file_that_a_study_names_is_in_the_manifest() -> None:
    paths = [Path(file.path) for one in read_data_sets(STUDIES).values() for file in one.files]
    known = {part for path in paths for part in (str(path), path.parts[0])}
    named: set[str] = set()
    for file in STUDIES.glob("*/*.py"):
        text = file.read_text()
        named |= set(re.findall(r'data_folder\(\) / "([\w./]+)"', text))
        named |= set(re.findall(r'"(\w+_efflite0\.npz)"', text))
    # Sets of the papers have a backbone: they are made by whoever has the originals.
    sets = tomllib.loads((STUDIES / "sets.toml").read_text()).values()
    named |= {facts["file"] for facts in sets if "backbone" not in facts}
    assert {"adult", "cifar10lt_efflite0.npz", "nih_cxr14.npz", "heart4.csv"} <= named
    assert named <= known


def test_originals_are_in_the_example_of_sources() -> None:
    known = set(tomllib.loads((ROOT / "examples" / "data_sources.toml").read_text()))
    assert {name for one in read_data_sets(STUDIES).values() for name in one.originals} <= known


def test_the_real_data_agree(real_data: Path) -> None:
    found = check_data([], STUDIES, real_data)
    assert len(found) >= 10
    assert [file.sentence for file in found if not file.right] == []
    assert all(file.state == "agrees" for file in found)


@settings(max_examples=25)
@given(place=st.integers(0, 199), bit=st.integers(0, 7), cut=st.integers(0, 200))
def test_one_bit_or_one_byte_is_found(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("data")
    file = folder / "table.csv"
    raw = bytes(range(200))
    file.write_bytes(raw)
    write_manifest(folder, [described(file)])
    assert [f.sentence for f in check_data([], folder, folder)] == ["table.csv agrees."]
    file.write_bytes(raw[:place] + bytes([raw[place] ^ (1 << bit)]) + raw[place + 1 :])
    (changed,) = check_data([], folder, folder)
    assert changed.state == "differs"
    assert "has the SHA-256" in changed.sentence
    file.write_bytes(raw[:cut])
    (shorter,) = check_data([], folder, folder)
    assert shorter.right == (cut == 200)
    assert cut == 200 or f"has {cut} bytes where 200 are expected" in shorter.sentence


def test_packed_otherwise_is_the_same_and_other_contents_are_not(tmp_path: Path) -> None:
    arrays = {"train_x": np.arange(6, dtype=np.float16).reshape(2, 3), "train_y": np.array([0, 1])}
    np.savez(tmp_path / "v.npz", **arrays)  # type: ignore[arg-type]
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"age\n3\n", mtime=1))
    files = [{**described(f), "contents": contents_sha256(f)} for f in (tmp_path / "v.npz", tmp_path / "t.csv.gz")]
    write_manifest(tmp_path, files)
    np.savez_compressed(tmp_path / "v.npz", **dict(reversed(arrays.items())))  # type: ignore[arg-type]
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"age\n3\n", mtime=2))
    found = check_data(["mine"], tmp_path, tmp_path)
    assert [f.state for f in found] == ["agrees", "agrees"]
    assert all("packed differently" in f.sentence for f in found)
    np.savez(tmp_path / "v.npz", train_x=arrays["train_x"].astype(np.float32), train_y=arrays["train_y"])
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8bdamaged")
    found = check_data(["mine"], tmp_path, tmp_path)
    assert [f.state for f in found] == ["differs", "differs"]
    assert "damaged" in found[1].sentence


def test_contents_follow_their_definition(tmp_path: Path) -> None:
    a, b = np.array([[1, 2], [3, 4]], dtype="<i2"), np.array(["x"], dtype="<U1")
    np.savez_compressed(tmp_path / "v.npz", b=b, a=a)
    text = b"a <i2 (2, 2)\n\x01\0\x02\0\x03\0\x04\0b <U1 (1,)\nx\0\0\0"
    assert contents_sha256(tmp_path / "v.npz") == hashlib.sha256(text).hexdigest()


def test_absent_sets_are_wrong_if_named_and_left_out_if_not(tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("x")
    write_manifest(tmp_path, [described(tmp_path / "here.csv"), {"path": "gone.csv"}])
    assert [f.state for f in check_data([], tmp_path, tmp_path)] == ["agrees", "missing"]
    (tmp_path / "here.csv").rename(tmp_path / "elsewhere.csv")
    assert check_data([], tmp_path, tmp_path) == []
    assert [f.right for f in check_data(["mine"], tmp_path, tmp_path)] == [False, False]
    (tmp_path / "gone.csv").write_text("back")
    assert check_data([], tmp_path, tmp_path)[1].state == "no hash known"


def test_the_list_says_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    (tmp_path / "a.csv").write_text("x")
    write_manifest(tmp_path, [{"path": "a.csv"}, {"path": "b/c.csv"}])
    assert list_data(tmp_path)[0]["present"] == "no"
    assert list_data(tmp_path, tmp_path)[0]["present"] == "in part"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.csv").write_text("x")
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    assert list_data(tmp_path)[0]["present"] == "yes"


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\\b"])
def test_a_manifest_stays_in_its_folder(tmp_path: Path, path: str) -> None:
    write_manifest(tmp_path, [{"path": path}])
    with pytest.raises(ConfigError, match="its path in the folder"):
        read_data_sets(tmp_path)


def test_mistakes_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    with pytest.raises(ConfigError, match="--studies"):
        read_data_sets(tmp_path)
    write_manifest(tmp_path, [{"path": "a.csv"}])
    with pytest.raises(ConfigError, match="set LOCUM_DATA"):
        check_data([], tmp_path)
    with pytest.raises(ConfigError, match="no data set 'yours'; there are mine"):
        check_data(["yours"], tmp_path, tmp_path)
    (tmp_path / "data.toml").write_text("[mine]\nwhat = 3\n")
    with pytest.raises(ConfigError, match="must give files, license"):
        read_data_sets(tmp_path)
