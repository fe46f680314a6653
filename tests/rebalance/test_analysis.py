from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import locum
from locum.errors import ConfigError
from locum.generate import ClassGaussian, CVAEGenerator, VAEGenerator
from locum.metrics import coverage_by_class, frechet_by_class, frechet_distance, latent_ks, sphere_by_class
from locum.rebalance import diversity_by_class, frechet_over_variances, latent_study, sample_like

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def gaussian(blobs: Data) -> ClassGaussian:
    return ClassGaussian(random_state=0).fit(*blobs)


def test_samples_have_the_class_sizes_of_the_labels(gaussian: ClassGaussian, blobs: Data) -> None:
    X, labels = sample_like(gaussian, blobs[1], random_state=0)
    assert np.bincount(labels).tolist() == np.bincount(blobs[1]).tolist()
    assert X.shape == blobs[0].shape


def test_the_variance_of_the_data_is_the_best_one(gaussian: ClassGaussian, blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    found = frechet_over_variances(gaussian, X, y, (0.1, 1.0, 4.0), random_state=0)
    assert found[1.0].average < min(found[0.1].average, found[4.0].average)
    gaussian.release(no_dp=True).save(tmp_path / "r")
    again = frechet_over_variances(locum.load(tmp_path / "r"), X, y, (1.0,), random_state=0)
    assert again[1.0].average == found[1.0].average
    # Standardized each by itself, sets that differ by their scale alone are equal: fault F10.
    compat = frechet_over_variances(gaussian, X, y, (1.0, 4.0), random_state=0, authors_compat=True)
    assert compat[1.0].average == pytest.approx(compat[4.0].average, rel=1e-3)
    with pytest.raises(ConfigError, match="variances"):
        frechet_over_variances(gaussian, X, y, ())


def test_each_class_counts_by_itself(gaussian: ClassGaussian, blobs: Data) -> None:
    found = frechet_over_variances(gaussian, *blobs, (1.0,), random_state=0)[1.0]
    drawn, labels = sample_like(
        gaussian, blobs[1], variance=1.0, random_state=int(np.random.default_rng(0).integers(2**31 - 1))
    )
    assert found == frechet_by_class(drawn, labels, *blobs)
    assert sorted(found.by_class) == [0, 1, 2]


def test_one_shrinkage_serves_all_variances(rng: np.random.Generator) -> None:
    """A decoder that adds noise makes rounder sets at low variances; judged by their own shrinkage they would win."""
    y = np.repeat([0, 1], 50)
    W = rng.normal(size=(4, 80))

    class Noisy:
        def sample(
            self,
            n: int | None = None,
            *,
            per_class: dict | None = None,
            variance: float | None = None,
            random_state: int | None = None,
        ) -> Data:
            draws = np.random.default_rng(random_state)
            Z, noise = draws.normal(size=(len(y), 4)), draws.normal(size=(len(y), 80))
            return (np.sqrt(variance) * Z @ W + noise).astype(np.float32), y

    X, _ = Noisy().sample(variance=1.0, random_state=7)
    found = frechet_over_variances(Noisy(), X, y, (0.01, 0.1, 1.0, 4.0), random_state=0)
    used = {r.shrinkage for by_variance in found.values() for r in by_variance.by_class.values()}
    assert used == {max(frechet_distance(X[y == c], X[y == c]).shrinkage for c in (0, 1))}
    assert min(found, key=lambda v: found[v].average) == 1.0
    drawn = {v: Noisy().sample(variance=v, random_state=0) for v in (0.01, 1.0)}
    own = {v: frechet_by_class(*both, X, y).by_class[0].shrinkage for v, both in drawn.items()}
    assert own[0.01] > 2 * own[1.0]


def test_diversity_puts_coverage_and_width_side_by_side(gaussian: ClassGaussian, blobs: Data) -> None:
    X, y = blobs
    narrow = sample_like(gaussian, y, variance=0.05, random_state=0)
    wide = sample_like(gaussian, y, variance=1.0, random_state=0)
    found = diversity_by_class({"narrow": narrow, "wide": wide, "real": (X, y)}, X, y)
    for c in range(3):
        assert found["narrow"].radius[c] < found["wide"].radius[c]
        assert found["narrow"].coverage[c] < found["wide"].coverage[c] < found["real"].coverage[c] == 1
    assert found["wide"].coverage == coverage_by_class(*wide, X, y)
    assert found["wide"].radius == sphere_by_class(*wide)


@pytest.mark.slow
def test_a_label_takes_the_class_out_of_the_latents(rng: np.random.Generator) -> None:
    """Tables 2 and 3 of the thesis, in small: a CVAE need not encode the class, a VAE must."""
    y = np.repeat(np.arange(4), 150)
    X = (rng.normal(size=(600, 6)) + 6 * np.eye(4, 6)[y]).astype(np.float32)
    settings = {"latent": 2, "beta": 0.01, "hidden": (32,), "max_epochs": 60, "batch_size": 32}
    studies = {
        kind: latent_study(
            kind(scaling="minmax", patience=0, random_state=0, **settings).fit(X, y), X, y, np.random.default_rng(0)
        )
        for kind in (CVAEGenerator, VAEGenerator)
    }
    with_label, without = studies[CVAEGenerator], studies[VAEGenerator]
    assert with_label.separability.value < 0.5 < without.separability.value
    assert with_label.ks.statistic.shape == (4, 2)
    assert with_label.ks.statistic.mean() < without.ks.statistic.mean()
    assert 0 < with_label.error.value < np.square(X - X.mean(axis=0)).sum(axis=1).mean()


def test_latents_are_drawn_not_averaged(rng: np.random.Generator) -> None:
    """Means alone would be too narrow for the prior wherever the encoder is unsure."""

    class Unsure:
        def encode(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.zeros((len(X), 2)), np.ones((len(X), 2))

        def reconstruct(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
            return X + np.array([3.0, 4.0])

    X, y = rng.normal(size=(400, 2)), np.tile([0, 1], 200)
    found = latent_study(Unsure(), X, y, np.random.default_rng(0))
    assert (found.ks.pvalue > 1e-4).all()
    assert (latent_ks(np.zeros((400, 2)), y).statistic == 0.5).all()
    assert found.error.value == pytest.approx(25)
