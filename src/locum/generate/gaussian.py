"""Class means and one shared covariance: a simple generator that is hard to beat for a linear classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import QueryPlan, plan_head, plan_query
from locum.data import Engine, Reference, load_reference, total
from locum.errors import ConfigError
from locum.generate.base import BaseGenerator, Learned, Records, lone_condition, lone_mean, lone_value, shown_mean
from locum.generate.coding import CellMoments, Census, Coder, GatheredCells
from locum.generate.covariance import factored, safe_rank
from locum.generate.private.estimate import from_sums, reference_hash, statistics_spec
from locum.generate.private.guarantee import NOT_COVERED, reference_settings, rounded_shares
from locum.generate.private.head import FIRST, Descent, head_spec, place_means
from locum.generate.private.paid_sums import PaidSums
from locum.generate.private.query import MEANS, MEANS_AND_PRODUCTS
from locum.generate.private.sources import ArraySource, BatchSource, Source
from locum.io import hold_folder
from locum.metrics import Moments
from locum.release import Condition, GaussianSpec, cell_of
from locum.types import DP, PIECE, Batches, PrivacyClaim

Codes = npt.NDArray[np.int64]
Tensor = npt.NDArray[np.float32]
Tensors = dict[str, Tensor]
Frequencies = npt.NDArray[np.float64]
# What a private fit can learn; see `ClassGaussian`.
MECHANISMS = ("head", "means", "covariance")
# Combinations of class and conditions: each has a mean of its own, which needs records.
MOST_CELLS = 200
# What conditions add to the claim of a private fit.
VALUES_CHOSEN = (
    "the values in `condition_values`, and that every record has one of them: chosen and checked by the holder, not "
    "hidden"
)


class ClassGaussian(BaseGenerator):
    """Each class is a Gaussian around its own mean; all classes share one covariance.

    A class of several clusters is not described well. With `condition_on` each combination of class and values has a
    mean of its own; in a private fit it is then in the place of a class, at the same price and with more noise.

    With `privacy=DP(...)` all that is learned comes from noisy sums that `ledger` pays for; vectors are whitened with
    public statistics. By default the sums are those of a linear classifier, learned by a few noisy gradient steps,
    and the class means are placed so that the Gaussian's own Bayes rule is that classifier. The release contains the
    noisy sums, so that anyone can repeat what follows from them.

    Parameters
    ----------
    rank
        How many directions the covariance keeps besides one variance per feature, 0 or more. It is lowered to at most
        a sixteenth of the records: more directions would fit the records themselves. Not used with `privacy`.
    shrinkage
        How far off-diagonal entries of the covariance are shrunk first, from 0 to 1. Not used with `privacy`.
    variance
        The default sampling variance, as a multiple of the data's, from 0 to 1e6.
    space
        "raw", or "unit" for vectors scaled to length 1; with `privacy` only "raw".
    privacy
        A budget `DP(...)`; None: no guarantee.
    classes
        All classes that can occur; needed with `privacy`, not used without it.
    condition_on
        Names of attributes, besides the label, that samples can be drawn for. With all classes and values there may
        be at most 200 combinations.
    condition_values
        The values that each attribute of `condition_on` can have, by its name; needed with `privacy`, not used
        without it. They become public.
    reference
        Public statistics for whitening, with `privacy`: a name or a file, best `locum.data.reference_for(info)` of
        your vectors; "none" leaves little at small epsilons. "auto" is "none" here, because arrays do not say where
        they come from; `locum fit` takes what the file of vectors says.
    mechanism
        With `privacy`, what is learned: "head", a classifier and the means that go with it; "means", class means
        alone; "covariance", class means and, for half of the budget, a covariance. Sums of the last two can be added
        over sites (`locum federate merge`). "auto" is "head", which was the most
        useful on every data set tried at epsilon 1 and 3 (`locum study run private-epsilon`).
    separation
        With `mechanism="head"`: how far class means are from their center, in standard deviations of the spread
        around a class mean. More helps a classifier to find the head in samples, and makes samples less like real
        vectors.
    ledger
        The ledger that pays, such as `locum.ledger_for(path)`; needed with `privacy`.
    holding
        The name of the data in the ledger.
    insecure_seed
        A seed for the noise, for tests: nothing is paid and nothing claimed.
    checkpoint
        With `privacy`: a private file from which a killed fit goes on without paying again; `remove_checkpoint`
        deletes it once the release is saved. None: a killed fit has paid for nothing.
    random_state
        Seed of sampling.

    Attributes
    ----------
    classes_
        The labels.
    claim_
        What a release claims.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.types import DP
    >>> s = load_sample("breast-cancer")
    >>> X, y = ClassGaussian(random_state=0).fit(s.X, s.y).sample(5)
    >>> X.shape
    (5, 30)

    With a guarantee:

    >>> budget = DP(epsilon=1.0, delta=1e-6)
    >>> private = ClassGaussian(privacy=budget, classes=[0, 1], ledger="ledger.sqlite").fit(s.X, s.y)
    >>> private.claim_.dp.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        rank: int = 64,
        shrinkage: float = 0.1,
        variance: float = 1.0,
        space: str = "raw",
        privacy: DP | None = None,
        classes: Sequence[Any] | None = None,
        condition_on: Sequence[str] = (),
        condition_values: Mapping[str, Sequence[Any]] | None = None,
        reference: str = "auto",
        mechanism: str = "auto",
        separation: float = 4.0,
        ledger: str | Path | None = None,
        holding: str = "default",
        insecure_seed: int | None = None,
        checkpoint: str | Path | None = None,
        random_state: int | None = None,
    ) -> None:
        self.rank = rank
        self.shrinkage = shrinkage
        self.variance = variance
        self.space = space
        self.privacy = privacy
        self.classes = classes
        self.condition_on = condition_on
        self.condition_values = condition_values
        self.reference = reference
        self.mechanism = mechanism
        self.separation = separation
        self.ledger = ledger
        self.holding = holding
        self.insecure_seed = insecure_seed
        self.checkpoint = checkpoint
        self.random_state = random_state

    _SUPPORTS_DP = True
    _NEEDS_SIZE = False
    _DECLARES_VALUES = True

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        self._check_settings()
        cells, widths = self._cells(records)
        if self.privacy is not None:
            source = ArraySource(records.X, cells, self._subjects(records.subject))
            return self._learn_privately(source, records.X.shape[1], widths)
        moments = Moments(math.prod(widths), records.X.shape[1])
        for start in range(0, len(cells), PIECE):
            moments.add(records.X[start : start + PIECE], cells[start : start + PIECE])
        lone = lone_condition(records) or lone_mean(self._cell_names(records.conditions), cells, records)
        return self._from_moments(moments, records.conditions, lone)

    def _learn_batches(self, batches: Batches, coder: Coder, found: Census, engine: Engine) -> Learned:
        self._check_settings()
        self._check_cells(coder.widths, coder.conditions)
        by_subject = self.privacy is not None and self.privacy.unit == "subject"
        lean = batches.only(subject=by_subject, attributes=[condition.name for condition in coder.conditions])
        if self.privacy is not None:
            source = BatchSource(lean, coder, by_subject, engine, batches, found.state)
            return self._learn_privately(source, batches.dim, coder.widths)
        gathered = total(engine, lean, CellMoments(coder, self.space))
        lone = _lone(found, gathered, coder, self._cell_names(coder.conditions))
        return self._from_moments(gathered.moments, coder.conditions, lone)

    def _check_settings(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, (int, np.integer)) or self.rank < 0:
            raise ConfigError(f"`rank` must be a whole number, 0 or more; got {self.rank!r}. 0 keeps variances only.")
        if not 0 <= self.shrinkage <= 1:
            raise ConfigError(f"`shrinkage` must lie in 0..1; got {self.shrinkage!r}.")
        if not 0 <= self.variance <= 1e6:
            raise ConfigError(f"`variance` must lie in 0..1e6; got {self.variance!r}. 1 is what the data have.")

    def _from_moments(self, moments: Moments, conditions: tuple[Condition, ...], refusal: str | None) -> Learned:
        """Means and a covariance; a combination without records gets the mean of its class."""
        # Dividing by n would shrink the spread: each class spent one degree of freedom on its mean.
        rank = safe_rank(self.rank, moments.rows, moments.means.shape[1], int((moments.counts > 0).sum()))
        factor, scale = factored(moments.covariance(), min(rank, moments.rows), self.shrinkage)
        means = _filled(moments, len(self.classes_)).astype(np.float32)
        claim = PrivacyClaim(
            kind="none",
            not_covered=(
                "membership: whether a record was used is not hidden by any proof",
                "class means and covariance: exact, so the mean of a small class nearly shows its records",
                "the number of records: exact means of coarse values (pixels, grades) can give it away",
                "class frequencies: rounded to three digits, otherwise exact",
                "the rank: below the setting, it gives the number of records within a factor of two",
                *(("conditions: their values, and how often they go together",) if conditions else ()),
            ),
        )
        return Learned(
            GaussianSpec(variance=float(self.variance)),
            {"means": means, "factor": factor, "scale": scale},
            claim,
            self._public_settings(),
            refusal,
        )

    def plan(self) -> QueryPlan:
        """What a private fit will do and cost, from the settings alone."""
        return (plan_head if self._mechanism() == "head" else plan_query)(self._budget())

    def remove_checkpoint(self) -> None:
        """Delete the checkpoint, once the release is saved: its noisy sums are in the release."""
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)

    def _mechanism(self) -> str:
        if self.mechanism not in ("auto", *MECHANISMS):
            raise ConfigError(f"`mechanism` must be auto or one of {', '.join(MECHANISMS)}; got {self.mechanism!r}.")
        return "head" if self.mechanism == "auto" else self.mechanism

    def _learn_privately(self, source: Source, d: int, widths: tuple[int, ...]) -> Learned:
        if self.space != "raw":
            raise ConfigError("Under differential privacy ClassGaussian works in the space 'raw': leave `space` out.")
        if not 0 < self.separation <= 100:
            raise ConfigError(f"`separation` must be above 0 and at most 100; got {self.separation!r}. 4 is usual.")
        mechanism, reference = self._mechanism(), load_reference(self.reference, d)
        checkpoint = None if self.checkpoint is None else Path(self.checkpoint)
        # Two processes with one checkpoint would overwrite each other's payment.
        alone = nullcontext() if checkpoint is None else hold_folder(checkpoint)
        learn = self._learn_head if mechanism == "head" else self._learn_sums
        with alone, self._open_ledger() as ledger:

            def pay() -> PaidSums:
                return PaidSums(
                    self.plan(),
                    ledger,
                    self.holding,
                    type(self).__name__,
                    insecure_seed=self.insecure_seed,
                    checkpoint=checkpoint,
                    identity=self._identity(source, reference),
                )

            paid, spec, tensors, shares = learn(pay, source, math.prod(widths), d, reference)
        conditioned = (VALUES_CHOSEN,) if len(widths) > 1 else ()
        return Learned(
            spec,
            tensors,
            self._dp_claim(paid.charge, *NOT_COVERED, *conditioned),
            {**self._public_settings(), **reference_settings(reference), "mechanism": mechanism},
            joint=tuple((_unravel(cell, widths), share) for (cell,), share in rounded_shares(shares)),
        )

    def _learn_head(
        self, pay: Callable[[], PaidSums], source: Source, cells: int, d: int, reference: Reference
    ) -> tuple[PaidSums, GaussianSpec, Tensors, Frequencies]:
        """Draw the noisy results of a head, one after the other, and place class means so that they carry it."""
        query = source.head(cells, reference)
        first = source.early(lambda: query.first(FIRST))
        paid = pay()
        descent = Descent(paid.plan.noise_multiplier, cells, d)
        descent.take(paid.draw(first, descent.share))
        query.recenter(descent.center)
        descent.take(paid.draw(query.class_sums, descent.share))
        while not descent.done:
            descent.take(paid.draw(lambda: query.gradient(descent.rule, descent.clip), descent.share))
        transcript = paid.finish()
        # Post-processing from here on: no record is used, so it costs nothing, and anyone can repeat it.
        found, sharpness = place_means(descent.head, reference, self.separation)
        spec = head_spec(descent, reference, self.separation, sharpness)
        return (
            paid,
            GaussianSpec(variance=float(self.variance), head=spec),
            {**found.tensors(), "transcript": transcript},
            found.shares,
        )

    def _learn_sums(
        self, pay: Callable[[], PaidSums], source: Source, cells: int, d: int, reference: Reference
    ) -> tuple[PaidSums, GaussianSpec, Tensors, Frequencies]:
        """Draw one noisy sum and estimate class means, and a covariance, from it."""
        shares = MEANS_AND_PRODUCTS if self.mechanism == "covariance" else MEANS
        sums = source.early(lambda: source.query(cells, reference, shares))
        paid = pay()
        paid.draw(sums, 1.0)
        transcript = paid.finish()
        # Post-processing from here on: no record is used, so it costs nothing, and anyone can repeat it.
        noise = paid.plan.noise_multiplier
        found = from_sums(transcript.astype(np.float64), noise, cells, d, shares, reference)
        spec = GaussianSpec(variance=float(self.variance), statistics=statistics_spec(reference, shares, noise))
        return paid, spec, {**found.tensors(), "statistics": transcript}, found.shares

    def _cells(self, records: Records) -> tuple[Codes, tuple[int, ...]]:
        """The combination of class and conditions of each record, and how many classes and values there are."""
        widths = (len(self.classes_), *(len(c.values) for c in records.conditions))
        self._check_cells(widths, records.conditions)
        return cell_of(records.codes, widths), widths

    def _check_cells(self, widths: tuple[int, ...], conditions: tuple[Condition, ...]) -> None:
        if conditions and math.prod(widths) > MOST_CELLS:
            raise ConfigError(
                f"`condition_on` gives {math.prod(widths)} combinations of class and values, and at most "
                f"{MOST_CELLS} can be learned: leave an attribute out, or merge values."
            )

    def _cell_names(self, conditions: tuple[Condition, ...]) -> list[str]:
        """What each combination is called in a message."""
        names = [f"Class {str(name)!r}" for name in self.classes_]
        for condition in conditions:
            names = [f"{name} with {condition.name} {value!r}" for name in names for value in condition.values]
        return names

    def _identity(self, source: Source, reference: Reference) -> str:
        """What makes a fit this fit: settings and records. It stays local."""
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("checkpoint", "random_state")}
        return source.identity({**settings, "reference": reference_hash(reference)})


def _filled(moments: Moments, classes: int) -> npt.NDArray[np.float64]:
    """The mean of each combination; of one without records that of its class, for `joint` never draws it."""
    counts, means = moments.counts.reshape(classes, -1), moments.means.reshape(classes, -1, moments.means.shape[1])
    of_class = (means * counts[:, :, None]).sum(axis=1) / np.maximum(counts.sum(axis=1), 1)[:, None]
    filled = np.where(counts[:, :, None] > 0, means, of_class[:, None, :])
    out: npt.NDArray[np.float64] = filled.reshape(moments.means.shape)
    return out


def _lone(found: Census, gathered: GatheredCells, coder: Coder, names: Sequence[str]) -> str | None:
    """Why a release is refused, if so: as `lone_condition` and `lone_mean` say it for records in memory."""
    counts = found.counts.reshape(coder.widths)
    for axis, condition in enumerate(coder.conditions, start=1):
        of_value = counts.sum(axis=tuple(k for k in range(counts.ndim) if k != axis))
        if (of_value == 1).any():
            return lone_value(condition, int(np.argmax(of_value == 1)))
    for cell, name in enumerate(names):
        if found.counts[cell] and (found.lone[cell] or gathered.same[cell]):
            return shown_mean(name, one=bool(found.lone[cell]))
    return None


def _unravel(cell: int, widths: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(code) for code in np.unravel_index(cell, tuple(widths)))
