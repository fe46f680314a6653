"""Speed of obfuscators, in one run, in turn: training against a plain autoencoder, and a release of a million rows.

Rows of Adult (102 columns) and images (64 x 64 x 3) trained per second of processor time, for `TableObfuscator` and
`ImageObfuscator` in both presets and for an autoencoder with the same layers, written in the usual way: a
DataLoader, Adam with defaults, the mean squared error.
Tables: the rate of the fastest epoch of all rounds; what a fit does besides (encoding, the noise) follows in seconds.
The calibrated preset trains on more columns, because numbers become ranges: it is compared with the autoencoder on
the table's columns, and on as many as its own ("wide").
Images: the calibrated preset trains no network; its whole fit is compared with one epoch.
Then `transform` of a million rows of Adult, drawn with replacement (made up if LOCUM_DATA has none), in a separate
process (Linux): time, peak memory above what was there before, and how much of it is the result. For a tenth of the
rows too, to see what grows.

    OMP_NUM_THREADS=1 python benchmarks/obfuscate_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def adult() -> tuple[pd.DataFrame, np.ndarray]:
    """Rows without income and sex, and income; made up where there are none."""
    import pandas as pd

    from locum.data import read_adult

    folder = Path(os.environ.get("LOCUM_DATA", "")) / "adult"
    if folder.is_dir():
        table = read_adult(folder)
        return table.drop(columns=["income", "sex"]), (table["income"] == ">50K").to_numpy().astype(int)
    rng, n = np.random.default_rng(0), 45_222
    # As many numbers, texts and categories as Adult has.
    numbers = {f"number {i}": rng.integers(0, 100, n) for i in range(6)}
    texts = {
        f"text {i}": rng.choice([f"value {k}" for k in range(size)], n)
        for i, size in enumerate((7, 16, 7, 14, 6, 5, 41))
    }
    return pd.DataFrame(numbers | texts), rng.integers(0, 2, n)


def rows_per_second(n: int, epochs: int, work: Callable[[], object]) -> float:
    # Processor time: others may work on the same machine.
    started = time.process_time()
    work()
    return n * epochs / (time.process_time() - started)


def autoencoder(x: np.ndarray, batch: int, epochs: int, after_epoch: Callable[..., object] = lambda: None) -> None:
    """The peer: the obfuscator's own encoder, residual network and decoder, without labels and without noise."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from locum.nets import image_obfuscator, table_obfuscator

    torch.manual_seed(0)
    net = table_obfuscator(x.shape[1], [2]) if x.ndim == 2 else image_obfuscator(x.shape[1], x.shape[2], [2])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.from_numpy(x)), batch_size=batch, shuffle=True)
    for _ in range(epochs):
        for (rows,) in loader:
            optimizer.zero_grad()
            loss = (net(rows)[0] - rows).square().mean()
            loss.backward()
            optimizer.step()
        after_epoch()


def train_tables(frame: pd.DataFrame, income: np.ndarray, epochs: int, rounds: int) -> None:
    from locum.data import TableCodec
    from locum.obfuscate import TableObfuscator

    codec = TableCodec.fit(frame)
    x, n = codec.encode(frame), len(frame)
    models = {preset: TableObfuscator(preset, max_epochs=1) for preset in ("calibrated", "paper")}
    columns = {k: int(m.fit(frame, income, codec=codec).module_.encoder[0].in_features) for k, m in models.items()}
    # What is in the further columns makes no difference to its time.
    wide = np.pad(x, ((0, 0), (0, columns["calibrated"] - x.shape[1])))
    columns |= {"plain": x.shape[1], "plain, wide": wide.shape[1]}

    def ours(preset: Literal["calibrated", "paper"]) -> Callable[[Callable[..., object]], object]:
        settings = {"max_epochs": epochs, "batch_size": 256, "validation_share": 0, "random_state": 0}
        return lambda tick: TableObfuscator(preset, **settings, progress=tick).fit(frame, income, codec=codec)

    works = {
        "calibrated": ours("calibrated"),
        "paper": ours("paper"),
        "plain": lambda tick: autoencoder(x, 256, epochs, tick),
        "plain, wide": lambda tick: autoencoder(wide, 256, epochs, tick),
    }
    epoch, whole = dict.fromkeys(works, np.inf), dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            ticks = [time.process_time()]
            work(lambda *_, ticks=ticks: ticks.append(time.process_time()))
            whole[name] = min(whole[name], time.process_time() - ticks[0])
            # What precedes the first epoch is no part of it.
            epoch[name] = min(epoch[name], *np.diff(ticks[1:]))
    for name, seconds in epoch.items():
        plain, same = epoch["plain"] / seconds, epoch["plain, wide"] / seconds
        print(
            f"training, rows of {columns[name]} columns   {name:12s} {n / seconds:9,.0f} a second   "
            f"{plain:5.2f} of the plain one, {same:5.2f} of the wide one; "
            f"besides epochs {max(0, whole[name] - epochs * seconds):4.1f} s"
        )


def train_images(n: int, side: int, rounds: int) -> None:
    from locum.obfuscate import ImageObfuscator

    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8), np.arange(n) % 2
    x = images.transpose(0, 3, 1, 2).astype(np.float32) / 255

    def ours(preset: str) -> Callable[[], object]:
        # The calibrated preset trains nothing: its whole fit stands beside one epoch of the others.
        training = {"max_epochs": 1, "batch_size": 64} if preset == "paper" else {}
        model = ImageObfuscator(preset, **training, validation_share=0, random_state=0)
        return lambda: model.fit(images, labels)

    works = {"calibrated": ours("calibrated"), "paper": ours("paper"), "plain": lambda: autoencoder(x, 64, 1)}
    compare(f"images of {side} px", n, 1, works, rounds)


def compare(what: str, n: int, epochs: int, works: dict[str, Callable[[], object]], rounds: int) -> None:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, work in works.items():
            best[name] = max(best.get(name, 0.0), rows_per_second(n, epochs, work))
    for name, rate in best.items():
        print(f"training, {what:16s} {name:12s} {rate:9,.0f} a second   {rate / best['plain']:5.2f} of the plain one")


def release(n: int, queue: multiprocessing.Queue) -> None:
    """Seconds of processor time, megabytes above what was there before, and those of the result."""
    from locum.obfuscate import TableObfuscator

    frame, income = adult()
    model = TableObfuscator(max_epochs=1, random_state=0).fit(frame, income)
    draw = np.random.default_rng(0).integers(0, len(frame), n)
    many, labels = frame.iloc[draw].reset_index(drop=True), income[draw]
    model.transform(frame.iloc[:10_000], income[:10_000], noise=2, random_state=0)
    # Linux: the highest use so far begins anew.
    Path("/proc/self/clear_refs").write_text("5")
    before, started = highest(), time.process_time()
    out = model.transform(many, labels, noise=2, random_state=0)
    queue.put((time.process_time() - started, highest() - before, out.memory_usage(deep=True).sum() / 2**20))


def highest() -> float:
    """Megabytes of memory at the highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one round, fewer rows and images; says so")
    quick = parser.parse_args().quick
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rounds = 1 if quick else 3
    load = os.getloadavg()[0]
    note = " (quick setting)" if quick else ""
    print(f"{torch.get_num_threads()} threads, load {load:.1f}, best of {rounds} rounds in turn{note}")
    frame, income = adult()
    few = slice(10_000 if quick else None)
    train_tables(frame.iloc[few], income[few], 3 if quick else 5, rounds)
    train_images(256 if quick else 1024, 64, rounds)
    spawn = multiprocessing.get_context("spawn")
    for n in (20_000, 200_000) if quick else (100_000, 1_000_000):
        queue = spawn.Queue()
        worker = spawn.Process(target=release, args=(n, queue))
        worker.start()
        seconds, above, size = queue.get()
        worker.join()
        print(
            f"transform of {n:9,d} rows: {seconds:6.1f} s, {n / seconds:9,.0f} rows a second, {above:6.0f} MB above "
            f"the start, of which the result takes {size:5.0f} MB"
        )


if __name__ == "__main__":
    main()
