"""Releases as .zip files: the same bytes everywhere, and nothing hostile gets out of one."""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from locum.data import load_sample, write_embeddings
from locum.errors import (
    ConfigError,
    FormatError,
    IntegrityError,
    LocumError,
    PrivacyError,
    ReleaseError,
    SchemaVersionError,
)
from locum.recipes import (
    fit_release,
    make_key_pair,
    pack_to_file,
    receive_release,
    sign_release,
    write_passport,
)
from locum.release import Release, load, pack_release, read_archive, release_files, unpack_release


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def zipped(contents: dict[str, bytes], method: int = zipfile.ZIP_STORED, **facts: int) -> bytes:
    """A .zip as any program would write it; `facts` change every entry."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, raw in contents.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = method
            for key, value in facts.items():
                setattr(entry, key, value)
            archive.writestr(entry, raw)
    return stream.getvalue()


def refused(raw: bytes, tmp_path: Path, match: str | None = None) -> None:
    """Refused in one or two sentences, and nothing is left."""
    place = tmp_path / "inbox"
    with pytest.raises(ReleaseError, match=match) as told:
        unpack_release(raw, place / "out")
    assert len(str(told.value)) < 300
    assert "\n" not in str(told.value)
    assert not place.exists() or list(place.iterdir()) == []


@pytest.fixture
def complete(folder: Path, tmp_path: Path) -> Path:
    """A release with passport and signature."""
    write_passport(folder)
    pair = make_key_pair(tmp_path / "holder")
    sign_release(folder, Path(pair.private))
    return folder


def test_a_release_comes_back_byte_for_byte(complete: Path, tmp_path: Path) -> None:
    assert {"passport.json", "signature.json"} <= files_of(complete).keys()
    out = unpack_release(pack_release(complete), tmp_path / "far" / "out")
    assert files_of(out) == files_of(complete) == release_files(complete)
    assert load(out).fingerprint == load(complete).fingerprint


def test_what_is_no_place_is_refused_in_one_sentence(gaussian: Release, folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "release.zip"
    packed.write_bytes(pack_release(folder))
    with pytest.raises(ReleaseError, match=r"is not a folder.*Unpack the archive first\.$"):
        Release.open(packed)
    with pytest.raises(ReleaseError, match=r"is not a folder.*Download it first"):
        Release.open("hf://owner/name")
    with pytest.raises(ConfigError, match=r"from a folder, a \.zip file or hf://OWNER/NAME; got None"):
        load(None)  # type: ignore[arg-type]
    assert "not saved" in repr(Release(gaussian.manifest, gaussian.tensors))
    assert f"fingerprint={load(folder).fingerprint[:12]!r}" in repr(load(folder))


def test_the_bytes_depend_on_files_and_folder_name_alone(
    gaussian: Release, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pack_release(folder)
    again = gaussian.save(tmp_path / "elsewhere" / "release")
    for i, file in enumerate(sorted(again.iterdir(), reverse=True)):
        os.utime(file, (1e9 + i, 1e9 + i))
        file.chmod(0o600)
    monkeypatch.chdir(again)
    assert pack_release(Path()) == first
    listed = zipfile.ZipFile(io.BytesIO(first)).infolist()
    assert [entry.filename for entry in listed] == sorted(f"release/{name}" for name in files_of(folder))
    assert {entry.date_time for entry in listed} == {(1980, 1, 1, 0, 0, 0)}
    assert zipfile.ZipFile(io.BytesIO(first)).testzip() is None


def test_zips_of_other_programs_are_read(folder: Path, tmp_path: Path) -> None:
    flat = files_of(folder)
    nested = {"Köln 2024/": b"", **{f"Köln 2024/{name}": raw for name, raw in flat.items()}}
    streamed = io.BytesIO()
    with zipfile.ZipFile(NoSeek(streamed), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in flat.items():
            archive.writestr(name, raw)
    for i, raw in enumerate((zipped(flat), zipped(nested, zipfile.ZIP_DEFLATED), streamed.getvalue())):
        assert files_of(unpack_release(raw, tmp_path / str(i))) == flat
    assert read_archive(zipped(nested)).name == "Köln 2024"
    assert read_archive(zipped(flat)).name is None


class NoSeek(io.RawIOBase):
    """A stream like that of a download: sizes must follow the data."""

    def __init__(self, inner: io.BytesIO) -> None:
        self.inner = inner

    def writable(self) -> bool:
        return True

    def write(self, raw: bytes) -> int:  # type: ignore[override]
        return self.inner.write(raw)


def test_only_a_release_is_packed(folder: Path, tmp_path: Path) -> None:
    (folder / "patients.csv").write_text("MILLER")
    with pytest.raises(IntegrityError):
        pack_release(folder)
    with pytest.raises(FormatError):
        pack_release(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name",
    [
        "../manifest.json", "/manifest.json", "a/../manifest.json", "../../etc/README.md", "a/b/README.md", "..",
        "a\\README.md", "..\\README.md", "C:README.md", "./README.md", ".hidden/README.md", "a//README.md", "/",
        "patients.csv", "README.md/", "readme.MD", "README.md ", "", "a/", "x" * 60000,
    ],
)  # fmt: skip
def test_names_that_no_release_has(name: str, folder: Path, tmp_path: Path) -> None:
    refused(zipped({**files_of(folder), name: b""}), tmp_path)


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_links_and_devices(mode: int, folder: Path, tmp_path: Path) -> None:
    contents = files_of(folder)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, raw in contents.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = ((mode if name == "README.md" else stat.S_IFREG) | 0o644) << 16
            archive.writestr(entry, b"/etc/passwd" if name == "README.md" else raw)
    refused(stream.getvalue(), tmp_path, "link or a device")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_twice_or_in_two_folders(folder: Path, tmp_path: Path) -> None:
    stream = io.BytesIO(zipped(files_of(folder)))
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr("README.md", b"another")
    refused(stream.getvalue(), tmp_path, "twice")
    split = {(f"a/{name}" if name == "README.md" else f"b/{name}"): raw for name, raw in files_of(folder).items()}
    refused(zipped(split), tmp_path, "different folders")


def test_too_many_entries(tmp_path: Path) -> None:
    refused(zipped({f"{i}/README.md": b"" for i in range(21)}), tmp_path, "at most 20")


def test_other_compressions_and_encryption(folder: Path, tmp_path: Path) -> None:
    refused(zipped(files_of(folder), zipfile.ZIP_LZMA), tmp_path)
    refused(zipped(files_of(folder), zipfile.ZIP_BZIP2), tmp_path)
    raw = bytearray(zipped(files_of(folder)))
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        raw[raw.index(mark) + place] |= 1
    refused(bytes(raw), tmp_path, "encrypted")


def declared(contents: dict[str, bytes], name: str, crc: int, size: int) -> bytes:
    """A .zip that calls the stored bytes of one file deflated, with this checksum and size once they are inflated."""
    raw = bytearray(zipped(contents))
    facts = struct.pack("<LLL", crc, len(contents[name]), size)
    for mark, method, numbers, text in ((b"PK\3\4", 8, 14, 30), (b"PK\1\2", 10, 16, 46)):
        at = raw.index(mark)
        while raw[at + text : at + text + len(name)] != name.encode():
            at = raw.index(mark, at + 1)
        raw[at + method : at + method + 2] = struct.pack("<H", 8)
        raw[at + numbers : at + numbers + 12] = facts
    return bytes(raw)


def deflated(*pieces: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join(engine.compress(piece) for piece in pieces) + engine.flush()


def with_bomb(folder: Path, name: str, size: int) -> bytes:
    """A release whose file `name` is zeros, packed well; the manifest agrees."""
    contents = files_of(folder)
    if name != "manifest.json":
        manifest = json.loads(contents["manifest.json"])
        manifest["files"][name] = {"bytes": size, "sha256": "0" * 64}
        contents["manifest.json"] = json.dumps(manifest).encode()
    contents[name] = deflated(*[bytes(2**20)] * (size // 2**20))
    return declared(contents, name, 0, size)


@pytest.mark.parametrize("name", ["decoder.safetensors", "manifest.json", "README.md"])
def test_a_bomb_is_not_lit(name: str, folder: Path, tmp_path: Path) -> None:
    raw = with_bomb(folder, name, 2**29)
    assert len(raw) < 2**20
    tracemalloc.start()
    began = time.monotonic()
    refused(raw, tmp_path)
    assert time.monotonic() - began < 5
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_a_file_that_is_longer_than_it_says(folder: Path, tmp_path: Path) -> None:
    """The declared size fits the manifest; the data go on for 256 MB."""
    contents = files_of(folder)
    card = contents["README.md"]
    honest = declared({**contents, "README.md": deflated(card)}, "README.md", zlib.crc32(card), len(card))
    assert files_of(unpack_release(honest, tmp_path / "honest")) == contents
    long = deflated(card, *[bytes(2**20)] * 256)
    changed = declared({**contents, "README.md": long}, "README.md", zlib.crc32(card), len(card))
    tracemalloc.start()
    refused(changed, tmp_path, "different size")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_a_wrong_checksum(folder: Path, tmp_path: Path) -> None:
    raw = bytearray(pack_release(folder))
    card = files_of(folder)["README.md"]
    raw[raw.index(card)] ^= 1
    refused(bytes(raw), tmp_path, "checksum")


def end_of(raw: bytes) -> int:
    return len(raw) - 22


def overlapping(raw: bytes) -> bytes:
    """The second line of the directory points to the entry of the first."""
    out = bytearray(raw)
    first = out.index(b"PK\1\2")
    second = out.index(b"PK\1\2", first + 4)
    out[second + 42 : second + 46] = out[first + 42 : first + 46]
    return bytes(out)


def with_gap(raw: bytes) -> bytes:
    """Bytes that no entry has, before the directory."""
    at = raw.index(b"PK\1\2")
    out = bytearray(raw[:at] + b"hidden" + raw[at:])
    place = end_of(out) + 16
    out[place : place + 4] = struct.pack("<L", at + 6)
    return bytes(out)


def with_prefix(raw: bytes) -> bytes:
    return b"#!/bin/sh\n" + raw


def with_comment(raw: bytes) -> bytes:
    return raw[:-2] + struct.pack("<H", 5) + b"hello"


def with_zip64_end(raw: bytes) -> bytes:
    at = end_of(raw)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 3, 3, at - raw.index(b"PK\1\2"), 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at, 1)
    return raw[:at] + record + locator + raw[at:]


def with_other_local_name(raw: bytes) -> bytes:
    """Programs that read from the front would see another file."""
    return raw.replace(b"release/README.md", b"release/rEADME.md", 1)


def with_far_offset(raw: bytes) -> bytes:
    at = raw.index(b"PK\1\2") + 42
    return raw[:at] + b"\xff\xff\xff\xff" + raw[at + 4 :]


@pytest.mark.parametrize(
    "change",
    [overlapping, with_gap, with_prefix, with_comment, with_zip64_end, with_other_local_name, with_far_offset],
)
def test_structures_that_fool_readers(change: Callable[[bytes], bytes], folder: Path, tmp_path: Path) -> None:
    refused(change(pack_release(folder)), tmp_path)


def test_64_bit_sizes_and_second_names(folder: Path, tmp_path: Path) -> None:
    for extra in (struct.pack("<2H2Q", 1, 16, 5, 5), struct.pack("<2HB", 0x7075, 1, 1), b"\1"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, raw in files_of(folder).items():
                entry = zipfile.ZipInfo(name)
                entry.extra = extra
                archive.writestr(entry, raw)
        refused(stream.getvalue(), tmp_path)


def test_what_is_not_an_intact_release(folder: Path, tmp_path: Path) -> None:
    contents = files_of(folder)
    refused(zipped({}), tmp_path, "no manifest")
    refused(b"", tmp_path, "not a .zip")
    for gone in contents:
        refused(zipped({name: raw for name, raw in contents.items() if name != gone}), tmp_path)
    refused(zipped({**contents, "rows.safetensors": b""}), tmp_path, "does not list")
    refused(zipped({**contents, "passport.md": b"# Passport"}), tmp_path, "does not list")
    same_size = contents["README.md"][:-1] + b"!"
    refused(zipped({**contents, "README.md": same_size}), tmp_path, "altered")


def test_an_existing_folder_is_replaced_only_if_asked_and_only_by_a_release(
    complete: Path, network: Release, tmp_path: Path
) -> None:
    out = network.save(tmp_path / "out")
    before = files_of(out)
    raw = pack_release(complete)
    with pytest.raises(ConfigError, match="--force"):
        unpack_release(raw, out)
    with pytest.raises(ReleaseError):
        unpack_release(raw[:-1], out, overwrite=True)
    assert files_of(out) == before
    assert files_of(unpack_release(raw, out, overwrite=True)) == files_of(complete)
    assert {entry.name for entry in tmp_path.iterdir() if "locum-" in entry.name} == set()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes]]:
    import numpy as np

    from locum.generate import ClassGaussian

    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("good") / "release"
    ClassGaussian().fit(rng.normal(size=(40, 3)), np.arange(40) % 2).release(no_dp=True).save(folder)
    return pack_release(folder), files_of(folder)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_zip_is_refused_or_gives_the_same_release(
    data: st.DataObject, good: tuple[bytes, dict[str, bytes]]
) -> None:
    raw, contents = good
    # Headers and directory are a small part of the file, and the part that matters.
    marks = [i for i in range(len(raw)) if raw[i : i + 2] == b"PK"]
    near = st.sampled_from(marks).flatmap(lambda at: st.integers(at, min(at + 60, len(raw) - 1)))
    place = st.one_of(near, st.integers(0, len(raw) - 1))
    changed = bytearray(raw)
    for at in data.draw(st.lists(place, min_size=1, max_size=3)):
        changed[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del changed[data.draw(place) : data.draw(place)]
    try:
        found = read_archive(bytes(changed))
    except LocumError:
        return
    assert found.contents == contents


def test_every_refusal_of_a_file_names_it(complete: Path, tmp_path: Path) -> None:
    contents = files_of(complete)
    altered = {**contents, "README.md": contents["README.md"] + b"more"}
    newer = json.loads(contents["manifest.json"]) | {"schema_version": 99}
    bad = {
        "not a .zip": (b"hello", FormatError),
        "no manifest": (zipped({"README.md": b""}), FormatError),
        "a broken manifest": (zipped({**contents, "manifest.json": b"{"}), FormatError),
        "a newer one": (zipped({**contents, "manifest.json": json.dumps(newer).encode()}), SchemaVersionError),
        "an altered file": (zipped(altered), IntegrityError),
        "a damaged one": (zipped(contents).replace(contents["README.md"][:30], b"x" * 30), IntegrityError),
    }
    for raw, error in bad.values():
        (tmp_path / "sent.zip").write_bytes(raw)
        with pytest.raises(error) as by_name:
            read_archive(tmp_path / "sent.zip")
        assert str(by_name.value).startswith(f"{str(tmp_path / 'sent.zip')!r} cannot be read as a release. ")
        with pytest.raises(error) as by_bytes:
            read_archive(raw)
        assert str(by_name.value).endswith(str(by_bytes.value))
        assert "sent.zip" not in str(by_bytes.value)
    with pytest.raises(FormatError, match=r"nowhere\.zip"):
        read_archive(tmp_path / "nowhere.zip")


def test_the_recipes_pack_and_receive(complete: Path, tmp_path: Path) -> None:
    out = tmp_path / "sent.zip"
    packed = pack_to_file(complete, out)
    assert packed["bytes"] == out.stat().st_size
    assert packed["fingerprint"] == load(complete).fingerprint
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    json.dumps(packed)
    with pytest.raises(ConfigError, match="--force"):
        pack_to_file(complete, out)
    with pytest.raises(ConfigError, match=r"\.zip"):
        pack_to_file(complete, tmp_path / "sent.tar")
    received = receive_release(out, tmp_path / "inbox")
    assert received["path"] == str(tmp_path / "inbox" / "release")
    assert received["verification"]["path"] == received["path"]
    assert received["verification"]["checks"] == packed["verification"]["checks"]
    copied = receive_release(complete, tmp_path / "second")
    assert files_of(Path(copied["path"])) == files_of(complete)
    with pytest.raises(ConfigError, match="--force"):
        receive_release(out, tmp_path / "inbox")
    assert receive_release(out, tmp_path / "inbox", overwrite=True)["fingerprint"] == packed["fingerprint"]
    (tmp_path / "flat.zip").write_bytes(zipped(files_of(complete)))
    assert receive_release(tmp_path / "flat.zip", tmp_path / "inbox")["path"].endswith("flat")
    with pytest.raises(FormatError, match="cannot be read"):
        receive_release(tmp_path / "nowhere.zip", tmp_path / "inbox")


def test_a_release_that_claims_too_much_is_not_received(tmp_path: Path) -> None:
    """Its files are intact, so `open_release` takes it: only the price of its events gives it away."""
    write_embeddings(tmp_path / "data.npz", load_sample("breast-cancer"))
    release = fit_release(str(tmp_path / "data.npz"), tmp_path / "release", classes_public=True).release
    manifest = json.loads((release / "manifest.json").read_text())
    manifest["claim"]["dp"]["epsilon"] /= 10
    (release / "manifest.json").write_text(json.dumps(manifest))
    raw = pack_release(release)
    (tmp_path / "bad.zip").write_bytes(raw)
    assert unpack_release(raw, tmp_path / "intact").is_dir()
    for source in (tmp_path / "bad.zip", release):
        with pytest.raises(PrivacyError):
            receive_release(source, tmp_path / "inbox")
    assert list((tmp_path / "inbox").iterdir()) == []
    with pytest.raises(PrivacyError):
        pack_to_file(release, tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()
