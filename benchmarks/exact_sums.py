"""Private class sums as integers with discrete Gaussian noise, against the same sums in floating point.

    python benchmarks/exact_sums.py             # 10,000 x 1,280, 10 classes
    python benchmarks/exact_sums.py --quick     # 2,000 x 1,280
    python benchmarks/exact_sums.py --products  # also all products of two features: 820,000 noisy numbers

Both whiten, scale to length 1, sum by class and add noise. They run in turn, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from locum.data import load_reference
from locum.generate.private import MEANS, MEANS_AND_PRODUCTS, Shares, exact_query
from locum.mechanisms import SecureRandom, noisy

CLASSES, FEATURES, NOISE = 10, 1280, 4.0


def floating(X: np.ndarray, codes: np.ndarray, shares: Shares) -> np.ndarray:
    """The same query without a grid: what others' rows are can change the last bits of a record's part."""
    reference = load_reference("efflite0", FEATURES)
    white = reference.whiten(X)
    length = np.linalg.norm(white, axis=1)
    unit = white / length[:, None]
    member = (codes[None, :] == np.arange(CLASSES)[:, None]).astype(np.float64)
    out = np.empty(shares.size(CLASSES, FEATURES))
    sums, counts, lengths, products = shares.parts(out, CLASSES, FEATURES)
    sums[:] = np.sqrt(shares.sums) * (member @ unit).ravel()
    counts[:] = np.sqrt(shares.counts) * member.sum(axis=1)
    lengths[:] = np.sqrt(shares.lengths) * np.minimum(length / (3 * np.sqrt(FEATURES)), 1).sum()
    if shares.products:
        matrix = unit.T @ unit * np.sqrt(2)
        np.fill_diagonal(matrix, np.diagonal(matrix) / np.sqrt(2))
        products[:] = np.sqrt(shares.products) * matrix[np.triu_indices(FEATURES)]
    return out + SecureRandom(np.ones(1, np.int64), 1.0, len(out), NOISE).draw(0).noise


def exact(X: np.ndarray, codes: np.ndarray, shares: Shares) -> np.ndarray:
    """Ours: integers, and noise on their grid."""
    return noisy(exact_query(X, codes, None, CLASSES, load_reference("efflite0", FEATURES), shares), NOISE).to_array()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--products", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    told = parser.parse_args()
    rng = np.random.default_rng(0)
    n = 2_000 if told.quick else 10_000
    X, codes = rng.gamma(0.5, size=(n, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, n)
    shares = MEANS_AND_PRODUCTS if told.products else MEANS
    methods: dict[str, Callable[[np.ndarray, np.ndarray, Shares], np.ndarray]] = {
        "exact": exact,
        "floating": floating,
    }
    best = dict.fromkeys(methods, np.inf)
    found = {}
    for _ in range(told.runs):
        for name, method in methods.items():
            start = time.perf_counter()
            found[name] = method(X, codes, shares)
            best[name] = min(best[name], time.perf_counter() - start)
    off = float(np.sqrt(np.mean(np.square(found["exact"] - found["floating"])) / 2) / NOISE)
    print(f"{n} x {FEATURES}, {CLASSES} classes, {len(found['exact'])} noisy numbers")
    ratio = best["exact"] / best["floating"]
    print(f"exact {best['exact']:.2f} s, floating point {best['floating']:.2f} s: {ratio:.2f}x")
    print(f"the two differ by {off:.3f} of what two draws of the noise differ by")


if __name__ == "__main__":
    main()
