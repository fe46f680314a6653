"""Sampling a release into Parquet files, against writing random numbers of the same shape with pyarrow.

    python benchmarks/sample_parts.py [--quick]

10 million vectors of 64 numbers (1 million with --quick), one thread each; then the same draw with one thread per
core, and the largest resident memory of the drawing process at 1 and at 10 parts.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from locum.data import load_sample
from locum.generate import ClassGaussian
from locum.recipes import sample_to_folder

ROWS_PER_FILE, BLOCK = 250_000, 62_500


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--peak", nargs=3, metavar=("RELEASE", "OUT", "ROWS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        release, out, rows = given.peak
        sample_to_folder(Path(release), Path(out), n=int(rows), rows_per_file=ROWS_PER_FILE, seed=0, workers=1)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    n = 1_000_000 if given.quick else 10_000_000
    digits = load_sample("digits")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        release = ClassGaussian().fit(digits.X, digits.y).release(digits.info, no_dp=True).save(place / "release")
        peer = timed(lambda: random_numbers(place / "random", n, digits.dim))
        print(f"{'':44s}{'seconds':>9s}{'rows/s':>12s}{'x the peer':>12s}")
        show("random numbers, pyarrow, one thread", peer, n, peer)
        for workers in sorted({1, os.cpu_count() or 1}):
            out = place / f"drawn-{workers}"

            def draw(out: Path = out, workers: int = workers) -> None:
                sample_to_folder(release, out, n=n, rows_per_file=ROWS_PER_FILE, seed=0, workers=workers)

            show(f"sample, {workers} thread{'s' * (workers > 1)}", timed(draw), n, peer)
        for parts in (1, 10):
            print(f"peak memory of {parts:2d} parts of {ROWS_PER_FILE:,} rows: {peak(release, place, parts)} MB")


def timed(work: object) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def show(name: str, seconds: float, rows: int, peer: float) -> None:
    """One line of the table."""
    print(f"{name:44s}{seconds:9.1f}{rows / seconds:12,.0f}{seconds / peer:12.2f}")


def random_numbers(folder: Path, rows: int, d: int) -> None:
    """What any writer of so many vectors has to do: draw numbers, and write them as `sample` does."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    kind = pa.schema([("embedding", pa.list_(pa.float32(), d)), ("label", pa.string())])
    names = pa.array([str(c) for c in range(10)])
    for part in range(-(-rows // ROWS_PER_FILE)):
        with ParquetWriter(folder / f"{part}.parquet", kind, use_dictionary=["label"]) as writer:
            for _ in range(ROWS_PER_FILE // BLOCK):
                X = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(BLOCK * d, dtype=np.float32)), d)
                y = names.take(pa.array(rng.integers(10, size=BLOCK)))
                writer.write_table(pa.table([X, y], schema=kind), row_group_size=BLOCK)


def peak(release: Path, place: Path, parts: int) -> int:
    """Megabytes of a fresh process that draws so many parts."""
    arguments = ["--peak", str(release), str(place / f"peak-{parts}"), str(parts * ROWS_PER_FILE)]
    ran = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return int(ran.stdout)


if __name__ == "__main__":
    main()
