"""One thread in matrix products, where several would wait for each other longer than they work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_users = 0
_limits: Any = None
_before = 1


@contextmanager
def one_thread() -> Iterator[int]:
    """Keep matrix products and OpenMP loops of this process on one thread each; as many as before afterwards.

    Threads of BLAS spin while they wait. In many small products, or on cores that others use too, that costs several
    times the work. The limit is the process's: blocks that overlap share it, and the last one lifts it. Products that
    ran on one thread have the same last bits on every machine of one kind.

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
    from threadpoolctl import ThreadpoolController

    with _lock:
        if not _users:
            pools = ThreadpoolController()
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
