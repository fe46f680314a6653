"""A federation on Flower's simulation engine: many sites on one machine, each asked in a process of Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from locum.errors import ConfigError
from locum.federated.settings import FederationSettings

# What sites send is small; Ray would take a third of the memory for it.
_STORE_BYTES = 256 * 1024**2


def simulate_on_ray(
    settings: FederationSettings,
    sites_folder: str | Path,
    n_sites: int,
    out: str | Path,
    *,
    cpus: int | None = None,
    timeout: float = 3600,
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Run the client and server code of a real federation on Ray; the folder of the release.

    Site i is `site-i` and opens `sites_folder/site-i/site.toml`. `cpus` processes work at a time, one thread each:
    all of the machine's unless given. Nothing is reported to Flower's or Ray's makers. There is no encryption and no
    authentication here, for nothing leaves the machine: this is for trials, with test coins.
    """
    for package in ("flwr", "ray"):
        if find_spec(package) is None:
            raise ConfigError(f"This simulation needs {package}: install locum[simulation], or take engine local.")
    root, number = Path(sites_folder).resolve(), cpus or os.cpu_count() or 1
    for i in range(n_sites):
        if not (root / f"site-{i}" / "site.toml").is_file():
            raise ConfigError(f"Site {i} of {n_sites} has no file 'site-{i}/site.toml' in {str(sites_folder)!r}.")
    with _quiet():
        from flwr.app import Context
        from flwr.serverapp import Grid, ServerApp
        from flwr.simulation import run_simulation

        from locum.federated.transport.client_app import make_app
        from locum.federated.transport.flower import FlowerChannel
        from locum.federated.transport.server_app import run_federation

        server, release = ServerApp(), []

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            channel = FlowerChannel(grid, pause=0.1, names=_by_order)
            target = Path(out)
            silent = tell or (lambda news: None)
            release.append(run_federation(channel, settings, target, sites=n_sites, timeout=timeout, tell=silent))

        def site_file(context: Context) -> Path:
            return root / f"site-{context.node_config['partition-id']}" / "site.toml"

        run_simulation(
            server_app=server,
            client_app=make_app(site_file),
            num_supernodes=n_sites,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "num_cpus": min(number, n_sites),
                    "object_store_memory": _STORE_BYTES,
                    "log_to_driver": False,
                    "logging_level": logging.ERROR,
                },
            },
        )
    return release[0]


def _by_order(nodes: Iterable[Any]) -> dict[str, Any]:
    """Simulated nodes have neither names nor keys, but Flower registers them in the order of their partitions."""
    ordered = sorted(nodes, key=lambda node: str(node.registered_at))
    return {f"site-{i}": node for i, node in enumerate(ordered)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is sent to Flower's or Ray's makers, and Flower's own log keeps to errors."""
    os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")
    # Ray lets its processes yield to all others; here they are the work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from flwr.supercore import telemetry

    # It read the environment when it was first imported, perhaps before the line above.
    telemetry.FLWR_TELEMETRY_ENABLED = "0"
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
