"""A site's personal model: what each head predicts, how they are mixed, and that it stays at the site."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from safetensors.numpy import save_file
from scipy import stats

from locum import EmbeddingSet
from locum.data import Reference
from locum.errors import DataError, FormatError
from locum.federated import FederationSettings, PersonalModel, fit_personal
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.personal import LAMBDAS, pick_lambda
from locum.federated.result import Learned, build_result
from locum.federated.site_file import SiteRecords
from locum.federated.terms import read_terms
from locum.generate.private import MEANS, query_sums
from locum.release import Release

NAMES = ("ant", "bee", "cow")
TEST = read_terms({"noise": 0, "size": 9, "terms": None})


def records(n: int, seed: int, spread: float = 1.0, classes: int = 3) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centers = 2.0 * np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
    X = (centers[y] + spread * rng.normal(size=(n, 4))).astype(np.float32)
    return EmbeddingSet.from_arrays(X, np.array(NAMES)[y]).with_classes(NAMES)


@pytest.fixture(scope="module")
def release() -> Release:
    """The class Gaussian of many records, without noise."""
    data = records(3000, 0)
    settings = FederationSettings(NAMES, dim=4, mode="sums")
    sums = query_sums(data.X, data.y, None, 3, Reference.plain(4), MEANS)
    return build_result(settings, "run", Learned({"a": TEST, "b": TEST}, {"a": sums, "b": sums}, {}))


def proba(m: int) -> st.SearchStrategy[np.ndarray]:
    raw = st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=m, max_size=m)
    return raw.map(lambda rows: np.array(rows) / np.sum(rows, axis=1, keepdims=True))


@given(
    st.integers(1, 6).flatmap(
        lambda m: st.tuples(proba(m), proba(m), st.lists(st.integers(0, 2), min_size=m, max_size=m))
    )
)
def test_lambda_is_the_one_with_the_least_loss(case: tuple[np.ndarray, np.ndarray, list[int]]) -> None:
    local, shared, y = case
    losses = {}
    for lam in (k / 10 for k in range(11)):
        losses[lam] = -sum(np.log(lam * local[i][c] + (1 - lam) * shared[i][c]) for i, c in enumerate(y)) / len(y)
    best = pick_lambda(local, shared, np.array(y))
    assert best in LAMBDAS
    assert losses[best] <= min(losses.values()) + 1e-12


def test_of_equals_the_smallest() -> None:
    same = np.full((4, 2), 0.5)
    assert pick_lambda(same, same, np.zeros(4, dtype=np.int64)) == 0.0
    # A head that gives the true class probability 0 must not break the sum.
    never = np.array([[0.0, 1.0]])
    assert pick_lambda(never, never, np.array([0])) == 0.0


def test_the_mixture_is_a_mixture(release: Release) -> None:
    model = fit_personal(release, SiteRecords(records(30, 1)))
    X = records(50, 2).X
    ours, theirs = model.predict_proba(X, 1.0), model.predict_proba(X, 0.0)
    np.testing.assert_allclose(model.predict_proba(X), model.lam * ours + (1 - model.lam) * theirs)
    for p in (ours, theirs, model.predict_proba(X)):
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (model.predict(X) == model.predict_proba(X).argmax(axis=1)).all()
    with pytest.raises(DataError, match="4 features"):
        model.predict(np.zeros((2, 5)))
    with pytest.raises(DataError, match="4 features"):
        model.predict(np.zeros(4))


@pytest.mark.parametrize("balanced", [False, True])
def test_for_a_class_gaussian_the_global_head_is_the_bayes_rule(balanced: bool, release: Release) -> None:
    model = fit_personal(release, SiteRecords(records(30, 1)), balanced=balanced)
    X, t = records(40, 3).X, {k: v.astype(np.float64) for k, v in release.tensors.items()}
    covariance = t["factor"].T @ t["factor"] + np.diag(t["scale"] ** 2)
    prior = {code: p for (code, *_), p in release.manifest.joint}
    densities = np.stack(
        [
            stats.multivariate_normal(t["means"][c], covariance).pdf(X) * (1.0 if balanced else prior[c])
            for c in range(3)
        ],
        axis=1,
    )
    twin = densities / densities.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X, 0.0), twin, atol=1e-4)


def test_small_sites_rely_on_the_global_head_and_different_sites_do_not(release: Release) -> None:
    poor = fit_personal(release, SiteRecords(records(12, 1, spread=2.0)))
    # Its class labels differ from the federation's, so the global head can only mislead it.
    other = records(300, 2)
    turned = EmbeddingSet.from_arrays(other.X, np.array(NAMES)[(other.y + 1) % 3]).with_classes(NAMES)
    assert poor.lam <= 0.5
    assert fit_personal(release, SiteRecords(turned)).lam >= 0.9


def test_validation_records_choose_lambda_if_given(release: Release) -> None:
    train, held = records(60, 1), records(40, 4)
    turned = EmbeddingSet.from_arrays(train.X, np.array(NAMES)[(train.y + 1) % 3]).with_classes(NAMES)
    # Judged by the validation records, all local labels are wrong.
    model = fit_personal(release, SiteRecords(turned, held))
    assert model.lam == 0.0
    assert (model.predict(held.X) == held.y).mean() > 0.7


@pytest.mark.parametrize(("n", "classes"), [(1, 1), (2, 2), (7, 1), (9, 2)])
def test_few_records_and_missing_classes(n: int, classes: int, release: Release) -> None:
    model = fit_personal(release, SiteRecords(records(n, 1, classes=classes)))
    p = model.predict_proba(records(20, 2).X, 1.0)
    # A class that a site has never seen has probability 0 with its own head, but not with the global one.
    assert (p[:, classes:] == 0).all()
    assert np.isfinite(p).all()
    assert (model.predict_proba(records(20, 2).X, 0.0)[:, classes:] > 0).any()


def test_the_same_records_give_the_same_model(release: Release) -> None:
    one, two = (fit_personal(release, SiteRecords(records(30, 1)), seed=3) for _ in range(2))
    assert one.lam == two.lam
    assert all(
        np.array_equal(a, b) for a, b in zip((*one.local, *one.shared), (*two.local, *two.shared), strict=True)
    )


def test_only_its_owner_can_read_it(tmp_path: Path, release: Release) -> None:
    model = fit_personal(release, SiteRecords(records(30, 1)))
    model.save(tmp_path / "personal")
    (file,) = (tmp_path / "personal").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    again = PersonalModel.open(tmp_path / "personal")
    X = records(20, 2).X
    assert (again.classes, again.lam) == (model.classes, model.lam)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="take part"):
        PersonalModel.open(tmp_path)
    file = tmp_path / "personal.safetensors"
    for meta in (None, {"locum": "{}"}, {"locum": '{"classes": ["a"], "lambda": null}'}):
        parts = {n: np.zeros((1, 1)) for n in ("local.weight", "local.bias", "shared.weight", "shared.bias")}
        save_file(parts, file, metadata=meta)
        with pytest.raises(FormatError, match="damaged"):
            PersonalModel.open(tmp_path)
    file.write_bytes(b"no tensors")
    with pytest.raises(FormatError, match="damaged"):
        PersonalModel.open(tmp_path)


def test_for_a_decoder_the_global_head_is_trained_on_samples(little: Callable[..., FederationSettings]) -> None:
    """An untrained decoder knows only the class means, which is enough here."""
    settings, rng = little(dim=200), np.random.default_rng(0)
    y = np.arange(200) % 2
    X = (rng.normal(size=(2, 200))[y] + rng.normal(size=(200, 200))).astype(np.float32)
    sums = query_sums(X, y, None, 2, Reference.plain(200), MEANS)
    decoder = decoder_tensors(initial_network(settings))
    release = build_result(settings, "run", Learned({"a": TEST, "b": TEST}, {"a": sums, "b": sums}, decoder))
    train = EmbeddingSet.from_arrays(X[:8], np.array(["ant", "bee"])[y[:8]])
    for balanced in (False, True):
        model = fit_personal(release, SiteRecords(train), balanced=balanced)
        assert (model.predict(X, 0.0) == y).mean() > 0.9
