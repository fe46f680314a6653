"""Canaries: made-up units in a private run. Can an attacker tell which of them were included?

A canary is included with probability one half. Then it contributes the most that a unit may: a vector of exactly the
length that the noise is calibrated to, in a direction that no other unit uses. The run uses the code that makes
releases (`PrivateRun`, `InitialQuery`, `noisy_sums`, clipping and noise), so a fault there shows. No real record is
read: a run is not charged to a ledger and makes nothing that could be released. `head.py` has the canaries of a
private head.

Canaries of sums are in all of their parts: sums and counts of a class, lengths, products. Their vectors are far too
long, and a subject has up to 40 records: all of it must be cut to length 1.

It does not test the operating system's random generator (the run is seeded), layers that its small network lacks,
rounding to float32 (it computes in float64), or what a generator does around these parts.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.accounting import QueryPlan, SGDPlan
from locum.audit.epsilon.cast import OVERLONG, CanaryRun, Cast
from locum.audit.epsilon.exact import Evidence, Noise, Shift
from locum.audit.epsilon.head import HEAD_SEEN, run_head
from locum.audit.epsilon.table import run_table
from locum.data import Reference
from locum.errors import ConfigError
from locum.generate import AS_REAL
from locum.generate.private import MEANS, MEANS_AND_PRODUCTS, Shares, exact_query, noisy_sums
from locum.mechanisms import ExactSums
from locum.nets import CVAE, plain_cgan, plain_cvae
from locum.train import CVAELoss, RowLoss
from locum.train.dp import InitialQuery, PrivateRun
from locum.types import Relation

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
# Features of the vectors in the sums before training: each canary has one feature of one class to itself.
_FEATURES = 64
# Features where each canary has a class to itself; and canaries at once, since each class takes room.
_FEW_FEATURES, _AT_ONCE = 4, 1000
# Canaries with a product of two features to themselves; that many pairs need 25 features.
_WITH_PRODUCTS = 300
# The weights of a canary move so little in a run that they change its layer's output by no more than this.
_STILL = 1e-3
# Enough canaries to estimate the most certain hundredth.
_SIMULATED = 20_000


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
    if isinstance(plan, QueryPlan) and plan.sums > 1:
        return [(1.0, plan.noise_multiplier / math.sqrt(HEAD_SEEN), 1)]
    if isinstance(plan, QueryPlan):
        # A canary that replaces another has the same count.
        alone = MEANS.sums + (MEANS.counts if plan.privacy.relation == "add-or-remove" else 0.0)
        return [(1.0, plan.noise_multiplier / math.sqrt(alone), 1)]
    sums = [(1.0, InitialQuery.noise(plan) / math.sqrt(MEANS.sums), 1)] if plan.extra else []
    return [(plan.rate, plan.noise_multiplier, plan.steps), *sums]


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
    table: bool = False,
) -> CanaryRun:
    """One private run by `plan` with made-up records and canaries, in which the attacker sees every noisy step.

    A plan for several sums is that of a private head, and its run makes gradient steps, or of a private `table`; a
    plan for one sum is that of class means, with and without products.

    Sampling rate, noise, clip and steps are the plan's. `records` is the number of other units. If the unit is the
    subject, each canary has 1, 2, 20 or 40 records, which count as one unit.
    """
    check_counts(canaries, records)
    root = np.random.SeedSequence(seed)
    # The noise must be independent of the inclusions: separate streams.
    rng, others = (np.random.default_rng(child) for child in root.spawn(2))
    insecure_seed = int(root.generate_state(1)[0])
    included = rng.random(canaries) < 0.5
    if isinstance(plan, SGDPlan):
        return _steps(plan, Cast(plan.privacy, included, records), others, insecure_seed, network)
    if table:
        return run_table(plan, included, records, others, insecure_seed)
    if plan.sums > 1:
        return run_head(plan, included, records, others, insecure_seed)
    return _queries(plan, included, records, others, insecure_seed)


def _queries(
    plan: QueryPlan, included: npt.NDArray[np.bool_], records: int, rng: np.random.Generator, insecure_seed: int
) -> CanaryRun:
    """Scores from noisy sums. Each canary is in one query, so several queries are as private for it as one."""
    scores, evidence = [], []
    for k, start in enumerate(range(0, len(included), _AT_ONCE)):
        cast = Cast(plan.privacy, included[start : start + _AT_ONCE], records)
        query = _Query(cast, rng, MEANS, _FEW_FEATURES, 1)
        noisy = query.noisy(plan, insecure_seed + 1 + k)
        scores.append(query.scores(noisy, plan.noise_multiplier))
        evidence.append(query.evidence(noisy, ""))
    # The same with products, which leave less room for the rest.
    cast = Cast(plan.privacy, included[:_WITH_PRODUCTS], records)
    features = math.ceil(0.5 + math.sqrt(0.25 + 2 * cast.canaries))
    query = _Query(cast, rng, MEANS_AND_PRODUCTS, features, 1)
    products = query.evidence(query.noisy(plan, insecure_seed), ", with products")
    return CanaryRun(np.concatenate(scores), included, (*_joined(evidence), *products))


def _joined(parts: list[list[Evidence]]) -> list[Evidence]:
    """The same evidence from several queries as one."""
    out: list[Evidence] = []
    for same in zip(*parts, strict=True):
        first, values = same[0], np.concatenate([one.values for one in same])
        if isinstance(first, Shift):
            included = [one.included for one in same if isinstance(one, Shift)]
            out.append(Shift(first.name, values, np.concatenate(included)))
        else:
            out.append(Noise(first.name, values, first.share))
    return out


class _Query:
    """Records for noisy sums in which `each` canaries share a class, and each has its own vector there.

    A canary alone in its class also has its count to itself, and with products a product of two features.
    """

    def __init__(self, cast: Cast, rng: np.random.Generator, shares: Shares, features: int, each: int) -> None:
        self._cast, self._shares, self._features = cast, shares, features
        self.classes = math.ceil(cast.canaries / each)
        canary = np.arange(cast.canaries)
        self._class = canary // each
        self._vectors = np.zeros((cast.canaries, features))
        self._pair: tuple[npt.NDArray[np.int64], ...] | None = None
        if shares.products:
            self._pair = tuple(axis[: cast.canaries] for axis in np.triu_indices(features, 1))
            for axis in self._pair:
                self._vectors[canary, axis] = math.sqrt(0.5)
        else:
            self._vectors[canary, canary % features] = 1.0
        # If units are replaced, their counts and products are the same.
        self._counted = each == 1 and not cast.replaced
        X = np.zeros((cast.records + len(cast.who), features), dtype=np.float32)
        X[: cast.records] = rng.standard_normal((cast.records, features))
        overlong = OVERLONG * math.sqrt(features)
        X[cast.records :] = self._vectors[cast.who] * (cast.sign * overlong)[:, None]
        codes = np.concatenate([rng.integers(self.classes, size=cast.records), self._class[cast.who]])
        self.records = X, codes, cast.subject

    def asked(self, rows: int | None = None) -> ExactSums:
        """The sums without noise, over all rows or the first `rows`."""
        X, codes, subject = self.records
        subjects = None if subject is None else subject[:rows]
        plain = Reference.plain(self._features)
        return exact_query(X[:rows], codes[:rows], subjects, self.classes, plain, self._shares)

    def noisy(self, plan: QueryPlan, insecure_seed: int) -> Floats:
        """The sums with noise, by the code that makes releases."""
        plain = Reference.plain(self._features)
        return noisy_sums(*self.records, self.classes, plain, self._shares, plan, insecure_seed)

    def scores(self, noisy: Floats, noise: float) -> Floats:
        """Log odds for each canary."""
        values, alone = self._seen(noisy)
        return log_odds(values, 1.0, noise / math.sqrt(alone), self._cast.privacy.relation)

    def evidence(self, noisy: Floats, name: str) -> list[Evidence]:
        """For tests of normal noise: the canaries, and the noise of each part."""
        parts = self._shares.parts(noisy - self.asked().to_array(), self.classes, self._features)
        share = self._shares
        noises = zip(
            ("class sums", "counts", "lengths", "products"),
            parts,
            (share.sums, share.counts, share.lengths, share.products),
            strict=True,
        )
        found = [Noise(f"noise of {part}{name}", values, size) for part, values, size in noises if size]
        # Relative to a unit's whole contribution, of which only a part is seen here.
        values, alone = self._seen(noisy)
        return [Shift(f"canaries in sums{name}", math.sqrt(alone) * values, self._cast.included), *found]

    def _seen(self, noisy: Floats) -> tuple[Floats, float]:
        """Each canary's contribution with noise, as a multiple of what it may be, and the squared length of that.

        The attacker knows the other records: the guarantee must hold even then.
        """
        rest = noisy - self.asked(self._cast.records).to_array()
        sums, counts, _, products = self._shares.parts(rest, self.classes, self._features)
        table = sums.reshape(self.classes, self._features)
        out = math.sqrt(self._shares.sums) * (table[self._class] * self._vectors).sum(axis=1)
        alone = self._shares.sums
        if self._counted:
            out += math.sqrt(self._shares.counts) * counts[self._class]
            alone += self._shares.counts
        if self._counted and self._pair is not None:
            # A product of two features of 1/2 stands for two entries of the matrix.
            length = math.sqrt(self._shares.products / 2)
            place = np.zeros((self._features, self._features), dtype=np.int64)
            place[np.triu_indices(self._features)] = np.arange(len(products))
            out += length * products[place[self._pair]]
            alone += length**2
        return out / alone, alone


def _steps(plan: SGDPlan, cast: Cast, rng: np.random.Generator, insecure_seed: int, kind: NetworkKind) -> CanaryRun:
    """Scores from all noisy steps, and from the initial query if the plan has one."""
    # Directions that no canary uses hold noise alone.
    blank = max(50, cast.canaries // 4)
    network = CanaryNetwork(kind, cast.canaries + blank, plan.clip, seed=int(rng.integers(2**31)))
    rows = torch.cat([network.plain_rows(cast.records, rng), network.canary_rows(cast.who, cast.sign)])
    query = _Query(cast, rng, MEANS, _FEATURES, _FEATURES) if plan.extra else None
    # A learning rate so small that the canaries' gradients stay constant; the weights still reveal each noisy step.
    far = network.size * plan.clip * (plan.steps + plan.noise_multiplier * math.sqrt(plan.steps)) / plan.batch
    watcher = _Watcher(network, plan, _STILL / far, cast.canaries)
    run = PrivateRun(
        network.module,
        rows,
        network.loss,
        plan,
        subject=cast.subject,
        optimizer="sgd",
        learning_rate=watcher.learning_rate,
        insecure_seed=insecure_seed,
        initial_query=None if query is None else InitialQuery(query.asked(), lambda noisy: rows),
        public_gradient=watcher,
    )
    run.run()
    watcher.look()
    scores, evidence = watcher.total, [watcher.noise()]
    if query is not None:
        assert run.noisy is not None
        scores = scores + query.scores(run.noisy, InitialQuery.noise(plan))
        evidence += query.evidence(run.noisy, "")
    return CanaryRun(scores, cast.included, tuple(evidence))


class _Watcher:
    """The attacker: sees the weights after every step and computes the noisy sums from them."""

    def __init__(self, network: CanaryNetwork, plan: SGDPlan, learning_rate: float, canaries: int) -> None:
        self._network, self._plan, self.learning_rate, self._canaries = network, plan, learning_rate, canaries
        self._nothing = torch.zeros(sum(p.numel() for p in network.module.parameters()), dtype=torch.float64)
        self._seen: Floats | None = None
        self.total = np.zeros(canaries)
        self._blank: list[Floats] = []

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
        self.total += log_odds(x[: self._canaries], plan.rate, plan.noise_multiplier, plan.privacy.relation)
        self._blank.append(x[self._canaries :])
        self._seen = now

    def noise(self) -> Evidence:
        """The noise of all steps in directions that no canary uses."""
        return Noise("noise of the steps", np.concatenate(self._blank), None)
