"""Pure functions on arrays: utility, fidelity, diversity, distances, intervals.

Every fast one has a slow twin in the tests. Distances are Euclidean, intervals are 95 %, and a
function that draws takes its generator. Nothing here reads a file or knows a model.
"""

from understudy.metrics.closeness import ClosenessProfile, average_nearest_distance, nearest_distance_profile
from understudy.metrics.diversity import (
    Dispersion,
    bounding_sphere,
    coverage,
    coverage_by_class,
    dispersion,
    dispersion_estimate,
)
from understudy.metrics.fidelity import FrechetByClass, FrechetResult, frechet_by_class, frechet_distance
from understudy.metrics.intervals import (
    auc_interval,
    bootstrap_interval,
    clopper_pearson,
    compare,
    mean_interval,
    paired_bootstrap,
    paired_difference,
)
from understudy.metrics.latent import LatentKS, latent_ks, separability
from understudy.metrics.membership import membership_auc
from understudy.metrics.neighbours import k_nearest, nearest
from understudy.metrics.robustness import noise_robustness
from understudy.metrics.spheres import sphere_by_class
from understudy.metrics.transport import entropic_wasserstein, sliced_wasserstein
from understudy.metrics.utility import accuracy, auc_macro, balanced_accuracy, cohen_kappa, f1, score_all

__all__ = [
    "ClosenessProfile",
    "Dispersion",
    "FrechetByClass",
    "FrechetResult",
    "LatentKS",
    "accuracy",
    "auc_interval",
    "auc_macro",
    "average_nearest_distance",
    "balanced_accuracy",
    "bootstrap_interval",
    "bounding_sphere",
    "clopper_pearson",
    "cohen_kappa",
    "compare",
    "coverage",
    "coverage_by_class",
    "dispersion",
    "dispersion_estimate",
    "entropic_wasserstein",
    "f1",
    "frechet_by_class",
    "frechet_distance",
    "k_nearest",
    "latent_ks",
    "mean_interval",
    "membership_auc",
    "nearest",
    "nearest_distance_profile",
    "noise_robustness",
    "paired_bootstrap",
    "paired_difference",
    "score_all",
    "separability",
    "sliced_wasserstein",
    "sphere_by_class",
]
