"""Shadows from sums of the pool are the fits that the generator makes."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from locum.audit.decoder import gaussian_log_density
from locum.audit.shadows.gaussian import GaussianShadows
from locum.errors import ConfigError
from locum.generate import ClassGaussian


def pool(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records far from zero, with few strong directions, and masks of halves in pairs."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = (rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.5) @ rng.normal(size=(d, d)) + 20 + 3 * y[:, None]
    inside = np.empty((6, n), dtype=bool)
    for pair in range(3):
        inside[2 * pair] = rng.permutation(n) % 2 == 0
        inside[2 * pair + 1] = ~inside[2 * pair]
    return X.astype(np.float32), y, inside


@pytest.mark.parametrize(("n", "d", "rank"), [(40, 20, 64), (150, 20, 3), (400, 20, 64), (30, 60, 0)])
def test_they_equal_refits(n: int, d: int, rank: int) -> None:
    X, y, inside = pool(n, d)
    generator = ClassGaussian(rank=rank, random_state=0)
    shadows = GaussianShadows(generator.fit(X, y).release(no_dp=True), X, y[:, None])
    found = shadows.train(inside, range(6))
    for mask, fit, mine in zip(inside, shadows.fits(inside), found, strict=True):
        t = ClassGaussian(rank=rank, random_state=0).fit(X[mask], y[mask]).release(no_dp=True).tensors
        np.testing.assert_allclose(fit.means, t["means"], rtol=1e-5)
        np.testing.assert_allclose(
            fit.factor.T @ fit.factor, t["factor"].T @ t["factor"], atol=1e-3 * np.square(t["scale"]).max()
        )
        np.testing.assert_allclose(fit.scale, t["scale"], rtol=1e-3)
        theirs = gaussian_log_density(X, y, t["means"].astype(np.float64), t["factor"], t["scale"])
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("n", "d"), [(300, 300), (900, 500)])
def test_many_features_are_off_by_little(n: int, d: int) -> None:
    """The search for directions of wide vectors: within a thousandth of the spread of log densities, in one order."""
    X, y, inside = pool(n, d)
    shadows = GaussianShadows(ClassGaussian(random_state=0).fit(X, y).release(no_dp=True), X, y[:, None])
    found, wanted = shadows.train(inside, range(6)), []
    for mask, mine in zip(inside, found, strict=True):
        t = ClassGaussian(random_state=0).fit(X[mask], y[mask]).release(no_dp=True).tensors
        wanted.append(gaussian_log_density(X, y, t["means"].astype(np.float64), t["factor"], t["scale"]))
        assert np.std(mine - wanted[-1]) < 1e-3 * np.std(wanted[-1])
    theirs = gap(np.stack(wanted), inside)
    assert np.std(gap(found, inside) - theirs) < 1e-3 * np.std(theirs)
    assert spearmanr(gap(found, inside), theirs).statistic > 0.9999


def gap(found: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The score of an attack: mean log density with the record minus without it."""
    return np.array([row[mask].mean() - row[~mask].mean() for row, mask in zip(found.T, inside.T, strict=True)])


def test_a_feature_that_is_constant_in_one_half_has_no_variance_there() -> None:
    """As after a ReLU: zero but for a few records. Rounding must not give it a variance."""
    X, y, inside = pool(300, 300)
    X[inside[0], 0], X[~inside[0], 0] = 0, np.linspace(0, 50, (~inside[0]).sum())
    shadows = GaussianShadows(ClassGaussian(random_state=0).fit(X, y).release(no_dp=True), X, y[:, None])
    fit = shadows.fits(inside[:2])[0]
    assert np.square(fit.scale[0]) + np.square(fit.factor[:, 0]).sum() < 1e-12 * np.square(X[:, 0]).max()


def test_threads_do_not_change_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, inside = pool(120, 300)
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    found = []
    for cores in (1, 3):
        monkeypatch.setattr("locum.audit.shadows.gaussian.one_thread", lambda cores=cores: nullcontext(cores))
        with threadpool_limits(1):
            found.append(GaussianShadows(release, X, y[:, None]).train(inside, range(6)))
    assert np.array_equal(*found)


def test_a_class_that_a_shadow_lacks_has_no_density() -> None:
    X, y, _ = pool(40, 6)
    shadows = GaussianShadows(ClassGaussian(random_state=0).fit(X, y).release(no_dp=True), X, y[:, None])
    found = shadows.train((y != 1)[None], [0])[0]
    assert np.array_equal(np.isnan(found), y == 1)


def test_its_own_density_is_that_of_the_release() -> None:
    X, y, _ = pool(40, 6)
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    own = GaussianShadows(release, X, y[:, None]).own()
    twin = GaussianShadows(release, X, y[:, None]).train(np.ones((1, 40), dtype=bool), [0])[0]
    np.testing.assert_allclose(own, twin, rtol=1e-4)


def test_missing_settings() -> None:
    X, y, _ = pool(40, 6)
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    bare = type(release)(release.manifest.model_copy(update={"settings": {}}), release.tensors)
    with pytest.raises(ConfigError, match="lack"):
        GaussianShadows(bare, X, y[:, None])
