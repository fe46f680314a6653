"""The public names are what they say; tests/contract/test_docstrings.py runs their examples."""

from __future__ import annotations

import importlib

import locum.obfuscate as obfuscate


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    importlib.import_module("locum.obfuscate.evaluation")
    assert callable(obfuscate.judge)
    assert all(getattr(obfuscate, name) is not None for name in obfuscate.__all__)
