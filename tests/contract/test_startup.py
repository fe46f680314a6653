"""Starting is quick: neither `import locum` nor the program's help loads torch."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

HELP = "import sys; sys.argv = ['locum', '--help']\nfrom locum.cli.main import main\n"
HEAVY = {"torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import locum",
        "import locum; locum.EmbeddingSet; locum.load",
        HELP + "try:\n    main()\nexcept SystemExit:\n    pass",
    ],
)
def test_heavy_packages_stay_out(code: str) -> None:
    loaded = run(code + "\nimport sys; print('|', *{m.split('.')[0] for m in sys.modules})").rsplit("|", 1)[1].split()
    assert not HEAVY & set(loaded)


def test_a_receiver_s_verbs_do_without_torch() -> None:
    code = "from locum.recipes import predict_records, sample_to_file; from locum.release import verify"
    loaded = run(code + "\nimport sys; print(*{m.split('.')[0] for m in sys.modules})").split()
    assert not {"torch", "sklearn", "scipy"} & set(loaded)


@cache
def cpu_seconds(code: str) -> float:
    """Processor time of a fresh interpreter: what it did, whatever else the machine was doing."""
    timed = f"import time\n{code}\nprint('|', time.process_time())"
    return min(float(run(timed).rsplit("|", 1)[1]) for _ in range(2))


@pytest.mark.parametrize(
    "code", ["import locum", HELP + "try:\n    main()\nexcept SystemExit:\n    pass"], ids=["import", "help"]
)
def test_start_takes_under_a_third_of_torch(code: str) -> None:
    assert cpu_seconds(code) < cpu_seconds("import torch") / 3
