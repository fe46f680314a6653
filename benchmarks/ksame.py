"""How long k-Same takes to form its groups, against the loop that its description suggests.

    python benchmarks/ksame.py [--quick]

Each contender runs alone in a new process on the same data, which it makes itself from a seed. The
clock covers grouping only. Peak memory is that of the whole process, so the interpreter, its
libraries and the data are included; the line `data alone` shows how much that is.

- ours: `k_groups`, all distances kept.
- ours, lean: `k_groups` with too little memory allowed to keep distances.
- running totals: the same rule in a plain loop that keeps float64 totals up to date by subtraction; run in full,
  it shows that our groups are right.
- textbook: all distances once; then, for each group, totals over the records that are left and a sort. At the
  full size that is most of an hour, so every 80th of its steps is run, from the state in which our groups leave
  it; the time is scaled up, and each step must choose the very group that ours has there.
- MDAV-like: the record farthest from the mean of those that are left opens a group. It needs no totals, so
  it is a cheaper rule with different groups, shown for orientation only.

The last line is 50,000 records of 128 features, whose distances would take 10 GB: how long they take to group, and in
how much memory. The rule compares all pairs, so twice the records take four times as long.

The run fails unless the groups of all but the last are identical. Ratios are of processor time of all
threads, so that other work on the machine matters little.
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

from locum.generate import k_groups

K, DIM, FULL, QUICK = 5, 768, 20_000, 4_000
MANY, FEW_FEATURES = 50_000, 128

Groups = npt.NDArray[np.int64]


def data(n: int, d: int = DIM) -> npt.NDArray[np.float32]:
    """Twenty clusters of uneven size; within each, some records lie farther out than others."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20, d))
    cluster = rng.choice(20, size=n, p=rng.dirichlet(np.full(20, 2.0)))
    spread = rng.gamma(4.0, 0.25, size=(n, 1))
    return (centers[cluster] + spread * rng.normal(size=(n, d))).astype(np.float32)


def distances(X: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    # float64: in float32 the rounding of totals alone changes groups.
    X64 = X.astype(np.float64)
    # A copy, since numpy multiplies an array with its own transpose by SYRK, which in the OpenBLAS of some numpy
    # wheels crashes where the result exceeds 2 GiB.
    D = euclidean_distances(X64, X64.copy())
    np.fill_diagonal(D, 0)
    return D


def textbook_step(D: npt.NDArray[np.float64], left: Groups) -> Groups:
    among = D[np.ix_(left, left)]
    seed = np.argmax(among.sum(axis=1))
    return left[np.argsort(among[seed], kind="stable")[:K]]


def running_totals(X: npt.NDArray[np.float32]) -> Groups:
    D = distances(X)
    total = D.sum(axis=1)
    group = np.full(len(X), -1)
    left = np.arange(len(X))
    formed = 0
    while len(left) >= K:
        seed = left[np.argmax(total[left])]
        chosen = left[np.argsort(D[seed, left], kind="stable")[:K]]
        group[chosen] = formed
        left = np.setdiff1d(left, chosen)
        total -= D[chosen].sum(axis=0)
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
    "ours": lambda X: k_groups(X, K),
    "ours, lean": lambda X: k_groups(X, K, max_bytes=4 * len(X) ** 2 - 1),
    "running totals": running_totals,
    "MDAV-like": mdav_like,
}


def run(name: str, n: int) -> tuple[float, float, Groups]:
    """Processor seconds, peak gigabytes and groups; meant for a separate process."""
    X = data(n)
    start = time.process_time()
    group = CONTENDERS[name](X)
    return time.process_time() - start, peak(), group


def run_many(n: int) -> tuple[float, float, float]:
    """Processor seconds, peak gigabytes, and gigabytes before the work: interpreter, libraries and data."""
    X = data(n, FEW_FEATURES)
    before, start = peak(), time.process_time()
    k_groups(X, K)
    return time.process_time() - start, peak(), before


def run_textbook(n: int, group: Groups, every: int) -> tuple[float, float, bool]:
    """Processor seconds of the whole loop, peak gigabytes, and whether each step that was run chose our group."""
    X = data(n)
    start = time.process_time()
    D = distances(X)
    once = time.process_time() - start
    steps = range(0, int(group.max()), every)
    same = True
    start = time.process_time()
    for step in steps:
        chosen = textbook_step(D, np.flatnonzero(group >= step))
        same &= set(chosen.tolist()) == set(np.flatnonzero(group == step).tolist())
    return once + (time.process_time() - start) * (int(group.max()) + 1) / len(steps), peak(), same


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def main() -> int:
    parser = argparse.ArgumentParser(description="k-Same grouping: ours against a textbook loop.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} records in place of {FULL}")
    quick = parser.parse_args().quick
    n, every = (QUICK, 1) if quick else (FULL, 80)
    print(f"{n} records, {DIM} features, k = {K}{' (quick: smaller than the full run)' if quick else ''}")
    spawn = multiprocessing.get_context("spawn")
    results = {}
    for name in CONTENDERS:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            results[name] = pool.submit(run, name, n).result()
        show(name, *results[name][:2], results["ours"][0])
    ours = results["ours"][2]
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        seconds, gigabytes, same = pool.submit(run_textbook, n, ours, every).result()
    show("textbook", seconds, gigabytes, results["ours"][0])
    if every > 1:
        print(f"(textbook: scaled up from every {every}th step)")
    if not quick:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            seconds, gigabytes, before = pool.submit(run_many, MANY).result()
        print(
            f"{MANY:,} records, {FEW_FEATURES} features: {seconds:.1f} s, {gigabytes:.2f} GB peak, "
            f"{before:.2f} GB of it before; all distances would take {4 * MANY**2 / 2**30:.1f} GB"
        )
    same &= all(np.array_equal(results[name][2], ours) for name in ("ours, lean", "running totals"))
    print("groups of ours, lean, running totals and textbook: " + ("identical" if same else "DIFFERENT"))
    return 0 if same else 1


def show(name: str, seconds: float, gigabytes: float, ours: float) -> None:
    print(f"{name:<15}{seconds:9.2f} s{seconds / ours:9.2f} x ours{gigabytes:8.2f} GB peak", flush=True)


if __name__ == "__main__":
    sys.exit(main())
