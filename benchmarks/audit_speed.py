"""Shadow generators trained together against one after another, and the nearest-distance screen against SDMetrics.

    python benchmarks/audit_speed.py [--quick] [--only shadows|screen]

Shadows: both ways train the same generators on the same halves with the same seeds, in turn; the best round counts.
"One after another" uses the generator's `fit` and, for ClassGaussian, then computes the log densities of all records.
The line ends with the difference of the results: for the CVAE the largest difference of a weight, for ClassGaussian
that of log densities in units of their standard deviation.

Screen: the distance of 10,000 records to the nearest of 10,000 samples with 768 features. SDMetrics' equivalent is
`DCROverfittingProtection`, which loops over the columns of all pairs of rows: it gets a size that it can finish, and
ours runs on that size too. It is not one of our requirements: if it is missing, that line says so.

Times are processor times of all threads, which depend less on other work on the machine. Wall-clock ratios, which
show that products of many networks use threads better than those of one, are valid only on an idle machine. With 768
features the CVAE gains little processor time: nearly all of it goes into large products either way.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from locum.audit.decoder import gaussian_log_density
from locum.audit.shadows.cvae import CVAEShadows
from locum.audit.shadows.gaussian import GaussianShadows
from locum.generate import ClassGaussian, CVAEGenerator
from locum.metrics import nearest

SHADOWS = 64
Times = dict[str, list[tuple[float, float]]]
DIM = 768
SIZES = ((60, 64), (546, 128), (4000, 128), (546, 1280), (1000, 1280), (4000, DIM), (4000, 1280))


def records(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of embeddings with slowly decaying variances, as those of images have."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = (rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.5) @ axes + 0.02 * rng.normal(size=(n, d))
    return (X + 0.1 * y[:, None]).astype(np.float32), y


def halves(n: int, shadows: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    out = np.empty((shadows, n), dtype=bool)
    for pair in range(shadows // 2):
        out[2 * pair] = rng.permutation(n) % 2 == 0
        out[2 * pair + 1] = ~out[2 * pair]
    return out


def seconds(run: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Processor and wall-clock time, and the result of the run."""
    start = time.process_time(), time.perf_counter()
    result = run()
    return (time.process_time() - start[0], time.perf_counter() - start[1]), result


def in_turn(rounds: int, alone: Callable[[], Any], together: Callable[[], Any]) -> tuple[Times, Any, Any]:
    """Times of both ways, and the last result of each."""
    times: Times = {"alone": [], "together": []}
    for _ in range(rounds):
        took, theirs = seconds(alone)
        times["alone"].append(took)
        took, ours = seconds(together)
        times["together"].append(took)
    return times, theirs, ours


def show(name: str, size: str, times: Times, apart: float) -> None:
    (alone, alone_clock), (ours, ours_clock) = (np.min(times[way], axis=0) for way in ("alone", "together"))
    print(
        f"{name:<14}{size:<14}{alone:9.2f} s one after another{ours:9.2f} s together{alone / ours:7.2f} x"
        f"  (by the clock {alone_clock / ours_clock:5.2f} x)   apart {apart:.1e}",
        flush=True,
    )


def gaussian(n: int, d: int, shadows: int, rounds: int) -> None:
    X, y = records(n, d)
    inside, codes = halves(n, shadows), y[:, None]
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)

    def together() -> Any:
        return GaussianShadows(release, X, codes).train(inside, range(shadows))

    def alone() -> Any:
        out = []
        for mask in inside:
            t = ClassGaussian(random_state=0).fit(X[mask], y[mask]).release(no_dp=True).tensors
            out.append(gaussian_log_density(X, y, t["means"].astype(np.float64), t["factor"], t["scale"]))
        return np.stack(out)

    times, theirs, ours = in_turn(rounds, alone, together)
    apart = max(np.std(a - b) / np.std(b) for a, b in zip(ours, theirs, strict=True))
    show("ClassGaussian", f"{n} x {d}", times, apart)


def cvae(n: int, d: int, shadows: int, epochs: int, rounds: int) -> None:
    X, y = records(n, d)
    inside, seeds = halves(n, shadows), range(shadows)
    settings = {"max_epochs": epochs, "patience": epochs}
    release = CVAEGenerator(**settings, random_state=0).fit(X, y).release(no_dp=True)

    def together() -> Any:
        family = CVAEShadows(release, X, y[:, None])
        blocks = [slice(i, i + family.block) for i in range(0, shadows, family.block)]
        return [family.decoders(inside[b], seeds[b]).tensors for b in blocks]

    def alone() -> Any:
        pairs = zip(inside, seeds, strict=True)
        return [
            CVAEGenerator(**settings, random_state=s).fit(X[m], y[m]).release(no_dp=True).tensors for m, s in pairs
        ]

    times, theirs, ours = in_turn(rounds, alone, together)
    flat = [{k: v[i].numpy() for k, v in block.items()} for block in ours for i in range(len(block["span"]))]
    apart = max(float(np.abs(a[k] - b[k]).max()) for a, b in zip(flat, theirs, strict=True) for k in a)
    show("CVAE", f"{n} x {d}", times, apart)


def screen(n: int, theirs: int, d: int) -> None:
    rng = np.random.default_rng(0)
    real, synthetic = (rng.standard_normal((n, d), dtype=np.float32) for _ in range(2))
    (took, _), _ = seconds(lambda: nearest(real, synthetic))
    print(f"nearest distance, {n:,} x {n:,} x {d}: {took:.2f} s", flush=True)
    few = slice(0, theirs)
    (small, _), _ = seconds(lambda: nearest(real[few], synthetic[few]))
    try:
        import pandas as pd
        from sdmetrics.single_table import DCROverfittingProtection
    except ImportError:
        print("sdmetrics is missing: no comparison with it. Install it for this benchmark: pip install sdmetrics")
        return
    names = [f"f{i}" for i in range(d)]
    frames = [pd.DataFrame(a[few], columns=names) for a in (real, synthetic, real[::-1])]
    columns = {name: {"sdtype": "numerical"} for name in names}
    metadata = {"tables": {"records": {"columns": columns}}}
    (peer, _), _ = seconds(lambda: DCROverfittingProtection.compute_breakdown(*frames, metadata, "records"))
    # It measures each synthetic row against two sets of real rows.
    print(
        f"  at {theirs:,} x {theirs:,} x {d}: SDMetrics {peer:.2f} s against two sets, ours {2 * small:.3f} s: "
        f"{peer / max(2 * small, 1e-9):.0f} x"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Audit: shadows together against one after another; the screen.")
    parser.add_argument("--quick", action="store_true", help="fewer epochs, one size and one round; says so")
    parser.add_argument("--only", choices=("shadows", "screen"), help="run only one part")
    args = parser.parse_args()
    rounds, epochs = (1, 5) if args.quick else (2, 20)
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {SHADOWS} shadows, best of {rounds}"
        + (" (quick setting)" if args.quick else "")
    )
    if args.only != "screen":
        for n, d in ((546, DIM),) if args.quick else SIZES:
            gaussian(n, d, SHADOWS, rounds)
        for n, d in ((200, 128),) if args.quick else ((200, 128), (200, DIM), (546, DIM)):
            cvae(n, d, SHADOWS, epochs, rounds)
    if args.only != "shadows":
        screen(2_000 if args.quick else 10_000, 25 if args.quick else 100, DIM)


if __name__ == "__main__":
    main()
