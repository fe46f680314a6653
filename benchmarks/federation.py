"""The overhead of a round of a federation, and how much each site sends, for 10 and 50 sites.

The federated paper's network (256 wide, three layers, latent 100) on made-up vectors of 1280 features, 64 records per
site. In one process the sites' own work is timed in each reply; the rest of a round is checking, averaging and files.
On Flower's simulation engine (Ray) a complete round is timed, and shown as a ratio to the round in one process.

    OMP_NUM_THREADS=1 python benchmarks/federation.py [--quick] [--no-ray]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from locum.data import partition_iid
from locum.federated import Coordinator, FederationSettings, LocalChannel, NoReply, Reply, Request
from locum.federated.protocol import pack
from locum.federated.simulation import write_sites
from locum.types import DP, EmbeddingSet

EACH = 64


class Timed(LocalChannel):
    """Records how long sites work and how many bytes each reply has."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        super().__init__(files)
        self.work = 0.0
        self.sent: list[int] = []

    def _ask_one(self, name: str, request: Request) -> Reply | NoReply:
        started = time.perf_counter()
        reply = super()._ask_one(name, request)
        if request.step == "train" and isinstance(reply, Reply):
            self.work += time.perf_counter() - started
            text, arrays = pack(reply)
            self.sent.append(len(text) + sum(a.nbytes for a in arrays.values()))
        return reply


def made_up(sites: int) -> dict[str, EmbeddingSet]:
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=sites * EACH)
    X = rng.normal(size=(len(y), 1280)) + 0.2 * rng.normal(size=(10, 1280))[y]
    return partition_iid(EmbeddingSet.from_arrays(X.astype(np.float32), y), sites, rng)


def seconds_per_round(events: list[dict[str, Any]]) -> float:
    """Seconds per round, without the first, which starts processes."""
    found = [e["seconds"] for e in events if e["event"] == "round"]
    return float(np.mean(found[1:] or found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10 sites, two rounds")
    parser.add_argument("--no-ray", action="store_true", help="one process only")
    options = parser.parse_args()
    rounds = 2 if options.quick else 4
    settings = FederationSettings(
        tuple(map(str, range(10))), dim=1280, rounds=rounds, local_epochs=5, batch=256, min_sites=2
    )
    privacy = DP(1.0, 1e-3, n_public=EACH)
    for sites in (10,) if options.quick else (10, 50):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            parts = made_up(sites)
            write_sites(parts, work / "sites", privacy, 0)
            files = {f"site-{i}": work / "sites" / f"site-{i}" / "site.toml" for i in range(sites)}
            channel, events = Timed(files), []
            Coordinator(settings, work / "out", on_event=events.append).run(channel)
            whole = sum(e["seconds"] for e in events if e["event"] == "round")
            local, share = whole / rounds, (whole - channel.work) / rounds
            print(
                f"{sites} sites, one process: {local:.2f} s per round, of which sites {channel.work / rounds:.2f} s; "
                f"beyond their work {share:.2f} s ({share / local:.1%}); {max(channel.sent):,} bytes per site "
                f"({max(channel.sent) // 4:,} numbers)",
                flush=True,
            )
            if not options.no_ray:
                from locum.federated.transport.ray import simulate_on_ray

                write_sites(parts, work / "again", privacy, 0)
                ray_events: list[dict[str, Any]] = []
                simulate_on_ray(settings, work / "again", sites, work / "ray", on_event=ray_events.append)
                print(
                    f"{sites} sites, Ray: {seconds_per_round(ray_events):.2f} s per round, "
                    f"{seconds_per_round(ray_events) / local:.2f} of one process",
                    flush=True,
                )


if __name__ == "__main__":
    main()
