"""Baselines for a federated stand-in: a linear head that sites train together (FedAvg, FedProx), or also alone
(FedLambda).

They run in one process, and nothing is charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.accounting import PlanSteps, SGDPlan, plan_sgd
from locum.data import Reference
from locum.errors import ConfigError, DataError
from locum.federated.aggregation import average
from locum.federated.interpolation import Measure, Rule, pick_lambda
from locum.federated.personal import local_head, out_of_fold, softmax, units
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
    plan = None if privacy is None else plan_head(privacy, rounds, local_epochs, batch, clip)
    for number in range(rounds):
        updates = []
        for i, mine in enumerate(rows):
            local = _linear(rows[0].shape[1] - 1, classes)
            local.load_state_dict(module.state_dict())
            if plan is None:
                _train(local, mine, module, local_epochs, batch, learning_rate, proximal, [seed, number, i])
            else:
                part = steps_of(plan, number, rounds)
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
    return softmax(_vectors(np.asarray(X, dtype=np.float32), reference, whiten), *head)


@dataclass(frozen=True, slots=True, eq=False)
class FedLambda:
    """A site's own head and a federated one, interpolated. Private: `lam` and `local` come from its records."""

    lam: float
    local: Head
    shared: Head
    reference: Reference
    whiten: bool = True

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """The share `lam` of the local head's probabilities, and the rest from the federated head."""
        theirs = scores(self.shared, X, self.reference, whiten=self.whiten)
        return self.lam * softmax(X, *self.local) + (1 - self.lam) * theirs


def fed_lambda(
    site: EmbeddingSet,
    shared: Head,
    reference: Reference,
    *,
    validation: EmbeddingSet | None = None,
    measure: Measure = "accuracy",
    rule: Rule = "paper",
    whiten: bool = True,
    seed: int = 0,
) -> FedLambda:
    """FedLambda: the federated paper's interpolation, with a federated head in place of one from a release.

    The local head is trained on raw vectors, as in the paper. Lambda is chosen on `validation`, as in the paper, or
    by five folds. The paper does not say which measure its lambda is chosen by; accuracy comes first in its tables.
    """
    classes = len(shared[1])
    local = local_head(site.X, site.y, classes, seed)
    judged = site if validation is None else validation
    ours = out_of_fold(site, classes, seed) if validation is None else softmax(validation.X, *local)
    theirs = scores(shared, judged.X, reference, whiten=whiten)
    lam = pick_lambda(ours, theirs, judged.y, unit=units(judged), measure=measure, rule=rule)
    return FedLambda(lam, local, shared, reference, whiten)


def plan_head(privacy: DP, rounds: int, local_epochs: int, batch: int = 256, clip: float = 1.0) -> SGDPlan:
    """What each site would pay for in advance: the steps of all rounds."""
    n = privacy.size()
    steps = max(1, round(local_epochs * n / min(batch, n)))
    return plan_sgd(privacy, batch=batch, steps=rounds * steps, clip=clip)


def steps_of(plan: SGDPlan, number: int, rounds: int) -> PlanSteps:
    """The steps of one round."""
    steps = plan.steps // rounds
    return PlanSteps(number * steps, (number + 1) * steps, None)


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
