"""The public names are what they say; tests/contract/test_docstrings.py runs their examples."""

from __future__ import annotations

import locum.rebalance as rebalance


def test_names_are_fetched_when_first_used() -> None:
    assert set(rebalance.__all__) == set(dir(rebalance))
    assert all(getattr(rebalance, name) is not None for name in rebalance.__all__)
