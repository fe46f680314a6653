"""`--device`: checked in one sentence before any work, and never part of what leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import locum

Run = Callable[..., Any]
NO_GPU = not torch.cuda.is_available()


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fit", "vectors", "-o", "r", "--generator", "cvae", "--no-dp"], "Torch cannot use the device 'cuda' here"),
        (
            ["fit", "vectors", "-o", "r", "--generator", "cvae", "--n-public", "200", "--classes-public"],
            "CPU",
        ),
        (["fit", "vectors", "-o", "r", "--no-dp"], "has no setting 'device'"),
        (["rebalance", "vectors", "-o", "b.npz", "--generator", "cvae-small"], "Torch cannot use the device"),
        (["embed", "images", "-o", "v.npz"], "ONNX Runtime cannot use 'cuda' here"),
    ],
)
def test_a_device_that_cannot_be_used(
    words: list[str], told: str, program: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    np.savez(tmp_path / "images.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    given = {"vectors": files["train"], "images": tmp_path / "images.npz"}
    ran = program(*(given.get(word, word) for word in words), "--device", "cuda")
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_the_device_is_in_no_release_and_no_head(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    fitted = program(
        "fit", files["train"], "-o", "r", "--generator", "cvae", "--epochs", 1, "--no-dp", "--device", "cpu"
    )
    assert fitted.code == 0
    assert "device" not in (tmp_path / "r" / "manifest.json").read_text()
    trained = program("train", "r", "-o", "h.safetensors", "--samples", 200, "--device", "cpu")
    assert trained.code == 0
    assert b'"device"' not in (tmp_path / "h.safetensors").read_bytes()
    assert locum.load(tmp_path / "r").sample(3)[0].shape[0] == 3
