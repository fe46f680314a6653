"""The examples in the docstrings run, and the public names are what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import locum.obfuscate as obfuscate

MODULES = sorted(m.name for m in pkgutil.walk_packages(obfuscate.__path__, "locum.obfuscate."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    importlib.import_module("locum.obfuscate.evaluation")
    assert callable(obfuscate.judge)
    assert all(getattr(obfuscate, name) is not None for name in obfuscate.__all__)
