from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from locum.audit.decoder import gaussian_log_density


@pytest.mark.parametrize("rank", [0, 3])
def test_it_is_the_density_of_a_normal_distribution(rank: int) -> None:
    rng = np.random.default_rng(rank)
    means, factor, scale = rng.normal(size=(2, 6)), rng.normal(size=(rank, 6)), rng.uniform(0.5, 2, size=6)
    X, labels = rng.normal(size=(9, 6)), np.arange(9) % 2
    covariance = factor.T @ factor + np.diag(scale**2)
    naive = [multivariate_normal(means[c], covariance).logpdf(x) for x, c in zip(X, labels, strict=True)]
    np.testing.assert_allclose(gaussian_log_density(X, labels, means, factor, scale), naive, rtol=1e-9)


def test_a_constant_feature_does_no_harm_and_an_unknown_class_is_not_a_number() -> None:
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(8, 3)), np.stack([np.zeros(3), np.full(3, np.nan)])
    X[:, 2] = 0
    found = gaussian_log_density(X, np.arange(8) % 2, means, np.zeros((0, 3)), np.array([1.0, 1.0, 0.0]))
    assert np.isfinite(found[::2]).all()
    assert np.isnan(found[1::2]).all()
