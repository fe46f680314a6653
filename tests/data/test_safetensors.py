"""Safetensors: same names as .npz, text in the metadata, hostile headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from locum.data import read_embeddings, read_splits

Refuses = Callable[..., str]


def save(folder: Path, tensors: dict[str, Any], meta: dict[str, str] | None = None) -> Path:
    path = folder / "d.safetensors"
    save_file({k: np.asarray(v) for k, v in tensors.items()}, path, meta)
    return path


def by_hand(folder: Path, header: object, body: bytes, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "d.safetensors"
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + body)
    return path


def test_tensors_and_metadata_are_read(tmp_path: Path) -> None:
    meta = {"class_names": '["a", "b"]', "info": '{"backbone": "b"}'}
    path = save(tmp_path, {"X": np.eye(2), "y": [1, 0], "subject": [4, 5]}, meta)
    data = read_embeddings(path)
    assert data.labels.tolist() == ["b", "a"]
    assert data.subject is not None
    assert data.subject.tolist() == [4, 5]
    assert data.info.backbone == "b"


def test_splits_are_read_as_in_npz(tmp_path: Path) -> None:
    half = np.eye(2, dtype=np.float16)
    sets = read_splits(save(tmp_path, {"train_x": half, "train_y": [3, 3], "test_x": half, "test_y": [3, 1]}))
    assert list(sets) == ["train", "test"]
    assert sets["train"].y.tolist() == [1, 1]
    assert sets["train"].X.dtype == np.float32


@pytest.mark.parametrize(
    ("tensors", "meta", "pieces"),
    [
        ({"X": np.eye(2)}, {}, ["no labels"]),
        ({"y": [0, 1]}, {}, ["no vectors"]),
        ({"X": np.eye(3), "y": [0, 1]}, {}, ["3 vectors", "(2,)"]),
        ({"X": [[np.nan]], "y": [0]}, {}, ["finite"]),
        ({"X": np.ones(2), "y": [0, 1]}, {}, ["table of records by features"]),
        ({"X": np.eye(2), "y": [0, 1]}, {"class_names": "a, b"}, ["`class_names`", "JSON list"]),
        ({"X": np.eye(2), "y": [0, 1]}, {"class_names": "[1, 2]"}, ["`class_names`", "JSON list"]),
        ({"X": np.eye(2), "y": [0, 1]}, {"info": "[" * 10_000}, ["`info`", "JSON object"]),
        ({"X": np.eye(2), "y": [0, 1]}, {"values": "3"}, ["`values`"]),
        ({"X": np.eye(2), "y": [0, 1]}, {"values": "{"}, ["`values`"]),
        (
            {"X": np.eye(2), "y": [0, 1], "subject": [0, 2]},
            {"values": '{"subject": ["p"]}'},
            ["`subject`", "outside"],
        ),
        (
            {"X": np.eye(2), "y": [0, 1], "subject": [0, -1]},
            {"values": '{"subject": ["p"]}'},
            ["`subject`", "outside"],
        ),
    ],
)
def test_each_wrong_content_gets_its_own_sentence(
    tmp_path: Path, refuses: Refuses, tensors: dict[str, Any], meta: dict[str, str], pieces: list[str]
) -> None:
    refuses(save(tmp_path, tensors, meta), *pieces)


def test_bfloat16_is_named_with_its_remedy(tmp_path: Path, refuses: Refuses) -> None:
    header = {
        "X": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]},
        "y": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]},
    }
    refuses(by_hand(tmp_path, header, bytes(6)), "`X`", "BF16", "float32")


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path, refuses: Refuses) -> None:
    refuses(by_hand(tmp_path, {}, b"", length=1000), "shorter than its header says")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_001])
def test_an_absurd_header_length_is_refused(tmp_path: Path, refuses: Refuses, length: int) -> None:
    refuses(by_hand(tmp_path, {}, b"", length=length), "does not start like")


def test_other_bytes_are_refused(tmp_path: Path, refuses: Refuses) -> None:
    path = tmp_path / "d.safetensors"
    path.write_bytes(b"short")
    refuses(path, "too short")
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    refuses(path, "does not start like")
    refuses(by_hand(tmp_path, b"{not json}", b""), "damaged")
    lying = {"X": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 999]}}
    refuses(by_hand(tmp_path, lying, bytes(16)), "damaged")


@pytest.mark.parametrize("keep", [0.01, 0.05, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, refuses: Refuses, keep: float) -> None:
    path = save(tmp_path, {"X": np.random.default_rng(0).random((50, 8)), "y": np.arange(50) % 2})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    text = refuses(path)
    assert "damaged" in text or "cut off" in text
