"""Where points land: on one square, neighbors together, and always somewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from locum.errors import ConfigError
from locum.report import flat_map
from locum.report.maps import points_to_draw


def distances(a: np.ndarray) -> np.ndarray:
    return np.linalg.norm(a[:, None] - a[None], axis=2)


@given(arrays(np.float64, st.tuples(st.integers(1, 25), st.integers(1, 4)), elements=st.floats(-1e6, 1e6, width=32)))
@settings(max_examples=60)
def test_pca_puts_everything_on_the_square(X: np.ndarray) -> None:
    flat = flat_map([X, X[:1]], "pca")
    assert [len(p) for p in flat.places] == [len(X), 1]
    places = np.concatenate(flat.places)
    assert np.isfinite(places).all()
    assert (places >= -1e-9).all()
    assert (places <= 1 + 1e-9).all()
    np.testing.assert_allclose(flat.places[0][0], flat.places[1][0], atol=1e-6)


def test_pca_of_a_plane_keeps_its_distances(rng: np.random.Generator) -> None:
    plane = rng.normal(size=(40, 2)) * (5, 1)
    turned = plane @ np.linalg.qr(rng.normal(size=(7, 7)))[0][:2]
    flat = flat_map([turned[:25], turned[25:]], "pca")
    seen, true = distances(np.concatenate(flat.places)), distances(plane)
    np.testing.assert_allclose(seen / seen.max(), true / true.max(), atol=1e-6)
    assert flat.axes[0].startswith("first component, 9")


def test_tsne_keeps_neighbors_together(rng: np.random.Generator) -> None:
    y = np.arange(120) % 4
    X = rng.normal(size=(120, 20)) + 6 * np.eye(4, 20)[y]
    flat = flat_map([X[:60], X[60:]])
    assert flat.method == "t-SNE"
    assert flat.why == "the automatic choice"
    near = distances(np.concatenate(flat.places)) + 9 * np.eye(120)
    assert np.mean(y[near.argmin(axis=1)] == y) > 0.95


def test_the_same_points_give_the_same_map(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 5))
    a, b = (flat_map([X], "tsne").places[0] for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("X", [np.ones((60, 5)), np.zeros((1, 3)), np.arange(60.0)[:, None], np.eye(12)])
def test_what_tsne_cannot_draw_gets_a_pca(X: np.ndarray) -> None:
    flat = flat_map([X, X])
    assert flat.method == "PCA"
    assert "too few" in flat.why
    assert np.isfinite(np.concatenate(flat.places)).all()
    with pytest.raises(ConfigError, match="--map pca"):
        flat_map([X[:20]], "tsne")


def test_duplicates_do_not_disturb_tsne(rng: np.random.Generator) -> None:
    X = np.repeat(rng.normal(size=(40, 4)), 5, axis=0)
    assert np.isfinite(flat_map([X], "tsne").places[0]).all()


def test_how_many_points() -> None:
    assert points_to_draw("auto", 768) == 500
    assert points_to_draw("pca", 768) == points_to_draw("tsne", 768) == 1000
    assert points_to_draw("auto", 10**6) == 50
    for call in (lambda: points_to_draw("umap", 3), lambda: flat_map([np.eye(3)], "umap")):
        with pytest.raises(ConfigError, match="auto, tsne, pca"):
            call()
