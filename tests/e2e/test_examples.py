"""Every example runs, from an empty folder, within its 80 lines."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

# Packages that an example needs and that no extra of ours brings, and files of LOCUM_DATA.
NEEDS = {"sdmetrics_report": ("sdmetrics",), "onnx_receiver": ("onnxruntime",)}
FILES = {"medmnist_release": "breastmnist.npz"}
# Embeds 780 images; `images_to_release` covers the path.
SLOW = ("medmnist_release",)
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "example", [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in SLOW), id=p.stem) for p in EXAMPLES]
)
def test_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside this process, which has loaded torch already."""
    assert len(example.read_text().splitlines()) <= 80
    for package in NEEDS.get(example.stem, ()):
        pytest.importorskip(package, reason=f"the example needs {package}")
    if (file := FILES.get(example.stem)) and not (Path(os.environ.get("LOCUM_DATA", "nowhere")) / file).is_file():
        pytest.skip(f"needs {file} in the folder LOCUM_DATA")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
def test_an_example_runs_as_people_start_it(tmp_path: Path) -> None:
    """In a process of its own: nothing that the tests imported or set is needed."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES[0].with_name("first_release.py"))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
