"""The conditional VAE of the papers: it learns how the records of a class vary and releases only its decoder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locum.accounting import SGDPlan
from locum.data import Engine, kfold, load_reference
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate.base import (
    BaseGenerator,
    Learned,
    Records,
    lone_class,
    lone_condition,
    lone_value,
    shown_mean,
)
from locum.generate.coding import Census, Coder
from locum.generate.covariance import factored, safe_rank
from locum.generate.export import export_decoder
from locum.generate.presets import SCALING_DISCLOSES, Preset, check_settings, preset_for
from locum.generate.private.guarantee import FLOATING, NOT_COVERED, reference_settings, rounded_shares
from locum.generate.private.networks import check_private, folded, train_privately
from locum.generate.private.whitening import Whitener, plan_network
from locum.generate.scaling import Scaler, fit_scaler, scaler_of, with_labels
from locum.io import ProgressBar
from locum.nets import CVAE, plain_cvae, residual_cvae
from locum.release import NetworkSpec, to_space
from locum.train import (
    Checkpoint,
    History,
    LoopSettings,
    ShuffledRows,
    Survey,
    cpu_only,
    fingerprint,
    held_out_records,
    pick_device,
    run_loop,
    seeded,
    seeded_weights,
    shuffled_batches,
    survey,
)
from locum.train.dp import ASSUMPTIONS
from locum.types import DP, Batches, EmbeddingSet, PrivacyClaim, SetBatches

_log = logging.getLogger(__name__)

# One record in ten is held out for early stopping.
FOLDS = 10
# The one class of a network that sees no labels.
UNLABELED = "unlabeled"
NOISE_RANK = 64
NOISE_SHRINKAGE = 0.1


class CVAEGenerator(BaseGenerator):
    """A CVAE on embeddings: encoder and decoder see the label (and `condition_on`), the decoder is released.

    Settings that are None come from `preset`. Without `privacy` there is no formal guarantee: what the decoder
    remembers must be measured.

    With `privacy=DP(...)` encoder and decoder are trained together by DP-SGD on vectors that are whitened with public
    statistics (`reference`) and scaled to length 1. The same budget pays for a noisy sum of counts, lengths and, with
    the scaling "class", class means. `classes` is required and there is no early stopping. `plan()` shows the cost.

    Parameters
    ----------
    preset
        Network and training: "replica", "small", "large", "federated" or "private"; see `PRESETS`. None: "replica",
        or "private" with `privacy`.
    hidden
        The widths of the encoder's hidden layers; the decoder mirrors them. The preset "large" fixes its own.
    latent
        The number of latents, from 1 to 65536.
    beta
        The weight of the KL divergence, 0 or more.
    scaling
        "class" (class means subtracted, then one spread per feature), "zscore" or "minmax". With `privacy` "class",
        with noisy class means, or "public", with public statistics alone.
    decoder_noise
        The variation that the decoder's mean leaves out: "none" as in the papers, "diagonal" (one variance per
        feature) or "low-rank" (plus the directions that errors share). With `privacy` "none" or "low-rank".
    variance
        The default variance of the latents in sampling, from 0 to 1e6; 1 is what training assumed.
    condition_on
        Names of attributes that the networks also see; their columns go to `fit(attributes=...)`. Not with `privacy`.
    max_epochs
        The most passes over the data.
    batch_size
        Records in a batch, with `privacy` the expected number.
    learning_rate, weight_decay
        Settings of Adam, or AdamW with a weight decay.
    patience
        Stop after this many epochs without a better loss on `validation`, or on a tenth of the records; 0 runs every
        epoch. With `privacy` 0.
    clip
        The bound on the norm of a unit's gradient; only with `privacy`.
    space
        "raw", or "unit" for vectors scaled to length 1; with `privacy` only "raw".
    authors_compat
        Do what the authors ran: min-max scaling, their KL term (the learned prior is N(0, 1/2); not in the preset
        "federated"), "variance" used as a standard deviation, no decoder noise. Not with `privacy`.
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
    checkpoint
        A private file (mode 0600) from which an interrupted fit resumes: without `privacy` to the same result, which
        needs a `random_state`; with it without a second charge.
    verbose
        Show progress.
    random_state
        Seed of initial weights, of the training without `privacy`, and of sampling.

    Attributes
    ----------
    classes_
        The labels.
    settings_
        The settings in use: the preset, with what was set by hand.
    history_
        Losses by epoch. Private.
    module_
        Both networks. Private: the encoder is never released.
    claim_
        What a release claims.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import CVAEGenerator
    >>> s = load_sample("breast-cancer")
    >>> cvae = CVAEGenerator(hidden=(16,), latent=4, max_epochs=2, random_state=0).fit(s.X, s.y)
    >>> X, y = cvae.sample(per_class={0: 3, 1: 2})
    >>> X.shape, sorted(y.tolist())
    ((5, 30), [0, 0, 0, 1, 1])
    """

    history_: History
    _scaler: Scaler | Whitener
    _validation: Batches | EmbeddingSet | None = None

    def __init__(
        self,
        preset: str | None = None,
        hidden: tuple[int, ...] | None = None,
        latent: int | None = None,
        beta: float | None = None,
        scaling: str | None = None,
        decoder_noise: str | None = None,
        variance: float = 1.0,
        condition_on: Sequence[str] = (),
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        patience: int | None = None,
        clip: float | None = None,
        space: str = "raw",
        authors_compat: bool = False,
        privacy: DP | None = None,
        classes: Sequence[Any] | None = None,
        reference: str = "auto",
        ledger: str | Path | None = None,
        holding: str = "default",
        insecure_seed: int | None = None,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.preset = preset
        self.hidden = hidden
        self.latent = latent
        self.beta = beta
        self.scaling = scaling
        self.decoder_noise = decoder_noise
        self.variance = variance
        self.condition_on = condition_on
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.clip = clip
        self.space = space
        self.authors_compat = authors_compat
        self.privacy = privacy
        self.classes = classes
        self.reference = reference
        self.ledger = ledger
        self.holding = holding
        self.insecure_seed = insecure_seed
        self.device = device
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    _conditional = True
    _SUPPORTS_DP = True

    def encode(self, X: npt.ArrayLike, y: npt.ArrayLike) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Mean and standard deviation of each record's latent. Private: the encoder is never released."""
        with torch.no_grad():
            mean, log_var = self.module_.encode(self._inputs(X, y))
        return mean.numpy(), torch.exp(self._std_from_log * log_var).numpy()

    def reconstruct(self, X: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Each record decoded from its latent mean. Private, like the records."""
        joined = self._inputs(X, y)
        with torch.no_grad():
            mean, _ = self.module_.encode(joined)
            out = self.module_.decode(mean, joined[:, self.module_.dim :]).numpy()
        return self._scaler.backward(out, self._codes(y)[:, 0])

    @property
    def settings_(self) -> Preset:
        """The settings in use: the preset, with what was set by hand."""
        private = self.privacy is not None
        preset = preset_for(self.preset, authors_compat=self.authors_compat, private=private)
        names = [f.name for f in fields(Preset) if f.name != "residual"]
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if "hidden" in given:
            if isinstance(given["hidden"], int):
                raise ConfigError(f"`hidden` must be a tuple of layer widths; got {given['hidden']!r}. Write (256,).")
            if preset.residual:
                raise ConfigError("The preset 'large' fixes its layers; leave `hidden` out or choose another preset.")
            given["hidden"] = tuple(int(h) for h in given["hidden"])
        settings = replace(preset, **given)
        check_settings(settings, self.variance)
        return settings

    def plan(self) -> SGDPlan:
        """What a private fit will do and cost, from the settings alone."""
        budget, settings = self._budget(), self.settings_
        check_private(settings, authors_compat=self.authors_compat, validation=False)
        return plan_network(
            budget,
            settings.scaling,
            batch=settings.batch_size,
            epochs=settings.max_epochs,
            clip=settings.clip,
        )

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        if self.privacy is not None:
            return self._learn_privately(records, validation)
        settings = self._plain_settings()
        train, held = records, None
        if validation is not None:
            held = self._validation_records(validation, records)
        elif settings.patience:
            train, held = hold_out(records, np.random.default_rng(self._seed(3)))
        self._scaler = scaler = fit_scaler(settings.scaling, train.X, train.codes[:, 0], len(self.classes_))
        joined = self._joined(train.X, train.codes)
        other = [] if held is None or not settings.patience else [self._joined(held.X, held.codes)]
        order = shuffled_batches(len(joined), settings.batch_size)
        self._train(
            settings,
            lambda rng: (joined[i] for i in order(rng)),
            lambda: other,
            self._checkpoint(settings, joined, *other),
        )
        # A release names the conditions of all records, and holds the class means of those used for training.
        refusal = lone_condition(records)
        if settings.scaling == "class" and self._conditional:
            refusal = refusal or lone_class(self.classes_, train)
        return self._learned(settings, scaler, [joined], refusal)

    def fit_batches(
        self,
        batches: Batches,
        *,
        engine: Engine | None = None,
        scratch: str | Path | None = None,
        validation: Batches | EmbeddingSet | None = None,
    ) -> Self:
        """Learn from records that do not fit in memory, without a guarantee.

        All records are read for the classes that occur, for the scaler, for those held out, and once per epoch, in an
        order that is random over the parts of the data and over a buffer of 128 MB (`locum.train.ShuffledRows`).
        Without `validation` about a tenth is held out for early stopping, at most 65,536 records, and never a part of
        a subject. If all records fit in the buffer, the result is as good as that of `fit`.

        A private fit needs all records in memory, about 8 bytes per record and feature (10 GB for a million records
        of 1,280 features): each of its batches is drawn from all records with equal chances. `ClassGaussian` has no
        such need.

        Parameters
        ----------
        batches
            The records; `condition_on` names attributes that they have.
        engine, scratch
            Not used: one process trains.
        validation
            Other records for early stopping, read after each epoch.

        Returns
        -------
        CVAEGenerator
            The fitted generator itself. Its classes are the class codes that occur.

        Raises
        ------
        PrivacyError
            With `privacy`.
        """
        if self.privacy is not None:
            raise PrivacyError(
                "A private fit of a network draws each batch from all records with equal chances, so they must be in "
                f"memory (about {8e-9 * len(batches) * batches.dim:.2g} GB): load them and call `fit`, or use "
                "ClassGaussian."
            )
        self._plain_settings()
        if validation is not None and self.condition_on:
            raise ConfigError("`validation` cannot be given with `condition_on`: leave it out, a tenth is held out.")
        self._validation = validation
        try:
            return super().fit_batches(batches)
        finally:
            self._validation = None

    def _learn_batches(self, batches: Batches, coder: Coder, found: Census, engine: Engine) -> Learned:
        settings, validation = self._plain_settings(), self._validation
        wanted = [condition.name for condition in coder.conditions]
        parts = batches.only(subject=batches.has_subjects, attributes=wanted).parts()
        if not self._conditional:
            self.classes_ = np.array([UNLABELED])

        def read(piece: EmbeddingSet) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
            codes = coder.codes(piece.y, piece.attributes)
            return to_space(piece.X, self.space), codes if self._conditional else np.zeros_like(codes)

        def others() -> Iterator[Tensor]:
            for piece in kept:
                yield self._joined(*read(piece))

        seen = survey(parts, read, len(self.classes_), self._seed(3))
        self._scaler = scaler = scaler_of(settings.scaling, seen.moments)
        held = seen.held_out() if validation is None and settings.patience else None
        kept: Iterable[EmbeddingSet] = () if held is None else held_out_records(parts, held)
        if validation is not None and settings.patience:
            kept = self._validation_pieces(validation, batches, coder)
        rows = ShuffledRows(parts, read, settings.batch_size, held)
        moments = seen.moments
        identity = (moments.counts, moments.means, moments.within, np.array([len(part) for part in parts]))
        self._train(
            settings,
            lambda rng: (self._joined(X, codes) for X, codes in rows(rng)),
            others,
            self._checkpoint(settings, *map(torch.from_numpy, identity)),
        )
        inputs = (self._joined(X, codes) for X, codes in rows.in_order())
        learned = self._learned(settings, scaler, inputs, self._lone(settings, seen, coder, found))
        return learned if self._conditional else replace(learned, joint=(((0,), 1.0),))

    def _lone(self, settings: Preset, seen: Survey, coder: Coder, found: Census) -> str | None:
        """Why a release is refused, if so: as `lone_condition` and `lone_class`, from what a pass has found."""
        table = found.counts.reshape(coder.widths)
        for column, condition in enumerate(coder.conditions, start=1):
            of_value = table.sum(axis=tuple(axis for axis in range(table.ndim) if axis != column))
            if (of_value == 1).any():
                return lone_value(condition, int(np.argmax(of_value == 1)))
        if settings.scaling == "class" and self._conditional:
            for c, label in enumerate(self.classes_):
                one = len(seen.units[c]) == 1
                if one or (seen.moments.low[c] == seen.moments.high[c]).all():
                    return shown_mean(f"Class {str(label)!r}", one=one)
        return None

    def _validation_pieces(
        self, validation: Batches | EmbeddingSet, batches: Batches, coder: Coder
    ) -> Iterable[EmbeddingSet]:
        """The pieces of other records, with the class codes of the records."""
        given = SetBatches(validation) if isinstance(validation, EmbeddingSet) else validation
        if given.dim != batches.dim:
            raise DataError(f"Validation vectors must have {batches.dim} features; got {given.dim}.")
        return _Relabeled(given, batches.info.class_names, coder.classes if self._conditional else None)

    def _plain_settings(self) -> Preset:
        """Checked settings of a fit without a guarantee."""
        settings = self.settings_
        if settings.scaling == "public":
            raise ConfigError("The scaling 'public' belongs to differential privacy: take 'class', or set `privacy`.")
        _loop_settings(settings)
        pick_device(self.device)
        # Fault F1 is in the code of the thesis and of the replica paper, not in that of the federated paper.
        self._std_from_log = 1.0 if self.authors_compat and self.preset != "federated" else 0.5
        return settings

    def _train(
        self,
        settings: Preset,
        batches: Callable[[torch.Generator], Iterable[Tensor]],
        others: Callable[[], Iterable[Tensor]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Train a new network on batches of its inputs; `others` gives inputs for early stopping, if any."""
        device = pick_device(self.device)
        self.module_ = self._build(self.n_features_in_, sum(self._sizes()), settings).to(device)

        def loss(joined: Tensor, rng: torch.Generator) -> Tensor:
            return self._loss(joined.to(device), rng, settings.beta).mean()

        def validate() -> float:
            # The same noise each time: epochs differ by their weights alone.
            rng, total, count = seeded(0), 0.0, 0
            for joined in others():
                total += len(joined) * float(self._loss(joined.to(device), rng, settings.beta).mean())
                count += len(joined)
            return total / count

        stops = any(True for _ in others())
        with ProgressBar(f"fitting {type(self).__name__}", show=self.verbose) as progress:
            self.history_ = run_loop(
                self.module_,
                batches,
                loss,
                _loop_settings(settings),
                seeded(self._seed(4)),
                validate=validate if stops else None,
                checkpoint=checkpoint,
                progress=progress,
            )
        self.module_.to("cpu")
        if checkpoint is not None:
            checkpoint.remove()

    def _learn_privately(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        settings = self.settings_
        check_private(settings, authors_compat=self.authors_compat, validation=validation is not None)
        cpu_only(self.device)
        if self.space != "raw":
            raise ConfigError("Under differential privacy vectors are scaled to length 1 anyway: leave `space` out.")
        self._std_from_log = 0.5
        d, classes, plan = records.X.shape[1], len(self.classes_), self.plan()
        reference = load_reference(self.reference, d)
        self.module_ = self._build(d, classes, settings)
        bar = ProgressBar(f"fitting {type(self).__name__}", show=self.verbose)
        with self._open_ledger() as ledger, bar as progress:
            fit = train_privately(
                self.module_,
                records,
                settings,
                plan,
                reference,
                self._subjects(records.subject),
                ledger=ledger,
                holding=self.holding,
                purpose=type(self).__name__,
                insecure_seed=self.insecure_seed,
                checkpoint=self.checkpoint,
                progress=progress,
            )
        self.history_, self._scaler = fit.history, fit.whitener
        program, tensors = export_decoder(self.module_.decoder)
        tensors = folded(self.module_, fit.whitener, fit.shares, tensors, noise=settings.decoder_noise != "none")
        public = {**self._public_settings(), **asdict(settings), **reference_settings(reference)}
        claim = self._dp_claim(fit.charge, *NOT_COVERED, FLOATING)
        claim = replace(claim, assumptions=ASSUMPTIONS if claim.kind == "dp" else ())
        return Learned(self._spec(settings, program), tensors, claim, public, joint=rounded_shares(fit.shares))

    def _learned(self, settings: Preset, scaler: Scaler, inputs: Iterable[Tensor], refusal: str | None) -> Learned:
        program, tensors = export_decoder(self.module_.decoder)
        tensors |= {"span": scaler.span, "offset": scaler.offset}
        if settings.decoder_noise != "none":
            joint, d, rng = settings.decoder_noise == "low-rank", self.module_.dim, seeded(1)
            second, n = np.zeros((d, d) if joint else d), 0
            for joined in inputs:
                with torch.no_grad():
                    draw, _, _ = self._reconstruct(joined, rng)
                errors = ((joined[:, :d] - draw).numpy() * scaler.span).astype(np.float64)
                second += errors.T @ errors if joint else np.square(errors).sum(axis=0)
                n += len(errors)
            if joint:
                rank = safe_rank(NOISE_RANK, n, d, groups=len(self.classes_))
                tensors["noise_factor"], tensors["noise_scale"] = factored(second / n, rank, NOISE_SHRINKAGE)
            else:
                tensors["noise_scale"] = np.sqrt(second / n).astype(np.float32)
        spec = self._spec(settings, program)
        claim = PrivacyClaim(
            kind="none",
            not_covered=(
                "membership: whether a record was used is not hidden by any proof",
                "decoder weights: they may remember records, above all rare ones",
                SCALING_DISCLOSES[settings.scaling],
                "the number of records: exact means of coarse values (pixels, grades) can give it away",
                "class frequencies: rounded to three digits, otherwise exact",
            )
            + (("variance of the decoder's error: exact",) if settings.decoder_noise != "none" else ())
            + (("conditions: their values, and how often they go together",) if self._conditions else ()),
        )
        public = {**self._public_settings(), **asdict(settings)}
        # Without a guarantee nothing is clipped.
        del public["clip"]
        return Learned(spec, tensors, claim, public, refusal)

    def _spec(self, settings: Preset, program: list[dict[str, Any]]) -> NetworkSpec:
        return NetworkSpec(
            latent_dim=settings.latent,
            conditional=self._conditional,
            program=program,  # type: ignore[arg-type]  # pydantic turns the dicts into operations
            noise=settings.decoder_noise,
            variance=float(self.variance),
            variance_as_std=self.authors_compat,
        )

    def _loss(self, joined: Tensor, rng: torch.Generator, beta: float) -> Tensor:
        """One value per record: squared error over features plus beta times KL over latents."""
        out, mean, log_var = self._reconstruct(joined, rng)
        error = torch.square(out - joined[:, : out.shape[1]]).sum(dim=1)
        if self._std_from_log == 1.0:
            # The authors' penalty (F1): the KL to N(0, I/2), up to a constant.
            penalty = torch.exp(2 * log_var) + torch.square(mean) - log_var - 0.5
        else:
            penalty = 0.5 * (torch.exp(log_var) + torch.square(mean) - log_var - 1)
        return error + beta * penalty.sum(dim=1)

    def _reconstruct(self, joined: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        # Drawn on the CPU: a seed means the same on every device.
        noise = torch.randn(len(joined), self.module_.latent, generator=rng).to(joined.device)
        out: tuple[Tensor, Tensor, Tensor] = self.module_(joined, noise, self._std_from_log)
        return out

    def _build(self, dim: int, condition: int, settings: Preset) -> CVAE:
        sigmoid = settings.scaling == "minmax"
        with seeded_weights(self._seed(5)):
            if settings.residual:
                return residual_cvae(dim, condition, settings.latent, sigmoid=sigmoid)
            return plain_cvae(dim, condition, settings.hidden, settings.latent, sigmoid=sigmoid)

    def _checkpoint(self, settings: Preset, *tensors: Tensor) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        if self.random_state is None:
            raise ConfigError("A fit can only resume if it is seeded: set `random_state` together with `checkpoint`.")
        identity = {k: v for k, v in self.get_params().items() if k not in ("checkpoint", "verbose")}
        # On another device a fit would not resume to the same result.
        identity |= {"settings": repr(settings), "device": pick_device(self.device).type}
        return Checkpoint(Path(self.checkpoint), fingerprint(identity, *tensors))

    def _joined(self, X: npt.NDArray[np.float32], codes: npt.NDArray[np.int64]) -> Tensor:
        """Network input: scaled vectors, then the label and conditions one-hot."""
        return with_labels(self._scaler.forward(X, codes[:, 0]), codes, self._sizes())

    def _sizes(self) -> list[int]:
        """How many values the label and each condition have, of those that the networks see."""
        return [len(self.classes_), *(len(c.values) for c in self._conditions)] if self._conditional else []

    def _inputs(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Tensor:
        release = self._fitted()
        if self._conditions:
            raise ConfigError("`encode` and `reconstruct` take a label only, but this CVAE has `condition_on`.")
        return self._joined(release.transform(X), self._codes(y))

    def _codes(self, y: npt.ArrayLike) -> npt.NDArray[np.int64]:
        labels, place = np.asarray(y), {label: code for code, label in enumerate(self.classes_.tolist())}
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise DataError(f"Label {labels[unknown][0]!r} was not among the classes at fit.")
        return np.array([place[label] for label in labels.tolist()], dtype=np.int64).reshape(-1, 1)

    def _validation_records(self, validation: Sequence[npt.ArrayLike], records: Records) -> Records:
        if records.conditions:
            raise ConfigError("`validation` cannot be given with `condition_on`: leave it out, a tenth is held out.")
        X = np.asarray(validation[0], dtype=np.float32)
        codes = self._codes(validation[1])
        if X.ndim != 2 or X.shape[1] != records.X.shape[1] or len(X) != len(codes):
            raise DataError(
                f"Validation vectors must have {records.X.shape[1]} features and one label each; got shape {X.shape}."
            )
        return Records(to_space(X, self.space), codes, None, ())


def _loop_settings(settings: Preset) -> LoopSettings:
    return LoopSettings(
        settings.max_epochs,
        settings.batch_size,
        settings.learning_rate,
        settings.weight_decay,
        settings.patience or None,
    )


@dataclass(frozen=True, slots=True)
class _Relabeled:
    """Pieces of other records with the labels of the fit; with `present` None their labels are not used."""

    batches: Batches
    names: tuple[str, ...]
    present: tuple[int, ...] | None

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for piece in self.batches:
            if self.present is not None:
                piece = piece.with_classes(self.names)
                if len(unknown := piece.y[~np.isin(piece.y, self.present)]):
                    raise DataError(f"Label {self.names[unknown[0]]!r} was not among the classes at fit.")
            yield piece


def hold_out(records: Records, rng: np.random.Generator) -> tuple[Records, Records | None]:
    """Training records and held-out records for early stopping, about one in ten.

    Nothing is taken from classes of fewer than ten records, or from their subjects. A subject is never split.

    Parameters
    ----------
    records
        Checked records.
    rng
        Draws the held-out records.

    Returns
    -------
    train : Records
        The records to learn from.
    held : Records or None
        The others; None if no record can be held out.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import Records, hold_out
    >>> records = Records(np.zeros((100, 3), np.float32), np.arange(100)[:, None] % 2, None, ())
    >>> train, held = hold_out(records, np.random.default_rng(0))
    >>> len(train.X), len(held.X)
    (90, 10)
    """
    labels = records.codes[:, 0]
    subjects = np.arange(len(labels)) if records.subject is None else records.subject
    if len(np.unique(subjects)) < FOLDS:
        return records, None
    _, test = next(iter(kfold(EmbeddingSet(records.X, labels, records.subject), FOLDS, rng)))
    held = np.zeros(len(labels), dtype=bool)
    held[test] = True
    for c in np.unique(labels):
        if (labels == c).sum() < FOLDS or held[labels == c].all():
            held &= ~np.isin(subjects, subjects[labels == c])
    return (_take(records, ~held), _take(records, held)) if held.any() else (records, None)


def _take(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    subjects = None if records.subject is None else records.subject[mask]
    return Records(records.X[mask], records.codes[mask], subjects, records.conditions)
