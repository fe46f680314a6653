"""Time of a CVAE fit against the usual style of loop, in one run, at equal loss.

The baseline is written in the usual way: a Dataset that returns one record at a time, a DataLoader that collates
them, one-hot labels made in every batch, Adam with its defaults, the loss read after every step. Same network, same
initial weights, same settings, same number of epochs.

    python benchmarks/fit_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from locum.generate import CVAEGenerator
from locum.nets import plain_cvae

CLASSES, LATENT, BETA = 10, 50, 0.1


class Records(Dataset):
    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = torch.from_numpy(X), torch.from_numpy(y)

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.X[i], self.y[i]


def usual_loop(X: np.ndarray, y: np.ndarray, hidden: int, batch: int, epochs: int) -> float:
    """The baseline; returns the mean loss of its last epoch."""
    torch.manual_seed(0)
    low, high = X.min(axis=0), X.max(axis=0)
    X = (X - low) / np.maximum(high - low, 1e-9)
    model = plain_cvae(X.shape[1], CLASSES, (hidden,), LATENT, sigmoid=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Records(X, y), batch_size=batch, shuffle=True)
    for _ in range(epochs):
        total = 0.0
        for x, label in loader:
            condition = functional.one_hot(label, CLASSES).float()
            optimizer.zero_grad()
            out, mean, log_var = model(torch.cat([x, condition], dim=1), torch.randn(len(x), LATENT), 0.5)
            kl = 0.5 * (log_var.exp() + mean**2 - log_var - 1)
            loss = ((out - x) ** 2).sum(dim=1).mean() + BETA * kl.sum(dim=1).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / len(loader)


def ours(X: np.ndarray, y: np.ndarray, hidden: int, batch: int, epochs: int) -> float:
    generator = CVAEGenerator(
        hidden=(hidden,),
        latent=LATENT,
        beta=BETA,
        scaling="minmax",
        decoder_noise="none",
        batch_size=batch,
        max_epochs=epochs,
        patience=0,
        random_state=0,
    )
    return generator.fit(X, y).history_.train_loss[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds; says so")
    quick = parser.parse_args().quick
    sizes = [(546, 768, 256, 512, 60), (5000, 768, 256, 512, 12), (20000, 768, 256, 512, 4)]
    sizes += [] if quick else [(5000, 768, 512, 256, 8), (10000, 1280, 256, 512, 6), (5000, 128, 256, 128, 12)]
    rounds = 2 if quick else 3
    print(
        f"{torch.get_num_threads()} threads, best of {rounds} rounds in turn" + (" (quick setting)" if quick else "")
    )
    print("records  features  hidden  batch  epochs   usual s   ours s   ratio   loss usual   loss ours")
    for n, d, hidden, batch, epochs in sizes:
        rng = np.random.default_rng(0)
        y = np.arange(n) % CLASSES
        X = (rng.normal(size=(n, 20)) @ rng.normal(size=(20, d)) + rng.normal(size=(CLASSES, d))[y]).astype(
            np.float32
        )
        times: dict[str, list[float]] = {"usual": [], "ours": []}
        losses = {}
        for _ in range(rounds):
            for name, fit in (("usual", usual_loop), ("ours", ours)):
                started = time.perf_counter()
                losses[name] = fit(X, y, hidden, batch, epochs)
                times[name].append(time.perf_counter() - started)
        usual, mine = min(times["usual"]), min(times["ours"])
        print(
            f"{n:7d}  {d:8d}  {hidden:6d}  {batch:5d}  {epochs:6d}  {usual:8.2f}  {mine:7.2f}  {usual / mine:6.2f}"
            f"  {losses['usual']:11.2f}  {losses['ours']:10.2f}"
        )


if __name__ == "__main__":
    main()
