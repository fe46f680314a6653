"""Networks averaged over rounds, written here because the package has no use for them.

A CGAN as in the federated paper (generators are averaged, discriminators stay), and the paper's CVAE with either its
decoder or all of it averaged. Rows are whitened by public statistics and scaled to one length, as in the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from fed_methods import Guesses, Method, interpolated
from fed_sets import PAPER_DELTA, Array, Deal
from torch import Tensor, nn

from locum.accounting import NonPrivateSGD, PlanSteps, SGDPlan, plan_sgd
from locum.data import load_reference
from locum.federated import average
from locum.generate.adversary import AS_REAL, GeneratorTrainer, gradient_on_fakes
from locum.generate.private import unit_vectors
from locum.heads import LinearHead
from locum.nets import CVAE, plain_cgan, plain_cvae
from locum.train import CVAELoss, seeded, seeded_weights
from locum.train.dp import PrivateRun

LOCAL_EPOCHS, BATCH, CLIP = 5, 256, 1.5
SAMPLES = 500


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws whitened vectors of one length, some per class."""

    draw: Callable[[Tensor, Tensor], Tensor]
    latent: int
    classes: int

    def samples(self, per_class: int, seed: int) -> tuple[Array, Array]:
        y = np.repeat(np.arange(self.classes), per_class)
        z = torch.randn(len(y), self.latent, generator=seeded(seed))
        with torch.no_grad():
            x = self.draw(z, torch.eye(self.classes)[torch.from_numpy(y)])
        return x.double().numpy(), y


def prepared(X: Array, deal: Deal) -> Array:
    """Whitened vectors of length sqrt(d): the space of all samples here."""
    return unit_vectors(X, load_reference(deal.reference, deal.dim))[0] * np.sqrt(deal.dim)


def plan_for(deal: Deal, epsilon: float | None, rounds: int) -> SGDPlan | NonPrivateSGD:
    """One plan for all rounds, as every site declares the same size."""
    n = deal.declared
    batch = min(BATCH, n)
    steps = rounds * max(1, round(LOCAL_EPOCHS * n / batch))
    if epsilon is None:
        return NonPrivateSGD(batch / n, batch, steps)
    return plan_sgd(deal.budget(epsilon, PAPER_DELTA), batch=BATCH, steps=steps, clip=CLIP)


def averaged_generator(deal: Deal, epsilon: float | None, rounds: int, seed: int) -> Sampler:
    """The paper's CGAN: in each round every site trains both networks, and generators are averaged.

    Discriminators see records, are trained by DP-SGD and stay at the sites. Both networks are kept from round to
    round (the authors started new ones in every round: fault F8).
    """
    d, classes, plan = deal.dim, len(deal.classes), plan_for(deal, epsilon, rounds)
    steps = plan.steps // rounds
    nets, trainers, rows, subjects = [], [], [], []
    for i, mine in enumerate(deal.train.values()):
        with seeded_weights(seed):
            net = plain_cgan(d, classes)
        labels = torch.eye(classes)
        trainer = GeneratorTrainer(net, labels, 1e-4, seeded(1000 * seed + i))
        trainer.centers = torch.zeros(classes, d)
        nets.append(net)
        trainers.append(trainer)
        vectors = torch.from_numpy(prepared(mine.X, deal).astype(np.float32))
        rows.append(net.join(vectors, labels[torch.from_numpy(mine.y.astype(np.int64))]))
        subjects.append(np.unique(mine.subject, return_inverse=True)[1] if deal.subjects else None)
    for number in range(rounds):
        for i, (net, trainer) in enumerate(zip(nets, trainers, strict=True)):
            PrivateRun(
                net.critic,
                rows[i],
                AS_REAL,
                plan,
                part=PlanSteps(number * steps, (number + 1) * steps, None),
                subject=subjects[i],
                learning_rate=1e-3,
                insecure_seed=1000 * seed + i,
                public_gradient=gradient_on_fakes(net, trainer, plan),  # type: ignore[arg-type]
            ).run()
        share([net.generator for net in nets])

    def draw(z: Tensor, condition: Tensor) -> Tensor:
        x = nets[0].generate(z, condition)
        return x / x.square().mean(dim=1, keepdim=True).clamp(min=1e-12).sqrt()

    return Sampler(draw, nets[0].latent, classes)


def averaged_cvae(deal: Deal, epsilon: float | None, rounds: int, seed: int, *, encoders: bool) -> Sampler:
    """The paper's CVAE: decoders are averaged; encoders stay at the sites, or (`encoders`) are averaged too."""
    d, classes, plan = deal.dim, len(deal.classes), plan_for(deal, epsilon, rounds)
    steps = plan.steps // rounds
    nets: list[CVAE] = []
    rows, subjects = [], []
    for mine in deal.train.values():
        with seeded_weights(seed):
            nets.append(plain_cvae(d, classes, (256,) * 3, 100, sigmoid=False))
        hot = np.eye(classes)[mine.y]
        rows.append(torch.from_numpy(np.concatenate([prepared(mine.X, deal), hot], axis=1).astype(np.float32)))
        subjects.append(np.unique(mine.subject, return_inverse=True)[1] if deal.subjects else None)
    for number in range(rounds):
        for i, net in enumerate(nets):
            PrivateRun(
                net,
                rows[i],
                CVAELoss(0.1),
                plan,
                part=PlanSteps(number * steps, (number + 1) * steps, None),
                subject=subjects[i],
                learning_rate=1e-3,
                insecure_seed=1000 * seed + i,
            ).run()
        share(nets if encoders else [net.decoder for net in nets])
    return Sampler(lambda z, condition: nets[0].decode(z, condition), 100, classes)


def share(modules: list[nn.Module] | list[CVAE] | list[nn.Sequential]) -> None:
    """Give every site the mean of all weights; sites have equal weights."""
    states = [{k: v.detach().numpy().copy() for k, v in m.state_dict().items()} for m in modules]
    mean = average(states, [1.0] * len(states))
    for module in modules:
        module.load_state_dict({k: torch.from_numpy(np.asarray(v, dtype=np.float32)) for k, v in mean.items()})


def sampled_head(sampler: Sampler, deal: Deal, seed: int) -> Callable[[Array], Array]:
    """Probabilities by a head that was trained on samples alone, as in the paper: 100 steps on all of them."""
    X, y = sampler.samples(SAMPLES, seed)
    head = LinearHead(batch_size=len(X), max_epochs=100, weight_decay=5e-4, patience=None, random_state=seed)
    head.fit(X.astype(np.float32), y)
    return lambda vectors: head.predict_proba(prepared(vectors, deal).astype(np.float32))


def averaged_cgan(epsilon: float | None, rounds: int) -> Method:
    """DP-CGAN as in the paper: averaged generators, a head on samples, and a mix at every site."""

    def run(deal: Deal, seed: int) -> Guesses:
        proba = sampled_head(averaged_generator(deal, epsilon, rounds, seed), deal, seed)
        sites, lams = [], []
        for mine, other in zip(deal.train.values(), deal.test.values(), strict=True):
            ours, lam = interpolated(mine, proba, len(deal.classes), seed)
            theirs, own = proba(other.X), ours(other.X)
            lams.append(lam)
            mixes: Mapping[str, float] = {"interpolated": lam, "global": 0.0, "local": 1.0}
            sites.append({k: (v * own + (1 - v) * theirs).argmax(axis=1) for k, v in mixes.items()})
        return Guesses(sites, lams)

    return run


NETWORKS: dict[str, Callable[..., Sampler]] = {
    "CVAE, decoders averaged": partial(averaged_cvae, encoders=False),
    "CVAE, all averaged": partial(averaged_cvae, encoders=True),
    "CGAN, generators averaged": averaged_generator,
}
