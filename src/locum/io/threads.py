"""One thread in matrix products, where several would wait for each other longer than they work."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

# 16 MB of float32: 3,277 records of 1,280 features, whose distances from each other take one thread under a second.
_FEW_NUMBERS = 2**22

_lock = threading.Lock()
_users = 0
_limits: Any = None
_before = 1
_pools: tuple[int, Any] | None = None


@contextmanager
def one_thread() -> Iterator[int]:
    """Keep matrix products and OpenMP loops of this process on one thread each; as many as before afterwards.

    Threads of BLAS spin while they wait. In many small products, or on cores that others use too, that costs several
    times the work. The limit is the process's: blocks that overlap share it, and the last one lifts it.

    Yields
    ------
    int
        How many threads a product could use before: so many threads of one's own, each with its own products, use
        the same cores.

    Examples
    --------
    >>> from locum.io import one_thread
    >>> with one_thread() as cores:
    ...     cores >= 1
    True
    """
    global _users, _limits, _before
    with _lock:
        if not _users:
            pools = _thread_pools()
            # The smallest pool: whoever set OMP_NUM_THREADS=1 wants one core used.
            _before = min((int(pool["num_threads"]) for pool in pools.info()), default=1)
            _limits = pools.limit(limits=1)
        _users += 1
    try:
        yield _before
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limits.restore_original_limits()
                _limits = None


def threads_for(numbers: int) -> AbstractContextManager[Any]:
    """One thread for work on tables of few numbers; for larger ones as many as there are.

    Parameters
    ----------
    numbers
        Rows times features.

    Returns
    -------
    context manager
        `one_thread()`, or one that changes nothing.

    Examples
    --------
    >>> from locum.io import threads_for
    >>> with threads_for(900 * 1280):
    ...     pass
    """
    return one_thread() if numbers < _FEW_NUMBERS else nullcontext()


def _thread_pools() -> Any:
    """The libraries with threads of their own that are loaded now."""
    global _pools
    from threadpoolctl import ThreadpoolController

    # Finding them takes milliseconds, as long as a small fit: look again only after imports.
    if _pools is None or _pools[0] != len(sys.modules):
        _pools = len(sys.modules), ThreadpoolController()
    return _pools[1]
