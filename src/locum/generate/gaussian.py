"""Class means and one shared covariance: a simple generator that is hard to beat for a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import QueryPlan, plan_query
from locum.data import load_reference
from locum.errors import ConfigError
from locum.generate.base import BaseGenerator, Learned, Records, lone_class
from locum.generate.covariance import low_rank_plus_diagonal, safe_rank
from locum.generate.private.estimate import from_sums, noisy_sums, products_pay, statistics_spec
from locum.generate.private.guarantee import NOT_COVERED, reference_settings, rounded_shares
from locum.generate.private.query import MEANS, MEANS_AND_PRODUCTS
from locum.release import GaussianSpec
from locum.types import DP, PrivacyClaim


class ClassGaussian(BaseGenerator):
    """Each class is a Gaussian around its own mean; all classes share one covariance.

    A class of several clusters is not described well.

    With `privacy=DP(...)` the class means, counts and one scale come from one noisy sum that `ledger` pays for. The
    release contains that sum, so that sums of several sites can be added (`locum federate merge`). Vectors are
    whitened with public statistics.

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
        A budget `DP(...)` with `n_public`; None: no guarantee.
    classes
        All classes that can occur; needed with `privacy`, not used without it.
    reference
        Public statistics for whitening, with `privacy`: a name or a file, best `locum.data.reference_for(info)` of
        your vectors; "none" leaves little at small epsilons. "auto" is "none" here, because arrays do not say where
        they come from; `locum fit` takes what the file of vectors says.
    covariance
        With `privacy`: "public", which costs nothing, "own", which takes half of the budget, or "auto", which picks
        the better one for the number of records and the noise.
    ledger
        The ledger that pays, such as `locum.ledger_for(path)`; needed with `privacy`.
    holding
        The name of the data in the ledger.
    insecure_seed
        A seed for the noise, for tests: nothing is paid and nothing claimed.
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

    >>> budget = DP(epsilon=1.0, delta=1e-6, n_public=500)
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
        reference: str = "auto",
        covariance: str = "auto",
        ledger: str | Path | None = None,
        holding: str = "default",
        insecure_seed: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.rank = rank
        self.shrinkage = shrinkage
        self.variance = variance
        self.space = space
        self.privacy = privacy
        self.classes = classes
        self.reference = reference
        self.covariance = covariance
        self.ledger = ledger
        self.holding = holding
        self.insecure_seed = insecure_seed
        self.random_state = random_state

    _SUPPORTS_DP = True

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        if isinstance(self.rank, bool) or not isinstance(self.rank, (int, np.integer)) or self.rank < 0:
            raise ConfigError(f"`rank` must be a whole number, 0 or more; got {self.rank!r}. 0 keeps variances only.")
        if not 0 <= self.shrinkage <= 1:
            raise ConfigError(f"`shrinkage` must lie in 0..1; got {self.shrinkage!r}.")
        if not 0 <= self.variance <= 1e6:
            raise ConfigError(f"`variance` must lie in 0..1e6; got {self.variance!r}. 1 is what the data have.")
        if self.privacy is not None:
            return self._learn_privately(records)
        X, labels = records.X, records.codes[:, 0]
        n, d = X.shape
        counts = np.bincount(labels)
        means = np.stack([X[labels == c].mean(axis=0, dtype=np.float64) for c in range(len(counts))])
        means = means.astype(np.float32)
        residuals: npt.NDArray[np.float32] = X - means[labels]
        # Dividing by n would shrink the spread: each class spent one degree of freedom on its mean.
        residuals *= np.float32(np.sqrt(n / max(n - len(counts), 1)))
        rank = safe_rank(self.rank, n, d, len(counts))
        factor, scale = low_rank_plus_diagonal(residuals, rank, self.shrinkage)
        claim = PrivacyClaim(
            kind="none",
            not_covered=(
                "membership: whether a record was used is not hidden by any proof",
                "class means and covariance: exact, so the mean of a small class nearly shows its records",
                "the number of records: exact means of coarse values (pixels, grades) can give it away",
                "class frequencies: rounded to three digits, otherwise exact",
                "the rank: below the setting, it gives the number of records within a factor of two",
            ),
        )
        return Learned(
            GaussianSpec(variance=float(self.variance)),
            {"means": means, "factor": factor, "scale": scale},
            claim,
            self._public_settings(),
            lone_class(self.classes_, records),
        )

    def plan(self) -> QueryPlan:
        """What a private fit will do and cost, from the settings alone."""
        return plan_query(self._budget())

    def _learn_privately(self, records: Records) -> Learned:
        if self.space != "raw":
            raise ConfigError("Under differential privacy ClassGaussian works in the space 'raw': leave `space` out.")
        if self.covariance not in ("auto", "own", "public"):
            raise ConfigError(f"`covariance` must be 'auto', 'own' or 'public'; got {self.covariance!r}.")
        d, classes = records.X.shape[1], len(self.classes_)
        reference = load_reference(self.reference, d)
        plan = self.plan()
        products = self.covariance == "own" or (self.covariance == "auto" and products_pay(plan, classes, d))
        shares = MEANS_AND_PRODUCTS if products else MEANS
        codes, subjects = records.codes[:, 0], self._subjects(records.subject)
        charge = self._pay(plan)
        noisy = noisy_sums(records.X, codes, subjects, classes, reference, shares, plan, self.insecure_seed)
        # Rounding after the noise costs nothing and moves a sum over n records by at most n / 10 million.
        transcript = noisy.astype(np.float32)
        self._settle(charge, transcript)
        # Post-processing from here on: no record is used, so it costs nothing, and anyone can repeat it.
        found = from_sums(transcript.astype(np.float64), plan.noise_multiplier, classes, d, shares, reference)
        tensors = {"means": found.means.astype(np.float32), "factor": found.factor, "scale": found.scale}
        statistics = statistics_spec(reference, shares, plan.noise_multiplier)
        if statistics is not None:
            tensors["statistics"] = transcript
        return Learned(
            GaussianSpec(variance=float(self.variance), statistics=statistics),
            tensors,
            self._dp_claim(charge, *NOT_COVERED),
            {
                **self._public_settings(),
                **reference_settings(reference),
                "covariance": "own" if products else "public",
                "n_public": plan.privacy.size(),
            },
            joint=rounded_shares(found.shares),
        )
