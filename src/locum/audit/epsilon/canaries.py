"""Canaries: made-up units in a private run. Can an attacker tell which of them were included?

A canary is included with probability one half. Then it contributes the most that a unit may: a vector of exactly the
length that the noise is calibrated to, in a direction that no other unit uses. The run uses the code that makes
releases (`PrivateRun`, `InitialQuery`, `noisy_sums`, clipping and noise), so a fault there shows. No real record is
read: a run is not charged to a ledger and makes nothing that could be released.

It does not test the operating system's random generator (the run is seeded), layers that its small network lacks,
rounding to float32 (it computes in float64), or what a generator does around these parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.accounting import QueryPlan, SGDPlan
from locum.data import Reference
from locum.errors import ConfigError, DataError
from locum.generate import AS_REAL
from locum.generate.private import MEANS, noisy_sums, query_sums
from locum.nets import CVAE, plain_cgan, plain_cvae
from locum.train import CVAELoss, RowLoss
from locum.train.dp import InitialQuery, PrivateRun
from locum.types import DP, Relation

NetworkKind = Literal["cvae", "critic"]
Floats = npt.NDArray[np.float64]

_DIM, _CLASSES, _LATENT = 8, 2, 4
# Hidden units of a canary: one has this value, all others are switched off with a wide margin.
_ON, _OFF = 2.0, -1000.0
# Standard deviation exp(-30): there is latent noise, but it does not affect the canaries.
_LOG_VARIANCE = -60.0
# How much longer than the clipping bound a canary's gradient is.
_TOO_LONG = 1e6


class CanaryNetwork:
    """The network of a `kind` of generator ("cvae", or the "critic" of a GAN), with room for `canaries`.

    Initial weights are public, so the auditor may choose them; they are float64, so that small steps can be read.

    Attributes
    ----------
    size
        The value in a canary's column.
    """

    def __init__(self, kind: NetworkKind, canaries: int, clip: float, seed: int) -> None:
        self.canaries, self.size = canaries, _TOO_LONG * max(1.0, clip)
        # Canary i uses hidden unit i % hidden and column i // hidden.
        self._hidden = math.ceil(math.sqrt(canaries) / 2)
        self._columns = math.ceil(canaries / self._hidden)
        condition = _CLASSES + self._hidden + self._columns
        self.module: nn.Module
        self.loss: RowLoss
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if kind == "cvae":
                cvae = plain_cvae(_DIM, condition, (self._hidden,), _LATENT, sigmoid=False)
                self.module, self.loss = cvae, CVAELoss()
                first = [cvae.encoder[0], cvae.decoder[0]]
            elif kind == "critic":
                critic = plain_cgan(_DIM, condition, 1, (1,), (self._hidden,)).critic
                self.module, self.loss = critic, AS_REAL
                first = [critic[0]]
            else:
                raise ConfigError(f"`network` must be 'cvae' or 'critic'; got {kind!r}.")
        self.module.double()
        self._first = [layer for layer in first if isinstance(layer, nn.Linear)]
        self._prepare()
        self._directions = self._measure()

    def plain_rows(self, n: int, rng: np.random.Generator) -> Tensor:
        """Made-up records: normal vectors of either class, with 0 in all canary columns."""
        rows = torch.zeros(n, self._first[0].in_features, dtype=torch.float64)
        rows[:, :_DIM] = torch.from_numpy(rng.standard_normal((n, _DIM)))
        rows[torch.arange(n), _DIM + torch.from_numpy(rng.integers(_CLASSES, size=n))] = 1.0
        return rows

    def canary_rows(self, who: npt.NDArray[np.int64], sign: Floats) -> Tensor:
        """A row for each canary in `who`, whose gradient has the given `sign`."""
        rows = torch.zeros(len(who), self._first[0].in_features, dtype=torch.float64)
        i, canary = torch.arange(len(who)), torch.from_numpy(who)
        switches = _DIM + _CLASSES
        rows[i, switches + canary % self._hidden] = 1.0
        rows[i, switches + self._hidden + canary // self._hidden] = torch.from_numpy(sign) * self.size
        return rows

    def read(self) -> Floats:
        """The weights along each canary's direction."""
        total = sum(d[:, None] * self._own(layer.weight.detach()) for d, layer in self._pairs())
        assert isinstance(total, Tensor)
        return total.T.reshape(-1)[: self.canaries].numpy().copy()

    def _pairs(self) -> list[tuple[Tensor, nn.Linear]]:
        return list(zip(self._directions, self._first, strict=True))

    def _own(self, weight: Tensor) -> Tensor:
        """The columns of a first layer that belong to canaries; they are always the last ones."""
        return weight[:, weight.shape[1] - self._columns :]

    @torch.no_grad()
    def _prepare(self) -> None:
        for layer in self._first:
            own = self._own(layer.weight)
            own.zero_()
            start = layer.in_features - self._columns - self._hidden
            layer.weight[:, start : start + self._hidden] = _OFF * (1 - torch.eye(self._hidden))
            layer.bias.fill_(_ON)
        if isinstance(self.module, CVAE):
            last = self.module.encoder[-1]
            assert isinstance(last, nn.Linear)
            last.bias[_LATENT:] = _LOG_VARIANCE

    def _measure(self) -> list[Tensor]:
        """For each hidden unit, how a canary's gradient is split between the first layers, computed by autograd."""
        everyone = self.canary_rows(np.arange(self._hidden), np.ones(self._hidden))
        if isinstance(self.module, CVAE):
            outputs = self.module(everyone, torch.zeros(self._hidden, _LATENT, dtype=torch.float64), 0.5)
        else:
            outputs = (self.module(everyone),)
        _, gradients = self.loss(tuple(out.detach() for out in outputs), everyone)
        found = torch.autograd.grad(outputs, [layer.weight for layer in self._first], gradients)
        # All of these canaries use the first column, each with another hidden unit.
        parts = [self._own(gradient)[:, 0] for gradient in found]
        length = torch.stack(parts).norm(dim=0)
        return [part / length for part in parts]


# Fewer refute hardly anything, even if all guesses are right.
LEAST_CANARIES = 10
# Features of the vectors in the sums: each canary has one feature of one class to itself.
_FEATURES = 64
# The weights of a canary move so little in a run that they change its layer's output by no more than this.
_STILL = 1e-3
# Enough canaries to estimate the most certain hundredth.
_SIMULATED = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class CanaryRun:
    """One score for each canary, and whether it was included. A test: nothing here may be claimed or released.

    Scores are the log odds of inclusion for an attacker who knows the plan; they are exact if the code follows it.
    """

    scores: Floats
    included: npt.NDArray[np.bool_]
    is_test: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not np.isfinite(self.scores).all():
            raise DataError("The run with canaries gave numbers that are not finite, so it shows nothing.")


def log_odds(x: npt.ArrayLike, rate: float, noise: float, relation: Relation = "add-or-remove") -> Floats:
    """Log odds that the canary was included, given `x`: 1 with probability `rate`, else 0, plus normal noise.

    A canary that was not included contributes 0, or -1 instead of 1 if units are replaced. This is the best score if
    the noise follows the plan; if there is less noise, a higher score still means "included".
    """
    values = np.asarray(x, dtype=np.float64)
    present = _drawn(values, rate, noise)
    return present if relation == "add-or-remove" else present - _drawn(-values, rate, noise)


def _drawn(x: Floats, rate: float, noise: float) -> Floats:
    drawn = (2 * x - 1) / (2 * noise**2) + math.log(rate)
    return drawn if rate == 1 else np.logaddexp(math.log1p(-rate), drawn)


def simulate(plan: SGDPlan | QueryPlan, rng: np.random.Generator, canaries: int = _SIMULATED) -> CanaryRun:
    """Scores of a run that follows the plan, simulated from its numbers: to plan guesses, not to judge a release."""
    included, relation = rng.random(canaries) < 0.5, plan.privacy.relation
    scores = np.zeros(canaries)
    for rate, noise, times in _observations(plan):
        for _ in range(times):
            signal = np.where(included, 1.0, 0.0 if relation == "add-or-remove" else -1.0)
            x = signal * (rng.random(canaries) < rate) + noise * rng.standard_normal(canaries)
            scores += log_odds(x, rate, noise, relation)
    return CanaryRun(scores, included)


def _observations(plan: SGDPlan | QueryPlan) -> list[tuple[float, float, int]]:
    """What an attacker observes of a canary: sampling rate, noise relative to its contribution, how often."""
    if isinstance(plan, QueryPlan):
        return [(1.0, _sum_noise(plan.noise_multiplier), 1)]
    sums = [(1.0, _sum_noise(InitialQuery.noise(plan)), 1)] if plan.extra else []
    return [(plan.rate, plan.noise_multiplier, plan.steps), *sums]


def _sum_noise(noise: float) -> float:
    # Counts and lengths, which canaries share with other units, are ignored.
    return noise / math.sqrt(MEANS.sums)


def check_counts(canaries: int, records: int) -> None:
    """Check both numbers before any work."""
    for name, value, least in (("canaries", canaries, LEAST_CANARIES), ("records", records, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"`{name}` must be an integer, {least} or more; got {value!r}.")


def run_canaries(
    plan: SGDPlan | QueryPlan,
    *,
    canaries: int = 1000,
    records: int = 1000,
    seed: int | None = None,
    network: NetworkKind = "cvae",
) -> CanaryRun:
    """One private run by `plan` with made-up records and canaries, in which the attacker sees every noisy step.

    Sampling rate, noise, clip and steps are the plan's. `records` is the number of other units. If the unit is the
    subject, each canary has two records, which count as one unit.
    """
    check_counts(canaries, records)
    root = np.random.SeedSequence(seed)
    # The noise must be independent of the inclusions: separate streams.
    rng, others = (np.random.default_rng(child) for child in root.spawn(2))
    insecure_seed = int(root.generate_state(1)[0])
    included = rng.random(canaries) < 0.5
    cast = _Cast(plan.privacy, included, records)
    sums = _Sums(cast, others)
    if isinstance(plan, QueryPlan):
        plain = Reference.plain(_FEATURES)
        noisy = noisy_sums(*sums.records, sums.classes, plain, MEANS, plan, insecure_seed)
        return CanaryRun(sums.scores(noisy, plan.noise_multiplier), included)
    return CanaryRun(_steps(plan, cast, sums, others, insecure_seed, network), included)


class _Cast:
    """The units of a run: `records` made-up units, then the canaries, each with the sign of its contribution."""

    def __init__(self, privacy: DP, included: npt.NDArray[np.bool_], records: int) -> None:
        self.privacy, self.canaries, self.records = privacy, len(included), records
        replaced = privacy.relation == "replace-one"
        here = np.arange(len(included)) if replaced else np.flatnonzero(included)
        each = 2 if privacy.unit == "subject" else 1
        # The canary of each canary row.
        self.who = np.repeat(here, each)
        self.sign = np.where(included, 1.0, -1.0)[self.who]
        units = np.concatenate([np.arange(records), records + self.who])
        self.subject = units if privacy.unit == "subject" else None


class _Sums:
    """Records for the sums of the initial query: each canary is one feature of one class."""

    def __init__(self, cast: _Cast, rng: np.random.Generator) -> None:
        self._cast = cast
        self.classes = math.ceil(cast.canaries / _FEATURES)
        X = np.zeros((cast.records + len(cast.who), _FEATURES), dtype=np.float32)
        X[: cast.records] = rng.standard_normal((cast.records, _FEATURES))
        X[cast.records + np.arange(len(cast.who)), cast.who % _FEATURES] = cast.sign * math.sqrt(_FEATURES)
        codes = np.concatenate([rng.integers(self.classes, size=cast.records), cast.who // _FEATURES])
        self.records = X, codes, cast.subject

    def asked(self, rows: int | None = None) -> Floats:
        """The sums without noise, over all rows or the first `rows`."""
        X, codes, subject = self.records
        subjects = None if subject is None else subject[:rows]
        return query_sums(X[:rows], codes[:rows], subjects, self.classes, Reference.plain(_FEATURES), MEANS)

    def scores(self, noisy: Floats, noise: float) -> Floats:
        """Log odds for each canary. The attacker knows the other records: the guarantee must hold even then."""
        rest = (noisy - self.asked(self._cast.records))[: self._cast.canaries] / math.sqrt(MEANS.sums)
        return log_odds(rest, 1.0, _sum_noise(noise), self._cast.privacy.relation)


def _steps(
    plan: SGDPlan,
    cast: _Cast,
    sums: _Sums,
    rng: np.random.Generator,
    insecure_seed: int,
    kind: NetworkKind,
) -> Floats:
    """Log odds from all noisy steps, and from the initial query if the plan has one."""
    network = CanaryNetwork(kind, cast.canaries, plan.clip, seed=int(rng.integers(2**31)))
    rows = torch.cat([network.plain_rows(cast.records, rng), network.canary_rows(cast.who, cast.sign)])
    # A learning rate so small that the canaries' gradients stay constant; the weights still reveal each noisy step.
    far = network.size * plan.clip * (plan.steps + plan.noise_multiplier * math.sqrt(plan.steps)) / plan.batch
    watcher = _Watcher(network, plan, _STILL / far)
    run = PrivateRun(
        network.module,
        rows,
        network.loss,
        plan,
        subject=cast.subject,
        optimizer="sgd",
        learning_rate=watcher.learning_rate,
        insecure_seed=insecure_seed,
        initial_query=InitialQuery(sums.asked(), lambda noisy: rows) if plan.extra else None,
        public_gradient=watcher,
    )
    run.run()
    watcher.look()
    return watcher.total if run.noisy is None else watcher.total + sums.scores(run.noisy, InitialQuery.noise(plan))


class _Watcher:
    """The attacker: sees the weights after every step and computes the noisy sums from them."""

    def __init__(self, network: CanaryNetwork, plan: SGDPlan, learning_rate: float) -> None:
        self._network, self._plan, self.learning_rate = network, plan, learning_rate
        self._nothing = torch.zeros(sum(p.numel() for p in network.module.parameters()), dtype=torch.float64)
        self._seen: Floats | None = None
        self.total = np.zeros(network.canaries)

    def __call__(self) -> Tensor:
        """Called before each step, as a public gradient of zero."""
        if self._seen is None:
            self._seen = self._network.read()
        else:
            self.look()
        return self._nothing

    def look(self) -> None:
        """Add the evidence of the last step."""
        assert self._seen is not None
        plan, now = self._plan, self._network.read()
        # The movement in one step of gradient descent, relative to the largest contribution of a unit.
        x = (self._seen - now) * (plan.batch / (self.learning_rate * plan.clip))
        self.total += log_odds(x, plan.rate, plan.noise_multiplier, plan.privacy.relation)
        self._seen = now
