from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from locum.data import load_sample, split
from locum.errors import ConfigError, DataError
from locum.generate import ClassGaussian
from locum.heads import LinearHead, MLPHead
from locum.types import EmbeddingSet, SetBatches

Blobs = tuple[np.ndarray, np.ndarray]


def test_it_is_as_good_as_logistic_regression() -> None:
    parts = split(load_sample("digits"), rng=np.random.default_rng(0))
    train, test = parts["train"], parts["test"]
    peer = LogisticRegression(max_iter=2000).fit(train.X, train.y).score(test.X, test.y)
    for head in (LinearHead(random_state=0), MLPHead(random_state=0)):
        assert head.fit(train.X, train.y).score(test.X, test.y) > peer - 0.03


def test_learning_online_from_a_stream(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    head = LinearHead(max_epochs=10, random_state=0)
    head.fit_stream(release.stream(128, random_state=0), classes=release.classes, samples_per_epoch=10 * len(X))
    assert head.score(X, y) > 0.85
    assert head.predict_proba(X).sum(axis=1) == pytest.approx(1)


def test_same_seed_same_weights(blobs: Blobs) -> None:
    first, second = (LinearHead(max_epochs=5, random_state=3).fit(*blobs).predict_proba(blobs[0]) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_early_stopping_uses_the_rows_given(blobs: Blobs) -> None:
    X, y = blobs
    wrong = np.roll(y[::3], 20)
    head = LinearHead(max_epochs=200, learning_rate=0.1, random_state=0).fit(X, y, validation=(X[::3], wrong))
    assert len(head.history_.validation_loss) < 200
    with pytest.raises(ConfigError, match="share no class"):
        LinearHead(max_epochs=2).fit(X, y, validation=(X, y + 50))


def test_wrong_settings_name_themselves(blobs: Blobs) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        LinearHead(batch_size=0).fit(*blobs)


def test_an_epoch_of_a_stream_is_counted_in_rows(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    drawn = 0

    def counted() -> object:
        nonlocal drawn
        for x, c in release.stream(100, random_state=0):
            drawn += len(x)
            yield x, c

    LinearHead(max_epochs=3, patience=None, random_state=0).fit_stream(
        counted(), classes=release.classes, samples_per_epoch=1000
    )
    # 16 batches to set the scaler, then three epochs of a thousand rows.
    assert drawn == 1600 + 3000


def test_a_stream_s_classes_may_come_in_any_order(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    names = np.array(["zebra", "ant", "moth"])
    head = LinearHead(max_epochs=10, random_state=0).fit_stream(
        release.stream(128, random_state=0), classes=names, samples_per_epoch=2000, validation=(X, names[y])
    )
    assert head.score(X, names[y]) > 0.85


def test_a_head_from_pieces_is_as_good_as_one_from_memory() -> None:
    parts = split(load_sample("digits"), {"train": 0.7, "test": 0.3}, rng=np.random.default_rng(0))
    train, test = parts["train"], parts["test"]
    for head in (LinearHead(max_epochs=40, random_state=0), MLPHead(hidden=64, max_epochs=20, random_state=0)):
        whole = clone(head).fit(train.X, train.y)
        pieces = clone(head).fit_batches(SetBatches(train, rows=90))
        # Both scalers come from training rows, one without and one with the rows that are held out.
        np.testing.assert_allclose(pieces.mean_, train.X.mean(axis=0), rtol=1e-4, atol=1e-5)
        a, b = (model.score(test.X, test.y) for model in (whole, pieces))
        assert a > 0.9
        assert b == pytest.approx(a, abs=0.025)
        again = clone(head).fit_batches(SetBatches(train, rows=90))
        np.testing.assert_array_equal(again.predict_proba(test.X), pieces.predict_proba(test.X))


def test_pieces_with_few_classes_other_validation_rows_and_settings_that_need_all_rows() -> None:
    data = load_sample("breast-cancer")
    named = data.with_classes(("other", *data.info.class_names))
    other = EmbeddingSet.from_arrays(data.X[:60], [*data.labels[:30], *["unknown"] * 30])
    settings = {"max_epochs": 100, "patience": 2, "learning_rate": 0.05, "random_state": 0}
    fitted = LinearHead(**settings).fit_batches(SetBatches(named, rows=50), validation=other)
    assert fitted.classes_.tolist() == [1, 2]
    assert fitted.history_.stopped_early
    assert fitted.score(named.X, named.y) > 0.9
    plain = LinearHead(standardize=False, max_epochs=1, patience=None, class_weight="balanced", random_state=0)
    plain.fit_batches(SetBatches(named, rows=50))
    assert not plain.mean_.any()
    assert (plain.scale_ == 1).all()
    assert not plain.history_.validation_loss
    with pytest.raises(ConfigError, match="need all rows in memory"):
        LinearHead(sampler="class_balanced").fit_batches(SetBatches(named))
    with pytest.raises(ConfigError, match="share no class"):
        LinearHead().fit_batches(SetBatches(named), validation=other.take(range(30, 60)))
    with pytest.raises(DataError, match="two classes"):
        LinearHead().fit_batches(SetBatches(named.take(named.y == 1)))


@pytest.mark.parametrize("head", [LinearHead, MLPHead])
def test_the_double_copy_is_kept_and_is_never_stale(
    head: type[LinearHead | MLPHead], blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs
    made: list[object] = []

    def counted(module: Any) -> Any:
        made.append(module)
        return deepcopy(module)

    monkeypatch.setattr("locum.heads.head.deepcopy", counted)
    fitted = head(max_epochs=2, random_state=0).fit(X, y)
    made.clear()

    def naive(fitted: Any, X: Any) -> np.ndarray:
        with torch.no_grad():
            x = ((torch.as_tensor(X) - fitted.mean_) / fitted.scale_).double()
            return torch.softmax(deepcopy(fitted.module_).double()(x), dim=1).numpy()

    before = dict(vars(fitted))
    for rows in (X, X[:1], X[:7]):
        np.testing.assert_array_equal(fitted.predict_proba(rows), naive(fitted, rows))
    assert len(made) == 1
    # Predicting changes no estimator, and a copy predicts the same.
    assert vars(fitted).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(fitted).items())
    np.testing.assert_array_equal(deepcopy(fitted).predict_proba(X), fitted.predict_proba(X))
    # Weights that change in place, and a second fit, are noticed.
    with torch.no_grad():
        next(fitted.module_.parameters()).add_(1.0)
    np.testing.assert_array_equal(fitted.predict_proba(X), naive(fitted, X))
    fitted.fit(X[::2], y[::2])
    np.testing.assert_array_equal(fitted.predict_proba(X), naive(fitted, X))
    clone(fitted).fit(X, y)
