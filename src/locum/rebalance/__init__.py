"""Rare classes: an over-sampler that generates records, its baselines, and analyses of the result.

Loaded on first use, because scikit-learn and torch are slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.rebalance.analyses import (
        ClassAccuracy as ClassAccuracy,
        accuracy_by_class as accuracy_by_class,
        accuracy_by_shots as accuracy_by_shots,
        diversity_by_class as diversity_by_class,
        frechet_over_variances as frechet_over_variances,
        latent_study as latent_study,
        sample_like as sample_like,
        shot_group as shot_group,
    )
    from locum.rebalance.baselines import (
        METHODS as METHODS,
        BySampler as BySampler,
        Method as Method,
        Resampled as Resampled,
    )
    from locum.rebalance.figures import (
        plot_accuracy_by_class as plot_accuracy_by_class,
        plot_by_class as plot_by_class,
        plot_frechet as plot_frechet,
    )
    from locum.rebalance.means import shrunk_means as shrunk_means
    from locum.rebalance.over_sampler import GenerativeOverSampler as GenerativeOverSampler

__getattr__, __dir__, __all__ = lazy_exports(__name__)
