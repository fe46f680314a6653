"""Private class means: the sums move by at most 1, the noise is what was paid for, the estimate is sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from locum.accounting import Ledger, QueryPlan, epsilon_of, events_from_json, plan_query
from locum.data import Reference, load_reference
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import ClassGaussian
from locum.generate.private import MEANS, Shares, from_sums, noisy_sums, query_sums, reference_hash, reference_of
from locum.generate.private.estimate import PrivateMeans, shrunk
from locum.types import DP

BUDGET = DP(epsilon=1.0, delta=1e-5, n_public=1000)
wild = st.floats(allow_nan=True, allow_infinity=True, width=32)


def reference(d: int) -> Reference:
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(d, 2)))[0].T
    return Reference("test", "made up", rng.normal(size=d), directions, np.array([5.0, 3.0]), 0.5)


def noisy_means(X: np.ndarray, y: np.ndarray, plan: QueryPlan, seed: int) -> PrivateMeans:
    """Ask, and read: what a fit does."""
    known = Reference.plain(X.shape[1])
    noisy = noisy_sums(X, y, None, 3, known, MEANS, plan, seed)
    return from_sums(noisy, plan.noise_multiplier, 3, X.shape[1], MEANS, known)


@given(hnp.arrays(np.float32, st.tuples(st.integers(2, 12), st.just(4)), elements=wild), st.data())
def test_one_record_moves_the_sums_by_at_most_one(X: np.ndarray, data: st.DataObject) -> None:
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(X), max_size=len(X))))
    gone = data.draw(st.integers(0, len(X) - 1))
    keep = np.arange(len(X)) != gone
    for known in (Reference.plain(4), reference(4)):
        whole = query_sums(X, codes, None, 3, known)
        rest = query_sums(X[keep], codes[keep], None, 3, known)
        assert np.linalg.norm(whole - rest) <= 1 + 1e-9


@given(hnp.arrays(np.float32, st.tuples(st.integers(2, 14), st.just(3)), elements=wild), st.data())
def test_one_person_moves_the_sums_by_at_most_one(X: np.ndarray, data: st.DataObject) -> None:
    n = len(X)
    codes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    subjects = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    keep = subjects != subjects[0]
    whole = query_sums(X, codes, subjects, 2, reference(3))
    rest = query_sums(X[keep], codes[keep], subjects[keep], 2, reference(3)) if keep.any() else np.zeros_like(whole)
    assert np.linalg.norm(whole - rest) <= 1 + 1e-9


def test_the_sums_by_hand() -> None:
    X = np.array([[3.0, 4.0], [0.0, 2.0]], dtype=np.float32)
    out = query_sums(X, np.array([0, 1]), None, 2, Reference.plain(2))
    np.testing.assert_allclose(out[:4], np.sqrt(0.96) * np.array([0.6, 0.8, 0.0, 1.0]))
    np.testing.assert_allclose(out[4:6], np.sqrt(0.02) * np.ones(2))
    # Lengths 5 and 2 of at most 3 sqrt(2).
    np.testing.assert_allclose(out[6], np.sqrt(0.02) * (1 + 2 / (3 * np.sqrt(2))))


def test_a_person_with_one_record_counts_as_the_record(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    alone = query_sums(X, y, np.arange(len(X)), 3, Reference.plain(X.shape[1]))
    np.testing.assert_allclose(alone, query_sums(X, y, None, 3, Reference.plain(X.shape[1])))


def test_the_noise_is_what_was_planned(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """Ten per cent more or less noise would be seen here."""
    from locum.mechanisms import SecureRandom

    plan = plan_query(BUDGET)
    assert epsilon_of(plan.events, BUDGET.delta) <= 1.0
    draws = np.concatenate(
        [SecureRandom(np.ones(1, np.int64), 1.0, 2000, plan.noise_multiplier).draw(0).noise for _ in range(10)]
    )
    assert abs(draws.std() / plan.noise_multiplier - 1) < 0.03
    X, y = blobs
    spread = [noisy_means(X, y, plan, seed).shares for seed in range(200)]
    assert np.std(spread, axis=0).min() > 0


def test_more_budget_means_less_error(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    true = np.stack([unit[y == c].mean(axis=0) for c in range(3)])
    errors = []
    for epsilon in (0.5, 5.0, 500.0):
        plan = plan_query(DP(epsilon, 1e-5, n_public=200))
        found = [noisy_means(unit, y, plan, seed).means for seed in range(20)]
        errors.append(float(np.mean([np.linalg.norm(_unit_scale(m) - _unit_scale(true)) for m in found])))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.2


def _unit_scale(means: np.ndarray) -> np.ndarray:
    return means / np.linalg.norm(means)


def test_the_guess_is_closer_than_what_was_seen(rng: np.random.Generator) -> None:
    true = 0.2 * rng.normal(size=(4, 300))
    error = np.array([0.01, 0.04, 0.09, 0.36])
    seen = true + np.sqrt(error)[:, None] * rng.normal(size=true.shape)
    guess = shrunk(seen, error)
    assert np.square(guess - true).sum() < 0.5 * np.square(seen - true).sum()
    np.testing.assert_allclose(shrunk(seen, np.full(4, 1e-12)), seen, atol=1e-6)


def test_the_claim_is_what_the_ledger_says(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    model = ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], ledger=file, holding="blobs", random_state=0).fit(*blobs)
    claim = model.claim_
    assert claim.kind == "dp"
    assert claim.dp is not None
    with Ledger(file) as ledger:
        (charge,) = ledger.holding("blobs").charges
        assert charge.tip == claim.dp.ledger
        assert ledger.knows(claim.dp.ledger)
    assert claim.dp.epsilon == charge.epsilon <= 1.0
    assert claim.dp.epsilon == epsilon_of(events_from_json(claim.dp.events), 1e-5)
    # A second fit finds the budget spent.
    with pytest.raises(PrivacyError, match="left"):
        ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], ledger=file, holding="blobs").fit(*blobs)
    saved = model.release().save(tmp_path / "release")
    text = (saved / "manifest.json").read_text() + (saved / "README.md").read_text()
    assert "insecure_seed" not in text
    assert str(tmp_path) not in text
    from locum import load

    assert load(saved).claim == claim


def test_two_fits_draw_other_noise_whatever_the_seed(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    first, second = (
        ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], ledger=tmp_path / f"{i}.sqlite", random_state=0).fit(*blobs)
        for i in range(2)
    )
    assert not np.allclose(first.release().tensors["means"], second.release().tensors["means"])


def test_an_insecure_seed_repeats_and_gives_no_claim(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    def fit() -> ClassGaussian:
        settings = {"privacy": BUDGET, "classes": [0, 1, 2], "ledger": tmp_path / "l.sqlite", "insecure_seed": 7}
        return ClassGaussian(**settings).fit(*blobs)

    one, two = fit(), fit()
    np.testing.assert_array_equal(one.release().tensors["means"], two.release().tensors["means"])
    assert one.claim_.kind == "none"
    assert one.claim_.test
    assert not (tmp_path / "l.sqlite").exists()


def test_a_release_carries_the_sums_that_were_paid_for(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """Read again from the file, they give the means and the spread that the release has; nothing else is needed."""
    from locum import load

    for kind in ("means", "covariance"):
        model = ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], mechanism=kind, insecure_seed=1).fit(*blobs)
        release = load(model.release().save(tmp_path / kind))
        spec = release.manifest.decoder.statistics
        assert spec.noise == model.plan().noise_multiplier
        assert spec.reference_sha256 == reference_hash(Reference.plain(8))
        shares = Shares(*spec.shares)
        assert len(release.tensors["statistics"]) == shares.size(3, 8) == spec.size(3, 8)
        noisy = release.tensors["statistics"].astype(np.float64)
        found = from_sums(noisy, spec.noise, 3, 8, shares, Reference.plain(8))
        np.testing.assert_allclose(found.means, release.tensors["means"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.scale, release.tensors["scale"], rtol=1e-4)
        assert release.manifest.settings["n_public"] == 1000


def test_sums_whitened_with_a_file_are_released_by_its_hash(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path, rng: np.random.Generator
) -> None:
    file = Reference.from_vectors(rng.normal(size=(50, 8)), source="made up", rank=2).save(tmp_path / "r.safetensors")
    settings = {"mechanism": "means", "reference": str(file), "insecure_seed": 1}
    model = ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], **settings).fit(*blobs)
    spec = model.release().manifest.decoder.statistics
    assert (spec.reference, spec.reference_sha256) == ("own", reference_hash(load_reference(file, 8)))
    assert str(file) not in model.release().manifest.dumps()
    assert reference_of(spec, 8, file).source == "made up"
    with pytest.raises(ConfigError, match="--reference"):
        reference_of(spec, 8)
    other = Reference.from_vectors(rng.normal(size=(50, 8)), source="other", rank=2).save(tmp_path / "o.safetensors")
    with pytest.raises(DataError, match="not those of the release"):
        reference_of(spec, 8, other)
    # A name from outside is never the name of a file.
    with pytest.raises(ConfigError, match="--reference"):
        reference_of(spec.model_copy(update={"reference": str(file)}), 8)
    assert "statistics" not in ClassGaussian().fit(*blobs).release(no_dp=True).manifest.dumps()


def test_another_reference_has_another_hash() -> None:
    one = reference(6)
    moved = Reference(one.name, one.source, one.mean + 1e-3, one.directions, one.values, one.rest)
    turned = Reference(one.name, one.source, one.mean, one.directions * (1 + 1e-15), one.values, one.rest)
    assert reference_hash(one) == reference_hash(turned)
    scaled = [replace(one, scale=np.full(6, v)) for v in (1.0, 2.0)]
    assert len({reference_hash(r) for r in (one, moved, *scaled, Reference.plain(6), Reference.plain(7))}) == 6


def test_an_empty_class_is_fine_and_an_unnamed_one_is_not(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    settings = {"privacy": BUDGET, "ledger": tmp_path / "l.sqlite", "insecure_seed": 0}
    model = ClassGaussian(classes=[0, 1, 2, 3], **settings).fit(*blobs)
    assert model.sample(per_class={3: 5})[0].shape == (5, 8)
    with pytest.raises(DataError, match="not among `classes`"):
        ClassGaussian(classes=[0, 1], **settings).fit(*blobs)


def test_no_exact_statistic_leaves(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """Two data sets that differ in one record: with the same seed the release differs only through the noisy sum."""
    X, y = blobs
    far = X.copy()
    far[0] = 1e6
    one, two = (
        ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], insecure_seed=3).fit(data, y).release().tensors["means"]
        for data in (X, far)
    )
    assert np.abs(one - two).max() < 1.0


def test_the_reference_whitens_what_it_describes(rng: np.random.Generator) -> None:
    known = reference(6)
    factor, scale = known.factors()
    X = known.mean + rng.normal(size=(40000, 2)) @ factor + rng.normal(size=(40000, 6)) * scale
    white = known.whiten(X)
    np.testing.assert_allclose(np.cov(white.T), np.eye(6), atol=0.05)
    np.testing.assert_allclose(known.color(white), X, atol=1e-4)


def test_the_shipped_reference_is_small_and_names_its_source() -> None:
    from locum.data import reference as module

    shipped = load_reference("efflite0", 1280)
    assert "drawn by Locum" in shipped.source
    file = Path(module.__file__).parent / "references" / "efflite0.safetensors"
    assert file.stat().st_size < 1_000_000
    with pytest.raises(DataError, match="1280"):
        load_reference("efflite0", 64)


def test_on_real_data_a_probe_keeps_most(real_data: Path) -> None:
    """Epsilon 1 on 10,000 records: nine tenths of what real data give above chance, by an ordinary probe."""
    from locum.heads import LinearHead
    from locum.metrics import auc_macro

    with np.load(real_data / "cifar10_12k_efflite0.npz") as data:
        X, y = data["train_x"].astype(np.float32), data["train_y"].ravel().astype(int)
        T, t = data["test_x"].astype(np.float32), data["test_y"].ravel().astype(int)
    budget = DP(epsilon=1.0, delta=1e-5, n_public=10000)
    model = ClassGaussian(privacy=budget, classes=range(10), reference="efflite0", insecure_seed=0, random_state=0)
    Xs, ys = model.fit(X, y).sample(5000)
    proba = LinearHead(max_epochs=20, random_state=0).fit(Xs, ys).predict_proba(T)
    assert auc_macro(t, proba, np.arange(10)) > 0.5 + 0.9 * (0.993 - 0.5)
