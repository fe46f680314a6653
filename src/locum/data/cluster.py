"""A Ray cluster: found, or started on this machine, and left as it was."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from locum.errors import ConfigError


@contextmanager
def ray_cluster(address: str) -> Iterator[Any]:
    """The module `ray`, connected to a cluster.

    A connection that was there before is used, and stays. What is started here ends here. Telemetry is off.

    Parameters
    ----------
    address
        "local" starts Ray on this machine; "auto" finds the cluster that this machine belongs to; or HOST:PORT.

    Yields
    ------
    module
        `ray`.

    Raises
    ------
    ConfigError
        If Ray is not installed, or there is no such cluster.

    Examples
    --------
    >>> from locum.data import ray_cluster
    >>> with ray_cluster("127.0.0.1:1"):
    ...     pass
    Traceback (most recent call last):
    locum.errors.ConfigError: There is no Ray cluster at '127.0.0.1:1' that can be used: start one with `ray start \
--head`, name its HOST:PORT, or use 'local' to start one on this machine.
    """
    if find_spec("ray") is None:
        raise ConfigError("The engine 'ray' needs ray: pip install 'locum[cluster]', or use the engine 'local'.")
    # Read when Ray is imported or started.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with _own_signals():
        import ray
        import ray.exceptions

        mine = not ray.is_initialized()
        if mine:
            _start(ray, address)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _start(ray: Any, address: str) -> None:
    given: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        given |= {"num_cpus": cpus, "include_dashboard": False}
    try:
        _knock(address)
        ray.init(address=address, **given)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ConfigError(
            f"There is no Ray cluster at {address!r} that can be used: start one with `ray start --head`, name its "
            "HOST:PORT, or use 'local' to start one on this machine."
        ) from error


def _knock(address: str) -> None:
    """Raise OSError if nobody answers at an address: Ray itself would try for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our answer to SIGTERM: Ray puts its own in its place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
