"""How many threads matrix products use: many small products are faster with one, and blocks of large ones in parallel.

A library's threads wait for each other after every product. In a loop of small products they spend their time
waiting, most of all on a machine that others use too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# The limit belongs to the process: the first who needs it sets it, the last one gives the threads back.
_lock = threading.Lock()
_limited: list[Any] = []
_threads_before = 1


@contextmanager
def one_thread() -> Iterator[int]:
    """Matrix products use one thread each; yields how many they would have used. Several may ask at the same time.

    Without threadpoolctl, which the extra `fit` brings, nothing changes and 1 is given.
    """
    global _threads_before
    try:
        from threadpoolctl import ThreadpoolController
    except ModuleNotFoundError:
        yield 1
        return
    with _lock:
        if not _limited:
            blas = ThreadpoolController().select(user_api="blas")
            _threads_before = max((library["num_threads"] for library in blas.info()), default=1)
            _limited.append(blas.limit(limits=1))
        else:
            _limited.append(None)
        threads = _threads_before
    try:
        yield threads
    finally:
        with _lock:
            last = _limited.pop()
            if last is not None:
                last.restore_original_limits()


def in_threads(run: Callable[[T], None], items: Iterable[T]) -> None:
    """`run` for all items, on as many threads as a matrix product would use; each product then uses one."""
    with one_thread() as threads:
        if threads == 1:
            for item in items:
                run(item)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(run, item) for item in items]:
                done.result()
