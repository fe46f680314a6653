"""The quickstart of the README as a stranger would paste it: the same lines, in an empty folder, with exit code 0."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def quickstart() -> tuple[str, list[list[str]]]:
    """The script that makes the images, and the words of each command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Quickstart")[2].partition("\n## ")[0]
    script = re.search(r"`python (examples/\w+\.py)` makes", text)
    assert script is not None
    block = text.partition("```console\n")[2].partition("```")[0]
    return script[1], [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]


@pytest.mark.slow
def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    """Embeds 720 images."""
    script, commands = quickstart()
    ran = []
    for words in [["python", str(ROOT / script)], *commands]:
        start = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "locum"]
        done = subprocess.run(
            [*start, *words[1:]],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        ran.append(words[1])
    assert ran[1:] == ["fit", "verify", "train", "predict", "sample"]
    predicted = (tmp_path / "predictions.csv").read_text().splitlines()
    assert len(predicted) == 101
    assert {line.split(",")[1] for line in predicted[1:]} <= {f"digit-{k}" for k in range(4)}
