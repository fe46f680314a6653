"""`sample`, `sample_set` and `stream`: what they return and what they refuse."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader

from locum.data import read_splits
from locum.errors import ConfigError, DataError
from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.release import Release, rounded_joint


def test_exact_counts(gaussian: Release) -> None:
    _, y = gaussian.sample(per_class={0: 5, 2: 7})
    assert np.bincount(y).tolist() == [5, 0, 7]


def test_labels_follow_the_prior(gaussian: Release) -> None:
    _, y = gaussian.sample(20_000, random_state=0)
    # 120, 60 and 30 records; four standard errors of 20,000 draws are 0.014.
    np.testing.assert_allclose(np.bincount(y) / len(y), [120 / 210, 60 / 210, 30 / 210], atol=0.014)


def test_gaussian_samples_have_the_moments_of_the_classes(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    release = ClassGaussian(rank=8, shrinkage=0, random_state=0).fit(X, y).release(no_dp=True)
    for c in range(3):
        drawn, _ = release.sample(per_class={c: 40_000}, random_state=1)
        np.testing.assert_allclose(drawn.mean(axis=0), X[y == c].mean(axis=0), atol=0.1)
    centred = X - np.stack([X[y == c].mean(axis=0) for c in range(3)])[y]
    pooled = centred.T @ centred / (len(y) - 3)
    np.testing.assert_allclose(np.cov(drawn.T), pooled, atol=0.05 * np.abs(pooled).max())


@pytest.mark.parametrize("variance", [0.0, 0.25, 4.0])
def test_variance_is_a_variance(blobs: tuple[np.ndarray, np.ndarray], variance: float) -> None:
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    base = release.sample(per_class={0: 20_000}, random_state=0)[0].var(axis=0, dtype=np.float64)
    drawn = release.sample(per_class={0: 20_000}, variance=variance, random_state=0)[0].var(axis=0, dtype=np.float64)
    np.testing.assert_allclose(drawn, variance * base, rtol=1e-3, atol=1e-9)


def test_seeds_repeat_and_entropy_does_not(network: Release) -> None:
    np.testing.assert_array_equal(network.sample(9, random_state=4)[0], network.sample(9, random_state=4)[0])
    assert not np.array_equal(network.sample(9)[0], network.sample(9)[0])


def test_long_draws_are_made_in_chunks_and_do_not_repeat(network: Release) -> None:
    X, _ = network.sample(20_000, random_state=0)
    assert len(np.unique(X, axis=0)) == 20_000


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "how many"),
        ({"n": 0}, "1 or more"),
        ({"n": 3, "per_class": {0: 1}}, "not both"),
        ({"per_class": {9: 1}}, "no class 9"),
        ({"per_class": {0: -1}}, "whole number"),
        ({"per_class": {0: 1.5}}, "whole number"),
        ({"per_class": {0: 0}}, "no vector"),
        ({"n": 3, "variance": -1}, "0 or more"),
        ({"n": 3, "variance": float("nan")}, "0 or more"),
        ({"n": 3, "attributes": {"sex": "F"}}, "not conditioned"),
    ],
)
def test_wrong_requests_get_one_sentence(gaussian: Release, arguments: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        gaussian.sample(**arguments)


def test_a_table_gives_its_rows_once(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    release = KSame(k=2, random_state=0).fit(X, y).release(no_dp=True)
    drawn, labels = release.sample()
    assert len(drawn) == len(X)
    assert np.bincount(labels).tolist() == np.bincount(y).tolist()
    assert len(release.sample(7)[0]) == 7
    for arguments, word in (
        ({"n": len(X) + 1}, "each is drawn once"),
        ({"per_class": {2: 31}}, "30 rows"),
        ({"n": 3, "variance": 2.0}, "fixed table"),
    ):
        with pytest.raises(ConfigError, match=word):
            release.sample(**arguments)
    with pytest.raises(ConfigError, match="cannot be streamed"):
        release.stream()


def test_transform_refuses_other_vectors(gaussian: Release) -> None:
    with pytest.raises(DataError, match="8 features"):
        gaussian.transform(np.zeros((3, 9)))


def test_a_hundred_thousand_streamed_rows_hold_no_repeat(network: Release) -> None:
    rows = []
    for x, y in network.stream(batch_size=500, random_state=0):
        assert x.shape == (500, 8)
        assert y.dtype == torch.int64
        rows.append(x)
        if len(rows) == 200:
            break
    assert len(np.unique(torch.cat(rows).numpy(), axis=0)) == 100_000


def drawn(loader: DataLoader, batches: int) -> np.ndarray:
    """The rows of the first batches of one pass over the loader."""
    passes = iter(loader)
    return torch.cat([next(passes)[0] for _ in range(batches)]).numpy()


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_and_epochs_never_repeat_a_row_and_a_seed_repeats_them_all(
    network: Release, persistent: bool
) -> None:
    def two_epochs(seed: int) -> np.ndarray:
        loader = DataLoader(
            network.stream(batch_size=50, random_state=seed),
            batch_size=None,
            num_workers=2,
            persistent_workers=persistent,
        )
        return np.concatenate([drawn(loader, 10), drawn(loader, 10)])

    rows = two_epochs(0)
    assert len(np.unique(rows, axis=0)) == len(rows) == 1000
    np.testing.assert_array_equal(rows, two_epochs(0))
    assert len(np.unique(np.concatenate([rows, two_epochs(1)]), axis=0)) == 2000


@pytest.mark.slow
def test_workers_that_are_started_anew_draw_the_rows_of_forked_ones(network: Release) -> None:
    found = [
        drawn(
            DataLoader(
                network.stream(batch_size=20, random_state=0),
                batch_size=None,
                num_workers=2,
                multiprocessing_context=how,
            ),
            4,
        )
        for how in ("fork", "spawn")
    ]
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0], axis=0)) == 80


def test_two_loaders_of_one_stream_share_no_row(network: Release) -> None:
    stream = network.stream(batch_size=20, random_state=0)
    rows = [drawn(DataLoader(stream, batch_size=None, num_workers=n), 4) for n in (0, 1, 2)]
    assert len(np.unique(np.concatenate(rows), axis=0)) == 240


def test_streams_start_anew_with_other_rows(network: Release) -> None:
    stream = network.stream(batch_size=10, random_state=0)
    first, second = next(iter(stream))[0], next(iter(stream))[0]
    assert not torch.equal(first, second)
    again = next(iter(network.stream(batch_size=10, random_state=0)))[0]
    assert torch.equal(first, again)


def test_conditions_are_sampled_with_the_label(
    blobs: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> None:
    X, y = blobs
    sex = np.where(rng.random(len(y)) < 0.3, "F", "M")
    X = X + 6 * (sex == "F")[:, None]
    generator = CVAEGenerator(condition_on=["sex"], batch_size=32, max_epochs=60, random_state=0)
    release = generator.fit(X, y, attributes={"sex": sex}).release(no_dp=True)
    drawn = release.sample_set(4000, random_state=0)
    share = (drawn.attributes["sex"] == "F").mean()
    assert abs(share - (sex == "F").mean()) < 0.04
    women, _ = release.sample(2000, attributes={"sex": "F"}, random_state=0)
    men, _ = release.sample(2000, attributes={"sex": "M"}, random_state=0)
    # The shift of 6 in every feature is learned approximately.
    assert 4 < (women.mean() - men.mean()) < 8
    with pytest.raises(ConfigError, match="one of"):
        release.sample(5, attributes={"sex": "X"})


def test_frequencies_are_rounded_so_that_they_hide_the_denominator() -> None:
    joint = rounded_joint(np.repeat([0, 1], [147, 399]).reshape(-1, 1))
    assert joint == (((0,), 0.269), ((1,), 0.731))
    tiny = rounded_joint(np.repeat([0, 1], [1, 99_999]).reshape(-1, 1))
    assert tiny[0][1] > 0


def test_a_combination_of_one_record_is_not_published() -> None:
    codes = np.array([[0, 0]] * 5 + [[0, 1]] * 4 + [[1, 0]] * 6 + [[1, 1]])
    assert {codes for codes, _ in rounded_joint(codes)} == {(0, 0), (0, 1), (1, 0)}


def test_fixed_attributes_keep_what_goes_with_them(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """A class that only one value of the condition has is not drawn for the other."""
    X, y = blobs
    sex = np.where((y == 2) | (np.arange(len(y)) % 2 == 0), "F", "M")
    release = CVAEGenerator(condition_on=["sex"], max_epochs=1, random_state=0)
    release = release.fit(X, y, attributes={"sex": sex}).release(no_dp=True)
    _, men = release.sample(2000, attributes={"sex": "M"}, random_state=0)
    assert 2 not in men
    _, women = release.sample(4000, attributes={"sex": "F"}, random_state=0)
    assert abs((women == 2).mean() - 30 / 120) < 0.03
    with pytest.raises(ConfigError, match="No record of class"):
        release.sample(per_class={2: 3}, attributes={"sex": "M"})


TINY = np.finfo(np.float32).tiny


def subnormal(X: np.ndarray) -> np.ndarray:
    return (X != 0) & (np.abs(X) < TINY)


@pytest.mark.parametrize("space", ["raw", "unit"])
@pytest.mark.parametrize("generator", [ClassGaussian, KSame, CVAEGenerator])
def test_no_sampled_number_is_subnormal(
    generator: type[BaseGenerator], space: str, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    """A receiver divides by the spread of a feature: 1 / 1e-39 is infinite in float32."""
    X, y = blobs
    X = X.copy()
    X[:, 1] = np.random.default_rng(0).normal(size=len(X)) * 1e-39
    # Normal in the data, and below the limit after a division by the length of the vector.
    X[:, 2] = np.where(np.arange(len(X)) % 2, 3e-38, -3e-38)
    fast = {"max_epochs": 2} if generator is CVAEGenerator else {}
    fitted = generator(space=space, random_state=0, **fast).fit(X, y)
    release = fitted.release(no_dp=True)
    size = None if release.manifest.kind == "data" else 300
    drawn, _ = release.sample(size, random_state=3)
    assert not subnormal(drawn).any()
    np.testing.assert_array_equal(fitted.sample(size, random_state=3)[0], drawn)
    with np.errstate(over="raise"):
        assert np.isfinite(StandardScaler().fit_transform(drawn)).all()
    if size is not None:
        streamed = next(iter(release.stream(64, random_state=0)))[0].numpy()
        assert not subnormal(streamed).any()


def test_dead_features_have_no_spread(rng: np.random.Generator) -> None:
    """Rounding inside the decomposition of the covariance gave them one of 1e-44 to 1e-14."""
    X = (rng.normal(size=(210, 200)) @ rng.normal(size=(200, 200))).astype(np.float32)
    dead, small = rng.random(200) < 0.3, 7
    X[:, dead] = 0
    X[:, small] = rng.normal(size=210) * 1e-20
    release = ClassGaussian(random_state=0).fit(X, np.arange(210) % 3).release(no_dp=True)
    dead[small] = False
    assert not release.tensors["factor"][:, dead].any()
    drawn, _ = release.sample(2000, random_state=0)
    assert not drawn[:, dead].any()
    # A feature of hardly any spread keeps the spread it has.
    ratio = drawn.std(axis=0, dtype=np.float64) / np.where(dead, 1, X.std(axis=0, dtype=np.float64))
    np.testing.assert_allclose(ratio[~dead], 1, atol=0.2)


@pytest.mark.parametrize("name", ["breastmnist", "pneumoniamnist"])
def test_real_vectors_with_dead_features_can_be_standardized(name: str, real_data: Path) -> None:
    """Of 1,280 features of breast ultrasound 18 are 0 in every record, of chest X-rays 3."""
    parts = read_splits(real_data / f"{name}_efflite0.npz")
    train = parts["train"].take(np.arange(400))
    drawn, _ = ClassGaussian(random_state=0).fit(train.X, train.y).sample(500, random_state=0)
    assert (np.ptp(train.X, axis=0) == 0).any()
    assert not subnormal(drawn).any()
    scaler = StandardScaler().fit(drawn)
    with np.errstate(over="raise"):
        assert np.isfinite(scaler.transform(drawn)).all()
        assert np.isfinite(scaler.transform(parts["test"].X)).all()


def test_a_number_that_is_no_number_is_one_sentence(gaussian: Release) -> None:
    for n in ("5", 2.5, True, 0):
        with pytest.raises(ConfigError, match="whole number, 1 or more; got") as refused:
            gaussian.sample(n)  # type: ignore[arg-type]
        assert repr(n) in str(refused.value)
    assert len(gaussian.sample(np.int64(3))[0]) == 3


def test_a_release_is_shown_on_one_short_line(gaussian: Release) -> None:
    shown = repr(gaussian)
    assert len(shown) < 200
    assert "\n" not in shown
    for part in (gaussian.manifest.generator, f"{len(gaussian.classes)} classes", repr(gaussian.claim.kind)):
        assert part in shown
    saved = dataclasses.replace(gaussian, fingerprint="0123456789abcdef")
    assert "0123456789ab" in repr(saved)
    assert gaussian.class_names == ("ant", "bee", "cat")
