"""Nearest neighbors compared with faiss and scikit-learn: time as a ratio in one run, and the largest error.

    python benchmarks/neighbors.py            # 10,000 x 100,000 x 768, about two minutes on 2 cores
    python benchmarks/neighbors.py --quick    # 1,000 x 10,000 x 768, a few seconds

All run in turn for several rounds, and the best round of each counts, so that other load on the machine affects all
alike. scikit-learn gets a tenth of the queries, and its time is scaled.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from locum.metrics import k_nearest, nearest

Method = Callable[[], tuple[np.ndarray, np.ndarray]]


def with_faiss(q: np.ndarray, r: np.ndarray, k: int) -> Method | None:
    """Exact search with faiss, or None with a message on how to install it."""
    try:
        import faiss
    except ImportError:
        print('faiss is missing: no ratio to it. Install it with: pip install "locum[bench]"')
        return None

    def run() -> tuple[np.ndarray, np.ndarray]:
        index = faiss.IndexFlatL2(r.shape[1])
        index.add(r)
        squares, indices = index.search(q, k)
        return np.sqrt(np.maximum(squares, 0)), indices

    return run


def with_sklearn(q: np.ndarray, r: np.ndarray, k: int) -> Method:
    """Brute force with scikit-learn."""
    from sklearn.neighbors import NearestNeighbors

    def run() -> tuple[np.ndarray, np.ndarray]:
        distances, indices = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(r).kneighbors(q)
        return distances, indices

    return run


def seconds(run: Method) -> tuple[float, Any]:
    """Wall time of one run, and its result."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def largest_error(distances: np.ndarray, indices: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
    """Largest |reported - true| distance of the reported neighbors, in float64, over 200 queries."""
    some = slice(0, min(200, len(distances)))
    gap = q[some, None, :].astype(np.float64) - r[indices[some]].astype(np.float64)
    return float(np.abs(distances[some] - np.sqrt((gap**2).sum(axis=-1))).max())


def compare(q: np.ndarray, r: np.ndarray, k: int, rounds: int) -> None:
    """Print one line per method."""

    def ours() -> tuple[np.ndarray, np.ndarray]:
        if k > 1:
            return k_nearest(q, r, k)
        distances, indices = nearest(q, r)
        return distances[:, None], indices[:, None]

    few = q[: max(1, len(q) // 10)]
    methods: dict[str, tuple[Method | None, float]] = {
        "locum": (ours, 1.0),
        "faiss IndexFlatL2": (with_faiss(q, r, k), 1.0),
        "scikit-learn brute": (with_sklearn(few, r, k), len(q) / len(few)),
    }
    best: dict[str, float] = {}
    results: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for _ in range(rounds):
        for name, (run, scale) in methods.items():
            if run is not None:
                took, results[name] = seconds(run)
                best[name] = min(best.get(name, np.inf), took * scale)
    print(f"\n{len(q):,} x {len(r):,} x {q.shape[1]}, k = {k}, best of {rounds}")
    for name, took in best.items():
        distances, indices = results[name]
        ratio = best["locum"] / took
        error = largest_error(distances, indices, q, r)
        print(f"  {name:20s} {took:7.2f} s   ours/this {ratio:5.2f}   largest error {error:.1e}")
    if "faiss IndexFlatL2" in results:
        same = float(np.mean(results["locum"][1] == results["faiss IndexFlatL2"][1]))
        print(f"  same neighbors as faiss: {same:.2%}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Nearest neighbors: ours compared with faiss and scikit-learn.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the queries and of the reference")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the best counts (default 3)")
    args = parser.parse_args()
    n, m = (1_000, 10_000) if args.quick else (10_000, 100_000)
    rng = np.random.default_rng(0)
    r = rng.standard_normal((m, 768), dtype=np.float32)
    q = rng.standard_normal((n, 768), dtype=np.float32)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: figures count only on an idle machine")
    for k in (1, 5):
        compare(q, r, k, args.rounds)


if __name__ == "__main__":
    main()
