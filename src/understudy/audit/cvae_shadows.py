"""Shadows of a CVAE: trained together on random halves, each record scored by a search in every decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from understudy.audit.cvae_stack import Job, train_together
from understudy.audit.decoder_bank import DecoderBank
from understudy.audit.latent_search import Search, nearest_latents
from understudy.audit.parts import feature_weights
from understudy.errors import ConfigError
from understudy.generate import CVAEGenerator
from understudy.generate.base import Records
from understudy.generate.holdout import hold_out
from understudy.generate.scaling import Scaler, fit_scaler, with_labels
from understudy.release import Release
from understudy.release.manifest import Linear, NetworkSpec
from understudy.train import seeded

__all__ = ["SHADOW_SEARCH", "CVAEShadows"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]

# Shorter than an attack of its own: it is made once for each shadow.
SHADOW_SEARCH = Search(restarts=1, steps=50)
# A distance below this, in units of the samples' spread, is as good as none.
_LEAST_SQUARE = 1e-4
# Weights, slopes and the optimizer's two memories of so many numbers stay near the processor.
_ROOM = 2**24


class CVAEShadows:
    """CVAEs like the release's, by the settings in its manifest.

    The statistic is how near a decoder comes to a record: minus the log of the mean squared distance at the best
    latent that a search finds, in units of the spread of the release's own samples.
    The release has no encoder, so shadows are scored by their decoders alone, all from the same candidates.
    Networks with batch normalisation (`large`) are trained one after another.
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
        sizes = (len(manifest.classes), *(len(c.values) for c in manifest.conditions))
        self._sizes = sizes if spec.conditional else ()
        if self._settings.residual and manifest.conditions:
            raise ConfigError("There are no shadows for the preset 'large' with conditions beside the class.")
        # Public coins: the release's own samples decide the units, and all decoders start from the same latents.
        self._weights = feature_weights(release, np.random.default_rng(0))
        layers = [*self._settings.hidden, self._settings.latent]
        numbers = 8 * (X.shape[1] + sum(self._sizes) + sum(layers)) * max(layers)
        # Even, so that both halves of a pair are in one block.
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
        """The decoders of shadows that are trained on the records of each row of `inside`."""
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
        """A network of its own with its rows, as `CVAEGenerator(random_state=seed)` would begin."""
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
        """As the generator has it; a class without records has no offset, and so no statistic."""
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
                raise ConfigError("Shadows of the preset 'large' need two records or more of each class in the pool.")
            generator = CVAEGenerator(**self._given, random_state=seed).fit(self._X[mask], labels)
            out.append(generator._fitted().tensors)
        return out

    def _statistic(self, bank: DecoderBank) -> Floats:
        square = nearest_latents(bank, self._X, self._codes, self._weights, SHADOW_SEARCH, 0)
        return -np.log(square + _LEAST_SQUARE)


def _constructor(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a generator with a release's settings; vectors come in its space already."""
    known = set(CVAEGenerator().get_params()) - {"space", "random_state", "checkpoint", "verbose", "privacy", "clip"}
    given = {name: value for name, value in settings.items() if name in known}
    if settings.get("residual"):
        given.pop("hidden", None)
    elif "hidden" in given:
        given["hidden"] = tuple(given["hidden"] or ())
    if missing := {"latent", "beta", "scaling", "max_epochs", "batch_size", "patience"} - set(given):
        raise ConfigError(f"The release does not say its `{min(missing)}`: no shadow can be like it.")
    return given
