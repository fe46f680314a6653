"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import locum.rebalance as rebalance

MODULES = sorted(m.name for m in pkgutil.iter_modules(rebalance.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"locum.rebalance.{name}")).failed == 0


def test_names_are_fetched_when_first_used() -> None:
    assert set(rebalance.__all__) == set(dir(rebalance))
    assert all(getattr(rebalance, name) is not None for name in rebalance.__all__)
