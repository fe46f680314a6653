"""A site's personal model: what each head predicts, how they are mixed, and that it stays at the site."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy import stats

from locum import EmbeddingSet
from locum.data import Reference
from locum.errors import ConfigError, DataError, FormatError
from locum.federated import FederationSettings, PersonalModel, fit_personal
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.result import Learned, build_result
from locum.federated.site_file import SiteRecords
from locum.federated.state import read_tensors, write_tensors
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


def turned(data: EmbeddingSet) -> EmbeddingSet:
    """The same records with other labels than the federation's, so that the global head can only mislead."""
    return EmbeddingSet.from_arrays(data.X, np.array(NAMES)[(data.y + 1) % 3]).with_classes(NAMES)


def test_small_sites_rely_on_the_global_head_and_different_sites_do_not(release: Release) -> None:
    poor = fit_personal(release, SiteRecords(records(24, 1, spread=2.0)))
    assert poor.lam <= 0.5
    assert not poor.fallback
    assert poor.gain is not None
    assert poor.gain.value > 0
    other = fit_personal(release, SiteRecords(turned(records(300, 2))))
    assert other.lam == 1
    assert other.fallback
    assert "no gain beyond chance" in other.notes[0]


def test_validation_records_choose_lambda_if_given(release: Release) -> None:
    held = records(40, 4)
    # Judged by the validation records, all local labels are wrong.
    for rule in ("robust", "paper"):
        model = fit_personal(release, SiteRecords(turned(records(60, 1)), held), rule=rule)  # type: ignore[arg-type]
        assert model.lam < 0.5
        assert (model.predict(held.X) == held.y).mean() > 0.7


def test_the_papers_rule_does_not_fall_back(release: Release) -> None:
    site = SiteRecords(turned(records(300, 2)))
    model = fit_personal(release, site, measure="log_loss", rule="paper")
    assert model.lam >= 0.9
    assert not model.fallback
    assert model.measure == "log_loss"


def test_with_one_subject_there_is_nothing_to_choose_from(release: Release) -> None:
    data = records(9, 1)
    one = EmbeddingSet.from_arrays(data.X, np.array(NAMES)[data.y], subject=np.zeros(9, dtype=int)).with_classes(
        NAMES
    )
    model = fit_personal(release, SiteRecords(one))
    assert model.lam == 0
    assert "too few records" in model.notes[0]


def test_classes_without_records_can_be_left_to_the_global_head(release: Release) -> None:
    site, X = SiteRecords(records(60, 1, classes=2)), records(300, 2)
    mix, rest = (fit_personal(release, site, unseen=u) for u in ("mix", "global"))  # type: ignore[arg-type]
    p, theirs, ours = rest.predict_proba(X.X), rest.predict_proba(X.X, 0.0), rest.predict_proba(X.X, 1.0)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(p[:, 2], theirs[:, 2])
    among = theirs[:, :2] / theirs[:, :2].sum(axis=1, keepdims=True)
    twin = (1 - theirs[:, 2:]) * (rest.lam * ours[:, :2] + (1 - rest.lam) * among)
    np.testing.assert_allclose(p[:, :2], twin, atol=1e-12)
    # All three classes are tested here; the third is found as often as by the global head alone.
    found = [(m.predict(X.X)[X.y == 2] == 2).mean() for m in (mix, rest)]
    assert found[1] >= found[0]
    assert found[1] == (rest.predict(X.X, 0.0)[X.y == 2] == 2).mean()
    assert all(any("no records of cow" in note for note in m.notes) for m in (mix, rest))


def test_notes_say_what_may_be_wrong(release: Release) -> None:
    data = records(300, 1)
    # The ten bees are at the place of the ants, so they are missed.
    X, label = (
        np.concatenate([data.X[data.y != 1], data.X[data.y == 0][:10]]),
        data.y[data.y != 1].tolist() + [1] * 10,
    )
    rare = EmbeddingSet.from_arrays(X, np.array(NAMES)[label]).with_classes(NAMES)
    model = fit_personal(release, SiteRecords(rare), measure="accuracy", clipped=0.75)
    assert model.clipped == 0.75
    text = " ".join(model.notes)
    for part in ("far below accuracy", "75% of this site's records were cut to their bound"):
        assert part in text
    fine = fit_personal(release, SiteRecords(records(90, 1)), clipped=0.1)
    assert not any(word in " ".join(fine.notes) for word in ("far below", "clipped", "no records"))
    for wrong in ({"clipped": 1.5}, {"unseen": "local"}, {"measure": "auc"}, {"rule": "best"}):
        with pytest.raises(ConfigError, match=f"`{next(iter(wrong))}` must be"):
            fit_personal(release, SiteRecords(records(9, 1)), **wrong)  # type: ignore[arg-type]


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
    model = fit_personal(release, SiteRecords(records(30, 1, classes=2)), unseen="global", clipped=0.75)
    model.save(tmp_path / "personal")
    (file,) = (tmp_path / "personal").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    again = PersonalModel.open(tmp_path / "personal")
    X = records(20, 2).X
    for name in ("classes", "lam", "backbone", "measure", "unseen", "fallback", "gain", "clipped", "notes"):
        assert getattr(again, name) == getattr(model, name)
    assert again.gain is not None
    assert len(again.notes) >= 2
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_files_of_the_first_version_still_open_and_newer_ones_do_not(tmp_path: Path, release: Release) -> None:
    model = fit_personal(release, SiteRecords(records(30, 1)))
    model.save(tmp_path)
    meta, tensors = read_tensors(tmp_path / "personal.safetensors")
    old = {k: meta[k] for k in ("format", "classes", "lambda", "backbone")}
    write_tensors(tmp_path / "personal.safetensors", tensors, old)
    again, X = PersonalModel.open(tmp_path), records(20, 2).X
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.measure, again.notes, again.gain) == ("log_loss", (), None)
    write_tensors(tmp_path / "personal.safetensors", tensors, {**meta, "version": 3})
    with pytest.raises(FormatError, match="newer"):
        PersonalModel.open(tmp_path)
    write_tensors(tmp_path / "personal.safetensors", tensors, {**meta, "unseen": "?"})
    with pytest.raises(FormatError, match="damaged"):
        PersonalModel.open(tmp_path)


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
