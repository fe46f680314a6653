"""OpenDP's contingency tables on the same data, bins and budget. They need an environment of their own.

    python opendp_tables.py prepare FOLDER             (with Locum: writes the coded tables)
    python opendp_tables.py draw FOLDER                (with `pip install "opendp[mbi]"`: draws rows; it resumes)
    python opendp_tables.py judge FOLDER               (with Locum: judges them, and writes results/opendp.json)

Per patient, one row of each is used: the first in the order of encounters. OpenDP's noise cannot be seeded: a "seed"
is the number of a run.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

SETS, EPSILONS, DELTA, SEEDS = ("adult", "diabetes130"), (1.0, 3.0), 1e-6, (0, 1, 2)
KINDS = ("mst", "aim")


def prepare(folder: Path) -> None:
    import numpy as np
    from table_sets import UNITS, bins, records, table

    folder.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        codes = bins(name).codes(records(name, "train"))
        rows = len(codes)
        if UNITS[name] == "subject":
            codes = codes[~table(name, "train")["patient"].duplicated().to_numpy()]
        np.savez(folder / f"{name}.npz", codes=codes.astype(np.int16), cells=np.array(bins(name).cells), rows=rows)


def rho_of(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta)-DP, by the conversion of Canonne, Kamath and Steinke."""

    def delta_of(rho: float) -> float:
        def bound(alpha: float) -> float:
            return (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)

        return math.exp(min(bound(1.001 * 1.01**k) for k in range(1500)))

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def rounded(rho: float) -> float:
    """Down to four digits: with some numbers OpenDP's own steps add up to one unit in the last place too much."""
    return math.floor(rho * 1e4) / 1e4


def draw(folder: Path) -> None:
    import numpy as np
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    for kind in KINDS:
        for name in SETS:
            held = np.load(folder / f"{name}.npz")
            codes, cells, rows = held["codes"].astype(np.int64), held["cells"].tolist(), int(held["rows"])
            names = [f"c{i}" for i in range(len(cells))]
            frame = pl.DataFrame(dict(zip(names, codes.T, strict=True))).lazy()
            for epsilon in EPSILONS:
                for seed in SEEDS:
                    file = folder / f"{name}-{kind}-{epsilon:g}-{seed}.npz"
                    if file.exists():
                        continue
                    started, rho = time.process_time(), rounded(rho_of(epsilon, DELTA))
                    context = dp.Context.compositor(
                        data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
                    )
                    algorithm = dp.mbi.MST() if kind == "mst" else dp.mbi.AIM()
                    keys = {n: list(range(size)) for n, size in zip(names, cells, strict=True)}
                    query = context.query(rho=rho).select(*names).contingency_table(keys=keys, algorithm=algorithm)
                    drawn = query.release().synthesize(rows=rows, method="sample")
                    # OpenDP adds a cell for values that are no key.
                    found = drawn.select(names).fill_null(-1).to_numpy()
                    found = np.where(np.isnan(found), -1, found).astype(np.int16)
                    seconds = time.process_time() - started
                    np.savez(file, codes=found, seconds=seconds)
                    print(f"{file.name}: {seconds:.0f} s", flush=True)


def judge(folder: Path) -> None:
    import numpy as np
    from table_sets import bins, judged

    out: dict[str, dict[str, dict[str, float]]] = {}
    for name in SETS:
        for kind in KINDS:
            for epsilon in EPSILONS:
                for seed in SEEDS:
                    file = folder / f"{name}-{kind}-{epsilon:g}-{seed}.npz"
                    if not file.exists():
                        continue
                    held = np.load(file)
                    rng, codes = np.random.default_rng(seed), held["codes"].astype(np.int64)
                    for column in codes.T:
                        # What is no key becomes a draw from the others.
                        empty = column < 0
                        column[empty] = rng.choice(column[~empty], int(empty.sum()))
                    rows = bins(name).draw(codes, rng)
                    figures = judged(name, rows, seed) | {"seconds": float(held["seconds"])}
                    out.setdefault(f"{name}/{kind}-{epsilon:g}", {})[str(seed)] = figures
    place = Path(__file__).parent / "results" / "opendp.json"
    place.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    {"prepare": prepare, "draw": draw, "judge": judge}[sys.argv[1]](Path(sys.argv[2]))
