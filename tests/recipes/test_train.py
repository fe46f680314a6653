"""A head is learned from the release alone, knows every class that it can give, and says what its scores mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import locum
from locum import EmbeddingInfo, Release
from locum.errors import ConfigError, DataError, FormatError
from locum.generate import ClassGaussian, KSame, VAEGenerator
from locum.heads import SavedHead, TorchHead
from locum.recipes import train_head
from locum.recipes.train import _decoder, _table

Blobs = tuple[np.ndarray, np.ndarray]
QUICK = {"max_epochs": 3}
NAMES = ("ant", "bee", "cat")


def gaussian(blobs: Blobs) -> Release:
    return ClassGaussian(random_state=0).fit(*blobs).release(EmbeddingInfo("efflite0", "1", "abc", NAMES), no_dp=True)


def with_prior(release: Release, prior: Sequence[float]) -> Release:
    joint = tuple(((code,), float(p)) for code, p in enumerate(prior))
    return Release(release.manifest.model_copy(update={"joint": joint}), release.tensors)


@pytest.fixture
def release(blobs: Blobs, tmp_path: Path) -> Path:
    return gaussian(blobs).save(tmp_path / "release")


@pytest.mark.parametrize("head", ["bayes", "linear"])
def test_balanced_assumes_classes_of_equal_size(tmp_path: Path, head: str) -> None:
    rng, y, prior = np.random.default_rng(0), np.repeat([0, 1, 2], 200), (0.96, 0.02, 0.02)
    X = (rng.normal(size=(600, 8)) + 1.5 * np.eye(3, 8)[y]).astype(np.float32)
    place = with_prior(gaussian((X, y)), prior).save(tmp_path / "rare")
    heads = {}
    for balanced in (False, True):
        out = tmp_path / f"{balanced}.safetensors"
        train_head(place, out, head=head, balanced=balanced)
        heads[balanced] = SavedHead.open(out)
    found = {k: float((v.predict(X[y > 0]) == y[y > 0]).mean()) for k, v in heads.items()}
    assert found[False] < 0.5 < found[True]
    assert heads[True].manifest.settings["balanced"] is True
    assert "balanced" not in heads[False].manifest.settings
    if head == "bayes":
        gap = heads[True].decision_function(X) - heads[False].decision_function(X) + np.log(prior)
        np.testing.assert_allclose(gap, gap[:, :1] + np.zeros(3), atol=1e-4)


def test_from_release_to_head(release: Path, blobs: Blobs, tmp_path: Path) -> None:
    out = tmp_path / "head.safetensors"
    steps: list[str] = []
    summary = train_head(release, out, progress=lambda done, total, what: steps.append(what))
    opened = locum.load(release)
    head = SavedHead.open(out)
    assert (head.predict(blobs[0]) == blobs[1]).mean() > 0.85
    assert head.manifest.release == summary.release == opened.fingerprint
    assert head.claim == summary.claim == opened.claim
    assert head.info == opened.info
    assert (summary.rows, summary.fresh_rows) == (10_000, 2_000)
    assert summary.classes == NAMES
    assert summary.left_out == ()
    assert summary.scores["auc"].value > 0.9
    assert head.manifest.settings["samples"] == 10_000
    assert steps[-1] == "done"
    told = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert told["scored_on"] == "the release's own samples, which say nothing about real records"


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_the_same_seed_gives_the_same_bytes(release: Path, tmp_path: Path, kind: str) -> None:
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for file, seed in zip(files, (4, 4, 5), strict=True):
        train_head(release, file, head=kind, samples=300, seed=seed, settings=QUICK)
    first, second, third = (file.read_bytes() for file in files)
    assert first == second != third


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_temperature_changes_confidence_and_no_prediction(blobs: Blobs, tmp_path: Path, kind: str) -> None:
    # Classes that overlap: where nearly all predictions are right, being too sure of them is no error.
    blurred = blobs[0] + 8 * np.random.default_rng(1).normal(size=blobs[0].shape)
    release = gaussian((blurred.astype(np.float32), blobs[1])).save(tmp_path / "release")
    options: dict[str, Any] = {"head": kind, "samples": 300, "settings": {"max_epochs": 10, "learning_rate": 0.5}}
    plain = train_head(release, tmp_path / "plain.safetensors", **options)
    found = train_head(release, tmp_path / "h.safetensors", **options, calibrate=True)
    before, after = SavedHead.open(plain.head), SavedHead.open(found.head)
    assert found.calibration is not None
    temperature = found.calibration.temperature
    assert plain.calibration is None
    # Steps that are far too long make a head that is far too sure.
    assert temperature > 1.5
    np.testing.assert_allclose(after.decision_function(blobs[0]) * temperature, before.decision_function(blobs[0]))
    np.testing.assert_array_equal(after.predict(blobs[0]), before.predict(blobs[0]))
    assert found.calibration.after.value < found.calibration.before.value
    assert found.calibration.after == found.scores["calibration_error"]
    assert found.scores["accuracy"] == plain.scores["accuracy"]
    assert after.manifest.settings["temperature"] == temperature


def test_a_rare_class_is_not_missing(blobs: Blobs, tmp_path: Path) -> None:
    rare = with_prior(gaussian(blobs), (0.998, 0.001, 0.001)).save(tmp_path / "rare")
    assert train_head(rare, tmp_path / "h.safetensors", samples=60, settings=QUICK).rows == 60
    assert SavedHead.open(tmp_path / "h.safetensors").classes.tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="at least 6, two of each class; got 5"):
        train_head(rare, tmp_path / "other.safetensors", samples=5)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda w: sum(w) > 0.01),
    samples=st.integers(6, 500),
)
def test_every_class_has_some_and_the_rest_goes_by_prior(blobs: Blobs, weights: list[float], samples: int) -> None:
    prior = np.array(weights) / sum(weights)
    parts = _decoder(with_prior(gaussian(blobs), prior), samples, np.random.default_rng(0))
    rows, fresh = parts.rows, parts.fresh
    assert fresh is not None
    assert parts.calibration is None
    least = min(20, samples // 6)
    assert len(rows) == samples
    assert rows.counts.min() >= least
    assert np.abs(rows.counts - least - (samples - 3 * least) * prior).max() <= 1
    assert not set(map(bytes, rows.X)) & set(map(bytes, fresh.X))


def test_very_many_classes_get_more_samples() -> None:
    y = np.repeat(np.arange(300), 2)
    X = np.random.default_rng(0).normal(size=(len(y), 4))
    rows = _decoder(ClassGaussian(random_state=0).fit(X, y).release(no_dp=True), None, np.random.default_rng(0)).rows
    assert rows.counts.min() >= 20
    assert len(rows) == 12_000


def test_a_class_that_cannot_be_drawn_is_named(blobs: Blobs, tmp_path: Path) -> None:
    """With conditions a release may name a class and give no combination of it."""
    two = with_prior(gaussian(blobs), (0.5, 0.5)).save(tmp_path / "two")
    summary = train_head(two, tmp_path / "h.safetensors", samples=100, settings=QUICK)
    assert (summary.classes, summary.left_out) == (("ant", "bee"), ("cat",))
    assert SavedHead.open(tmp_path / "h.safetensors").predict_proba(blobs[0]).shape == (210, 2)


def test_a_fixed_table_is_learned_from_and_scored_on_other_vectors(blobs: Blobs, tmp_path: Path) -> None:
    table = KSame(k=3, random_state=0).fit(*blobs).release(no_dp=True)
    parts = _table(table, None, np.random.default_rng(0))
    rows, fresh = parts.rows, parts.fresh
    assert fresh is not None
    assert len(rows) + len(fresh) == 210
    assert 10 <= len(fresh) <= 35
    assert not set(map(bytes, rows.X)) & set(map(bytes, fresh.X))
    assert rows.counts.min() > 0

    summary = train_head(table.save(tmp_path / "t"), tmp_path / "h.safetensors")
    assert summary.rows + summary.fresh_rows == 210
    assert summary.claim.k == 3
    assert SavedHead.open(tmp_path / "h.safetensors").claim.kind == "k-anonymity"
    with pytest.raises(ConfigError, match="holds 210 rows"):
        train_head(tmp_path / "t", tmp_path / "h2.safetensors", samples=1000)


def test_a_small_table_gives_a_head_without_scores(blobs: Blobs, tmp_path: Path) -> None:
    X, y = blobs
    table = KSame(k=2, random_state=0).fit(X[::10], y[::10]).release(no_dp=True)
    summary = train_head(table.save(tmp_path / "t"), tmp_path / "h.safetensors", settings=QUICK)
    assert (summary.rows, summary.fresh_rows, summary.scores) == (21, 0, {})
    assert summary.to_dict()["scores"] == {}


def test_a_fixed_table_is_calibrated_on_rows_of_its_own(blobs: Blobs, tmp_path: Path) -> None:
    table = KSame(k=3, random_state=0).fit(*blobs).release(no_dp=True)
    parts = _table(table, None, np.random.default_rng(0), calibrate=True)
    assert parts.fresh is not None
    assert parts.calibration is not None
    each = [set(map(bytes, part.X)) for part in (parts.rows, parts.fresh, parts.calibration)]
    assert sum(map(len, each)) == len(set.union(*each))
    X, y = blobs
    small = KSame(k=2, random_state=0).fit(X[::10], y[::10]).release(no_dp=True).save(tmp_path / "t")
    with pytest.raises(ConfigError, match="too few to hold some out"):
        train_head(small, tmp_path / "h.safetensors", calibrate=True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"out": "release/h.safetensors"}, "damage the release"),
        ({"out": "h"}, "must end in"),
        ({"out": "h.pkl"}, "must end in"),
        ({"out": "old.safetensors"}, "already exists"),
        ({"out": "nowhere/h.safetensors"}, "its folder does not exist"),
        ({"head": "forest"}, "linear, mlp"),
        ({"settings": {"hidden": 3}}, "no setting 'hidden'"),
        ({"settings": {"random_state": 3}}, "no setting 'random_state'"),
        ({"samples": -3}, "samples"),
        ({"settings": {"batch_size": 0}}, "batch_size"),
    ],
)
def test_wrong_settings_leave_nothing_behind(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if "out" in options:
        monkeypatch.setattr(TorchHead, "fit", lambda *_, **__: pytest.fail("trained before the check"))
    Path("old.safetensors").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    out = Path(options.pop("out", "h.safetensors"))
    with pytest.raises(ConfigError, match=word):
        train_head(Path("release"), out, **options)
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("old.safetensors").read_text() == "mine"


def test_releases_that_cannot_be_learned_from(blobs: Blobs, tmp_path: Path) -> None:
    lone = VAEGenerator(max_epochs=1, random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "lone")
    with pytest.raises(DataError, match="one class only"):
        train_head(lone, tmp_path / "h.safetensors")
    with pytest.raises(FormatError, match="not a folder"):
        train_head(tmp_path / "nothing", tmp_path / "h.safetensors")
    assert not (tmp_path / "h.safetensors").exists()
