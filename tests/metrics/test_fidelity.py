from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.linalg import sqrtm

from locum.errors import ConfigError, DataError
from locum.metrics import frechet_by_class, frechet_distance, ledoit_wolf

quick = settings(max_examples=30, deadline=None, derandomize=True)

seeds = st.integers(0, 2**32 - 1)


def naive(a: np.ndarray, b: np.ndarray, alpha: float = 0.0) -> float:
    """The definition, with scipy's matrix square root of the product."""

    def shrunk(x: np.ndarray) -> np.ndarray:
        s = np.atleast_2d(np.cov(x.T))
        return (1 - alpha) * s + alpha * np.trace(s) / len(s) * np.eye(len(s))

    s1, s2 = shrunk(a), shrunk(b)
    gap = a.mean(axis=0) - b.mean(axis=0)
    return float(gap @ gap + np.trace(s1 + s2 - 2 * np.real(sqrtm(s1 @ s2))))


@quick
@given(seed=seeds, d=st.integers(1, 8), alpha=st.sampled_from([0.0, 0.2, 1.0]))
def test_agrees_with_the_definition_with_many_records(seed, d, alpha) -> None:
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((d, d))
    a, b = rng.standard_normal((60, d)) @ mix + 1, 2 * rng.standard_normal((41, d))
    got = frechet_distance(a, b, shrinkage=alpha)
    assert got.value == pytest.approx(naive(a, b, alpha), rel=1e-6, abs=1e-6)
    assert frechet_distance(b, a, shrinkage=alpha).value == pytest.approx(got.value, rel=1e-7, abs=1e-7)


@quick
@given(seed=seeds, n=st.integers(2, 12), m=st.integers(2, 30), alpha=st.sampled_from([0.1, 0.7]))
def test_agrees_with_the_definition_with_few_records(seed, n, m, alpha) -> None:
    """d = 24: both ways around the switch to the common span."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n, 24)), 2 * rng.standard_normal((m, 24)) + 0.3
    assert frechet_distance(a, b, shrinkage=alpha).value == pytest.approx(naive(a, b, alpha), rel=1e-6)


@quick
@given(seed=seeds, n=st.integers(2, 10), m=st.integers(2, 10))
def test_without_shrinkage_the_root_is_a_nuclear_norm(seed, n, m) -> None:
    """Singular covariances, where scipy's root fails: tr (S_A S_B)^(1/2) = |A B'|_* by hand."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n, 30)), rng.standard_normal((m, 30))
    ca, cb = (a - a.mean(axis=0)) / np.sqrt(n - 1), (b - b.mean(axis=0)) / np.sqrt(m - 1)
    gap = a.mean(axis=0) - b.mean(axis=0)
    want = gap @ gap + (ca**2).sum() + (cb**2).sum() - 2 * np.linalg.norm(ca @ cb.T, "nuc")
    got = frechet_distance(a, b, shrinkage=0)
    assert got.value == pytest.approx(want, rel=1e-6)
    assert "overstated" in got.note


@quick
@given(seed=seeds, n=st.integers(3, 40))
def test_auto_is_a_distance_of_equal_sets_and_unmoved_by_rotation(seed, n) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n, 10)), rng.standard_normal((n, 10)) * np.arange(1, 11)
    turn, _ = np.linalg.qr(rng.standard_normal((10, 10)))
    got = frechet_distance(a, b)
    assert got.value >= 0
    assert frechet_distance(a, a).value == pytest.approx(0, abs=1e-5)
    assert frechet_distance(a @ turn + 3, b @ turn + 3).value == pytest.approx(got.value, rel=1e-5)
    assert frechet_distance(3 * a, 3 * b).value == pytest.approx(9 * got.value, rel=1e-5)
    assert (got.shrinkage > 0) == (n <= 10)
    assert ("shrunk" in got.note) == (n <= 10)


def test_by_hand() -> None:
    # Variances 1 and 4 (of +-1, +-2 with n - 1 = 1: 2 and 8), means 0 and 1.
    got = frechet_distance([[-1.0], [1.0]], [[-1.0], [3.0]])
    assert got.value == pytest.approx(1 + 2 + 8 - 2 * 4)
    # Two isotropic Gaussians: d (s1 - s2)^2 + |shift|^2.
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40_000, 3)), 2 * rng.standard_normal((40_000, 3)) + 1
    assert frechet_distance(a, b).value == pytest.approx(3 + 3, rel=0.02)


def test_constant_features_are_no_problem(rng) -> None:
    a, b = rng.standard_normal((50, 6)), rng.standard_normal((50, 6))
    a[:, 3] = b[:, 3] = 0
    keep = [0, 1, 2, 4, 5]
    assert frechet_distance(a, b).value == pytest.approx(naive(a[:, keep], b[:, keep]), rel=1e-5)


def test_authors_variant_is_blind_to_means_and_scales(rng) -> None:
    a, b = rng.standard_normal((80, 4)), rng.standard_normal((80, 4))
    plain = frechet_distance(a, b, authors_compat=True)
    assert frechet_distance(5 * a + 100, b, authors_compat=True).value == pytest.approx(plain.value, rel=1e-6)
    assert frechet_distance(5 * a + 100, b).value > 1000
    za, zb = ((x - x.mean(axis=0)) / x.std(axis=0) for x in (a, b))
    assert plain.value == pytest.approx(naive(za, zb), rel=1e-6)
    assert "Authors" in plain.note
    with pytest.raises(ConfigError, match="authors_compat"):
        frechet_distance(a, b, shrinkage=0.5, authors_compat=True)


@pytest.mark.parametrize(("n", "d"), [(5, 40), (40, 5), (20, 20)])
def test_ledoit_wolf_agrees_with_scikit_learn(rng, n, d) -> None:
    from sklearn.covariance import ledoit_wolf_shrinkage

    x = rng.standard_normal((n, d)) * np.arange(1, d + 1)
    x -= x.mean(axis=0)
    assert ledoit_wolf(x) == pytest.approx(ledoit_wolf_shrinkage(x, assume_centered=True))
    assert ledoit_wolf(np.pad(x, ((0, 0), (0, 3))), d) == pytest.approx(ledoit_wolf(x))


def test_by_class_averages_and_names_what_it_skips(rng) -> None:
    a, b = rng.standard_normal((31, 3)), rng.standard_normal((30, 3))
    ya, yb = np.repeat(["u", "v", "w"], [15, 15, 1]), np.repeat(["u", "v"], 15)
    got = frechet_by_class(a, ya, b, yb)
    assert list(got.by_class) == ["u", "v"]
    assert got.skipped == ("w",)
    assert got.by_class["v"].value == frechet_distance(a[ya == "v"], b[yb == "v"]).value
    assert got.average == pytest.approx(np.mean([r.value for r in got.by_class.values()]))
    with pytest.raises(DataError, match="two records on both sides"):
        frechet_by_class(a[:2], [0, 1], b[:2], [0, 1])


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1])
def test_wrong_shrinkage_is_named(shrinkage) -> None:
    with pytest.raises(ConfigError, match="shrinkage"):
        frechet_distance(np.eye(2), np.eye(2), shrinkage=shrinkage)


def test_one_record_is_refused() -> None:
    with pytest.raises(DataError, match="at least 2 records"):
        frechet_distance([[1.0]], [[1.0], [2.0]])


def test_real_embeddings(breast) -> None:
    """1280 features, far fewer records: noise is seen, and few records are named."""
    train, test, y = breast["train_x"][:100].astype(float), breast["test_x"].astype(float), breast["test_y"]
    near = frechet_distance(train, test)
    assert 0 < near.shrinkage < 1
    assert "100 records in 1280 dimensions" in near.note
    noisy = frechet_distance(train, test + np.random.default_rng(0).standard_normal(test.shape))
    assert near.value < noisy.value
    by_class = frechet_by_class(train, breast["train_y"][:100], test, y)
    assert sorted(by_class.by_class) == [0, 1]
