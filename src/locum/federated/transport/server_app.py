"""What a SuperLink runs: it waits for the sites, then lets the coordinator ask them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.common.config import get_project_dir
from flwr.serverapp import Grid, ServerApp

from locum.errors import ConfigError, PolicyError
from locum.federated.protocol import Channel
from locum.federated.settings import FederationSettings
from locum.federated.transport.flower import FlowerChannel

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run's settings describe; all of them are public, for every site gets them.

    `federation` is the file of terms in the app's folder; `out` the folder for the release, the log and what is
    needed to go on after a stop, seen from where the SuperLink was started; `sites` how many must be connected before
    the start; `wait`, `timeout` and `patience` are seconds: for them to connect, to answer, and to come back.
    """
    config = context.run_config
    run = grid.run
    folder = get_project_dir(run.fab_id, run.fab_version, run.fab_hash)
    release = run_federation(
        FlowerChannel(grid, patience=_number(config, "patience")),
        FederationSettings.read(folder / str(config["federation"])),
        Path(str(config["out"])),
        sites=int(_number(config, "sites")),
        wait=_number(config, "wait"),
        timeout=_number(config, "timeout"),
    )
    print(f"locum: the release is in {str(release)!r}", flush=True)


def run_federation(
    channel: Channel,
    settings: FederationSettings,
    out: Path,
    *,
    sites: int,
    wait: float = 600,
    timeout: float = 3600,
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Wait for `sites`, run the coordinator over `channel`, and give the folder of the release.

    Progress goes to `tell`: unless given, to standard output and to `log.jsonl` in `out`. A run that stopped goes on
    when it is started again with the same `out`.
    """
    # Late: it takes seconds, and wrong settings need not wait for it.
    from locum.federated.coordinator import Coordinator

    wait_for_sites(channel, max(sites, settings.least_sites), wait=wait)
    return Coordinator(settings, out, timeout=timeout, tell=tell or _teller(out / "log.jsonl")).run(channel)


def wait_for_sites(channel: Channel, number: int, *, wait: float, pause: float = 1.0) -> list[str]:
    """The connected sites, once there are `number` of them; an error after `wait` seconds."""
    end = time.monotonic() + wait
    while len(found := channel.sites()) < number:
        if time.monotonic() > end:
            raise PolicyError(
                f"{len(found)} of {number} sites are connected after {wait:g} s: the run does not start."
            )
        time.sleep(pause)
    return found


def _number(config: Mapping[str, Any], name: str) -> float:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(f"`{name}` in the run's settings must be a number, 0 or more; got {value!r}.")
    return value


def _teller(log: Path) -> Callable[[dict[str, Any]], None]:
    def tell(news: dict[str, Any]) -> None:
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **news}, default=str)
        with log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)

    return tell
