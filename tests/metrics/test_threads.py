"""One thread where many would wait, and all of them back afterwards."""

from __future__ import annotations

import threading

import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

from locum._threads import in_threads, one_thread


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with threadpool_limits(3, user_api="blas"):
        yield
    torch.set_num_threads(before)


def test_threads_come_back_also_after_an_error() -> None:
    def fail() -> None:
        with one_thread() as before:
            assert before == 3
            assert (blas_threads(), torch.get_num_threads()) == ({1}, 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (blas_threads(), torch.get_num_threads()) == ({3}, 3)


def test_the_last_of_several_gives_them_back() -> None:
    """The first may end before the second: each alone would restore what it found."""
    first, second = one_thread(), one_thread()
    assert (first.__enter__(), second.__enter__()) == (3, 3)
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert (blas_threads(), torch.get_num_threads()) == ({3}, 3)


def test_items_run_on_as_many_threads_as_a_product_has() -> None:
    together, done = threading.Barrier(3, timeout=10), []

    def run(item: int) -> None:
        # Returns only if three are here at once.
        together.wait()
        done.append(item)

    in_threads(run, range(6))
    assert sorted(done) == list(range(6))


def test_an_error_of_an_item_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 // item, [1, 0, 2])
