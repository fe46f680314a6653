"""A private fit against scikit-learn's logistic regression on the same vectors, in one run.

    LOCUM_DATA=FOLDER python benchmarks/private_fit.py

10,000 x 1,280 vectors of 10 classes (those of CIFAR-10 in LOCUM_DATA), epsilon 1 at the default delta. The fit is the
whole of it: whitening, all noisy sums with secure noise, ledger, class means. Goal: at most as long as logistic
regression on the vectors as they are. On standardized vectors logistic regression converges several times sooner;
that ratio is printed too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.data import read_embeddings
from locum.generate import ClassGaussian
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP


def vectors(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a real backbone; made-up ones converge at once, and would compare nothing."""
    folder = os.environ.get("LOCUM_DATA")
    if not folder:
        raise SystemExit("Set LOCUM_DATA to the folder with cifar10_12k_efflite0.npz.")
    data = read_embeddings(Path(folder) / "cifar10_12k_efflite0.npz", "train")
    return data.X[:n], data.y[:n]


def seconds(work: Callable[[], object], runs: int) -> float:
    """The median of a few runs."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 vectors, one run")
    quick = parser.parse_args().quick
    n, runs = (2000, 1) if quick else (10_000, 3)
    X, y = vectors(n)
    budget = DP(DEFAULT_EPSILON, DEFAULT_DELTA)
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(1000))

        def private() -> None:
            ledger = Path(folder) / f"{next(numbers)}.sqlite"
            ClassGaussian(privacy=budget, classes=range(10), reference="efflite0", ledger=ledger).fit(X, y)

        ours = seconds(private, runs)
    plain, again = (LogisticRegression(max_iter=1000) for _ in range(2))
    scaled = make_pipeline(StandardScaler(), again)
    for model, words in ((plain, "as they are; goal: at most 1"), (scaled, "standardized")):
        theirs = seconds(partial(model.fit, X, y), runs)
        print(f"{n} x 1,280, 10 classes: private fit {ours:.2f} s, logistic regression {theirs:.2f} s")
        print(f"ratio {ours / theirs:.2f} (vectors {words})")


if __name__ == "__main__":
    main()
