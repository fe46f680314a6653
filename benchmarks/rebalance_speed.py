"""Time of filling up rare classes and training on the result, against SMOTE with scikit-learn, in one run, in turn.

12,406 records of 1280 features in ten classes from 5000 to 50 (CIFAR-10 LT where LOCUM_DATA has it, else made
up): `GenerativeOverSampler` and `LinearHead` on one side, imbalanced-learn's SMOTE and scikit-learn's logistic
regression (100 iterations at most) on the other, and the head that generates online. Then memory, in processes of
their own (Linux): what filling up needs and how large its result is, for classes of 10,000 and of 100,000 records.

    OMP_NUM_THREADS=1 python benchmarks/rebalance_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

SIZES = (5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)


def records() -> tuple[np.ndarray, np.ndarray]:
    from locum.data import read_embeddings

    file = Path(os.environ.get("LOCUM_DATA", "")) / "cifar10lt_efflite0.npz"
    if file.is_file():
        found = read_embeddings(file, "train")
        return found.X, found.y
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), SIZES)
    X = rng.normal(size=(len(y), 1280)) + 0.2 * rng.normal(size=(10, 1280))[y]
    return X.astype(np.float32), y


def timed(work: Callable[[], object]) -> tuple[float, object]:
    started = time.perf_counter()
    out = work()
    return time.perf_counter() - started, out


def ours(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    from locum.heads import LinearHead
    from locum.rebalance import GenerativeOverSampler

    fill, (Xr, yr) = timed(lambda: GenerativeOverSampler(random_state=0).fit_resample(X, y))
    head = LinearHead(batch_size=256, max_epochs=10, patience=None, random_state=0)
    return fill, timed(lambda: head.fit(Xr, yr))[0]


def online(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    from locum.generate import ClassGaussian
    from locum.heads import LinearHead

    head = LinearHead(
        batch_size=256, max_epochs=10, patience=None, random_state=0, loss="balanced_softmax", augment=ClassGaussian()
    )
    return 0.0, timed(lambda: head.fit(X, y))[0]


def smote(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    from imblearn.over_sampling import SMOTE
    from sklearn.linear_model import LogisticRegression

    fill, (Xr, yr) = timed(lambda: SMOTE(random_state=0).fit_resample(X, y))
    return fill, timed(lambda: LogisticRegression(max_iter=100).fit(Xr, yr))[0]


def peak(n: int, queue: multiprocessing.Queue) -> None:
    """Megabytes above what was there before, and those of the result."""
    from locum.rebalance import GenerativeOverSampler

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + 50, 256), dtype=np.float32)
    y = np.repeat([0, 1], [n, 50])
    GenerativeOverSampler(random_state=0).fit_resample(X[-200:], y[-200:])
    # Linux: resets the peak.
    Path("/proc/self/clear_refs").write_text("5")
    before = highest()
    out, _ = GenerativeOverSampler(random_state=0).fit_resample(X, y)
    queue.put((highest() - before, out.nbytes / 2**20))


def highest() -> float:
    """Peak memory in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one round; says so")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    X, y = records()
    rounds = 1 if quick else 3
    print(f"{len(X)} x {X.shape[1]}, best of {rounds} rounds in turn" + (" (quick setting)" if quick else ""))
    baselines = {"SMOTE + logistic regression": smote, "GenerativeOverSampler + LinearHead": ours, "online": online}
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name, work in baselines.items():
            found = work(X, y)
            best[name] = min(best.get(name, found), found, key=sum)
    base = sum(best["SMOTE + logistic regression"])
    for name, (fill, train) in best.items():
        total = fill + train
        print(f"{name:36s} fill {fill:6.2f} s   train {train:6.2f} s   total {total:6.2f} s   {total / base:5.2f}x")
    spawn = multiprocessing.get_context("spawn")
    for n in (10_000, 100_000):
        queue = spawn.Queue()
        worker = spawn.Process(target=peak, args=(n, queue))
        worker.start()
        above, size = queue.get()
        worker.join()
        print(f"a class of {n:7,d} records x 256: {above:7.0f} MB above the start, the result takes {size:5.0f} MB")


if __name__ == "__main__":
    main()
