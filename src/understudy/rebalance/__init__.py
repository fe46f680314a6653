"""Rare classes: an over-sampler that generates records, its rivals, and what to look at afterwards.

Fetched when first used: scikit-learn and torch take their time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.rebalance.analysis import (
        ClassDiversity,
        LatentStudy,
        diversity_by_class,
        frechet_over_variances,
        latent_study,
        sample_like,
    )
    from understudy.rebalance.figures import plot_accuracy_by_class, plot_by_class, plot_frechet
    from understudy.rebalance.means import ShrunkMeans, shrunk_means
    from understudy.rebalance.oversampler import GenerativeOverSampler
    from understudy.rebalance.rivals import METHODS, BySampler, Method, Resampled
    from understudy.rebalance.shots import ClassAccuracy, accuracy_by_class, accuracy_by_shots, shot_group

__all__ = [
    "METHODS",
    "BySampler",
    "ClassAccuracy",
    "ClassDiversity",
    "GenerativeOverSampler",
    "LatentStudy",
    "Method",
    "Resampled",
    "ShrunkMeans",
    "accuracy_by_class",
    "accuracy_by_shots",
    "diversity_by_class",
    "frechet_over_variances",
    "latent_study",
    "plot_accuracy_by_class",
    "plot_by_class",
    "plot_frechet",
    "sample_like",
    "shot_group",
    "shrunk_means",
]

_HOMES = {
    "METHODS": "understudy.rebalance.rivals",
    "BySampler": "understudy.rebalance.rivals",
    "ClassAccuracy": "understudy.rebalance.shots",
    "ClassDiversity": "understudy.rebalance.analysis",
    "GenerativeOverSampler": "understudy.rebalance.oversampler",
    "LatentStudy": "understudy.rebalance.analysis",
    "Method": "understudy.rebalance.rivals",
    "Resampled": "understudy.rebalance.rivals",
    "ShrunkMeans": "understudy.rebalance.means",
    "accuracy_by_class": "understudy.rebalance.shots",
    "accuracy_by_shots": "understudy.rebalance.shots",
    "diversity_by_class": "understudy.rebalance.analysis",
    "frechet_over_variances": "understudy.rebalance.analysis",
    "latent_study": "understudy.rebalance.analysis",
    "plot_accuracy_by_class": "understudy.rebalance.figures",
    "plot_by_class": "understudy.rebalance.figures",
    "plot_frechet": "understudy.rebalance.figures",
    "sample_like": "understudy.rebalance.analysis",
    "shot_group": "understudy.rebalance.shots",
    "shrunk_means": "understudy.rebalance.means",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
