"""Likelihood ratio: does the release make a record likelier than its population does? In closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from locum.audit.attacks.base import ScoreAttack
from locum.audit.attacks.latent_search import component_log_density
from locum.audit.decoder import components_of, gaussian_log_density, record_codes, records_of
from locum.audit.shadows.gaussian import GaussianFits
from locum.audit.statistics import Scores
from locum.release import GaussianSpec, Release, cell_of
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LikelihoodRatio(ScoreAttack):
    """Guess "member" if the release makes a record more likely than a Gaussian of the population does.

    The score is the log density under the release minus that under a Gaussian fitted to other records: class means
    and one covariance. It needs no shadows. A Gaussian decoder has its density in closed form; for other decoders and
    for tables it is that of a Gaussian fitted to samples, which misses what is not a mean or a covariance.

    Without a reference set the Gaussian is fitted to members and non-members together. It treats both alike, so
    scores of a release that knows neither are exchangeable, and the estimation error that the release shares with the
    pool cancels: on 3,000 records of 64 features this raises the AUC from 0.54 to 0.83.

    Parameters
    ----------
    samples
        How many vectors to draw from a decoder whose density has no closed form; a fixed table gives all its rows.
    reference
        Records of the same population that are neither members nor non-members; None: members and non-members.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import LikelihoodRatio
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(300, 40)), np.arange(300) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> LikelihoodRatio().run(release, members, others, rng).verdict
    'leak'
    """

    samples: int = 20_000
    reference: EmbeddingSet | None = None
    name: str = "likelihood ratio"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Log density under the release minus log density under the reference."""
        X, codes = records_of(release, members, non_members)
        known, seen = X, codes
        if self.reference is not None:
            known = release.transform(self.reference.X).astype(np.float32, copy=False)
            seen = record_codes(release, self.reference)
        ratio = _under_release(release, X, codes, self.samples, rng) - _under(known, seen, release, X, codes)
        # A class that one of the two does not know says nothing about its records.
        ratio = np.where(np.isfinite(ratio), ratio, 0.0)
        return Scores(ratio[: len(members)], ratio[len(members) :])


def _under_release(
    release: Release, X: npt.NDArray[np.float32], codes: Codes, samples: int, rng: np.random.Generator
) -> Floats:
    components = components_of(release)
    if components and all(isinstance(c.spec, GaussianSpec) for c in components):
        found: Floats = logsumexp([component_log_density(c, X, codes) for c in components], axis=0)
        return found
    # The manifest's kind says what can be sampled; a table has its rows and no more.
    drawn = release.sample_set(None if release.manifest.kind == "data" else samples, random_state=rng)
    return _under(drawn.X, drawn.y[:, None], release, X, codes)


def _under(
    known: npt.NDArray[np.float32], seen: Codes, release: Release, X: npt.NDArray[np.float32], codes: Codes
) -> Floats:
    """Log density of records under the Gaussian that `ClassGaussian` would fit to `known`."""
    settings = release.manifest.settings
    rank, shrinkage = settings.get("rank"), settings.get("shrinkage")
    # Settings come from a file: other numbers only make another attack.
    rank = rank if isinstance(rank, int) and 0 <= rank <= known.shape[1] else 64
    shrinkage = float(shrinkage) if isinstance(shrinkage, int | float) and 0 <= shrinkage <= 1 else 0.1
    # A network is compared by class alone: not every combination of its conditions has enough records.
    manifest = release.manifest
    widths = manifest.widths if isinstance(manifest.decoder, GaussianSpec) else manifest.widths[:1]
    fits = GaussianFits(known, cell_of(seen, widths), math.prod(widths), rank, shrinkage)
    (fit,) = fits.fits(np.ones((1, len(known)), dtype=bool))
    return gaussian_log_density(X, cell_of(codes, widths), fit.means, fit.factor, fit.scale)
