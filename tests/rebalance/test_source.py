"""Somebody else's release in place of a generator, and what cannot fill up a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import locum
from locum import EmbeddingInfo
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import ClassGaussian, CVAEGenerator, KSame, VAEGenerator
from locum.rebalance import GenerativeOverSampler
from locum.release import Release
from locum.types import DP

Data = tuple[np.ndarray, np.ndarray]


def opened(generator: Any, folder: Path, info: EmbeddingInfo | None = None) -> Release:
    generator.release(info, no_dp=True).save(folder / "r")
    return locum.load(folder / "r")


def test_another_holders_decoder_fills_up(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    release = opened(ClassGaussian(random_state=0).fit(X, y), tmp_path)
    mine = np.concatenate([np.flatnonzero(y == c)[:k] for c, k in ((0, 30), (1, 3), (2, 1))])
    sampler = clone(GenerativeOverSampler(release, random_state=1))
    Xr, yr = sampler.fit_resample(X[mine], y[mine])
    assert np.bincount(yr).tolist() == [30, 30, 30]
    assert sampler.generator_.fingerprint == release.fingerprint
    # Its means come from records that were never seen here: one record at home has no say in them.
    made = Xr[sampler.generated_ & (yr == 2)].mean(axis=0)
    theirs = X[y == 2]
    assert np.linalg.norm(made - theirs.mean(axis=0)) < np.linalg.norm(X[mine][y[mine] == 2][0] - theirs.mean(axis=0))


def test_classes_are_found_by_name_too(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    names = np.array(["ant", "bee", "cat"])
    release = opened(ClassGaussian(random_state=0).fit(X, y), tmp_path, EmbeddingInfo(class_names=tuple(names)))
    by_name, labels = GenerativeOverSampler(release, random_state=0).fit_resample(X, names[y])
    by_code, _ = GenerativeOverSampler(release, random_state=0).fit_resample(X, y)
    np.testing.assert_array_equal(by_name, by_code)
    assert set(labels) == set(names)
    as_float, _ = GenerativeOverSampler(release, random_state=0).fit_resample(X, y.astype(float))
    np.testing.assert_array_equal(as_float, by_code)


def test_wrong_dimension_is_one_sentence(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    release = opened(ClassGaussian(random_state=0).fit(X, y), tmp_path)
    with pytest.raises(DataError, match="have 8 features and X has 5"):
        GenerativeOverSampler(release).fit_resample(X[:, :5], y)


def test_missing_class_is_one_sentence(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    release = opened(ClassGaussian(random_state=0).fit(X[y < 2], y[y < 2]), tmp_path)
    with pytest.raises(DataError, match=r"no class 2; it has \[0, 1\]"):
        GenerativeOverSampler(release).fit_resample(X, y)
    # A class that is not filled up need not be there.
    _, grown = GenerativeOverSampler(release, sampling_strategy={1: 70}, random_state=0).fit_resample(X, y)
    assert np.bincount(grown).tolist() == [120, 70, 30]


def test_fixed_rows_cannot_fill_up(blobs: Data, tmp_path: Path) -> None:
    release = opened(KSame(k=3, random_state=0).fit(*blobs), tmp_path)
    with pytest.raises(ConfigError, match="fixed rows"):
        GenerativeOverSampler(release).fit_resample(*blobs)


def test_generated_and_real_share_one_space(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    unit = ClassGaussian(space="unit", random_state=0)
    release = opened(unit.fit(X, y), tmp_path)
    for generator in (release, unit):
        with pytest.raises(DataError, match="'unit'"):
            GenerativeOverSampler(generator).fit_resample(X, y)
        brought = release.transform(X)
        Xr, _ = GenerativeOverSampler(generator, random_state=0).fit_resample(brought, y)
        np.testing.assert_allclose(np.linalg.norm(Xr, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("generator", "word"),
    [(KSame(k=3), "once"), (VAEGenerator(), "no classes"), ("folder", "locum.load"), (3, "int")],
)
def test_what_cannot_fill_up_says_why(blobs: Data, generator: Any, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        GenerativeOverSampler(generator).fit_resample(*blobs)


def test_a_guarantee_is_not_paid_for_and_lost(blobs: Data, tmp_path: Path) -> None:
    budget = DP(epsilon=1.0, delta=1e-4, n_public=200)
    ledger = tmp_path / "ledger.sqlite"
    generator = ClassGaussian(privacy=budget, classes=[0, 1, 2], ledger=ledger)
    with pytest.raises(PrivacyError, match="leave `privacy` out"):
        GenerativeOverSampler(generator).fit_resample(*blobs)
    assert not ledger.exists()


def test_a_class_that_may_not_leave_may_be_filled_up_locally(blobs: Data) -> None:
    X, y = blobs
    keep = (y == 0) | (np.arange(len(y)) == np.flatnonzero(y == 1)[0])
    sampler = GenerativeOverSampler(random_state=0)
    _, grown = sampler.fit_resample(X[keep], y[keep])
    assert np.bincount(grown).tolist() == [120, 120]
    with pytest.raises(PrivacyError, match="single record"):
        sampler.generator_.release(no_dp=True)


def test_conditions_need_their_columns(blobs: Data) -> None:
    with pytest.raises(ConfigError, match="condition_on"):
        GenerativeOverSampler(CVAEGenerator(condition_on=("sex",), max_epochs=1)).fit_resample(*blobs)
