"""Written atomically; read only if every byte is what the manifest says."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import locum
from locum.errors import ConfigError, FormatError, IntegrityError, ReleaseError, SchemaVersionError
from locum.release import Release, verify


def edit_manifest(folder: Path, change: Any) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def replace_tensors(folder: Path, raw: bytes) -> None:
    """What an attacker does: other bytes, with hashes that fit them."""
    (folder / "decoder.safetensors").write_bytes(raw)
    entry = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    edit_manifest(folder, lambda m: m["files"].update({"decoder.safetensors": entry}))


def test_round_trip(folder: Path, gaussian: Release) -> None:
    loaded = locum.load(folder)
    assert loaded.manifest.model_dump(exclude={"files"}) == gaussian.manifest.model_dump(exclude={"files"})
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "decoder.safetensors", "manifest.json"]
    assert loaded.info.class_names == ("ant", "bee", "cat")


def test_the_same_release_gives_the_same_bytes(gaussian: Release, tmp_path: Path) -> None:
    a, b = gaussian.save(tmp_path / "a"), gaussian.save(tmp_path / "b")
    assert all((a / f.name).read_bytes() == f.read_bytes() for f in b.iterdir())


def test_verify_lists_its_checks(folder: Path) -> None:
    result = verify(folder)
    assert result.fingerprint == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert len(result.checks) == 6
    assert result.checks[-1] == "README.md matches what this version writes"


@pytest.mark.parametrize("name", ["decoder.safetensors", "README.md", "manifest.json"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_truncated_files_are_refused(folder: Path, name: str, keep: float) -> None:
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: int(keep * len(raw))])
    with pytest.raises(ReleaseError):
        locum.load(folder)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.floats(0, 0.999), bit=st.integers(0, 7))
def test_any_flipped_bit_of_the_numbers_is_noticed(folder: Path, place: float, bit: int) -> None:
    file = folder / "decoder.safetensors"
    whole = file.read_bytes()
    raw = bytearray(whole)
    raw[int(place * len(raw))] ^= 1 << bit
    file.write_bytes(raw)
    try:
        with pytest.raises(IntegrityError, match="altered"):
            locum.load(folder)
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("name", ["decoder.safetensors", "README.md", "manifest.json"])
def test_missing_files_are_noticed(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ReleaseError, match=r"missing|no manifest"):
        locum.load(folder)


@pytest.mark.parametrize("name", ["weights.pkl", "pytorch_model.bin", ".hidden"])
def test_smuggled_files_are_noticed(folder: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps("x"))
    with pytest.raises(IntegrityError, match="does not list"):
        locum.load(folder)


class Bomb:
    """Would run code if anyone unpickled it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.putenv, ("LOCUM_BOMB", "1"))


def test_a_pickle_under_a_good_name_is_not_opened(folder: Path) -> None:
    replace_tensors(folder, pickle.dumps(Bomb()))
    with pytest.raises(FormatError, match="safetensors"):
        locum.load(folder)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2**30) + b"{}" * 100,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 8) + b"not json",
        struct.pack("<Q", 4000) + b"[" * 4000,
    ],
    ids=["empty", "short", "endless header", "huge header", "a list", "no json", "deep nesting"],
)
def test_hostile_tensor_files_are_refused(folder: Path, raw: bytes) -> None:
    replace_tensors(folder, raw)
    with pytest.raises(FormatError, match="safetensors"):
        locum.load(folder)


def test_offsets_beyond_the_file_are_refused(folder: Path) -> None:
    header = json.dumps({"means": {"dtype": "F32", "shape": [3, 8], "data_offsets": [0, 10**12]}}).encode()
    replace_tensors(folder, struct.pack("<Q", len(header)) + header)
    with pytest.raises(FormatError):
        locum.load(folder)


@pytest.mark.parametrize("name", ["../evil.json", "/etc/passwd", "a/b.json", "..", "x\x00.json", "C:\\evil.json"])
def test_paths_in_the_manifest_are_refused(folder: Path, name: str) -> None:
    edit_manifest(folder, lambda m: m["files"].update({name: m["files"].pop("README.md")}))
    with pytest.raises(FormatError):
        locum.load(folder)


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes((folder / "README.md").read_bytes())
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(outside)
    with pytest.raises(FormatError, match="link"):
        locum.load(folder)


def test_a_newer_schema_says_upgrade(folder: Path) -> None:
    edit_manifest(folder, lambda m: m.update(schema_version=2, something_new=True))
    with pytest.raises(SchemaVersionError, match="schema version 2"):
        locum.load(folder)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.update(format="zip"), "does not describe"),
        (lambda m: m["claim"].update(kind="dp"), "claim"),
        (lambda m: m["claim"].update(not_covered=[]), "not_covered"),
        (lambda m: m["claim"].update(kind="k-anonymity"), "impossible claim"),
        (lambda m: m["claim"].update(not_covered=["x" * 2001]), "2000 characters"),
        (lambda m: m["claim"].update(not_covered=["x"] * 111), "110 lines"),
        (lambda m: m["claim"].update(assumptions=[["x"]]), "claim.assumptions"),
        (lambda m: m["claim"].update(kind="k-anonymity", k=-(10**3000)), "impossible claim"),
        (lambda m: m["claim"].update(test="perhaps"), "claim.test"),
        (lambda m: m["claim"].update(surprise=1), "claim.surprise"),
        (lambda m: m["claim"].update(dp={"epsilon": 1}), "claim.dp"),
        (lambda m: m["embedding"].update(dim=9), "shape"),
        (lambda m: m["embedding"].update(dim=10**9), "dim"),
        (lambda m: m.update(classes=[0, 0, 1]), "differ"),
        (lambda m: m.update(joint=[[[0], 0.5]]), "sum"),
        (lambda m: m.update(joint=[[[7], 1.0]]), "outside"),
        (lambda m: m.update(joint=[[[0], -1.0], [[1], 2.0]]), "outside"),
        (lambda m: m["decoder"].update(variance=float("inf")), "JSON"),
        (lambda m: m["decoder"].update(kind="pickle"), "decoder"),
        (lambda m: m.update(kind="data"), "rows"),
    ],
)
def test_manifests_that_break_the_rules(folder: Path, change: Any, word: str) -> None:
    edit_manifest(folder, change)
    with pytest.raises(FormatError, match=word) as found:
        locum.load(folder)
    assert len(str(found.value)) < 500


def test_a_huge_manifest_is_not_parsed(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b" " * (5 * 2**20))
    with pytest.raises(FormatError, match="bytes long"):
        locum.load(folder)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"nul", b"\xff\xfe", b'{"a":' * 100_000])
def test_manifests_that_are_no_json_object(folder: Path, raw: bytes) -> None:
    (folder / "manifest.json").write_bytes(raw)
    with pytest.raises(FormatError):
        locum.load(folder)


def test_numbers_that_do_not_fit_are_refused(gaussian: Release) -> None:
    good = dict(gaussian.tensors)
    for bad, word in (
        ({**good, "means": good["means"] * np.nan}, "NaN"),
        ({**good, "means": good["means"][:2]}, "shape"),
        ({k: v for k, v in good.items() if k != "scale"}, "lacks"),
        ({**good, "spare": good["scale"]}, "nothing uses"),
        ({**good, "scale": good["scale"].astype(np.int64)}, "type"),
    ):
        with pytest.raises(FormatError, match=word):
            Release(gaussian.manifest, bad)


def test_layers_that_do_not_fit_are_refused(network: Release) -> None:
    tensors = dict(network.tensors)
    first = next(k for k in tensors if k.endswith("weight"))
    with pytest.raises(FormatError, match="does not fit"):
        Release(network.manifest, {**tensors, first: tensors[first][:, :-1]})


def test_nothing_is_overwritten_unless_asked(folder: Path, gaussian: Release) -> None:
    with pytest.raises(ConfigError, match="already exists"):
        gaussian.save(folder)
    gaussian.save(folder, overwrite=True)
    assert locum.load(folder).manifest.generator == "ClassGaussian"


def test_a_folder_of_other_files_is_never_replaced(gaussian: Release, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(ConfigError, match="left alone"):
        gaussian.save(tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"


def test_a_failed_save_leaves_nothing(gaussian: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        gaussian.save(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


def test_no_folder_no_release(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a folder"):
        locum.load(tmp_path / "nothing")
    with pytest.raises(FormatError, match=r"no manifest\.json"):
        locum.load(tmp_path)


def test_a_card_in_another_encoding_is_told_not_crashed_on(folder: Path) -> None:
    raw = "# K\xf6ln".encode("latin-1")
    (folder / "README.md").write_bytes(raw)
    entry = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    edit_manifest(folder, lambda m: m["files"].update({"README.md": entry}))
    assert "by hand" in verify(folder).checks[-1]


def test_numbers_beyond_all_bounds_are_refused(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"settings": {', '"settings": {"x": 1e999, '))
    with pytest.raises(FormatError, match="JSON"):
        locum.load(folder)
