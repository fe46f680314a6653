"""Shadows of a CVAE: trained together on random halves; each record is scored by a latent search in every decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.audit.attacks.latent_search import Search, nearest_latents
from locum.audit.decoder import DecoderBank, feature_weights
from locum.errors import ConfigError, DivergedError
from locum.generate import CVAEGenerator, Preset, Records, Scaler, fit_scaler, hold_out, with_labels
from locum.nets import CVAE
from locum.release import Linear, NetworkSpec, Release
from locum.train import seeded, shuffled_batches

# A stack is made smaller once this share of it has stopped, since that copies all weights.
_STOPPED = 0.25


@dataclass(slots=True, eq=False)
class Job:
    """One network to train in place: its rows (vector, then condition), held-out rows if any, and its rng."""

    module: CVAE
    rows: Tensor
    held: Tensor | None
    rng: torch.Generator
    best_loss: float = field(default=float("inf"), init=False)
    best_epoch: int = field(default=0, init=False)
    best: list[Tensor] = field(default_factory=list, init=False)

    def keep(self, loss: float, epoch: int, weights: list[Tensor]) -> None:
        """Keep the weights of the best epoch so far; the last one in case of a tie."""
        if loss <= self.best_loss:
            self.best_loss, self.best_epoch, self.best = loss, epoch, weights


def train_together(jobs: Sequence[Job], settings: Preset, std_from_log: float) -> None:
    """Train each network as `CVAEGenerator` would, with the same seeds; the results are equal except for rounding.

    The networks are plain (linear layers and ReLU, with a final sigmoid if vectors lie in 0..1) and of one shape.
    Those with the same number of steps per epoch are trained together; shorter batches are padded with rows of
    weight 0.
    """
    groups: dict[int, list[Job]] = {}
    for job in jobs:
        steps = sum(1 for _ in shuffled_batches(len(job.rows), settings.batch_size)(seeded(0)))
        groups.setdefault(steps, []).append(job)
    for group in groups.values():
        _train_group(group, settings, std_from_log)


def _train_group(jobs: list[Job], settings: Preset, std_from_log: float) -> None:
    stack = _Stack([job.module for job in jobs], settings, std_from_log)
    active = list(jobs)
    for epoch in range(1, settings.max_epochs + 1):
        batches = [shuffled_batches(len(job.rows), settings.batch_size)(job.rng) for job in active]
        for picked in zip(*batches, strict=True):
            pairs = list(zip(picked, active, strict=True))
            noise = [torch.randn(len(i), stack.latent, generator=job.rng) for i, job in pairs]
            stack.step(_gathered([job.rows for job in active], picked), _padded(noise), _shares(picked))
        if not settings.patience:
            continue
        watched = [s for s, job in enumerate(active) if job.held is not None]
        losses = stack.losses(watched, [active[s].held for s in watched])  # type: ignore[misc]
        for s, loss in zip(watched, losses, strict=True):
            if not _over(active[s], settings, epoch - 1):
                active[s].keep(loss, epoch, stack.weights(s) if loss <= active[s].best_loss else [])
        running = [s for s, job in enumerate(active) if job.held is None or not _over(job, settings, epoch)]
        if not running:
            break
        if len(running) <= (1 - _STOPPED) * len(active):
            for s in set(range(len(active))) - set(running):
                _put(active[s], active[s].best)
            stack.shrink(running)
            active = [active[s] for s in running]
    for s, job in enumerate(active):
        _put(job, job.best or stack.weights(s))


def _over(job: Job, settings: Preset, epoch: int) -> bool:
    return job.best_epoch > 0 and epoch - job.best_epoch >= settings.patience


def _put(job: Job, weights: list[Tensor]) -> None:
    if not all(torch.isfinite(w).all() for w in weights):
        raise DivergedError("Training of a shadow diverged: the settings of the release do not suit these records.")
    with torch.no_grad():
        for parameter, value in zip(job.module.parameters(), weights, strict=True):
            parameter.copy_(value)
    job.module.eval()


class _Stack:
    """The weights of all networks with one more axis in front, their gradients by hand, and one optimizer."""

    def __init__(self, modules: Sequence[CVAE], settings: Preset, std_from_log: float) -> None:
        first = modules[0]
        self.dim, self.latent = first.dim, first.latent
        self._beta, self._f = settings.beta, std_from_log
        self._settings = settings
        self._deep = sum(isinstance(m, nn.Linear) for m in first.encoder)
        self._sigmoid = isinstance(first.decoder[-1], nn.Sigmoid)
        # In the order of `parameters`: weight and bias of each layer, encoder first.
        self._parameters = [
            torch.stack(list(p)).detach() for p in zip(*(m.parameters() for m in modules), strict=True)
        ]
        self._optimizer = self._fresh()

    def _fresh(self) -> torch.optim.Optimizer:
        s = self._settings
        for p in self._parameters:
            p.grad = torch.empty_like(p)
        kind = torch.optim.AdamW if s.weight_decay else torch.optim.Adam
        return kind(self._parameters, lr=s.learning_rate, weight_decay=s.weight_decay, fused=True)

    def weights(self, s: int) -> list[Tensor]:
        """A copy of the weights of one network."""
        return [p[s].clone() for p in self._parameters]

    def shrink(self, keep: list[int]) -> None:
        """Continue with some of the networks only."""
        states = [self._optimizer.state[p] for p in self._parameters]
        self._parameters = [p[keep].clone() for p in self._parameters]
        self._optimizer = self._fresh()
        for p, old in zip(self._parameters, states, strict=True):
            self._optimizer.state[p] = {k: v[keep].clone() if v.dim() else v for k, v in old.items()}

    @torch.no_grad()
    def step(self, x: Tensor, rng: Tensor, share: Tensor) -> None:
        """One step of each network on its own batch; rows are weighted by `share`."""
        seen, mean, log_var, std, decoded = self._forward(self._parameters, x, rng)
        out = decoded[-1]
        grown = (out - x[:, :, : self.dim]).mul_(2 * share)
        if self._sigmoid:
            grown.mul_(out * (1 - out))
        inwards = self._backward(self._deep, decoded[:-1], grown, deepest=True)[:, :, : self.latent]
        to_mean, to_log = self._penalty_slopes(mean, log_var)
        to_mean = torch.addcmul(inwards, to_mean, self._beta * share)
        to_log = torch.addcmul(inwards * rng * std * self._f, to_log, self._beta * share)
        self._backward(0, seen, torch.cat([to_mean, to_log], dim=2), deepest=False)
        self._optimizer.step()

    @torch.no_grad()
    def losses(self, which: list[int], rows: list[Tensor]) -> list[float]:
        """Mean loss of some networks on held-out rows, with the same latent noise each time."""
        if not which:
            return []
        x = _padded(rows)
        rng = _padded([torch.randn(len(r), self.latent, generator=seeded(0)) for r in rows])
        some = self._parameters if len(which) == len(self._parameters[0]) else [p[which] for p in self._parameters]
        _, mean, log_var, _, decoded = self._forward(some, x, rng)
        error = torch.square(decoded[-1] - x[:, :, : self.dim]).sum(dim=2)
        if self._f == 1.0:
            penalty = torch.exp(2 * log_var) + torch.square(mean) - log_var - 0.5
        else:
            penalty = 0.5 * (torch.exp(log_var) + torch.square(mean) - log_var - 1)
        each = (error + self._beta * penalty.sum(dim=2)) * _shares(rows)[:, :, 0]
        found: list[float] = each.sum(dim=1).tolist()
        return found

    def _penalty_slopes(self, mean: Tensor, log_var: Tensor) -> tuple[Tensor, Tensor]:
        if self._f == 1.0:
            # The authors' penalty (fault F1), as in `CVAEGenerator`.
            return 2 * mean, 2 * torch.exp(2 * log_var) - 1
        return mean, 0.5 * (torch.exp(log_var) - 1)

    def _forward(
        self, weights: list[Tensor], x: Tensor, rng: Tensor
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor, list[Tensor]]:
        """Inputs of the encoder's layers; mean, log-variance and deviation of the latent; values of the decoder."""
        seen = _layers(weights[: 2 * self._deep], x)
        mean, log_var = seen.pop().chunk(2, dim=2)
        std = torch.exp(self._f * log_var)
        z = torch.addcmul(mean, rng, std)
        decoded = _layers(weights[2 * self._deep :], torch.cat([z, x[:, :, self.dim :]], dim=2))
        if self._sigmoid:
            decoded[-1] = torch.sigmoid(decoded[-1])
        return seen, mean, log_var, std, decoded

    def _backward(self, first: int, inputs: list[Tensor], grown: Tensor, *, deepest: bool) -> Tensor:
        """Gradients of consecutive layers, given the input of each and the gradient of the last output."""
        for i in reversed(range(len(inputs))):
            weight, bias = self._parameters[2 * (first + i)], self._parameters[2 * (first + i) + 1]
            assert weight.grad is not None
            assert bias.grad is not None
            torch.bmm(grown.transpose(1, 2), inputs[i], out=weight.grad)
            torch.sum(grown, dim=1, out=bias.grad)
            if i or deepest:
                grown = torch.bmm(grown, weight)
            if i:
                # The gradient of ReLU in one pass.
                grown = torch.ops.aten.threshold_backward(grown, inputs[i], 0)
        return grown


def _layers(weights: list[Tensor], x: Tensor) -> list[Tensor]:
    """The input of each layer, then the output of the last one; ReLU in between."""
    out = [x]
    for i in range(0, len(weights), 2):
        out.append(torch.baddbmm(weights[i + 1][:, None], out[-1], weights[i].transpose(1, 2)))
        if i + 2 < len(weights):
            out[-1].relu_()
    return out


def _gathered(tables: Sequence[Tensor], picked: Sequence[Tensor]) -> Tensor:
    """The picked rows of each table, padded to one length; each row is copied once."""
    out = torch.zeros(len(tables), max(len(i) for i in picked), tables[0].shape[1])
    for place, table, i in zip(out, tables, picked, strict=True):
        torch.index_select(table, 0, i, out=place[: len(i)])
    return out


def _padded(rows: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def _shares(rows: Sequence[Tensor]) -> Tensor:
    """The weight of each row in its network's mean: 0 for padding."""
    return _padded([torch.full((len(r), 1), 1 / len(r)) for r in rows])


Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]

# Shorter than in the attack, since it runs once for each shadow.
SHADOW_SEARCH = Search(restarts=1, steps=50)
# Smaller squared distances, in units of the samples' standard deviation, make no difference.
_LEAST_SQUARE = 1e-4
# Weights, gradients and optimizer state of this many numbers fit into the processor's caches.
_ROOM = 2**24


class CVAEShadows:
    """CVAEs like the release's, with the settings in its manifest.

    The statistic is how close a decoder comes to a record: minus the log of the mean squared distance at the best
    latent that a search finds, in units of the standard deviation of the release's own samples.
    The release has no encoder, so shadows are scored by their decoders only, all from the same candidates.
    Networks with batch normalization (`large`) are trained one after another.
    """

    def __init__(self, release: Release, X: Array, codes: Codes) -> None:
        spec = release.manifest.decoder
        assert isinstance(spec, NetworkSpec)
        self._release, self._spec, self._X, self._codes = release, spec, X, codes
        self._given = _constructor(release.manifest.settings)
        generator = CVAEGenerator(**self._given)
        self._settings = generator.settings_
        compat = generator.authors_compat and generator.preset != "federated"
        self._std_from_log = 1.0 if compat else 0.5
        manifest = release.manifest
        self._sizes = manifest.widths if spec.conditional else ()
        if self._settings.residual and manifest.conditions:
            raise ConfigError("The preset 'large' has no shadows if there are conditions besides the class.")
        # A fixed seed: the scale comes from the release's own samples, and all decoders start from the same latents.
        self._weights = feature_weights(release, np.random.default_rng(0))
        layers = [*self._settings.hidden, self._settings.latent]
        numbers = 8 * (X.shape[1] + sum(self._sizes) + sum(layers)) * max(layers)
        # Even, so that both shadows of a pair are in one block.
        self.block = 2 * max(1, min(8, _ROOM // (2 * numbers)))

    def own(self) -> Floats:
        """The statistic of each record under the release's own decoder."""
        bank = DecoderBank.stack(self._release.manifest, self._spec, [self._release.tensors])
        found: Floats = self._statistic(bank)[0]
        return found

    def train(self, inside: npt.NDArray[np.bool_], seeds: Sequence[int]) -> Floats:
        """The statistic of each record under each shadow."""
        return self._statistic(self.decoders(inside, seeds))

    def decoders(self, inside: npt.NDArray[np.bool_], seeds: Sequence[int]) -> DecoderBank:
        """The decoders of shadows trained on the records of each row of `inside`."""
        make = self._one_by_one if self._settings.residual else self._together
        return DecoderBank.stack(self._release.manifest, self._spec, make(inside, seeds))

    def _together(self, inside: npt.NDArray[np.bool_], seeds: Sequence[int]) -> list[Mapping[str, Any]]:
        made = [self._job(mask, seed) for mask, seed in zip(inside, seeds, strict=True)]
        train_together([job for job, _ in made], self._settings, self._std_from_log)
        names = [(op.weight, op.bias) for op in self._spec.program if isinstance(op, Linear)]
        out: list[Mapping[str, Any]] = []
        for job, scaler in made:
            values = [p.detach().numpy() for p in job.module.decoder.parameters()]
            tensors = dict(zip([name for pair in names for name in pair], values, strict=True))
            out.append({**tensors, "span": scaler.span, "offset": scaler.offset})
        return out

    def _job(self, mask: npt.NDArray[np.bool_], seed: int) -> tuple[Job, Scaler]:
        """A network and its rows, as `CVAEGenerator(random_state=seed)` would start."""
        generator, settings = CVAEGenerator(**self._given, random_state=seed), self._settings
        train, held = Records(self._X[mask], self._codes[mask], None, ()), None
        if settings.patience:
            train, held = hold_out(train, np.random.default_rng(generator._seed(3)))
        scaler = self._scaler(train)
        module = generator._build(self._X.shape[1], sum(self._sizes), settings)
        rows, other = (None if r is None else self._rows(scaler, r) for r in (train, held))
        assert rows is not None
        return Job(module, rows, other, seeded(generator._seed(4))), scaler

    def _scaler(self, train: Records) -> Scaler:
        """As in the generator; a class without records has no offset, and so no statistic."""
        present, local = np.unique(train.codes[:, 0], return_inverse=True)
        scaler = fit_scaler(self._settings.scaling, train.X, local, len(present))
        if len(scaler.offset) == 1 and self._settings.scaling != "class":
            return scaler
        offset = np.full((len(self._release.manifest.classes), train.X.shape[1]), np.nan, dtype=np.float32)
        offset[present] = scaler.offset
        return Scaler(offset, scaler.span)

    def _rows(self, scaler: Scaler, records: Records) -> torch.Tensor:
        return with_labels(scaler.forward(records.X, records.codes[:, 0]), records.codes, self._sizes)

    def _one_by_one(self, inside: npt.NDArray[np.bool_], seeds: Sequence[int]) -> list[Mapping[str, Any]]:
        out: list[Mapping[str, Any]] = []
        for mask, seed in zip(inside, seeds, strict=True):
            labels = self._codes[mask, 0]
            if len(np.unique(labels)) < len(self._release.manifest.classes):
                raise ConfigError("Shadows of the preset 'large' need at least two records per class in the pool.")
            generator = CVAEGenerator(**self._given, random_state=seed).fit(self._X[mask], labels)
            out.append(generator._fitted().tensors)
        return out

    def _statistic(self, bank: DecoderBank) -> Floats:
        square = nearest_latents(bank, self._X, self._codes, self._weights, SHADOW_SEARCH, 0)
        return -np.log(square + _LEAST_SQUARE)


def _constructor(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a generator with a release's settings; vectors are already in its space."""
    known = set(CVAEGenerator().get_params()) - {"space", "random_state", "checkpoint", "verbose", "privacy", "clip"}
    given = {name: value for name, value in settings.items() if name in known}
    if settings.get("residual"):
        given.pop("hidden", None)
    elif "hidden" in given:
        given["hidden"] = tuple(given["hidden"] or ())
    if missing := {"latent", "beta", "scaling", "max_epochs", "batch_size", "patience"} - set(given):
        raise ConfigError(f"The settings of the release lack `{min(missing)}`: no shadow can be trained like it.")
    return given
