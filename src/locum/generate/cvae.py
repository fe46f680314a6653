"""The conditional VAE of the papers: it learns how the records of a class vary and releases only its decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locum.accounting import SGDPlan
from locum.data import kfold, load_reference
from locum.errors import ConfigError, DataError
from locum.generate.base import BaseGenerator, Learned, Records, lone_class, lone_condition
from locum.generate.covariance import low_rank_plus_diagonal, safe_rank
from locum.generate.export import export_decoder
from locum.generate.presets import SCALING_DISCLOSES, Preset, check_settings, preset_for
from locum.generate.private.guarantee import FLOATING, NOT_COVERED, reference_settings, rounded_shares
from locum.generate.private.networks import check_private, folded, train_privately
from locum.generate.private.whitening import Whitener, plan_network
from locum.generate.scaling import Scaler, fit_scaler, with_labels
from locum.io import ProgressBar
from locum.nets import CVAE, plain_cvae, residual_cvae
from locum.release import NetworkSpec, to_space
from locum.train import Checkpoint, History, LoopSettings, fingerprint, run_loop, seeded, shuffled_batches
from locum.train.dp import ASSUMPTIONS
from locum.types import DP, EmbeddingSet, PrivacyClaim

# One record in ten is held out for early stopping.
FOLDS = 10
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
        settings = self.settings_
        # Fault F1 is in the code of the thesis and of the replica paper, not in that of the federated paper.
        self._std_from_log = 1.0 if self.authors_compat and self.preset != "federated" else 0.5
        train, held = records, None
        if validation is not None:
            held = self._validation_records(validation, records)
        elif settings.patience:
            train, held = hold_out(records, np.random.default_rng(self._seed(3)))
        loop = LoopSettings(
            settings.max_epochs,
            settings.batch_size,
            settings.learning_rate,
            settings.weight_decay,
            settings.patience or None,
        )
        if settings.scaling == "public":
            raise ConfigError("The scaling 'public' belongs to differential privacy: take 'class', or set `privacy`.")
        self._scaler = scaler = fit_scaler(settings.scaling, train.X, train.codes[:, 0], len(self.classes_))
        joined = self._joined(train.X, train.codes)
        dim = train.X.shape[1]
        self.module_ = self._build(dim, joined.shape[1] - dim, settings)
        rng = seeded(self._seed(4))

        def loss(i: Tensor, rng: torch.Generator) -> Tensor:
            return self._loss(joined[i], rng, settings.beta).mean()

        validate = None
        other = joined[:0]
        if held is not None and settings.patience:
            other = self._joined(held.X, held.codes)

            def validate() -> float:
                # The same noise each time: epochs differ by their weights alone.
                return float(self._loss(other, seeded(0), settings.beta).mean())

        checkpoint = self._checkpoint(settings, joined, other)
        with ProgressBar(f"fitting {type(self).__name__}", show=self.verbose) as progress:
            self.history_ = run_loop(
                self.module_,
                shuffled_batches(len(joined), settings.batch_size),
                loss,
                loop,
                rng,
                validate=validate,
                checkpoint=checkpoint,
                progress=progress,
            )
        if checkpoint is not None:
            checkpoint.remove()
        # A release names the conditions of all records, and holds the class means of those used for training.
        refusal = lone_condition(records)
        if settings.scaling == "class" and self._conditional:
            refusal = refusal or lone_class(self.classes_, train)
        return self._learned(settings, scaler, joined, refusal)

    def _learn_privately(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        settings = self.settings_
        check_private(settings, authors_compat=self.authors_compat, validation=validation is not None)
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

    def _learned(self, settings: Preset, scaler: Scaler, joined: Tensor, refusal: str | None) -> Learned:
        program, tensors = export_decoder(self.module_.decoder)
        tensors |= {"span": scaler.span, "offset": scaler.offset}
        if settings.decoder_noise != "none":
            with torch.no_grad():
                draw, _, _ = self._reconstruct(joined, seeded(1))
            errors = (joined[:, : self.module_.dim] - draw).numpy() * scaler.span
            wanted = NOISE_RANK if settings.decoder_noise == "low-rank" else 0
            rank = safe_rank(wanted, len(errors), errors.shape[1], groups=len(self.classes_))
            factor, scale = low_rank_plus_diagonal(errors, rank, NOISE_SHRINKAGE)
            tensors["noise_scale"] = scale
            if settings.decoder_noise == "low-rank":
                tensors["noise_factor"] = factor
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
        noise = torch.randn(len(joined), self.module_.latent, generator=rng)
        out: tuple[Tensor, Tensor, Tensor] = self.module_(joined, noise, self._std_from_log)
        return out

    def _build(self, dim: int, condition: int, settings: Preset) -> CVAE:
        sigmoid = settings.scaling == "minmax"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed(5))
            if settings.residual:
                return residual_cvae(dim, condition, settings.latent, sigmoid=sigmoid)
            return plain_cvae(dim, condition, settings.hidden, settings.latent, sigmoid=sigmoid)

    def _checkpoint(self, settings: Preset, *tensors: Tensor) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        if self.random_state is None:
            raise ConfigError("A fit can only resume if it is seeded: set `random_state` together with `checkpoint`.")
        identity = {k: v for k, v in self.get_params().items() if k not in ("checkpoint", "verbose")}
        identity["settings"] = repr(settings)
        return Checkpoint(Path(self.checkpoint), fingerprint(identity, *tensors))

    def _joined(self, X: npt.NDArray[np.float32], codes: npt.NDArray[np.int64]) -> Tensor:
        """Network input: scaled vectors, then the label and conditions one-hot."""
        sizes = [len(self.classes_), *(len(c.values) for c in self._conditions)] if self._conditional else []
        return with_labels(self._scaler.forward(X, codes[:, 0]), codes, sizes)

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
