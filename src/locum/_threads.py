"""How many threads matrix products use: small ones are faster with one, and blocks of large ones side by side.

A library's threads wait for each other after every product. In a loop of small products they spend their time
waiting, most of all on a machine that others use too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")
# 16 MB of float32: 3,277 records of 1,280 features, whose distances from each other take one thread under a second.
_FEW_NUMBERS = 2**22
# The libraries that were loaded when there were so many modules: finding them takes as long as a small fit.
_known: tuple[int, Any] | None = None


def _libraries() -> Any:
    """The libraries with threads of their own that are loaded now."""
    global _known
    from threadpoolctl import ThreadpoolController

    if _known is None or _known[0] != len(sys.modules):
        _known = len(sys.modules), ThreadpoolController()
    return _known[1]


class _Limit:
    """One thread for all libraries that are loaded, until `end`."""

    def __init__(self, controller: Any) -> None:
        # Torch has threads of its own, which threadpoolctl does not see.
        self._torch = sys.modules.get("torch")
        self._torch_threads = self._torch.get_num_threads() if self._torch is not None else 1
        blas = controller.select(user_api="blas").info()
        self.before = max((library["num_threads"] for library in blas), default=1)
        self._libraries = controller.limit(limits=1)
        if self._torch is not None:
            self._torch.set_num_threads(1)

    def end(self) -> None:
        """Give the threads back."""
        self._libraries.restore_original_limits()
        if self._torch is not None:
            self._torch.set_num_threads(self._torch_threads)


# The limit belongs to the process: the first who needs it sets it, the last one ends it.
_lock = threading.Lock()
_users = 0
_limit: _Limit | None = None


@contextmanager
def one_thread() -> Iterator[int]:
    """Matrix products use one thread each; yields how many they would have used. Several may ask at the same time.

    It holds for libraries that are loaded by now. Without threadpoolctl, which the extra `fit` brings, nothing
    changes and 1 is given.
    """
    global _users, _limit
    try:
        import threadpoolctl  # noqa: F401
    except ModuleNotFoundError:
        yield 1
        return
    with _lock:
        if _limit is None:
            _limit = _Limit(_libraries())
        _users += 1
        threads = _limit.before
    try:
        yield threads
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.end()
                _limit = None


def threads_for(numbers: int) -> AbstractContextManager[Any]:
    """One thread for work on tables of few numbers (rows times features); for larger ones as many as there are."""
    return one_thread() if numbers < _FEW_NUMBERS else nullcontext()


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
