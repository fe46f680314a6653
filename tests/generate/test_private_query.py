"""Sums that a unit moves by at most 1, products included, against a twin that writes every part down."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from locum.accounting import plan_query
from locum.data import Reference, load_reference
from locum.generate import ClassGaussian
from locum.generate.private import (
    COUNTS_ONLY,
    MEANS,
    MEANS_AND_PRODUCTS,
    Shares,
    exact_query,
    from_sums,
    measured,
    noisy_sums,
    query_sums,
    unit_vectors,
)
from locum.generate.private.estimate import denoised
from locum.generate.private.query import _shrunk_counts
from locum.mechanisms import ExactSums
from locum.types import DP

KINDS = (MEANS, MEANS_AND_PRODUCTS, COUNTS_ONLY)
wild = st.floats(allow_nan=True, allow_infinity=True, width=32)


def naive(X: np.ndarray, codes: np.ndarray, subjects: np.ndarray, classes: int, shares: Shares) -> np.ndarray:
    """The sums of each subject as one long vector with the full matrix of products, clipped to length 1."""
    d = X.shape[1]
    total = np.zeros(classes * d + classes + 1 + d * d)
    for one in np.unique(subjects):
        part = np.zeros_like(total)
        for x, c in zip(X[subjects == one], codes[subjects == one], strict=True):
            if not np.isfinite(x).all():
                continue
            u, relative = unit_vectors(x[None], Reference.plain(d))
            part[c * d : (c + 1) * d] += np.sqrt(shares.sums) * u[0]
            part[classes * d + c] += np.sqrt(shares.counts)
            part[classes * d + classes] += np.sqrt(shares.lengths) * relative[0]
            part[classes * d + classes + 1 :] += np.sqrt(shares.products) * np.outer(u[0], u[0]).ravel()
        total += part / max(1.0, float(np.linalg.norm(part)))
    return total


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 10), st.just(3)), elements=wild), st.data())
def test_the_sums_are_those_of_the_twin(X: np.ndarray, data: st.DataObject) -> None:
    n, d = X.shape
    codes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    subjects = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    for shares in KINDS:
        out = query_sums(X, codes, subjects, 2, Reference.plain(d), shares)
        twin = naive(X, codes, subjects, 2, shares)
        sums, counts, lengths, products = shares.parts(out, 2, d)
        if shares.sums:
            np.testing.assert_allclose(sums, twin[: 2 * d], atol=1e-3)
        np.testing.assert_allclose(counts, twin[2 * d : 2 * d + 2], atol=1e-3)
        np.testing.assert_allclose(lengths, twin[2 * d + 2 : 2 * d + 3], atol=1e-3)
        if shares.products:
            # The half that is asked for is as long as the whole matrix.
            np.testing.assert_allclose(np.linalg.norm(products), np.linalg.norm(twin[2 * d + 3 :]), atol=1e-3)
            whole = measured(out, 0.0, 2, d, shares).products
            np.testing.assert_allclose(whole.ravel() * np.sqrt(shares.products), twin[2 * d + 3 :], atol=1e-3)


def exact_length(sums: ExactSums, shares: Shares, classes: int, d: int) -> Fraction:
    """The squared length of a contribution, from its definition, in rational numbers."""
    parts = shares.parts(sums.integers, classes, d)
    asked = (shares.sums, shares.counts, shares.lengths, shares.products)
    total = Fraction(0)
    for part, share, grid in zip(parts, asked, (2**30, 2**30, 2**30, 2**36), strict=True):
        twice = 1 - np.equal(*np.triu_indices(d)) if grid == 2**36 and share else np.zeros(len(part), int)
        total += Fraction(share) * sum((1 + int(t)) * int(v) ** 2 for v, t in zip(part, twice, strict=True)) / grid**2
    return total


@pytest.mark.parametrize("scale", [None, np.array([0.1, 3.0, 1e-7])], ids=["plain", "scaled"])
@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 10), st.just(3)), elements=wild), st.data())
def test_every_unit_adds_the_same_integers_alone_elsewhere_and_in_company(
    scale: np.ndarray | None, X: np.ndarray, data: st.DataObject
) -> None:
    n, d = X.shape
    codes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    subjects = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    order = np.array(data.draw(st.permutations(range(n))))
    reference = Reference(
        "own", "drawn", np.array([1.0, -2.0, 0.5]), np.array([[0.6, 0.8, 0.0]]), np.array([4.0]), 0.3, scale
    )
    for shares in KINDS:
        for who in (None, subjects):
            whole = exact_query(X, codes, who, 2, reference, shares)
            total = ExactSums(whole.steps)
            for unit in np.arange(n) if who is None else np.unique(subjects):
                rows = np.arange(n) == unit if who is None else subjects == unit
                alone = exact_query(X[rows], codes[rows], None if who is None else who[rows], 2, reference, shares)
                assert exact_length(alone, shares, 2, d) <= 1
                total.merge(alone)
            np.testing.assert_array_equal(whole.integers, total.integers)
            if who is None:
                elsewhere = exact_query(X[order], codes[order], None, 2, reference, shares)
                np.testing.assert_array_equal(whole.integers, elsewhere.integers)


@pytest.mark.parametrize("shares", [MEANS, MEANS_AND_PRODUCTS], ids=["means", "products"])
def test_integers_of_real_backbones_do_not_depend_on_company(shares: Shares) -> None:
    """Where floating-point matrix products do: rows of 1,280 numbers, whitened, across the edges of chunks."""
    rng, reference = np.random.default_rng(0), load_reference("efflite0", 1280)
    X, codes = rng.gamma(0.5, size=(4200, 1280)).astype(np.float32), rng.integers(0, 3, 4200)
    if shares is MEANS_AND_PRODUCTS:
        X, codes = X[:40], codes[:40]
    X[5] *= 1e30
    X[6] = 3e38
    whole = exact_query(X, codes, None, 3, reference, shares)
    for rows in (slice(0, 7), slice(len(X) - 5, None), slice(6, 7)):
        rest = np.ones(len(X), dtype=bool)
        rest[rows] = False
        total = exact_query(X[rest], codes[rest], None, 3, reference, shares)
        total.merge(exact_query(X[rows], codes[rows], None, 3, reference, shares))
        np.testing.assert_array_equal(whole.integers, total.integers)
    unit, _ = unit_vectors(X[:40], reference)
    white = reference.whiten(X[:40])
    np.testing.assert_allclose(unit, white / np.linalg.norm(white, axis=1, keepdims=True), atol=2e-5)


def test_declared_ranges_whiten_feature_by_feature(rng: np.random.Generator) -> None:
    """Against the definition, in rational numbers."""
    low, high = np.array([-1.0, 0.0, 100.0]), np.array([1.0, 1000.0, 101.0])
    X = rng.uniform(low, high, size=(20, 3)).astype(np.float32)
    unit, relative = unit_vectors(X, Reference.from_ranges(low, high, source="declared"))
    for row, found, length in zip(X, unit, relative, strict=True):
        ends = zip(row, low, high, strict=True)
        white = [(Fraction(float(x)) - Fraction(a + b) / 2) / (Fraction(b - a) / 4) for x, a, b in ends]
        norm = float(sum(v * v for v in white)) ** 0.5
        np.testing.assert_allclose(found, [float(v) / norm for v in white], atol=1e-6)
        assert length == pytest.approx(norm / (3 * 3**0.5), rel=1e-6)
        assert length < 1


def test_a_subject_with_many_and_cancelling_records_stays_within_its_bound(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 24)).astype(np.float32)
    X[30:] = -X[:30]
    for codes in (np.zeros(60, int), np.arange(60) % 3):
        for shares in KINDS:
            alone = exact_query(X, codes, np.zeros(60, int), 3, Reference.plain(24), shares)
            assert Fraction(99, 100) <= exact_length(alone, shares, 3, 24) <= 1


@given(hnp.arrays(np.float32, st.tuples(st.integers(2, 12), st.just(3)), elements=wild), st.data())
def test_one_unit_moves_them_by_at_most_one(X: np.ndarray, data: st.DataObject) -> None:
    n = len(X)
    codes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    subjects = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    for shares in KINDS:
        assert sum((shares.sums, shares.counts, shares.lengths, shares.products)) == pytest.approx(1)
        for who in (None, subjects):
            gone = np.arange(n) == 0 if who is None else subjects == subjects[0]
            rest = None if who is None else subjects[~gone]
            whole = query_sums(X, codes, who, 2, Reference.plain(3), shares)
            without = query_sums(X[~gone], codes[~gone], rest, 2, Reference.plain(3), shares)
            assert np.linalg.norm(whole - without) <= 1 + 1e-9


def test_noise_of_the_products_is_what_is_said(rng: np.random.Generator) -> None:
    d, noise = 40, 3.0
    shares = MEANS_AND_PRODUCTS
    found = measured(noise * rng.normal(size=shares.size(2, d)), noise, 2, d, shares)
    upper = found.products[np.triu_indices(d, 1)]
    assert abs(upper.std() / found.products_std - 1) < 0.1
    assert abs(np.diagonal(found.products).std() / (np.sqrt(2) * found.products_std) - 1) < 0.4
    np.testing.assert_array_equal(found.products, found.products.T)


def test_denoising_finds_what_stands_out_and_nothing_in_noise(rng: np.random.Generator) -> None:
    d, std = 120, 0.001
    strong = np.linalg.qr(rng.normal(size=(d, 2)))[0].T
    true = np.eye(d) * 0.5 / d + 0.3 * np.outer(strong[0], strong[0]) + 0.2 * np.outer(strong[1], strong[1])
    noise = rng.normal(size=(d, d)) * std
    noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.normal(size=d) * std * np.sqrt(2))
    level, V = denoised(true + noise, std, 1.0)
    guess = V.T @ V + level * np.eye(d)
    assert len(V) == 2
    assert np.trace(guess) == pytest.approx(1.0)
    assert np.linalg.norm(guess - true) < 0.5 * np.linalg.norm(noise)
    level, V = denoised(np.eye(d) / d + noise, std, 1.0)
    assert len(V) <= 1
    assert level == pytest.approx(1 / d, rel=0.1)


def test_an_own_covariance_is_found_where_the_budget_allows(rng: np.random.Generator) -> None:
    n, d = 4000, 12
    mixing = np.diag(np.linspace(1.0, 6.0, d)) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    y = np.arange(n) % 2
    X = (rng.normal(size=(n, d)) @ mixing + 2.0 * y[:, None]).astype(np.float32)
    budget = DP(epsilon=8.0, delta=1e-5, n_public=n)
    true = np.cov(X[y == 0].T) + 0.0
    errors = {}
    for kind in ("means", "covariance"):
        model = ClassGaussian(privacy=budget, classes=[0, 1], mechanism=kind, insecure_seed=0).fit(X, y)
        tensors = model.release().tensors
        seen = tensors["factor"].T @ tensors["factor"] + np.diag(tensors["scale"] ** 2)
        seen *= np.trace(true) / np.trace(seen)
        errors[kind] = float(np.linalg.norm(seen - true))
    assert errors["covariance"] < 0.7 * errors["means"]


def test_products_never_change_what_a_plan_costs(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """The sums with products move by at most 1 too: one plan, one price."""
    X, y = blobs
    plan = plan_query(DP(1.0, 1e-5, n_public=200))
    noisy = noisy_sums(X, y, None, 3, Reference.plain(8), MEANS_AND_PRODUCTS, plan, 0)
    one = from_sums(noisy, plan.noise_multiplier, 3, 8, MEANS_AND_PRODUCTS, Reference.plain(8))
    assert np.isfinite(one.means).all()
    assert one.factor.shape[1] == one.scale.shape[0] == 8


class TestCounts:
    """Counts are drawn together by as much as noise explains of how far they lie apart."""

    @given(hnp.arrays(np.float64, st.integers(2, 9), elements=st.floats(0, 1e5)))
    def test_without_noise_they_stay(self, seen: np.ndarray) -> None:
        np.testing.assert_allclose(_shrunk_counts(seen, 0.0), seen, atol=1e-6)

    @given(hnp.arrays(np.float64, st.integers(2, 9), elements=st.floats(-1e5, 1e5)), st.floats(0, 1e6))
    def test_the_sum_and_the_order_stay_and_nothing_moves_apart(self, seen: np.ndarray, noise: float) -> None:
        out = _shrunk_counts(seen, noise)
        assert out.sum() == pytest.approx(seen.sum(), abs=1e-6)
        assert (np.diff(out[np.argsort(seen)]) >= -1e-6).all()
        assert np.ptp(out) <= np.ptp(seen) + 1e-6
        if noise > np.std(seen, ddof=1):
            np.testing.assert_allclose(out, seen.mean(), atol=1e-6)

    def test_half_of_the_scatter_is_noise_so_half_is_kept(self) -> None:
        # Variance 200 by hand; noise of variance 100.
        np.testing.assert_allclose(_shrunk_counts(np.array([90.0, 110.0]), 10.0), [95.0, 105.0])

    def test_it_is_nearer_the_truth_than_what_was_seen(self, rng: np.random.Generator) -> None:
        true, noise, wins = np.array([120.0, 100.0, 90.0, 95.0]), 30.0, 0
        for _ in range(200):
            seen = true + noise * rng.normal(size=4)
            wins += np.square(_shrunk_counts(seen, noise) - true).sum() < np.square(seen - true).sum()
        assert wins > 150

    def test_what_is_read_are_the_shrunk_counts_counts(self) -> None:
        shares, d = COUNTS_ONLY, 3
        noisy = np.concatenate([np.sqrt(shares.counts) * np.array([90.0, 110.0]), [1.0]])
        np.testing.assert_allclose(measured(noisy, 0.0, 2, d, shares).counts, [90, 110])
        np.testing.assert_allclose(measured(noisy, 1e3, 2, d, shares).counts, [100, 100])
        # Never below a few, however bad the luck.
        assert (measured(-noisy, 0.0, 2, d, shares).counts > 0).all()
