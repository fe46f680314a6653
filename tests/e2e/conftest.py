from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import split, write_embeddings


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def locum(tmp_path: Path) -> Run:
    """The program as people start it: a process of its own, in a folder of its own."""

    def run(*arguments: object, timeout: float = 120) -> Ran:
        process = subprocess.run(
            [sys.executable, "-m", "locum", *(str(a) for a in arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=timeout,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
        )
        return Ran(process.returncode, process.stdout, process.stderr)

    return run


@pytest.fixture
def files(tmp_path: Path, blob_set: EmbeddingSet) -> dict[str, Path]:
    parts = split(blob_set, {"train": 0.7, "test": 0.3}, rng=np.random.default_rng(0))
    paths = {name: tmp_path / f"{name}.npz" for name in parts}
    for name, part in parts.items():
        write_embeddings(paths[name], part)
    return paths


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same program inside this process: quicker, for the many ways to get it wrong."""
    from locum.cli.main import main

    def run(*arguments: object) -> Ran:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["locum", *(str(a) for a in arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return Ran(int(ended.value.code or 0), shown.out, shown.err)

    return run
