"""A fit on a simulated cluster: three Ray nodes on this machine, one of which is killed during the work.

    python benchmarks/cluster.py [--rows 300000]

A private head is learned from made-up vectors of 128 numbers in Parquet files: in this process, on three nodes of one
processor each, and on three nodes of which one is killed after eight seconds. Noise comes from a seed for tests, so
that all three must give the same bits; nothing is claimed for such a release. The nodes share the cores of this
machine, so the seconds show what Ray costs, not what three machines would gain.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from scale import CLASSES, D, make

from locum.data import Engine, LocalEngine, RayEngine, open_batches
from locum.generate import ClassGaussian
from locum.types import DP


def main() -> None:
    """Print three lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "vectors")
        make(data, rows)
        seconds, here = fitted(data, LocalEngine())
        print(f"this process             {seconds:7.1f} s")
        for killed in (False, True):
            seconds, there = on_a_cluster(data, killed)
            same = all(np.array_equal(here[name], there[name]) for name in here)
            name = "three nodes, one killed" if killed else "three nodes"
            print(f"{name:25s}{seconds:7.1f} s   the same bits: {same}", flush=True)


def fitted(data: Path, engine: Engine) -> tuple[float, dict[str, Any]]:
    """Seconds of a fit, and the tensors that it learned."""
    start = time.perf_counter()
    model = ClassGaussian(privacy=DP(1.0, 1e-8), classes=range(CLASSES), insecure_seed=0)
    model.fit_batches(open_batches(data)["all"], engine=engine)
    return time.perf_counter() - start, dict(model._fitted().tensors)


def on_a_cluster(data: Path, killed: bool) -> tuple[float, dict[str, Any]]:
    """The same on three nodes; one of them is killed after eight seconds."""
    import ray
    from ray.cluster_utils import Cluster

    # The head node has no processor for tasks: it must survive.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    cluster.wait_for_nodes()
    if killed:
        threading.Timer(8.0, lambda: cluster.remove_node(nodes[1], allow_graceful=False)).start()
    try:
        return fitted(data, RayEngine("auto"))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    assert D == 128
    main()
