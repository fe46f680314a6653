"""`embed` on a folder of JPEG files compared with ONNX Runtime alone, and its memory for few and many images.

    python benchmarks/embed.py            # throughput at several sizes, memory at 1,000 and 20,000 images
    python benchmarks/embed.py --quick    # fewer images

Raw ONNX Runtime gets pixels that are already in memory, with the best of several batch sizes and ways to use the
cores; ours reads, hashes, decodes, resizes, runs the model and writes every vector to disk. Both in turn, best of
three. Inference keeps all cores busy, so decoding takes time from it; "bound" is the rate of a program that does only
Pillow's decoding and resizing besides inference, without any overhead. "CPU" is the share of our processor time that
is inference (one thread, the same batch): where all cores are busy, ours/raw cannot exceed it by changing the order
of work, only by decoding with fewer instructions.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

from locum.embed import embed_images, load_backbone
from locum.embed.efflite import MODELS, _model
from locum.embed.embedding import cores

CHILD = """
import resource, sys
from pathlib import Path
from locum.recipes import embed_to_file
summary = embed_to_file(sys.argv[1], Path(sys.argv[2]), overwrite=True, cache=Path(sys.argv[3]))
print(summary.images, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def make_folder(folder: Path, n: int, side: int) -> int:
    """`n` different JPEG files of `side` pixels in two classes; returns their mean size in bytes."""
    rng = np.random.default_rng(side)
    total = 0
    for i in range(n):
        if i % 1000 == 0:
            (folder / str(i // 1000 % 2)).mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=85)
        total += len(buffer.getvalue())
        (folder / str(i // 1000 % 2) / f"{i:05d}.jpg").write_bytes(buffer.getvalue())
    return total // n


def raw_rate(seconds: float) -> float:
    """Images per second of ONNX Runtime alone: the best of one session on all cores and one thread per core."""
    model = _model(0, *MODELS[0])
    best = 0.0
    for batch in (2, 4, 8):
        pixels = np.random.default_rng(0).uniform(-1, 1, (batch, 3, 224, 224)).astype(np.float32)
        for threads in (1, cores()):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = cores() // threads
            session = onnxruntime.InferenceSession(model, options)
            best = max(best, _loop(session, pixels, threads, seconds))
    return best


def _loop(session: onnxruntime.InferenceSession, pixels: np.ndarray, threads: int, seconds: float) -> float:
    session.run(None, {"pixels": pixels})
    done = [0] * threads
    started = time.perf_counter()

    def work(i: int) -> None:
        while time.perf_counter() - started < seconds:
            session.run(None, {"pixels": pixels})
            done[i] += len(pixels)

    pool = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    return sum(done) / (time.perf_counter() - started)


def bound(folder: Path, raw: float) -> float:
    """Images per second if inference at `raw` and plain Pillow share the cores without any loss."""
    files = sorted(folder.rglob("*.jpg"))[:200]
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        for file in files:
            image = Image.open(file).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
            np.asarray(image, dtype=np.float32).transpose(2, 0, 1).copy()
        best = min(best, (time.perf_counter() - started) / len(files))
    return 1 / (1 / raw + best / cores())


def our_rate(folder: Path) -> tuple[float, float]:
    """Images per second of `embed_images`, without loading the model, and the share of its processor time in it."""
    backbone = load_backbone("efflite0")
    pixels = np.zeros((backbone.batch, *backbone.preprocessing.shape), dtype=np.float32)
    backbone.run(pixels)
    began = time.process_time()
    for _ in range(20):
        backbone.run(pixels)
    inference = (time.process_time() - began) / (20 * backbone.batch)
    started, began = time.perf_counter(), time.process_time()
    with embed_images(folder, backbone, cache=False) as embedded:
        images, taken, spent = len(embedded.items), time.perf_counter() - started, time.process_time() - began
    return images / taken, inference * images / spent


def peak_megabytes(folder: Path, scratch: Path) -> float:
    """Peak memory of a fresh process that embeds the folder into an .npz file."""
    arguments = [sys.executable, "-c", CHILD, str(folder), str(scratch / "v.npz"), str(scratch / "cache.sqlite")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[1])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer images")
    parser.add_argument("--no-memory", action="store_true", help="throughput only")
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 224, 256, 512], help="pixels of the images")
    options = parser.parse_args()
    n = 400 if options.quick else 2000
    print(f"throughput on {cores()} cores, {n} JPEG files each{' (quick)' if options.quick else ''}")
    print("side  bytes  raw images/s  bound  ours images/s  ours/raw  ours/bound   CPU")
    for side in options.sides:
        with tempfile.TemporaryDirectory() as scratch:
            size = make_folder(Path(scratch) / "images", n, side)
            raw, ours = [], []
            for _ in range(3):
                raw.append(raw_rate(0.7))
                ours.append(our_rate(Path(scratch) / "images"))
            best, (top, inference) = bound(Path(scratch) / "images", max(raw)), max(ours)
            shares = f"{top / max(raw):9.2f} {top / best:11.2f} {inference:5.2f}"
            print(f"{side:4d} {size:6d} {max(raw):13.0f} {best:6.0f} {top:14.0f} {shares}", flush=True)
    if options.no_memory:
        return
    few, many = (500, 4000) if options.quick else (1000, 20000)
    print("\nimages  peak MB of a fresh process")
    peaks = []
    for count in (few, many):
        with tempfile.TemporaryDirectory() as scratch:
            make_folder(Path(scratch) / "images", count, 64)
            peaks.append(peak_megabytes(Path(scratch) / "images", Path(scratch)))
        print(f"{count:6d} {peaks[-1]:8.0f}", flush=True)
    print(f"ratio {peaks[1] / peaks[0]:.2f}; the vectors alone would be {many * 1280 * 4 / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
