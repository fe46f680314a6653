"""The conditional GAN of the federated paper: the critic sees the records, the generator sees only the critic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locum.accounting import SGDPlan
from locum.data import load_reference
from locum.errors import ConfigError, DivergedError, PrivacyError
from locum.generate.adversary import AS_REAL, GeneratorTrainer, Training, gradient_on_fakes, train_alternately
from locum.generate.base import BaseGenerator, Learned, Records, lone_class
from locum.generate.export import export_decoder
from locum.generate.presets import SCALING_DISCLOSES
from locum.generate.private.guarantee import FLOATING, NOT_COVERED, reference_settings, rounded_shares
from locum.generate.private.query import Measured, exact_query
from locum.generate.private.whitening import INITIAL_QUERIES, Whitener, plan_network, read_sums
from locum.generate.scaling import fit_scaler
from locum.io import ProgressBar
from locum.nets import CGAN, plain_cgan
from locum.release import NetworkSpec
from locum.train import History, cpu_only, pick_device, seeded, seeded_weights
from locum.train.dp import ASSUMPTIONS, InitialQuery, PrivateRun
from locum.types import DP, PrivacyClaim

# Defaults without and with privacy, tuned on training data. Noise calls for large batches and weakens the critic, so
# the generator must learn more slowly than the critic.
_PLAIN = Training(learning_rate=2e-4, critic_learning_rate=2e-4, batch_size=64, max_epochs=40)
_PRIVATE = Training(learning_rate=1e-4, critic_learning_rate=1e-3, batch_size=256, max_epochs=30)


class CGANGenerator(BaseGenerator):
    """A conditional GAN on embeddings; the generator network is released, the critic never.

    It is a baseline: slower than a CVAE, and without early stopping. Without `privacy` there is no formal guarantee:
    what the generator remembers must be measured.

    With `privacy=DP(...)` the critic is trained by DP-SGD, which `ledger` pays for; the generator sees only the noisy
    critic and costs nothing. Vectors are whitened with public statistics (`reference`) and scaled to length 1.

    Parameters
    ----------
    latent
        The number of latents, from 1 to 65536.
    generator_hidden, critic_hidden
        The widths of the hidden layers.
    learning_rate, critic_learning_rate
        Learning rates of the generator and of the critic. None: 2e-4 for both, or with `privacy` 1e-4 and 1e-3.
    batch_size
        Records in a batch, with `privacy` the expected number. None: 64, or 256 with `privacy`.
    max_epochs
        Passes over the data; all are run. None: 40, or 30 with `privacy`.
    scaling
        Without `privacy`: "class" (class means subtracted, as in the CVAE), "zscore" or "minmax". With it: "class",
        which spends half of the budget on noisy class means, or "public", which spends a twentieth on counts and
        lengths; the critic alone then tells the classes apart, which works only with very many records.
    penalty
        The weight of the critic's squared gradient at real rows, 0 or more; with 0 the critic soon separates all rows
        and teaches nothing. Not used with `privacy`.
    clip
        The bound on the norm of a unit's gradient; only with `privacy`.
    variance
        The default variance of the latents in sampling, from 0 to 1e6; 1 is what training assumed.
    space
        "raw", or "unit" for vectors scaled to length 1; with `privacy` only "raw".
    privacy
        A budget `DP(...)` with `n_public`; None: no guarantee.
    classes
        All classes that can occur; needed with `privacy`, not used without it.
    reference
        Public statistics for whitening, with `privacy`: a name or a file, best `locum.data.reference_for(info)` of
        your vectors; "none" leaves little at small epsilons. "auto" is "none" here, because arrays do not say where
        they come from; `locum fit` takes what the file of vectors says.
    ledger
        The ledger that pays, such as `locum.ledger_for(path)`; needed with `privacy`.
    holding
        The name of the data in the ledger.
    insecure_seed
        A seed for batches and noise, for tests: nothing is paid and nothing claimed.
    device
        Where to train: "auto" (a GPU if there is one), "cpu", "cuda" or "mps"; with `privacy` the CPU. It is not
        released, and weights from another device differ in their last digits.
    verbose
        Show progress.
    random_state
        Seed of initial weights, training and sampling; with `privacy` it seeds neither the batches nor the noise.

    Attributes
    ----------
    classes_
        The labels.
    history_
        The critic's losses by epoch. Private.
    module_
        Both networks. Private: the critic learned from records.
    claim_
        What a release claims.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import CGANGenerator
    >>> s = load_sample("breast-cancer")
    >>> gan = CGANGenerator(generator_hidden=(16,), critic_hidden=(16,), max_epochs=1, random_state=0)
    >>> X, y = gan.fit(s.X, s.y).sample(5)
    >>> X.shape
    (5, 30)
    """

    def __init__(
        self,
        latent: int = 100,
        generator_hidden: Sequence[int] = (512, 1024),
        critic_hidden: Sequence[int] = (1024, 512),
        learning_rate: float | None = None,
        critic_learning_rate: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        scaling: str = "class",
        penalty: float = 30.0,
        clip: float = 1.0,
        variance: float = 1.0,
        space: str = "raw",
        privacy: DP | None = None,
        classes: Sequence[Any] | None = None,
        reference: str = "auto",
        ledger: str | Path | None = None,
        holding: str = "default",
        insecure_seed: int | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.latent = latent
        self.generator_hidden = generator_hidden
        self.critic_hidden = critic_hidden
        self.learning_rate = learning_rate
        self.critic_learning_rate = critic_learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.scaling = scaling
        self.penalty = penalty
        self.clip = clip
        self.variance = variance
        self.space = space
        self.privacy = privacy
        self.classes = classes
        self.reference = reference
        self.ledger = ledger
        self.holding = holding
        self.insecure_seed = insecure_seed
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    history_: History
    module_: CGAN
    _SUPPORTS_DP = True

    def plan(self) -> SGDPlan:
        """What a private fit will do and cost, from the settings alone."""
        budget, settings = self._budget(), self._settings()
        return plan_network(
            budget, self.scaling, batch=settings.batch_size, epochs=settings.max_epochs, clip=self.clip
        )

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        settings = self._settings()
        if self.privacy is not None:
            return self._learn_privately(records, settings, validation is not None)
        device = pick_device(self.device)
        X, codes = records.X, records.codes[:, 0]
        scaler = fit_scaler(self.scaling, X, codes, len(self.classes_))  # type: ignore[arg-type]
        self.module_ = net = self._build(X.shape[1]).to(device)
        labels = _one_hot(codes, len(self.classes_))
        rows = net.join(torch.from_numpy(scaler.forward(X, codes)), labels)
        trainer = GeneratorTrainer(net, labels, settings.learning_rate, seeded(self._seed(4)))
        with self._bar() as progress:
            self.history_ = train_alternately(net, rows, trainer, settings, float(self.penalty), progress)
        net.to("cpu")
        _check_finite(net)
        program, tensors = export_decoder(net.generator)
        claim = PrivacyClaim(
            kind="none",
            not_covered=(
                "membership: whether a record was used is not hidden by any proof",
                "generator weights: they may remember records, above all rare ones",
                SCALING_DISCLOSES[self.scaling],
                "the number of records: exact means of coarse values (pixels, grades) can give it away",
                "class frequencies: rounded to three digits, otherwise exact",
            ),
        )
        public = {**self._public_settings(), **asdict(settings)}
        # Without a guarantee nothing is clipped.
        del public["clip"]
        refusal = lone_class(self.classes_, records) if self.scaling == "class" else None
        tensors |= {"span": scaler.span, "offset": scaler.offset}
        return Learned(self._spec(program), tensors, claim, public, refusal)

    def _learn_privately(self, records: Records, settings: Training, validation: bool) -> Learned:
        if validation:
            raise PrivacyError("Nothing pays for `validation`: under differential privacy leave it out.")
        cpu_only(self.device)
        if self.space != "raw":
            raise ConfigError("Under differential privacy vectors are scaled to length 1 anyway: leave `space` out.")
        X, codes, subjects = records.X, records.codes[:, 0], self._subjects(records.subject)
        d, classes, plan = X.shape[1], len(self.classes_), self.plan()
        reference, (_, asked) = load_reference(self.reference, d), INITIAL_QUERIES[self.scaling]
        self.module_ = net = self._build(d)
        rows = net.join(
            torch.from_numpy(Whitener.bare(reference, classes).forward(X, codes)), _one_hot(codes, classes)
        )
        # Real frequencies are private: all classes are drawn equally often.
        trainer = GeneratorTrainer(net, torch.eye(classes), settings.learning_rate, seeded(self._seed(4)))

        def read(noisy: npt.NDArray[np.float64]) -> Measured:
            return read_sums(noisy, plan, self.scaling, classes, d)

        def start(noisy: npt.NDArray[np.float64]) -> Tensor:
            centers = Whitener.read(read(noisy), reference).means
            trainer.centers = torch.from_numpy((centers * d**0.5).astype(np.float32))
            return rows

        with self._open_ledger() as ledger, self._bar() as progress:
            run = PrivateRun(
                net.critic,
                rows,
                AS_REAL,
                plan,
                ledger,
                self.holding,
                subject=subjects,
                purpose=type(self).__name__,
                learning_rate=settings.critic_learning_rate,
                insecure_seed=self.insecure_seed,
                progress=progress,
                initial_query=InitialQuery(exact_query(X, codes, subjects, classes, reference, asked), start),
                public_gradient=gradient_on_fakes(net, trainer, plan),
            )
            self.history_ = run.run()
        _check_finite(net)
        assert run.noisy is not None
        found = read(run.noisy)
        whitener = Whitener.read(found, reference)
        program, tensors = export_decoder(net.generator)
        tensors = whitener.folded(tensors, whitener.means)
        public = {**self._public_settings(), **asdict(settings), **reference_settings(reference)}
        del public["penalty"]
        claim = self._dp_claim(run.charge, *NOT_COVERED, FLOATING)
        claim = replace(claim, assumptions=ASSUMPTIONS if claim.kind == "dp" else ())
        return Learned(self._spec(program), tensors, claim, public, joint=rounded_shares(found.shares))

    def _settings(self) -> Training:
        """Checked settings of training, with defaults filled in."""
        names = ("class", "zscore", "minmax") if self.privacy is None else tuple(INITIAL_QUERIES)
        if self.scaling not in names:
            raise ConfigError(
                f"`scaling` must be {' or '.join(map(repr, names))} {'with' if self.privacy else 'without'} "
                f"`privacy`; got {self.scaling!r}."
            )
        if not 1 <= self.latent <= 65536:
            raise ConfigError(f"`latent` must lie in 1..65536; got {self.latent!r}.")
        for name in ("generator_hidden", "critic_hidden"):
            widths = getattr(self, name)
            if isinstance(widths, int) or not widths or min(widths) < 1:
                raise ConfigError(f"`{name}` must be a tuple of layer widths, 1 or more; got {widths!r}.")
        if not 0 <= self.penalty < np.inf:
            raise ConfigError(f"`penalty` must be 0 or more; got {self.penalty!r}.")
        if not 0 <= self.variance <= 1e6:
            raise ConfigError(f"`variance` must lie in 0..1e6; got {self.variance!r}. 1 is what training assumed.")
        defaults = asdict(_PLAIN if self.privacy is None else _PRIVATE)
        return Training(**{k: v if getattr(self, k) is None else getattr(self, k) for k, v in defaults.items()})

    def _build(self, dim: int) -> CGAN:
        sizes = [tuple(int(h) for h in hidden) for hidden in (self.generator_hidden, self.critic_hidden)]
        with seeded_weights(self._seed(5)):
            return plain_cgan(dim, len(self.classes_), self.latent, *sizes, sigmoid=self.scaling == "minmax")

    def _bar(self) -> ProgressBar:
        return ProgressBar(f"fitting {type(self).__name__}", show=self.verbose)

    def _spec(self, program: list[dict[str, Any]]) -> NetworkSpec:
        return NetworkSpec(
            latent_dim=self.latent,
            program=program,  # type: ignore[arg-type]  # pydantic turns the dicts into operations
            variance=float(self.variance),
        )


def _one_hot(codes: npt.NDArray[np.int64], classes: int) -> Tensor:
    return torch.eye(classes)[torch.from_numpy(codes.copy())]


def _check_finite(net: CGAN) -> None:
    if not all(torch.isfinite(p).all() for p in net.parameters()):
        raise DivergedError(
            "Training diverged: weights are no longer finite. Lower `learning_rate` or check the data."
        )
