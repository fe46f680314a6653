"""A receiver's two ways to train on a release without storing one vector.

First an ordinary torch loop over `release.stream()`, then the same with `LinearHead.fit_stream`.
The holder's side is played by `holder()`, so that the script runs alone.

    python examples/receiver_stream.py
"""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

import locum
from locum.data import load_sample, split
from locum.generate import ClassGaussian
from locum.heads import LinearHead
from locum.metrics import accuracy
from locum.release import verify
from locum.types import EmbeddingSet

BATCH = 128


def holder(folder: Path) -> EmbeddingSet:
    """Write a release of digits; give back records of the same kind that it never saw."""
    parts = split(load_sample("digits"), {"train": 0.7, "test": 0.3}, rng=np.random.default_rng(0))
    train = parts["train"]
    ClassGaussian(random_state=0).fit(train.X, train.y).release(train.info, no_dp=True).save(folder)
    return parts["test"]


def plain_torch(release: locum.Release, steps: int) -> nn.Module:
    """Your own loop: each batch is new, so there is no epoch and nothing to shuffle."""
    torch.manual_seed(0)
    net = nn.Linear(release.manifest.embedding.dim, len(release.classes))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for x, code in islice(release.stream(BATCH, random_state=0), steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), code).backward()
        optimizer.step()
    return net


def main(folder: Path) -> None:
    test = holder(folder)
    verify(folder)  # raises ReleaseError if it must not be used
    release = locum.load(folder)
    X = release.transform(test.X)

    net = plain_torch(release, steps=500)
    with torch.no_grad():
        codes = net(torch.from_numpy(np.array(X))).argmax(dim=1).numpy()
    print(f"torch loop   accuracy {accuracy(test.y, release.classes[codes]):.3f}")

    # A stream has no end, so an epoch is what you say it is.
    head = LinearHead(batch_size=BATCH, max_epochs=20, random_state=0)
    head.fit_stream(release.stream(BATCH, random_state=1), classes=release.classes, samples_per_epoch=10_000)
    print(f"LinearHead   accuracy {accuracy(test.y, head.predict(X)):.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary) / "release")
