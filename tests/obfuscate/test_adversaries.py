"""Learners that read a release, and what an attacker reaches without reading it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from locum.errors import ConfigError, DataError
from locum.obfuscate import Labeled
from locum.obfuscate.evaluation import make_judges
from locum.obfuscate.judges import Judge, NetworkJudge, TreesJudge, accuracy, label_only, majority_guess

JUDGES = [NetworkJudge(epochs=8), TreesJudge()]


def table(n: int, rng: np.random.Generator, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    X = rng.random((n, 5), dtype=np.float32)
    return X, np.minimum((X[:, 0] * classes).astype(np.int64), classes - 1)


@pytest.mark.parametrize("judge", JUDGES, ids=["network", "trees"])
@pytest.mark.parametrize("classes", [2, 4])
def test_they_learn_what_is_there(judge: Judge, classes: int, rng: np.random.Generator) -> None:
    predict = judge.fit(*table(1500, rng, classes), seed=0)
    found = accuracy(predict, *table(1000, rng, classes))
    assert found.low > 0.85
    assert found.n == 1000


@pytest.mark.parametrize("judge", JUDGES, ids=["network", "trees"])
def test_they_find_nothing_where_nothing_is(judge: Judge, rng: np.random.Generator) -> None:
    X, y = table(1000, rng)
    predict = judge.fit(X, rng.permutation(y), seed=0)
    found = accuracy(predict, *table(1000, rng))
    assert found.low < 0.55


@pytest.mark.parametrize("judge", JUDGES, ids=["network", "trees"])
def test_the_same_seed_gives_the_same_codes_and_leaves_torch_alone(judge: Judge, rng: np.random.Generator) -> None:
    X, y = table(300, rng)
    y ^= rng.random(300) < 0.2
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    first = judge.fit(X, y, seed=1)(X)
    np.testing.assert_array_equal(first, judge.fit(X, y, seed=1)(X))
    torch.testing.assert_close(torch.rand(4), expected)
    assert first.dtype == np.int64


def test_a_network_reads_images(rng: np.random.Generator) -> None:
    def bright(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 2, n)
        return (rng.random((n, 1, 16, 16)) * 0.6 + 0.4 * y[:, None, None, None]).astype(np.float32), y

    predict = NetworkJudge(epochs=5, batch=16).fit(*bright(300), seed=0)
    assert accuracy(predict, *bright(200)).value > 0.95


def test_an_epoch_that_learned_by_heart_is_not_kept(rng: np.random.Generator) -> None:
    """Random labels: the weights that are kept must be no more confident on non-members than a guess."""
    X, y = table(100, rng)
    y = rng.permutation(y)
    patient = NetworkJudge(epochs=120, batch=20, patience=None)
    assert (patient.fit(X, y, seed=0)(X) == y).mean() < 0.75
    # Without a held-out tenth the last epoch stays, and it knows them by heart.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("locum.obfuscate.judges._LEAST_HELD", 1000)
        assert (patient.fit(X, y, seed=0)(X) == y).mean() > 0.8


@pytest.mark.parametrize("judge", JUDGES, ids=["network", "trees"])
def test_one_code_alone_is_always_guessed(judge: Judge, rng: np.random.Generator) -> None:
    X, _ = table(30, rng)
    assert (judge.fit(X, np.full(30, 3), seed=0)(X[:7]) == np.full(7, 3)).all()


def test_few_rows_and_frozen_ones_will_do(rng: np.random.Generator) -> None:
    X, y = table(7, rng)
    X.flags.writeable = False
    y[:2] = 0, 1
    assert NetworkJudge(epochs=2, batch=3).fit(X, y, seed=0)(X).shape == (7,)


def test_what_they_cannot_read_is_refused(rng: np.random.Generator) -> None:
    images, y = rng.random((6, 1, 16, 32), dtype=np.float32), np.array([0, 1] * 3)
    with pytest.raises(DataError, match="square"):
        NetworkJudge().fit(images, y, seed=0)
    with pytest.raises(ConfigError, match="tables only"):
        TreesJudge().fit(images, y, seed=0)
    with pytest.raises(DataError, match="one code each"):
        TreesJudge().fit(images[:, 0, 0], y[:3], seed=0)
    with pytest.raises(ConfigError, match="max_epochs"):
        NetworkJudge(epochs=0).fit(images[:, 0, 0], y, seed=0)


def test_judges_go_by_name(rng: np.random.Generator) -> None:
    X = rng.random((4, 3))
    assert list(make_judges(None, X)) == ["network", "trees"]
    assert list(make_judges(None, X.reshape(4, 1, 1, 3))) == ["network", "patches", "backbone"]
    assert make_judges(["network"], X, epochs=7) == {"network": NetworkJudge(epochs=7)}
    for wrong in ([], ["forest"]):
        with pytest.raises(ConfigError, match="network, trees"):
            make_judges(wrong, X)
    with pytest.raises(ConfigError, match="tables only"):
        make_judges(["trees"], X.reshape(4, 1, 1, 3))


def labeled(utility: list, private: list[int]) -> Labeled:
    return Labeled(np.zeros((len(private), 1), np.float32), np.array(utility), np.array(private))


def test_the_label_alone_by_hand() -> None:
    train = labeled([0, 0, 0, 1, 1, 1], [2, 2, 0, 1, 1, 2])
    # Label 0 -> 2, label 1 -> 1, label 5 was never seen -> 2, the most frequent.
    test = labeled([0, 0, 1, 1, 5], [2, 0, 1, 3, 2])
    found = label_only(train, test)
    assert (found.value, found.n) == (3 / 5, 5)
    assert majority_guess(train.private, test.private).value == 2 / 5


def test_several_labels_count_together() -> None:
    pairs = [[0, 0], [0, 1], [1, 0], [1, 1]] * 5
    data = labeled(pairs, [a ^ b for a, b in pairs])
    assert label_only(data, data).value == 1
    first = labeled([a for a, _ in pairs], [a ^ b for a, b in pairs])
    assert label_only(first, first).value == 0.5
