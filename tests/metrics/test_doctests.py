"""The public names are what they say; tests/contract/test_docstrings.py runs their examples."""

from __future__ import annotations

import subprocess
import sys

import locum.metrics as metrics


def test_public_names_are_sorted_and_documented() -> None:
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(getattr(metrics, n).__doc__ for n in metrics.__all__)


def test_import_is_light() -> None:
    heavy = {"torch", "sklearn", "scipy.stats", "faiss"}
    code = f"import sys, locum.metrics; print(sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
