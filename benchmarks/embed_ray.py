"""`embed` into a folder: the engine `ray` with one actor on this machine compared with the engine `local`.

    python benchmarks/embed_ray.py            # 2,000 images of 64 pixels
    python benchmarks/embed_ray.py --quick    # 400 images

Both use one thread, load the model anew in a process of their own, and write the same files, which is checked.
"start" is the time until Ray runs (its own processes, not yet the actor), and part of "ray"; "overhead" is all that
Ray adds. "CPU" is the processor time of all processes of a run (Linux only); on a busy machine compare only that.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

CHILD = """
import json, os, sys, time
from pathlib import Path
from locum.embed import LocalEmbedding, RayEmbedding
from locum.recipes import embed_to_folder

def cpu():
    "Processor seconds of this process and all that descend from it."
    facts = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        facts[int(folder.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in facts.items() if parent in ours} - ours:
        ours |= more
    return sum(facts[pid][1] for pid in ours)

spent = []
engine = LocalEmbedding(workers=1) if sys.argv[1] == "local" else RayEmbedding("local", actors=1, workers=1)
began = time.perf_counter()
with engine.started():
    start = time.perf_counter() - began
    embed_to_folder(
        sys.argv[2],
        sys.argv[3],
        rows_per_file=int(sys.argv[4]),
        engine=engine,
        # An actor is gone after the last file, and its time with it.
        progress=lambda done, total, note="": done == total and spent.append(cpu()),
    )
    done = time.perf_counter() - began
print(json.dumps({"start": start, "seconds": done, "cpu": spent[-1]}))
"""


def make_folder(folder: Path, n: int, side: int) -> None:
    """`n` different JPEG files in two classes."""
    rng = np.random.default_rng(0)
    for i in range(n):
        (folder / str(i % 2)).mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
        (folder / str(i % 2) / f"{i:05d}.jpg").write_bytes(buffer.getvalue())


def run(engine: str, images: Path, out: Path, rows: int) -> dict[str, float]:
    """Seconds of one run in a fresh process."""
    words = [sys.executable, "-c", CHILD, engine, str(images), str(out), str(rows)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer images")
    options = parser.parse_args()
    n, side, repeats = (400, 64, 1) if options.quick else (2000, 64, 3)
    rows = n // 8
    print(f"{n} JPEG files of {side} pixels into 8 files, one thread{' (quick)' if options.quick else ''}")
    print("run  local s  ray s  start s  overhead s  ratio   CPU local s  CPU ray s  overhead s  ratio", flush=True)
    ratios = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        make_folder(root / "images", n, side)
        for i in range(repeats):
            local = run("local", root / "images", root / f"local{i}", rows)
            ray = run("ray", root / "images", root / f"ray{i}", rows)
            for file in (root / f"local{i}").glob("*.parquet"):
                assert file.read_bytes() == (root / f"ray{i}" / file.name).read_bytes(), "both write the same"
            a, b, start = local["seconds"], ray["seconds"], ray["start"]
            c, d = local["cpu"], ray["cpu"]
            ratios.append((b / a, d / c))
            wall = f"{i + 1:3d} {a:8.1f} {b:6.1f} {start:8.1f} {b - a:11.1f} {b / a:6.2f}"
            print(f"{wall} {c:13.1f} {d:10.1f} {d - c:11.1f} {d / c:6.2f}", flush=True)
    whole, cpu = (sorted(column)[len(column) // 2] for column in zip(*ratios, strict=True))
    print(f"median ratio of seconds {whole:.2f}, of processor seconds {cpu:.2f}")


if __name__ == "__main__":
    main()
