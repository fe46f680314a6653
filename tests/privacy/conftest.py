"""What somebody does who wants to be believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from locum.release import entry_of
from locum.release.card import render_card
from locum.release.manifest import parse_manifest


@pytest.fixture
def forge() -> Callable[..., None]:
    """Rewrites a release so that all hashes inside fit."""
    return _forge


def _forge(folder: Path, change: Any, tensors: dict[str, np.ndarray] | None = None) -> None:
    """Rewrite a release so that all hashes inside fit."""
    body = json.loads((folder / "manifest.json").read_text())
    change(body)
    if tensors is not None:
        save_file(tensors, folder / "decoder.safetensors")
    manifest = parse_manifest(json.dumps(body).encode())
    (folder / "README.md").write_text(render_card(manifest))
    body["files"] = {
        name: entry_of((folder / name).read_bytes()).model_dump() for name in ("decoder.safetensors", "README.md")
    }
    (folder / "manifest.json").write_text(json.dumps(body))
