"""The conditional GAN that the seed *federated* compares with: a critic sees the records, a generator the critic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locum.accounting import SGDPlan
from locum.data import load_reference
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate.adversary import AS_REAL, Maker, Training, gradient_on_made, train_in_turn
from locum.generate.base import BaseGenerator, Learnt, Records, lone_class
from locum.generate.export import export_decoder
from locum.generate.presets import SCALER_TOLD
from locum.generate.private.guarantee import NOT_COVERED, reference_told, rounded_shares
from locum.generate.private.query import Measured, query_sums
from locum.generate.private.whitening import INITIAL_QUERIES, Whitener, plan_network, read_sums
from locum.generate.scaling import fit_scaler
from locum.nets import CGAN, plain_cgan
from locum.release import NetworkSpec
from locum.train import History, seeded
from locum.train.dp import InitialQuery, PrivateRun
from locum.types import DP, PrivacyClaim, ProgressBar, RichBar

# Settings that are None: without and with privacy, tried on training data. The noise asks for large batches and keeps
# the critic weak: the generator must be slower than it.
_PLAIN = Training(learning_rate=2e-4, critic_learning_rate=2e-4, batch_size=64, max_epochs=40)
_PRIVATE = Training(learning_rate=1e-4, critic_learning_rate=1e-3, batch_size=256, max_epochs=30)


class CGANGenerator(BaseGenerator):
    """A conditional GAN on embeddings; the generator network is released, the critic never.

    A rival to compare with: it is slower than a CVAE, and nothing stops it early. Settings that are None depend on
    whether there is `privacy`. `scaling` is "class" (class means taken off, as a CVAE has it), "zscore" or "minmax";
    `penalty` weighs the critic's squared slope at real rows, without which it soon tells all rows apart and teaches
    nothing. Without `privacy` there is no formal guarantee: what the generator remembers must be measured.

    With `privacy=DP(...)` the critic is trained by DP-SGD, which `ledger` pays for; the generator sees the noisy
    critic alone and costs nothing. Vectors are whitened by public statistics (`reference`) and brought to length 1.
    `scaling` "class" spends half of the budget on noisy class means to start from, "public" a twentieth on counts and
    lengths: what tells classes apart is then the critic's word alone, and that is little unless there are very many
    records. `penalty` has no use then.

    >>> from locum.data import load_sample
    >>> s = load_sample("breast-cancer")
    >>> X, y = CGANGenerator(max_epochs=1, random_state=0).fit(s.X, s.y).sample(5)
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
        reference: str = "none",
        ledger: str | Path | None = None,
        holding: str = "default",
        insecure_seed: int | None = None,
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
        self.verbose = verbose
        self.random_state = random_state

    history_: History
    module_: CGAN
    _HONOURS_DP = True

    def plan(self) -> SGDPlan:
        """What a private fit will do and cost, from settings alone."""
        budget, settings = self._budget(), self._settings()
        return plan_network(
            budget, self.scaling, batch=settings.batch_size, epochs=settings.max_epochs, clip=self.clip
        )

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learnt:
        settings = self._settings()
        if self.privacy is not None:
            return self._learn_privately(records, settings, validation is not None)
        X, codes = records.X, records.codes[:, 0]
        scaler = fit_scaler(self.scaling, X, codes, len(self.classes_))  # type: ignore[arg-type]
        self.module_ = net = self._build(X.shape[1])
        labels = _one_hot(codes, len(self.classes_))
        rows = net.join(torch.from_numpy(scaler.forward(X, codes)), labels)
        maker = Maker(net, labels, settings.learning_rate, seeded(self._seed(4)))
        self.history_ = train_in_turn(net, rows, maker, settings, float(self.penalty), self._bar())
        _check_finite(net)
        program, tensors = export_decoder(net.generator)
        claim = PrivacyClaim(
            kind="none",
            not_covered=(
                "membership: whether a record was used is not hidden by any proof",
                "generator weights: they may remember records, above all rare ones",
                SCALER_TOLD[self.scaling],
                "the number of records: exact means of coarse values (pixels, grades) can give it away",
                "class frequencies: rounded to three digits, otherwise exact",
            ),
        )
        told = {**self._public_settings(), **asdict(settings)}
        # Nothing is clipped without a promise.
        del told["clip"]
        refusal = lone_class(self.classes_, records) if self.scaling == "class" else None
        tensors |= {"span": scaler.span, "offset": scaler.offset}
        return Learnt(self._spec(program), tensors, claim, told, refusal)

    def _learn_privately(self, records: Records, settings: Training, validation: bool) -> Learnt:
        if validation:
            raise PrivacyError("Nothing may look at `validation` unpaid: under differential privacy leave it out.")
        if self.space != "raw":
            raise ConfigError("Under differential privacy vectors are brought to length 1 anyway: leave `space` out.")
        X, codes, subjects = records.X, records.codes[:, 0], self._subjects(records.subject)
        d, classes, plan = X.shape[1], len(self.classes_), self.plan()
        reference, (_, asked) = load_reference(self.reference, d), INITIAL_QUERIES[self.scaling]
        self.module_ = net = self._build(d)
        rows = net.join(
            torch.from_numpy(Whitener.bare(reference, classes).forward(X, codes)), _one_hot(codes, classes)
        )
        # Real frequencies are private: all classes are made equally often.
        maker = Maker(net, torch.eye(classes), settings.learning_rate, seeded(self._seed(4)))

        def read(noisy: npt.NDArray[np.float64]) -> Measured:
            return read_sums(noisy, plan, self.scaling, classes, d)

        def start(noisy: npt.NDArray[np.float64]) -> Tensor:
            centres = Whitener.read(read(noisy), reference).means
            maker.centres = torch.from_numpy((centres * d**0.5).astype(np.float32))
            return rows

        with self._open_ledger() as ledger:
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
                progress=self._bar(),
                initial_query=InitialQuery(query_sums(X, codes, subjects, classes, reference, asked), start),
                public_gradient=gradient_on_made(net, maker, plan),
            )
            self.history_ = run.run()
        _check_finite(net)
        assert run.noisy is not None
        found = read(run.noisy)
        whitener = Whitener.read(found, reference)
        program, tensors = export_decoder(net.generator)
        tensors = whitener.folded(tensors, whitener.means)
        told = {**self._public_settings(), **asdict(settings), **reference_told(reference)}
        del told["penalty"]
        claim = self._dp_claim(run.charge, *NOT_COVERED)
        return Learnt(self._spec(program), tensors, claim, told, joint=rounded_shares(found.shares))

    def _settings(self) -> Training:
        """The settings of training, checked, with those that were left out."""
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
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed(5))
            return plain_cgan(dim, len(self.classes_), self.latent, *sizes, sigmoid=self.scaling == "minmax")

    def _bar(self) -> ProgressBar | None:
        return RichBar(f"fitting {type(self).__name__}") if self.verbose else None

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
        raise DataError("Training diverged: weights are no longer finite. Lower `learning_rate`, or check the data.")
