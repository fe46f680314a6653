from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import KSame
from locum.generate.ksame import _group_means

Blobs = tuple[np.ndarray, np.ndarray]


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("k", [2, 5, 7])
def test_every_released_vector_stands_for_k_records(blobs: Blobs, k: int, per_class: bool) -> None:
    X, y = blobs
    rows, labels = KSame(k=k, per_class=per_class, random_state=0).fit(X, y).sample()
    assert len(rows) == len(X)
    assert np.bincount(labels).tolist() == np.bincount(y).tolist()
    distinct, sizes = np.unique(rows, axis=0, return_counts=True)
    assert sizes.min() >= k
    if per_class:
        assert all(len(set(labels[(rows == row).all(axis=1)])) == 1 for row in distinct)


def test_means_are_kept(blobs: Blobs) -> None:
    X, y = blobs
    rows, _ = KSame(k=4, random_state=0).fit(X, y).sample()
    np.testing.assert_allclose(rows.mean(axis=0), X.mean(axis=0), rtol=1e-3, atol=1e-3)


def test_the_order_of_the_records_does_not_leave(blobs: Blobs, rng: np.random.Generator) -> None:
    """Records in another order, another seed: the same rows in the same order."""
    X, y = blobs
    mixed = rng.permutation(len(X))
    one = KSame(k=2, random_state=0).fit(X, y).release(no_dp=True).tensors
    two = KSame(k=2, random_state=1).fit(X[mixed], y[mixed]).release(no_dp=True).tensors
    np.testing.assert_allclose(one["X"], two["X"], rtol=1e-5)
    np.testing.assert_array_equal(one["codes"], two["codes"])


def test_repeated_records_are_not_released_as_their_own_mean(blobs: Blobs) -> None:
    X, y = blobs
    generator = KSame(k=3).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    with pytest.raises(PrivacyError, match="identical records"):
        generator.release(no_dp=True)


def test_a_group_holds_k_people(blobs: Blobs) -> None:
    X, y = blobs
    subjects = np.arange(len(X)) // 3
    generator = KSame(k=4, random_state=0).fit(X, y, subjects)
    assert generator.claim_.unit == "subject"
    assert "4 subjects" in generator.claim_.sentence()


@pytest.mark.parametrize(
    ("settings", "subjects", "word"),
    [({"k": 400}, None, "the data has 210"), ({"k": 40, "per_class": True}, None, "class .*2.* has 30"),
     ({"k": 4}, 3, "has 3")],
)  # fmt: skip
def test_too_few_records_or_people(blobs: Blobs, settings: dict, subjects: int | None, word: str) -> None:
    X, y = blobs
    subject = None if subjects is None else np.arange(len(X)) % subjects
    with pytest.raises(DataError, match=word):
        KSame(**settings).fit(X, y, subject)


@pytest.mark.parametrize("k", [1, 0, 2.5, True, "5"])
def test_k_must_be_two_or_more(blobs: Blobs, k: object) -> None:
    with pytest.raises(ConfigError, match="`k` must be"):
        KSame(k=k).fit(*blobs)


@pytest.mark.parametrize("size", [3, 700, 40_000])
def test_means_of_groups_are_those_of_a_loop_over_records(size: int, rng: np.random.Generator) -> None:
    """Bit for bit, for small groups and for one that holds all records."""
    X = rng.normal(size=(40_000, 3)).astype(np.float32)
    groups = rng.permutation(np.arange(len(X)) // size)
    sums = np.zeros((groups.max() + 1, 3))
    np.add.at(sums, groups, X)
    expected = (sums / np.bincount(groups)[:, None]).astype(np.float32)[groups]
    assert np.array_equal(_group_means(X, groups), expected)
