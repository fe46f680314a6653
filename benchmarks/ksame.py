"""How long k-Same takes to form its groups, against the loop that its description suggests.

    python benchmarks/ksame.py [--quick]

Each contender runs alone in a new process on the same data, which it makes itself from a seed. The
clock covers grouping only. Peak memory is that of the whole process, so the interpreter, its
libraries and the data are in it; the line `data alone` tells how much that is.

- ours: `k_groups`, all distances kept.
- ours, lean: `k_groups` with too little memory allowed to keep distances.
- textbook: all distances once; then, for each group, totals over the records that are left and a sort.
- MDAV-like: the record farthest from the mean of those that are left opens a group. It needs no totals, so
  it is a cheaper rule with other groups: for orientation only.

The run fails unless the first three give identical groups.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import numpy.typing as npt
from sklearn.metrics import euclidean_distances

from understudy.generate.grouping import k_groups

K, DIM, FULL, QUICK = 5, 768, 20_000, 4_000

Groups = npt.NDArray[np.int64]


def data(n: int) -> npt.NDArray[np.float32]:
    """Twenty clusters of uneven size; within each, some records lie farther out than others."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, DIM))
    cluster = rng.choice(20, size=n, p=rng.dirichlet(np.full(20, 2.0)))
    spread = rng.gamma(4.0, 0.25, size=(n, 1))
    return (centres[cluster] + spread * rng.normal(size=(n, DIM))).astype(np.float32)


def textbook(X: npt.NDArray[np.float32]) -> Groups:
    # float64: in float32 the rounding of totals alone changes groups.
    X64 = X.astype(np.float64)
    # A copy, since numpy multiplies an array with its own transpose by SYRK, which in the OpenBLAS of some numpy
    # wheels crashes where the result exceeds 2 GiB.
    D = euclidean_distances(X64, X64.copy())
    np.fill_diagonal(D, 0)
    group = np.full(len(X), -1)
    left = np.arange(len(X))
    formed = 0
    while len(left) >= K:
        among = D[np.ix_(left, left)]
        seed = np.argmax(among.sum(axis=1))
        chosen = np.argsort(among[seed], kind="stable")[:K]
        group[left[chosen]] = formed
        left = np.delete(left, chosen)
        formed += 1
    group[left] = formed - 1
    return group


def mdav_like(X: npt.NDArray[np.float32]) -> Groups:
    group = np.full(len(X), -1)
    left = np.arange(len(X))
    formed = 0
    while len(left) >= K:
        free = X[left]
        seed = np.argmax(((free - free.mean(axis=0)) ** 2).sum(axis=1))
        chosen = np.argsort(((free - free[seed]) ** 2).sum(axis=1), kind="stable")[:K]
        group[left[chosen]] = formed
        left = np.delete(left, chosen)
        formed += 1
    group[left] = formed - 1
    return group


CONTENDERS: dict[str, Callable[[npt.NDArray[np.float32]], Groups]] = {
    "data alone": lambda X: np.zeros(len(X), dtype=np.int64),
    "ours": lambda X: k_groups(X, K),
    "ours, lean": lambda X: k_groups(X, K, max_bytes=4 * len(X) ** 2 - 1),
    "MDAV-like": mdav_like,
    "textbook": textbook,
}


def run(name: str, n: int) -> tuple[float, float, float, Groups]:
    """Processor seconds, seconds by the clock, peak gigabytes and groups; meant for a process of its own.

    The ratio is taken on processor time, of all threads: what else the machine does then counts little.
    """
    X = data(n)
    start, clock = time.process_time(), time.perf_counter()
    group = CONTENDERS[name](X)
    seconds, waited = time.process_time() - start, time.perf_counter() - clock
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return seconds, waited, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, group


def main() -> int:
    parser = argparse.ArgumentParser(description="k-Same grouping: ours against a textbook loop.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} records in place of {FULL}")
    n = QUICK if parser.parse_args().quick else FULL
    print(f"{n} records, {DIM} features, k = {K}{' (quick: smaller than the full run)' if n == QUICK else ''}")
    spawn = multiprocessing.get_context("spawn")
    results = {}
    for name in CONTENDERS:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            results[name] = pool.submit(run, name, n).result()
        seconds, waited, peak, _ = results[name]
        ratio = f"{seconds / results['ours'][0]:9.2f} x ours" if "ours" in results else " " * 16
        print(f"{name:<12}{seconds:9.2f} s{ratio}{waited:9.2f} s by the clock{peak:8.2f} GB peak", flush=True)
    same = all(np.array_equal(results[name][3], results["textbook"][3]) for name in ("ours", "ours, lean"))
    print("groups of ours, ours lean and textbook: " + ("identical" if same else "DIFFERENT"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
