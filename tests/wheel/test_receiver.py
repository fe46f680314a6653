"""Whoever only samples, verifies or plans installs the wheel without extras: no torch, no scikit-learn, no pandas.

The wheel is built and installed into an empty environment, which needs a package index; where there is none, the same
code runs here with every other package made to look absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
# Runs with the core alone: sample, verify against a ledger, plan, and one sentence for what needs an extra.
RECEIVER = """
import sys
import locum
from locum.recipes import make_plan, sample_to_file, show_ledger, verify_release
from locum.types import DP
from pathlib import Path
X, y = locum.load("release").sample(50, random_state=0)
assert X.shape == (50, 6) and set(y) <= {0, 1}
sample_to_file(Path("release"), Path("samples.npz"), n=20, overwrite=True)
checked = verify_release(Path("release"), ledger=Path("ledger.sqlite"))
assert any("ledger" in check for check in checked.checks), checked.checks
assert show_ledger(Path("ledger.sqlite"))["holdings"][0]["charges"]
plan = make_plan(DP(1.0, 1e-6, n_public=1000))
assert 0.99 < plan["epsilon_spent"] <= 1
try:
    from locum.generate import ClassGaussian
except locum.errors.MissingExtraError as error:
    assert "locum[fit]" in str(error)
else:
    raise SystemExit("scikit-learn should not be here")
heavy = {"torch", "sklearn", "scipy", "pandas", "pyarrow", "PIL", "dp_accounting"} & set(sys.modules)
assert not heavy, heavy
print("done")
"""
HIDE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a private release and the ledger that paid for it."""
    pytest.importorskip("sklearn")
    from locum.generate import ClassGaussian
    from locum.types import DP

    folder = tmp_path_factory.mktemp("received")
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = (rng.normal(size=(400, 6)) + y[:, None]).astype(np.float32)
    budget = DP(1.0, 1e-5, n_public=400)
    model = ClassGaussian(privacy=budget, classes=[0, 1], ledger=folder / "ledger.sqlite")
    model.fit(X, y).release().save(folder / "release")
    return folder


def test_the_core_needs_none_of_the_extras(received: Path) -> None:
    from locum.errors import EXTRAS

    code = HIDE.format(hidden=set(EXTRAS)) + "import locum.errors\n" + RECEIVER
    ran = subprocess.run([sys.executable, "-c", code], cwd=received, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "done", ran.stderr


def test_a_missing_extra_is_one_sentence(received: Path) -> None:
    from locum.errors import EXTRAS

    code = HIDE.format(hidden=set(EXTRAS)) + "from locum.cli.main import main\nmain()"
    # Files that are not there would be answered first.
    (received / "images").mkdir()
    (received / "x.npz").touch()
    for words in (
        ["fit", "x.npz", "-o", "r", "--no-dp"],
        ["embed", "images", "-o", "v.npz"],
        ["train", "release", "-o", "h.safetensors"],
    ):
        ran = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=received, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 2, ran.stderr
        # What brings all that these verbs need: nobody is sent twice.
        assert "pip install 'locum[images]'" in ran.stderr
        assert len(ran.stderr.strip().splitlines()) == 1


def test_the_wheel_without_extras(received: Path, tmp_path: Path) -> None:
    import venv

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"no wheel can be built here: {built.stderr.strip().splitlines()[-1][:200]}")
    (wheel,) = tmp_path.glob("locum-*.whl")
    # Our pip installs into it, without compiling what is imported once: its own would take longer than the rest.
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    there = [*pip, "--python", str(python)]
    constraint = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run(
        [*there, "install", "--quiet", "--no-compile", *constraint, str(wheel)], check=True, capture_output=True
    )
    # Nothing of this checkout may help.
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ran = subprocess.run(
        [str(python), "-c", "import locum.errors\n" + RECEIVER],
        cwd=received,
        capture_output=True,
        text=True,
        check=False,
        env=plain,
    )
    assert ran.stdout.strip() == "done", ran.stderr
    program = python.with_name("locum")
    shown = subprocess.run(
        [str(program), "verify", "release", "--ledger", "ledger.sqlite", "--json"],
        cwd=received,
        capture_output=True,
        text=True,
        check=True,
        env=plain,
    )
    assert json.loads(shown.stdout)["claim"]["kind"] == "dp"
    names = "from importlib.metadata import distributions as d; print(*(p.name.lower() for p in d()))"
    listed = subprocess.run([str(python), "-c", names], capture_output=True, text=True, check=True, env=plain)
    assert "locum" in listed.stdout.split()
    assert not {"torch", "scikit-learn", "pandas", "scipy"} & {*listed.stdout.split()}
