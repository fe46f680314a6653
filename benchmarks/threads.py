"""Whether verbs are slower with all threads than with one: threads that wait cost more than they save.

    python benchmarks/threads.py [--quick] [--runs 3]

Each line is the wall time of a verb with the machine's default number of threads, and its ratio to the same verb with
OMP_NUM_THREADS=1 (the best of several runs, taken in turn). Run it on an idle machine. The records are random
clusters: 899 of 1,280 features in ten classes, the size of the demo.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def make_records(path: Path, n: int, d: int, seed: int) -> None:
    """Ten overlapping clusters; the same centers for every seed."""
    centers = np.random.default_rng(0).normal(size=(10, d))
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 10
    np.savez(path, X=(centers[y] + 4 * rng.normal(size=(n, d))).astype(np.float32), y=y)


def seconds(words: list[str], folder: str, threads: str | None) -> float:
    """Wall time of one call of the program."""
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "locum", *words, "--quiet"],
        cwd=folder,
        env=env if threads is None else {**env, "OMP_NUM_THREADS": threads},
        stdout=subprocess.DEVNULL,
    )
    took = time.perf_counter() - began
    # 3: an audit whose policy is not met.
    if done.returncode not in (0, 3):
        raise SystemExit(f"locum {' '.join(words)} ended with code {done.returncode}")
    return took


def main() -> None:
    """Print one line per verb, then the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one run, fewer epochs")
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    runs, epochs = (1, "3") if chosen.quick else (chosen.runs, "20")
    with tempfile.TemporaryDirectory() as folder:
        make_records(Path(folder) / "train.npz", 899, 1280, 1)
        make_records(Path(folder) / "test.npz", 400, 1280, 2)
        # Without a guarantee: a private fit would be refused once the budget of the records is spent.
        plain = ["fit", "train.npz", "--no-dp", "--non-members", "test.npz", "--force"]
        fit = [*plain, "-o", "release"]
        cvae = [*plain, "-o", "cvae", "--no-resume", "--generator", "cvae", "--epochs", epochs]
        calls = {
            "fit": fit,
            "fit --generator cvae": cvae,
            "train": ["train", "release", "-o", "head.safetensors", "--samples", "899", "--force"],
            "evaluate": ["evaluate", "release", "--test", "test.npz", "--train", "train.npz", "--seeds", "1"],
            "audit": ["audit", "release", "--members", "train.npz", "--non-members", "test.npz", "--seed", "0"],
        }
        seconds(fit, folder, None)
        worst = ("", 0.0)
        for name, words in calls.items():
            times: dict[str | None, list[float]] = {None: [], "1": []}
            for _ in range(runs):
                for threads, taken in times.items():
                    taken.append(seconds(words, folder, threads))
            default, one = min(times[None]), min(times["1"])
            worst = max(worst, (name, default / one), key=lambda pair: pair[1])
            print(f"{name:24} {default:6.1f} s   one thread {one:6.1f} s   {default / one:5.2f} x")
        print(f"worst: {worst[0]} at {worst[1]:.2f} x")


if __name__ == "__main__":
    main()
