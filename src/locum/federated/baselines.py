"""Baselines for a federated stand-in: a linear head that sites train together (FedAvg, FedProx).

They run in one process, and nothing is charged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.accounting import PlanSteps, SGDPlan, plan_sgd
from locum.data import Reference
from locum.errors import ConfigError, DataError
from locum.federated.aggregation import average
from locum.generate.private import unit_vectors
from locum.train import RowLossByAutograd, seeded
from locum.train.dp import PrivateRun
from locum.types import DP, EmbeddingSet

Floats = npt.NDArray[np.float64]
Head = tuple[Floats, Floats]


def federated_head(
    sites: Sequence[EmbeddingSet],
    classes: int,
    reference: Reference,
    *,
    rounds: int = 50,
    local_epochs: int = 5,
    batch: int = 256,
    learning_rate: float = 1e-3,
    proximal: float = 0.0,
    privacy: DP | None = None,
    clip: float = 1.0,
    whiten: bool = True,
    seed: int = 0,
) -> Head:
    """FedAvg of a linear classifier; with `proximal` above 0 FedProx, which keeps sites near the common head.

    Vectors are whitened by public statistics and scaled to length 1 times the root of their dimension; without
    `whiten` they are used raw, as in the federated paper. With `privacy` each site trains by DP-SGD on one plan for
    all rounds, and sites have equal weights. Apply the result with `scores`, which prepares vectors in the same way.
    """
    if not sites:
        raise DataError("A federated head needs at least one site; got none.")
    if privacy is not None and proximal:
        raise ConfigError(
            f"FedProx is not available with differential privacy: set `proximal` to 0; got {proximal!r}."
        )
    rows = [_rows(site, reference, whiten) for site in sites]
    module = _linear(rows[0].shape[1] - 1, classes)
    shares = [1.0 if privacy is not None else float(len(site)) for site in sites]
    plan = None if privacy is None else _plan(privacy, batch, rounds, local_epochs, clip)
    for number in range(rounds):
        updates = []
        for i, mine in enumerate(rows):
            local = _linear(rows[0].shape[1] - 1, classes)
            local.load_state_dict(module.state_dict())
            if plan is None:
                _train(local, mine, module, local_epochs, batch, learning_rate, proximal, [seed, number, i])
            else:
                steps = plan.steps // rounds
                part = PlanSteps(number * steps, (number + 1) * steps, None)
                loss = RowLossByAutograd(_row_loss)
                PrivateRun(
                    local, mine, loss, plan, part=part, learning_rate=learning_rate, insecure_seed=1000 * seed + i
                ).run()
            updates.append({k: v.detach().numpy().copy() for k, v in local.state_dict().items()})
        mean = average(updates, shares)
        module.load_state_dict({k: torch.from_numpy(v) for k, v in mean.items()})
    weight, bias = (p.detach().double().numpy() for p in module.parameters())
    return weight, bias


def scores(head: Head, X: npt.ArrayLike, reference: Reference, *, whiten: bool = True) -> Floats:
    """Probabilities of a federated head for raw vectors."""
    found = _vectors(np.asarray(X, dtype=np.float32), reference, whiten) @ head[0].T + head[1]
    found = np.exp(found - found.max(axis=1, keepdims=True))
    out: Floats = found / found.sum(axis=1, keepdims=True)
    return out


def _vectors(X: npt.NDArray[np.float32], reference: Reference, whiten: bool) -> Floats:
    if not whiten:
        return X.astype(np.float64)
    out: Floats = unit_vectors(X, reference)[0] * np.sqrt(X.shape[1])
    return out


def _rows(site: EmbeddingSet, reference: Reference, whiten: bool) -> Tensor:
    """Vectors with the class as the last column, as `PrivateRun` takes them."""
    joined = np.concatenate([_vectors(site.X, reference, whiten), site.y[:, None]], axis=1)
    return torch.from_numpy(joined.astype(np.float32))


def _linear(inputs: int, classes: int) -> nn.Sequential:
    layer = nn.Linear(inputs, classes)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    return nn.Sequential(layer)


def _plan(privacy: DP, batch: int, rounds: int, local_epochs: int, clip: float) -> SGDPlan:
    n = privacy.size()
    steps = max(1, round(local_epochs * n / min(batch, n)))
    return plan_sgd(privacy, batch=batch, steps=rounds * steps, clip=clip)


def _row_loss(logits: Tensor, rows: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, rows[:, -1].long(), reduction="none")


def _train(
    local: nn.Sequential,
    rows: Tensor,
    common: nn.Sequential,
    epochs: int,
    batch: int,
    learning_rate: float,
    proximal: float,
    seeds: Sequence[int],
) -> None:
    """Adam on shuffled batches of a site's own rows."""
    optimizer = torch.optim.Adam(local.parameters(), lr=learning_rate)
    anchors = [p.detach().clone() for p in common.parameters()]
    rng = seeded(int(np.random.SeedSequence(seeds).generate_state(1)[0]))
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=rng)
        for start in range(0, len(rows), batch):
            part = rows[order[start : start + batch]]
            loss = nn.functional.cross_entropy(local(part[:, :-1]), part[:, -1].long())
            if proximal:
                pairs = zip(local.parameters(), anchors, strict=True)
                loss = loss + 0.5 * proximal * sum(((p - a) ** 2).sum() for p, a in pairs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
