"""A federation on Flower's simulation engine: many sites on one machine, in processes of Ray."""

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

# What sites send is small; by default Ray reserves a third of the memory for it.
_STORE_BYTES = 256 * 1024**2


def simulate_on_ray(
    settings: FederationSettings,
    sites_folder: str | Path,
    n_sites: int,
    out: str | Path,
    *,
    cpus: int | None = None,
    timeout: float = 3600,
    reference: str | Path | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Run the client and server code of a real federation on Ray, and return the folder of the release.

    Site i is `site-i` and opens `sites_folder/site-i/site.toml`. `cpus` processes work at a time, with one thread
    each; the default is all CPUs. Telemetry of Flower and Ray is off. There is no encryption and no authentication,
    because nothing leaves the machine: this is for trials with `insecure_seed`.
    """
    for package in ("flwr", "ray"):
        if find_spec(package) is None:
            raise ConfigError(
                f"The engine 'ray' needs {package}: pip install 'locum[simulation]', or use the engine 'local'."
            )
    root, number = Path(sites_folder).resolve(), cpus or os.cpu_count() or 1
    for i in range(n_sites):
        if not (root / f"site-{i}" / "site.toml").is_file():
            raise ConfigError(f"Site {i} of {n_sites} has no file 'site-{i}/site.toml' in {str(sites_folder)!r}.")
    with _quiet():
        from flwr.app import Context
        from flwr.serverapp import Grid, ServerApp
        from flwr.simulation import run_simulation

        from locum.federated.transport.flower import FlowerChannel, make_client_app, run_federation

        server, release = ServerApp(), []

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            handler = on_event or (lambda event: None)
            channel = FlowerChannel(grid, pause=0.1, names=_by_order, on_event=handler)
            release.append(
                run_federation(
                    channel,
                    settings,
                    Path(out),
                    sites=n_sites,
                    timeout=timeout,
                    reference=reference,
                    on_event=handler,
                )
            )

        def site_file(context: Context) -> Path:
            return root / f"site-{context.node_config['partition-id']}" / "site.toml"

        run_simulation(
            server_app=server,
            client_app=make_client_app(site_file),
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
    """Names by order: simulated nodes have no names, but Flower registers them in the order of their partitions."""
    ordered = sorted(nodes, key=lambda node: str(node.registered_at))
    return {f"site-{i}": node for i, node in enumerate(ordered)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn off telemetry of Flower and Ray, and limit Flower's log to errors."""
    os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")
    # Ray runs its workers at low priority; here they do the work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from flwr.supercore import telemetry

    # It reads the environment when it is first imported, which may have been before the line above.
    telemetry.FLWR_TELEMETRY_ENABLED = "0"
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
