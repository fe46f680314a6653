"""The nearest of many members for each of many records, in bounded memory: ours, scikit-learn and faiss.

    python benchmarks/audit_scale.py [--quick] [--threads N] [--blocks]

100,000 records against 100,000 members of 128 features (20,000 with --quick); one record in a hundred is a copy. Each
method runs in a process of its own: seconds of the search alone, and the peak of the process's memory above what it
held with the data loaded. All distances of that size would take 40 GB. Neighbors are compared with ours; an error is
that of a distance against the same pair in float64. `--blocks` also gives us the members in blocks of 16,384, as from
files. faiss is optional: without it a line says so. On a machine that others use, even ratios of one run are rough.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

DIM, COPIES = 128, 100
METHODS = ("locum", "locum in blocks", "scikit-learn brute", "faiss IndexFlatL2")


def tables(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Records and members; one in a hundred records is the copy of a member."""
    rng = np.random.default_rng(0)
    records, members = (rng.standard_normal((n, DIM), dtype=np.float32) for _ in range(2))
    records[::COPIES] = members[rng.permutation(n)[: len(records[::COPIES])]]
    return records, members


def peak() -> float:
    """The most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def search(method: str, records: np.ndarray, members: np.ndarray, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the nearest member."""
    if method == "locum":
        from locum.metrics import nearest

        return nearest(records, members)
    if method == "locum in blocks":
        from locum.metrics import k_nearest_of_blocks

        blocks = (members[i : i + 16_384] for i in range(0, len(members), 16_384))
        distances, positions = k_nearest_of_blocks(records, blocks, 1)
        return distances[:, 0], positions[:, 0]
    if method == "scikit-learn brute":
        from sklearn.neighbors import NearestNeighbors

        found = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(members).kneighbors(records)
        return found[0][:, 0], found[1][:, 0]
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatL2(DIM)
    index.add(members)
    squares, positions = index.search(records, 1)
    return np.sqrt(np.maximum(squares[:, 0], 0)), positions[:, 0]


def run(method: str, n: int, out: Path, threads: int) -> None:
    """One method, in this process: its neighbors into a file, its figures on a line."""
    # Imports are part of no figure.
    search(method, *(t[:10] for t in tables(100)), threads)
    records, members = tables(n)
    before, start = peak(), time.perf_counter()
    distances, positions = search(method, records, members, threads)
    took = time.perf_counter() - start
    figures = {"seconds": took, "peak": peak() - before, "before": before}
    gap = records[:2000].astype(np.float64) - members[positions[:2000]]
    figures["error"] = float(np.abs(distances[:2000] - np.sqrt(np.square(gap).sum(axis=1))).max())
    figures["copies"] = int(np.count_nonzero(distances == 0))
    np.savez(out, positions=positions)
    print(json.dumps(figures))


def main() -> None:
    """Run every method, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 records and members")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads (default: one per core)")
    parser.add_argument("--blocks", action="store_true", help="also with members in blocks")
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    n = 20_000 if args.quick else 100_000
    if args.method is not None:
        run(args.method, n, args.out, args.threads)
        return
    print(
        f"{n:,} x {n:,} x {DIM}, {n // COPIES:,} copies; {os.cpu_count()} cores, {args.threads} threads, "
        f"load {os.getloadavg()[0]:.1f} at the start" + (" (quick setting)" if args.quick else "")
    )
    env = os.environ | {"OMP_NUM_THREADS": str(args.threads), "OPENBLAS_NUM_THREADS": str(args.threads)}
    ours: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in METHODS:
            if method == "locum in blocks" and not args.blocks:
                continue
            if method.startswith("faiss") and find_spec("faiss") is None:
                print("faiss is missing: no comparison with it. Install it for this benchmark: pip install faiss-cpu")
                continue
            out = Path(folder) / f"{METHODS.index(method)}.npz"
            words = [sys.executable, __file__, "--method", method, "--out", str(out), "--threads", str(args.threads)]
            done = subprocess.run(
                words + ["--quick"] * args.quick, env=env, check=True, stdout=subprocess.PIPE, text=True
            )
            found = json.loads(done.stdout)
            ours = ours or found
            mine = np.load(Path(folder) / "0.npz")["positions"]
            same = float(np.mean(np.load(out)["positions"] == mine))
            print(
                f"  {method:20s} {found['seconds']:7.1f} s   this/ours {found['seconds'] / ours['seconds']:5.2f}   "
                f"peak {found['peak']:6.0f} MB above the {found['before']:.0f} MB before   "
                f"largest error {found['error']:.0e}   copies at 0: {found['copies']:,}   same neighbors {same:.3%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
