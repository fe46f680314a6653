"""The examples in the docstrings run, and the public names are what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import locum.metrics as metrics

MODULES = sorted(m.name for m in pkgutil.iter_modules(metrics.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(f"locum.metrics.{name}")
    assert doctest.testmod(module).failed == 0


def test_public_names_are_sorted_and_documented() -> None:
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(getattr(metrics, n).__doc__ for n in metrics.__all__)


def test_import_is_light() -> None:
    heavy = {"torch", "sklearn", "scipy.stats", "faiss"}
    code = f"import sys, locum.metrics; print(sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
