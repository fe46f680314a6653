"""Headers of array files that lie: one sentence, and no bytes of anything else as vectors."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.data import open_batches
from locum.errors import DataError


def _read(path: Path) -> int:
    opened = open_batches(path)["all"]
    assert sum(len(facts.y) for facts in opened.facts()) == len(opened)
    return sum(len(piece) for piece in opened)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "X.npy", np.eye(4, dtype=np.float32))
    np.save(folder / "y.npy", np.array([0, 1, 0, 1]))
    assert _read(folder) == 4
    return folder


@pytest.mark.parametrize("shape", ["(-4, 4)", "(4, -4)", "(10**3, 4)", "(4, 4, -1)", f"({10**30}, 4)", "('a', 4)"])
def test_shapes_of_npy_files(arrays: Path, shape: str) -> None:
    shape = shape.replace("10**3", "1000")
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    (arrays / "X.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64))
    with pytest.raises(DataError, match="damaged"):
        _read(arrays)


@pytest.mark.parametrize(
    ("name", "value"),
    [("info", np.array([], "U3")), ("info", np.array(["{}", "{}"])), ("class_names", np.array("a"))],
)
def test_descriptions_in_npy_files(arrays: Path, name: str, value: Any) -> None:
    np.save(arrays / f"{name}.npy", value)
    with pytest.raises(DataError):
        _read(arrays)


def test_class_names_in_bytes(arrays: Path) -> None:
    np.save(arrays / "class_names.npy", np.array([b"cat", b"dog"]))
    assert open_batches(arrays)["all"].info.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [-4, 4]},
        {"shape": [4, 6]},
        {"shape": [4.5, 4]},
        {"shape": "44"},
        {"data_offsets": [-8, 56]},
        {"data_offsets": [1000, 1064]},
        {"data_offsets": [32, 96]},
    ],
)
def test_headers_of_safetensors_files(tmp_path: Path, lie: dict[str, Any]) -> None:
    X = {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}
    y = {"dtype": "I64", "shape": [4], "data_offsets": [64, 96]}
    for one, right in ((X, True), ({**X, **lie}, False)):
        header = json.dumps({"X": one, "y": y}).encode()
        body = np.eye(4, dtype=np.float32).tobytes() + np.array([0, 1, 0, 1]).tobytes()
        (tmp_path / "t.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
        if right:
            assert _read(tmp_path / "t.safetensors") == 4
            continue
        with pytest.raises(DataError, match="damaged"):
            _read(tmp_path / "t.safetensors")
