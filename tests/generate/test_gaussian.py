from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, PrivacyError
from locum.generate import ClassGaussian, safe_rank
from locum.generate.covariance import low_rank_plus_diagonal

Blobs = tuple[np.ndarray, np.ndarray]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 12), rank=st.integers(0, 12), shrinkage=st.floats(0, 1))
def test_each_feature_keeps_its_variance(seed: int, d: int, rank: int, shrinkage: float) -> None:
    rng = np.random.default_rng(seed)
    residuals = (rng.normal(size=(60, d)) @ rng.normal(size=(d, d))).astype(np.float32)
    factor, scale = low_rank_plus_diagonal(residuals, rank, shrinkage)
    variance = np.square(factor).sum(axis=0) + np.square(scale)
    np.testing.assert_allclose(variance, np.square(residuals).mean(axis=0), rtol=1e-3, atol=1e-5)


def test_full_rank_without_shrinkage_is_the_covariance(rng: np.random.Generator) -> None:
    residuals = (rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))).astype(np.float32)
    factor, scale = low_rank_plus_diagonal(residuals, 6, 0.0)
    expected = residuals.T @ residuals / 500
    np.testing.assert_allclose(factor.T @ factor + np.diag(scale**2), expected, rtol=1e-3, atol=1e-3)


def test_shrinkage_one_forgets_correlations(rng: np.random.Generator) -> None:
    residuals = (rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))).astype(np.float32)
    factor, scale = low_rank_plus_diagonal(residuals, 6, 1.0)
    covariance = factor.T @ factor + np.diag(scale**2)
    off = covariance - np.diag(np.diag(covariance))
    assert np.abs(off).max() < 1e-3 * np.diag(covariance).max()


def test_the_likelihood_tells_little_about_members(rng: np.random.Generator) -> None:
    """With too many directions the released covariance fits its own records better than non-members."""
    X, non_members = (rng.normal(size=(300, 200)).astype(np.float32) for _ in range(2))
    y = np.arange(300) % 2

    def attack(rank: int) -> float:
        means, (factor, scale) = np.zeros((2, 200)), low_rank_plus_diagonal(X - X.mean(axis=0), rank, 0.1)
        inverse = np.linalg.inv(factor.T @ factor + np.diag(scale.astype(np.float64) ** 2))
        far = [np.einsum("ij,jk,ik->i", a - means[y], inverse, a - means[y]) for a in (X, non_members)]
        return float((far[0][:, None] < far[1][None]).mean())

    # Data without any structure are the worst case: every direction is learned from chance.
    assert attack(75) > 0.95
    assert attack(safe_rank(75, 300, 200, 2)) < 0.85


def test_the_released_rank_never_spans_the_records(rng: np.random.Generator) -> None:
    """With as many directions as records, members lie in the factor's span and non-members do not."""
    X = rng.normal(size=(40, 100)).astype(np.float32)
    non_members = rng.normal(size=(40, 100)).astype(np.float32)
    y = np.arange(40) % 2
    release = ClassGaussian(rank=1000, random_state=0).fit(X, y).release(no_dp=True)
    assert len(release.tensors["factor"]) == safe_rank(1000, 40, 100, 2) == 2
    basis = np.linalg.svd(release.tensors["factor"], full_matrices=False)[2]
    outside = [np.linalg.norm(a - a @ basis.T @ basis, axis=1) for a in (X, non_members)]
    # Two of a hundred directions: both keep nearly all of their length outside, and no member has none.
    assert outside[0].min() > 0.5 * outside[1].mean()


def test_a_single_record_is_not_released_as_a_mean(blobs: Blobs) -> None:
    X, y = blobs
    generator = ClassGaussian(random_state=0).fit(np.append(X, X[:1], axis=0), np.append(y, 7))
    with pytest.raises(PrivacyError, match="'7' has a single record or subject"):
        generator.release(no_dp=True)


@pytest.mark.parametrize("wrong", [{"rank": -1}, {"rank": 1.5}, {"shrinkage": 2.0}, {"variance": -1.0}])
def test_wrong_settings_name_themselves(blobs: Blobs, wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ClassGaussian(**wrong).fit(*blobs)


def test_a_class_of_one_person_is_not_released(blobs: Blobs) -> None:
    X, y = blobs
    subjects = np.where(y == 2, -1, np.arange(len(y)))
    with pytest.raises(PrivacyError, match="'2' has a single record or subject"):
        ClassGaussian().fit(X, y, subjects).release(no_dp=True)


def test_the_price_of_rank_on_real_records(real_data: Path) -> None:
    """The figures that docs/explain/limitations.md gives: half of the breast ultrasounds against the other half."""
    from locum.data import read_splits

    data = read_splits(real_data / "breastmnist_efflite0.npz")["train"]
    mixed = np.random.default_rng(0).permutation(len(data))
    members, others = data.take(mixed[:273]), data.take(mixed[273:])
    means = np.stack([members.X[members.y == c].mean(axis=0) for c in (0, 1)])

    def attack(rank: int) -> float:
        factor, scale = low_rank_plus_diagonal(members.X - means[members.y], rank, 0.1)
        covariance = factor.T.astype(np.float64) @ factor + np.diag(np.maximum(scale.astype(np.float64), 1e-3) ** 2)
        inverse = np.linalg.inv(covariance)
        far = []
        for part in (members, others):
            residual = part.X - means[part.y]
            far.append(((residual @ inverse) * residual).sum(axis=1))
        return float((far[0][:, None] < far[1][None]).mean())

    assert safe_rank(64, 273, 1280, 2) == 16
    assert [round(attack(rank), 2) for rank in (0, 16, 64)] == pytest.approx([0.60, 0.64, 0.77], abs=0.011)
