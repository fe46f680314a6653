"""What the obfuscators of tables and of images share: the training, the loss, and a release with two knobs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.nn import functional

from locum.errors import ConfigError, DataError, NotFittedError
from locum.nets import Obfuscator
from locum.obfuscate.knobs import checked_lambda, checked_noise, probabilities, written
from locum.obfuscate.labels import Masking, UtilityLabels
from locum.obfuscate.noise import PaperNoise, ShapedNoise, SpectralNoise
from locum.obfuscate.substitution import Substitution
from locum.train import (
    Checkpoint,
    History,
    LoopSettings,
    fingerprint,
    pick_device,
    run_loop,
    seeded,
    seeded_weights,
    shuffled_batches,
)
from locum.types import Progress

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
Preset = Literal["substitute", "calibrated", "paper"]
# Of outputs and records: one number per record.
Error = Callable[[Tensor, Tensor], Tensor]
# Records that are released at once, and that a validation loss is computed over at once.
CHUNK = 8192
_VALIDATION_CHUNK = 4096
# The label is sometimes withheld in training, so that the decoder learns what a weak `lambda_` means.
_WITHHELD = 0.1


class BaseObfuscator(BaseEstimator):
    """Learns once from records and their utility labels; the two knobs are set at each use.

    `transform` rebuilds each record from two parts: its utility labels, written as plainly as `lambda_` says, and
    the rest, with as much `noise` as asked for. It need not know what is private. `TableObfuscator` and
    `ImageObfuscator` describe the settings.

    Its releases carry the utility labels by design. Nothing is proven about the records it was fitted on;
    `local_epsilon` is what is proven about others.
    """

    labels_: UtilityLabels
    module_: Obfuscator
    noise_: PaperNoise | ShapedNoise | SpectralNoise | Substitution
    history_: History

    def __init__(
        self,
        preset: Preset = "calibrated",
        *,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        beta: float | None = None,
        authors_compat: bool = False,
        validation_share: float = 0.1,
        random_state: int | None = None,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.preset = preset
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.beta = beta
        self.authors_compat = authors_compat
        self.validation_share = validation_share
        self.random_state = random_state
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress

    # -- where tables and images differ ---------------------------------------------------------------------------
    # By preset; a preset that is not there does not exist for this kind of data.
    _DEFAULTS: Mapping[str, Mapping[str, Any]]

    @abstractmethod
    def matrix(self, X: Any) -> Array:
        """The records as numbers between 0 and 1, encoded as in `fit`."""

    @abstractmethod
    def _learn(self, X: Any) -> Array:
        """Fit what `matrix` needs, and return the matrix."""

    @abstractmethod
    def _inputs(self, matrix: Array) -> Array:
        """The matrix as the network takes it."""

    @abstractmethod
    def _network(self, inputs: Array) -> Obfuscator:
        """A new network."""

    @abstractmethod
    def _rebuilding(self) -> Error:
        """The reconstruction error, per record."""

    @abstractmethod
    def _outputs(self, out: Array, rng: np.random.Generator) -> Array:
        """The network's output as a matrix."""

    # -- fitting ---------------------------------------------------------------------------------------------------
    def fit(self, X: Any, utility: Any) -> Self:
        """Learn from records and the attributes that must stay useful. Private attributes are not needed."""
        self._train(*self._prepare(X, utility))
        return self

    def _prepare(self, X: Any, utility: Any) -> tuple[Array, Codes]:
        """The checked records and codes, after learning what they look like."""
        self._check()
        matrix = self._learn(X)
        self.labels_ = UtilityLabels.fit(utility)
        codes = self.labels_.codes(utility)
        if len(codes) != len(matrix):
            raise DataError(f"Each record needs its utility label; got {len(matrix)} records, {len(codes)} labels.")
        if len(matrix) < 20:
            raise DataError(f"An obfuscator needs at least 20 records to learn from; got {len(matrix)}.")
        return matrix, codes

    def _train(self, matrix: Array, codes: Codes) -> None:
        inputs, seed = self._inputs(matrix), self._seed()
        order = np.random.default_rng(seed).permutation(len(inputs))
        held = order[: max(1, round(self.validation_share * len(order)))] if self.validation_share else order[:0]
        kept = order[len(held) :]
        x, y = torch.from_numpy(inputs), torch.from_numpy(codes)
        batches = shuffled_batches(len(kept), self._setting("batch_size"))
        training, validation = torch.from_numpy(kept), torch.from_numpy(held)
        device = pick_device(self.device)
        with seeded_weights(seed, device):
            self.module_ = self._network(inputs).to(device)
            beta = None if self.preset == "paper" else self._setting("beta")
            objective = Objective(self.module_, self._rebuilding(), beta)
            settings = LoopSettings(
                max_epochs=self._setting("max_epochs"),
                batch_size=self._setting("batch_size"),
                learning_rate=self.learning_rate,
                betas=self._setting("betas"),
            )

            def some(rows: Tensor) -> tuple[Tensor, Tensor]:
                # Faster than x[rows].
                return x.index_select(0, rows).to(device), y.index_select(0, rows).to(device)

            self.history_ = run_loop(
                self.module_,
                lambda rng: (training[i] for i in batches(rng)),
                lambda rows, rng: objective(*some(rows), rng),
                settings,
                seeded(seed),
                validate=(lambda: objective.mean(map(some, validation.split(_VALIDATION_CHUNK)), seeded(seed)))
                if len(held)
                else None,
                checkpoint=self._checkpoint(x, y),
                progress=self.progress,
            )
        self.module_.to("cpu")
        # In parts: no second copy of the records.
        rest = np.concatenate([self._split(inputs[kept[i : i + CHUNK]])[1] for i in range(0, len(kept), CHUNK)])
        self.noise_ = self._noise(rest, codes[kept])

    def _noise(self, rest: Array, codes: Codes) -> PaperNoise | ShapedNoise:
        if self.preset == "paper":
            return PaperNoise.fit(rest, authors_compat=self.authors_compat, per_batch=self._setting("per_batch"))
        return ShapedNoise.fit(rest, codes, blur=1.0)

    # -- using -----------------------------------------------------------------------------------------------------
    def codes(self, utility: Any) -> Codes:
        """Utility labels as codes, (n, attributes)."""
        self._fitted()
        return self.labels_.codes(utility)

    def masking(self, *, noise: float, lambda_: float | None = -50.0, use_true_label: bool = True) -> Masking:
        """One setting of the knobs as a function of a matrix, codes and an rng: what judges work with."""
        self._fitted()
        strength, plain = checked_noise(noise), checked_lambda(lambda_)

        def mask(matrix: Array, codes: Array, rng: np.random.Generator) -> Array:
            out = np.empty_like(matrix)
            for start in range(0, len(matrix), CHUNK):
                rows = slice(start, start + CHUNK)
                labels = np.asarray(codes[rows]).reshape(len(matrix[rows]), -1) if use_true_label else None
                out[rows] = self._release(matrix[rows], labels, strength, plain, rng)
            return out

        return mask

    def predict(self, X: Any) -> dict[str, Array]:
        """The utility labels as C predicts them, by attribute: what `use_true_label=False` writes."""
        codes = self._seen(self.matrix(X))
        named = zip(self.labels_.names, self.labels_.values, codes.T, strict=True)
        return {name: np.asarray(values)[column] for name, values, column in named}

    def local_epsilon(self, noise: float, *, delta: float) -> float:
        """Local differential privacy of one released record, given its utility labels; infinite for "paper".

        It compares the record with any other that has the same labels. It holds for records that the obfuscator was
        not fitted on and that are no donors, if nobody knows the seed (`random_state=None`). Further releases of the
        record add to it.
        """
        self._fitted()
        return self.noise_.local_epsilon(checked_noise(noise), delta)

    @property
    def parameters_(self) -> int:
        """How many numbers were trained."""
        self._fitted()
        return sum(p.numel() for p in self.module_.parameters())

    def _release(
        self, matrix: Array, codes: Codes | None, noise: float, lambda_: float | None, rng: np.random.Generator
    ) -> Array:
        needed, rest = self._split(self._inputs(matrix))
        known = self._guessed(needed) if codes is None else codes
        labels = needed if lambda_ is None else written(known, self.module_.classes, lambda_)
        if self.preset == "calibrated":
            labels = probabilities(labels, self.module_.classes)
        # A label that is not written must not show in what the noise is centered on.
        center = np.full_like(known, -1) if lambda_ == 0 else known
        noisy = self.noise_.apply(rest, center, noise, rng).astype(np.float32)
        with torch.no_grad():
            out = self.module_.join(torch.from_numpy(labels), torch.from_numpy(noisy)).numpy()
        return self._outputs(out, rng)

    def _split(self, inputs: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            parts = [self.module_.split(x) for x in torch.from_numpy(inputs).split(CHUNK)]
        return torch.cat([a for a, _ in parts]).numpy(), torch.cat([b for _, b in parts]).numpy()

    def _seen(self, matrix: Array) -> Codes:
        """Utility codes as C predicts them."""
        return self._guessed(self._split(self._inputs(matrix))[0])

    def _guessed(self, needed: Array) -> Codes:
        ends = np.cumsum(self.module_.classes)[:-1]
        return np.stack([g.argmax(axis=1) for g in np.split(needed, ends, axis=1)], axis=1)

    # -- settings and checks -------------------------------------------------------------------------------------
    def _setting(self, name: str) -> Any:
        own = getattr(self, name, None)
        return self._DEFAULTS[self.preset][name] if own is None else own

    def _seed(self) -> int:
        state = self.random_state
        return int(np.random.SeedSequence().generate_state(1)[0]) if state is None else int(state)

    def _checkpoint(self, x: Tensor, y: Tensor) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        if self.random_state is None:
            raise ConfigError("A fit that can be resumed needs a seed: pass `random_state` with `checkpoint`.")
        settings = {k: v for k, v in self.get_params().items() if k not in ("checkpoint", "progress")}
        # On another device a fit would not resume to the same result.
        settings["device"] = pick_device(self.device).type
        return Checkpoint(Path(self.checkpoint), fingerprint(settings, x, y))

    def _check(self) -> None:
        pick_device(self.device)
        if self.preset not in self._DEFAULTS:
            names = " or ".join(map(repr, self._DEFAULTS))
            raise ConfigError(f"`preset` must be {names}; got {self.preset!r}.")
        if self.authors_compat and self.preset != "paper":
            raise ConfigError("`authors_compat` is about the paper's noise: use it with preset='paper'.")
        if self.beta is not None and not 0 < self.beta < math.inf:
            raise ConfigError(f"`beta` must be above 0; got {self.beta!r}. 0.06 suits tables.")
        if not 0 <= self.validation_share < 1:
            raise ConfigError(f"`validation_share` must be 0 or more and below 1; got {self.validation_share!r}.")

    def _fitted(self) -> None:
        if not hasattr(self, "noise_"):
            raise NotFittedError(f"This {type(self).__name__} has not been fitted: call fit(X, utility) first.")


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of a batch. Without `beta` it is the adjustable paper's: squared error plus the classifier's loss.

    With `beta`, the decoder gets the true labels and the rest with normal noise of variance 1, and the rest is kept
    short: the variational bound with a fixed variance, weighted by `beta`.
    """

    module: Obfuscator
    rebuilding: Error
    beta: float | None

    def __call__(self, x: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:
        """The mean over rows `x` with the codes `y`, one column per attribute."""
        needed, rest = self.module.split(x)
        groups = needed.split(self.module.classes, dim=1)
        classified = torch.stack([functional.nll_loss(g, y[:, i]) for i, g in enumerate(groups)]).sum()
        if self.beta is None:
            return self.rebuilding(self.module.join(needed, rest), x).mean() + classified
        # Drawn on the CPU: a seed means the same on every device.
        withheld = (torch.rand(len(x), 1, generator=rng) < _WITHHELD).to(x.device)
        labels = torch.where(withheld, self._uniform().to(x.device), self._one_hot(y))
        noisy = rest + torch.randn(rest.shape, generator=rng).to(x.device)
        length = 0.5 * rest.square().sum(dim=1)
        return (self.rebuilding(self.module.join(labels, noisy), x) + self.beta * length).mean() + classified

    def mean(self, parts: Iterable[tuple[Tensor, Tensor]], rng: torch.Generator) -> float:
        """The same over many rows, given in parts."""
        total, count = 0.0, 0
        for x, y in parts:
            total, count = total + float(self(x, y, rng)) * len(x), count + len(x)
        return total / count

    def _one_hot(self, y: Tensor) -> Tensor:
        sizes = self.module.classes
        starts = torch.tensor([0, *accumulate(sizes[:-1])], device=y.device)
        return torch.zeros(len(y), sum(sizes), device=y.device).scatter_(1, y + starts, 1.0)

    def _uniform(self) -> Tensor:
        return torch.tensor([[1 / size for size in self.module.classes for _ in range(size)]])


def squared_error(out: Tensor, x: Tensor) -> Tensor:
    """The mean squared error of each record."""
    return (out - x).square().flatten(1).mean(dim=1)
