"""`embed` into a folder: the engine `ray` with one actor on this machine compared with the engine `local`.

    python benchmarks/embed_ray.py            # 2,000 images of 64 pixels
    python benchmarks/embed_ray.py --quick    # 400 images

Both use one thread, load the model anew in a process of their own, and write the same files, which is checked.
"start" is the time until Ray runs (its own processes, not yet the actor); "overhead" is all that Ray adds, with and
without it.
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
import json, sys, time
from locum.embed import LocalEngine, RayEngine
from locum.recipes import embed_to_folder

engine = LocalEngine(workers=1) if sys.argv[1] == "local" else RayEngine("local", actors=1, workers=1)
began = time.perf_counter()
with engine.started():
    start = time.perf_counter() - began
    embed_to_folder(sys.argv[2], sys.argv[3], rows_per_file=int(sys.argv[4]), engine=engine)
    done = time.perf_counter() - began
print(json.dumps({"start": start, "seconds": done}))
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
    print("run  local s  ray s  start s  overhead s  ratio  without start s  ratio", flush=True)
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
            ratios.append((b / a, (b - start) / a))
            print(
                f"{i + 1:3d} {a:8.1f} {b:6.1f} {start:8.1f} {b - a:11.1f} {b / a:6.2f} {b - start - a:16.1f} "
                f"{(b - start) / a:6.2f}",
                flush=True,
            )
    whole, rest = (sorted(column)[len(column) // 2] for column in zip(*ratios, strict=True))
    print(f"median ratio {whole:.2f}; without the start of Ray {rest:.2f}")


if __name__ == "__main__":
    main()
