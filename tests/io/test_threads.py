"""One thread inside, as many as before afterwards, also where blocks overlap."""

from __future__ import annotations

import numpy as np  # noqa: F401  loads a BLAS
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from locum.io import one_thread


def threads() -> set[int]:
    return {int(pool["num_threads"]) for pool in threadpool_info()}


def test_the_limit_holds_until_the_last_block_ends() -> None:
    with threadpool_limits(2):
        before, first, second = threads(), one_thread(), one_thread()
        assert first.__enter__() == min(before)
        assert second.__enter__() == min(before)
        assert threads() == {1}
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before


def test_an_error_lifts_it_too() -> None:
    with threadpool_limits(2):
        before = threads()
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert threads() == before
