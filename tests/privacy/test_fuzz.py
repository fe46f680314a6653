"""Damaged and forged files are refused in words: a seeded run of scripts/fuzz.py; run it longer by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fuzz.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory through /proc")
def test_no_mutation_ends_in_a_traceback_a_hang_or_a_gigabyte(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--mutations", "150", "--seed", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "150 mutations of 15 files" in run.stdout


def test_a_fault_is_found(tmp_path: Path) -> None:
    """The script is not blind: a reader that lets an error through is reported."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nimport fuzz\n"
        "file = Path('data.txt'); file.write_bytes(b'good')\n"
        "def read():\n    assert file.read_bytes() == b'good'\n"
        "print(len(fuzz.fuzz({'data': fuzz.Target(file, read)}, 20, 0)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(SCRIPT.parent)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(run.stdout.split()[-1]) >= 10
