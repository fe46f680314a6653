"""Pure functions on arrays: utility, calibration, fidelity, diversity, distances, intervals.

Every fast one is tested against a naive twin. Distances are Euclidean, intervals are 95 %, and a function that draws
takes an rng. Nothing here reads a file or knows a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.metrics.calibration import (
        calibration_interval as calibration_interval,
        expected_calibration_error as expected_calibration_error,
    )
    from locum.metrics.distances import (
        average_nearest_distance as average_nearest_distance,
        feature_scale as feature_scale,
        k_nearest as k_nearest,
        k_nearest_of_blocks as k_nearest_of_blocks,
        nearest as nearest,
        nearest_distance_profile as nearest_distance_profile,
        squared_distances as squared_distances,
    )
    from locum.metrics.diversity import (
        bounding_sphere as bounding_sphere,
        coverage as coverage,
        coverage_by_class as coverage_by_class,
        dispersion as dispersion,
        dispersion_estimate as dispersion_estimate,
        sphere_by_class as sphere_by_class,
    )
    from locum.metrics.fidelity import (
        FrechetByClass as FrechetByClass,
        frechet_by_class as frechet_by_class,
        frechet_distance as frechet_distance,
        frechet_from_moments as frechet_from_moments,
        ledoit_wolf as ledoit_wolf,
    )
    from locum.metrics.intervals import (
        auc_interval as auc_interval,
        bootstrap_interval as bootstrap_interval,
        clopper_pearson as clopper_pearson,
        compare as compare,
        mean_interval as mean_interval,
        paired_bootstrap as paired_bootstrap,
        paired_difference as paired_difference,
    )
    from locum.metrics.latent import LatentKS as LatentKS, latent_ks as latent_ks, separability as separability
    from locum.metrics.moments import Moments as Moments
    from locum.metrics.transport import (
        entropic_wasserstein as entropic_wasserstein,
        sliced_wasserstein as sliced_wasserstein,
    )
    from locum.metrics.utility import (
        accuracy as accuracy,
        auc_macro as auc_macro,
        balanced_accuracy as balanced_accuracy,
        cohen_kappa as cohen_kappa,
        f1 as f1,
        membership_auc as membership_auc,
        noise_robustness as noise_robustness,
        score_all as score_all,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
