"""A private fit against scikit-learn's logistic regression on the same vectors, in one run.

    python benchmarks/private_fit.py

10,000 x 1,280 vectors of 10 classes (made up; whitened by the reference of the default backbone), epsilon 1 at the
default delta. The fit is the whole of it: whitening, all noisy sums with secure noise, ledger, class means. Goal: at
most as long as logistic regression.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.data import load_reference
from locum.generate import ClassGaussian
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP


def made_up(n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors that vary as the reference does, with classes as far apart as those of CIFAR-10."""
    rng, reference = np.random.default_rng(0), load_reference("efflite0", 1280)
    y = np.arange(n) % classes
    means = rng.normal(size=(classes, 1280)) * 0.25
    return reference.color(rng.normal(size=(n, 1280)) + means[y]).astype(np.float32), y


def seconds(work: object, runs: int) -> float:
    """The median of a few runs."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()  # type: ignore[operator]
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 vectors, one run")
    quick = parser.parse_args().quick
    n, runs = (2000, 1) if quick else (10_000, 3)
    X, y = made_up(n, 10)
    budget = DP(DEFAULT_EPSILON, DEFAULT_DELTA)
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(1000))

        def private() -> None:
            ledger = Path(folder) / f"{next(numbers)}.sqlite"
            ClassGaussian(privacy=budget, classes=range(10), reference="efflite0", ledger=ledger).fit(X, y)

        def logistic() -> None:
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)

        ours, theirs = seconds(private, runs), seconds(logistic, runs)
    print(f"{n} x 1,280, 10 classes: private fit {ours:.2f} s, logistic regression {theirs:.2f} s")
    print(f"ratio {ours / theirs:.2f} (goal: at most 1)")


if __name__ == "__main__":
    main()
