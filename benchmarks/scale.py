"""Fits on data in pieces, from 10 thousand to 5 million vectors of 128 numbers: CPU seconds, peak memory, slopes.

    python benchmarks/scale.py [--quick] [--data FOLDER]

Each line is a process of its own with one thread. The peer is a bare pass: `iter_batches` of pyarrow, and the sums of
each class in NumPy. Fits are `ClassGaussian.fit_batches`: "means", "covariance" and "no guarantee" need one pass over
the vectors, "head" (the default) one per noisy sum. "locum fit" is the verb with means; it also counts copies of
records, in a pass of its own. The last lines run the same through Ray on the cores of this machine. --quick stops at
1 million (100 thousand for the head); --data keeps the made-up vectors (2.5 GB) for another run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

D, CLASSES, ROWS_PER_FILE, GROUP = 128, 10, 500_000, 50_000
SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
JOBS = ("peer", "means", "covariance", "no guarantee", "locum fit", "head")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="stop at 1 million vectors")
    parser.add_argument("--data", type=Path, help="where the made-up vectors are kept")
    parser.add_argument("--one", nargs=3, metavar=("JOB", "DATA", "ENGINE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(*given.one)
        return
    sizes = SIZES[:-1] if given.quick else SIZES
    with tempfile.TemporaryDirectory() as made:
        folder = given.data or Path(made)
        for n in sizes:
            make(folder / str(n), n)
        seen: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        print(f"{'':16s}{'rows':>10s}{'CPU s':>9s}{'wall s':>9s}{'peak MB':>9s}{'passes':>8s}{'x the peer':>12s}")
        for n in sizes:
            for job in JOBS:
                if job == "head" and given.quick and n > 100_000:
                    continue
                found = measured(job, folder / str(n), "local")
                seen.setdefault(job, []).append((n, found))
                peer = seen["peer"][-1][1]["cpu"]
                print(line(job, n, found, found["cpu"] / peer), flush=True)
        print("\nseconds of CPU per million rows, between the two largest sizes")
        for job, results in seen.items():
            if len(results) > 1:
                (n, before), (m, after) = results[-2:]
                slope = (after["cpu"] - before["cpu"]) / (m - n) * 1e6
                per_pass = f", {slope / after['passes']:.2f} per pass" if after["passes"] > 1 else ""
                print(f"  {job:14s}{slope:8.2f}{per_pass}")
        steps, largest = seen["head"][-1][1], dict(seen["means"])[seen["head"][-1][0]]
        bound = 1.5 * steps["passes"] * largest["cpu"]
        print(f"\nhead: {steps['cpu']:.0f} s of CPU; 1.5 x {steps['passes']} passes of means are {bound:.0f} s")
        n = 1_000_000
        print("\nthe same through Ray on this machine")
        for job in ("means", "head") if not given.quick else ("means",):
            here = dict(seen[job]).get(n)
            there = measured(job, folder / str(n), "ray")
            print(line(f"{job}, Ray", n, there, float("nan")), end="")
            print(f"   here {here['wall']:.1f} s, {there['wall'] / here['wall']:.2f} x" if here else "")


def line(job: str, n: int, found: dict[str, Any], ratio: float) -> str:
    """One line of the table."""
    shown = "" if np.isnan(ratio) else f"{ratio:12.2f}"
    return f"{job:16s}{n:10,}{found['cpu']:9.1f}{found['wall']:9.1f}{found['peak']:9.0f}{found['passes']:8d}{shown}"


def measured(job: str, data: Path, engine: str) -> dict[str, Any]:
    """One job in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, __file__, "--one", job, str(data), engine]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(job: str, data: str, engine: str) -> None:
    """Run a job and print what it took."""
    start, cpu = time.perf_counter(), time.process_time()
    passes = peer(data) if job == "peer" else fit(job, data, engine)
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - start,
        "peak": used.ru_maxrss / 1024,
        "passes": passes,
    }
    print(json.dumps(found))


def peer(data: str) -> int:
    """The sums and counts of each class, as anyone would add them up."""
    from pyarrow.parquet import ParquetFile

    sums, counts = np.zeros((CLASSES, D)), np.zeros(CLASSES)
    for file in sorted(Path(data).glob("*.parquet")):
        for batch in ParquetFile(file).iter_batches(16_384, use_threads=False):
            X = batch.column("embedding").flatten().to_numpy().reshape(-1, D)
            labels = batch.column("label").dictionary_encode()
            codes = np.array([int(name.split()[1]) for name in labels.dictionary.to_pylist()])[labels.indices]
            sums += (codes[None, :] == np.arange(CLASSES)[:, None]).astype(np.float32) @ X
            counts += np.bincount(codes, minlength=CLASSES)
    assert counts.sum() > 0
    return 1


def fit(job: str, data: str, engine: str) -> int:
    """A fit, and how many passes over the vectors it took."""
    from locum.data import RayEngine, open_batches
    from locum.generate import ClassGaussian
    from locum.recipes import fit_release
    from locum.types import DP

    where = RayEngine("local") if engine == "ray" else None
    budget = DP(1.0, 1e-8)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder, "ledger.sqlite")
        if job == "locum fit":
            given: dict[str, Any] = {"privacy": budget, "classes_public": True, "settings": {"mechanism": "means"}}
            fit_release(data, Path(folder, "release"), in_memory=0, engine=where, ledger=ledger, **given)
            shutil.rmtree(Path(data, ".locum"), ignore_errors=True)
            return 2
        batches = open_batches(data)["all"]
        if job == "no guarantee":
            ClassGaussian().fit_batches(batches, engine=where)
            return 1
        made = ClassGaussian(privacy=budget, classes=range(CLASSES), mechanism=job, ledger=ledger)
        decoder = made.fit_batches(batches, engine=where).release().manifest.decoder
        return 2 + decoder.head.steps if job == "head" else 1  # type: ignore[union-attr]


def make(folder: Path, n: int) -> None:
    """Made-up vectors of ten classes, as a folder of Parquet files."""
    from locum.data import write_parquet_stream
    from locum.types import EmbeddingInfo, EmbeddingSet

    if (folder / "_done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(CLASSES, D)).astype(np.float32)
    info = EmbeddingInfo(class_names=tuple(f"class {c}" for c in range(CLASSES)))
    for number, start in enumerate(range(0, n, ROWS_PER_FILE)):
        rows = min(ROWS_PER_FILE, n - start)

        def pieces(rows: int = rows) -> Any:
            for done in range(0, rows, GROUP):
                size = min(GROUP, rows - done)
                y = rng.integers(0, CLASSES, size)
                yield EmbeddingSet(rng.standard_normal((size, D), dtype=np.float32) + means[y], y, info=info)

        with open(folder / f"part-{number:03d}.parquet", "wb") as stream:
            write_parquet_stream(stream, pieces())
    (folder / "_done").touch()


if __name__ == "__main__":
    main()
