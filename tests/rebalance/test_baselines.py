from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from imblearn.over_sampling import SMOTE, RandomOverSampler
from sklearn.base import clone

from locum.generate import CVAEGenerator
from locum.heads import LinearHead
from locum.rebalance import METHODS, BySampler, Method
from locum.rebalance.baselines import adasyn, smote

Data = tuple[np.ndarray, np.ndarray]
FULL = ("random", "smote", "gaussian", "cvae-small", "cvae-large")


def quick(name: str) -> Method:
    """The method as it is registered, but for the epochs of a CVAE."""
    method = METHODS[name]
    if isinstance(method.head.get("augment"), CVAEGenerator):
        return Method(
            method.resample, method.head | {"augment": clone(method.head["augment"]).set_params(max_epochs=2)}
        )
    if name.startswith("cvae"):
        assert isinstance(method.resample, BySampler)
        short = clone(method.resample.sampler).set_params(generator__max_epochs=2)
        assert short.generator.preset == name.removeprefix("cvae-")
        return Method(BySampler(short), method.head)
    return method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_records_and_follows_its_rng(tail: Data, name: str) -> None:
    X, y = tail
    first, second = (quick(name).resample(X, y, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first.X[: len(X)], X)
    np.testing.assert_array_equal(first.y[: len(y)], y)
    np.testing.assert_array_equal(first.X, second.X)
    assert len(first.X) == len(first.y)
    assert first.X.dtype == X.dtype
    if name in FULL:
        assert np.bincount(first.y).tolist() == [60] * 4
    if name == "random":
        assert len(np.unique(first.X, axis=0)) == len(X)


@pytest.mark.parametrize("name", METHODS)
def test_a_head_learns_from_what_every_method_gives(tail: Data, name: str) -> None:
    method = quick(name)
    found = method.resample(*tail, np.random.default_rng(0))
    head = LinearHead(max_epochs=2, patience=None, random_state=0, **method.head)
    head.fit(found.X, found.y, sample_weight=found.sample_weight)
    assert head.predict(tail[0]).shape == tail[1].shape


def test_weights_count_each_class_alike(tail: Data) -> None:
    found = METHODS["weights"].resample(*tail, np.random.default_rng(0))
    weight = found.sample_weight
    assert weight is not None
    np.testing.assert_allclose(np.bincount(tail[1], weights=weight), [21.5] * 4)


def test_smote_is_that_of_imbalanced_learn_with_the_neighbors_that_there_are(tail: Data) -> None:
    X, y = tail
    keep = y < 3
    ours = smote(X[keep], y[keep], np.random.default_rng(0))
    seed = int(np.random.default_rng(0).integers(2**31 - 1))
    theirs = SMOTE(k_neighbors=4, random_state=seed).fit_resample(X[keep], y[keep])
    np.testing.assert_array_equal(ours.X, theirs[0])
    assert ours.note == ""


def test_smote_goes_between_records_and_repeats_a_lone_one() -> None:
    X = np.array([[0.0], [1.0], [2.0], [3.0], [10.0], [11.0], [20.0]])
    y = np.array(["a", "a", "a", "a", "b", "b", "c"])
    found = smote(X, y, np.random.default_rng(0))
    assert Counter(found.y.tolist()) == {"a": 4, "b": 4, "c": 4}
    made = found.X[7:][found.y[7:] == "b"]
    assert ((made >= 10) & (made <= 11)).all()
    assert (found.X[found.y == "c"] == 20).all()
    assert found.note == "1 of the classes had one record, which was repeated."


def test_adasyn_makes_more_where_others_are_near(rng: np.random.Generator) -> None:
    crowd = rng.normal(size=(60, 2))
    far, near = (rng.normal(size=(10, 2)) + np.array(center) for center in ([9, 0], [1, 0]))
    X, y = np.concatenate([crowd, far, near]), np.repeat([0, 1], [60, 20])
    found = adasyn(X, y, np.random.default_rng(0))
    made = found.X[80:]
    assert abs(len(made) - 40) <= 10
    assert (made[:, 0] < 5).mean() > 0.8
    assert found.note == ""


def test_smote_is_used_where_adasyn_fails(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2], [30, 8, 1])
    X = 0.1 * rng.normal(size=(39, 2)) + 100 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    found = adasyn(X, y, np.random.default_rng(0))
    assert np.bincount(found.y).tolist() == [30, 30, 30]
    assert found.note.startswith("SMOTE was used for 1 of the classes.")
    assert "repeated" in found.note


def test_a_sampler_of_one_s_own_is_a_method(tail: Data) -> None:
    own = RandomOverSampler(sampling_strategy={3: 4}, random_state=9)
    found = Method(BySampler(own)).resample(*tail, np.random.default_rng(0))
    assert np.bincount(found.y).tolist() == [60, 20, 5, 4]
    assert own.random_state == 9


def test_balanced_data_are_left_alone() -> None:
    X, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
    for name in ("random", "smote", "adasyn", "gaussian"):
        found = METHODS[name].resample(X, y, np.random.default_rng(0))
        np.testing.assert_array_equal(found.X, X)
