"""Generated rows while training: none twice, each of its class, as many as algorithm 1 asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from locum.errors import ConfigError, DataError
from locum.generate import ClassGaussian, KSame
from locum.heads import AugmentedBatches, LinearHead, augment as module, augment_probability
from locum.heads.augment import FreshRows
from locum.release import to_space
from locum.train import seeded

Blobs = tuple[np.ndarray, np.ndarray]


class Numbered:
    """A generator whose rows are (class, serial number): every row shows where it comes from."""

    def __init__(self) -> None:
        self.serial = 0
        self.calls: list[int] = []

    def sample(self, *, per_class: Mapping[Any, int], random_state: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.random.default_rng(random_state).permutation(np.repeat(list(per_class), list(per_class.values())))
        X = np.stack([y, self.serial + np.arange(len(y))], axis=1).astype(np.float32)
        self.serial += len(y)
        self.calls.append(len(y))
        return X, y


COUNTS = (300, 60, 20)
CODES = np.repeat([0, 1, 2], COUNTS)
# Records have a negative second feature, generated rows do not.
RECORDS = np.stack([CODES, -1.0 - np.arange(len(CODES))], axis=1).astype(np.float32)


def test_algorithm_1_draws_and_replaces_as_often_as_it_says() -> None:
    source = Numbered()
    batches = AugmentedBatches(RECORDS, CODES, source, batch_size=50, random_state=0)
    drawn = list(islice(batches, 1200))
    x, codes = torch.cat([a for a, _ in drawn]).numpy(), torch.cat([b for _, b in drawn]).numpy()
    n = len(codes)
    assert {len(a) for a, _ in drawn} == {50}
    np.testing.assert_array_equal(x[:, 0], codes)
    fresh = x[:, 1] >= 0
    assert len(np.unique(x[fresh, 1])) == fresh.sum(), "no sample is used twice"
    expected = augment_probability(COUNTS)
    for c in range(3):
        mine = codes == c
        assert mine.mean() == pytest.approx(1 / 3, abs=5 * math.sqrt(2 / 9 / n))
        p = expected[c]
        assert fresh[mine].mean() == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / mine.sum()))
        # Every record of the class turns up, none much more than another.
        seen = np.bincount((-1 - x[mine & ~fresh, 1]).astype(int), minlength=len(CODES))[c == CODES]
        assert seen.min() > 0.5 * seen.mean()


def test_replaced_rows_are_those_of_a_loop() -> None:
    fresh = FreshRows(Numbered(), RECORDS, CODES, np.arange(3), [0.2, 0.5, 0.9], seed=0)
    codes = torch.from_numpy(np.random.default_rng(1).permutation(CODES))
    where, rows = fresh.replace(codes, seeded(5))

    rng, again = seeded(5), Numbered()
    again.serial = 3  # the first three were drawn to see that all classes are there
    thrown = torch.rand(len(codes), dtype=torch.float64, generator=rng)
    places = [i for i, c in enumerate(codes.tolist()) if thrown[i] < (0.2, 0.5, 0.9)[c]]
    wanted = {c: sum(int(codes[i]) == c for i in places) for c in range(3)}
    X, y = again.sample(per_class=wanted, random_state=int(torch.randint(2**62, (), generator=rng)))
    queues = {c: list(X[y == c]) for c in range(3)}
    assert where.tolist() == places
    np.testing.assert_array_equal(rows.numpy(), np.stack([queues[int(codes[i])].pop(0) for i in places]))


def test_blocks_hold_several_batches_and_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 100)
    source = Numbered()
    fresh = FreshRows(source, RECORDS, CODES, np.arange(3), [0.5, 0.5, 0.5], seed=0)
    positions = iter(torch.arange(380).split(10))
    out = list(fresh.mixed_in(torch.from_numpy(RECORDS), torch.from_numpy(CODES), positions, seeded(0)))
    assert torch.cat([i for _, i in out]).tolist() == list(range(380)), "every batch comes out, in order"
    # 380 draws, half of them replaced: two blocks of 100 or so, after the first look at all classes.
    assert len(source.calls) == 3
    assert max(source.calls) < 150


def test_batches_without_end_begin_even_where_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 100)
    y = np.arange(380) % 2
    batches = AugmentedBatches(RECORDS, y, Numbered(), p_min=0.0, batch_size=7, sampler="instance", random_state=0)
    seen = torch.cat([x[:, 1] for x, _ in islice(batches, 380)])
    # Seven passes over 380 records in batches of 7.
    assert torch.unique(seen, return_counts=True)[1].tolist() == [7] * 380


def test_streams_repeat_with_a_seed_and_never_among_themselves(blobs: Blobs) -> None:
    X, y = blobs
    source = ClassGaussian(random_state=0).fit(X, y)

    def first(batches: AugmentedBatches) -> torch.Tensor:
        return next(iter(batches))[0]

    one, same, other = (AugmentedBatches(X, y, source, random_state=seed) for seed in (3, 3, 4))
    start = first(one)
    torch.testing.assert_close(start, first(same), rtol=0, atol=0)
    assert not torch.equal(start, first(one)), "a new iteration goes on"
    assert not torch.equal(start, first(other))


def test_workers_of_a_loader_draw_different_rows(blobs: Blobs) -> None:
    batches = AugmentedBatches(*blobs, ClassGaussian(random_state=0), batch_size=32, random_state=0)
    loader = DataLoader(batches, batch_size=None, num_workers=2)
    first, second = (x for x, _ in islice(loader, 2))
    assert first.shape == second.shape == (32, 8)
    assert not torch.equal(first, second)


def test_a_head_learns_from_the_stream(blobs: Blobs) -> None:
    X, y = blobs
    names = np.array(["zebra", "ant", "moth"])[y]
    batches = AugmentedBatches(X, names, ClassGaussian(random_state=0), batch_size=32, random_state=0)
    assert batches.classes.tolist() == ["ant", "moth", "zebra"]
    head = LinearHead(max_epochs=20, patience=None, random_state=0)
    head.fit_stream(batches, classes=batches.classes, samples_per_epoch=len(X))
    assert head.score(X, names) > 0.9


def test_an_unfitted_generator_is_cloned_and_a_fitted_one_left_alone(blobs: Blobs) -> None:
    X, y = blobs
    fitted, twin = (ClassGaussian(random_state=0).fit(X, y) for _ in range(2))
    unfitted = ClassGaussian()
    for source in (fitted, unfitted):
        LinearHead(max_epochs=2, random_state=0, augment=source, sampler="class_balanced").fit(X, y)
    assert not hasattr(unfitted, "classes_")
    assert unfitted.random_state is None
    np.testing.assert_array_equal(fitted.sample(5)[0], twin.sample(5)[0], "its own rng is not used")


def test_a_seed_is_all_it_takes_to_repeat_a_fit(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    for source in (ClassGaussian(), release):
        first, second = (
            LinearHead(max_epochs=3, random_state=1, augment=source, sampler="class_balanced", remix=True)
            .fit(X, y)
            .predict_proba(X)
            for _ in range(2)
        )
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("labels", [np.array([0.0, 1.0, 2.0]), np.array(["b", "a", "c"]), np.array([7, 3, 5])])
def test_labels_of_any_kind(blobs: Blobs, labels: np.ndarray) -> None:
    X, y = blobs
    head = LinearHead(0.05, max_epochs=20, random_state=0, augment=ClassGaussian(), sampler="class_balanced", p_max=1)
    assert head.fit(X, labels[y]).score(X, labels[y]) > 0.9


def test_two_classes_called_true_and_false(blobs: Blobs) -> None:
    X, y = blobs
    head = LinearHead(0.05, max_epochs=20, random_state=0, augment=ClassGaussian(), p_min=0.5).fit(X, y > 0)
    assert head.score(X, y > 0) > 0.9


def test_generated_rows_are_scaled_as_records_are(blobs: Blobs) -> None:
    X, y = blobs
    settings = {"learning_rate": 0.05, "max_epochs": 20, "random_state": 0, "p_min": 1.0, "p_max": 1.0}
    # Features of very unequal size: a head on unscaled generated rows would see other data.
    wide = X * np.array([1e3, 1, 1e-3, 1, 1, 1, 1, 1e4], dtype=np.float32) + 100
    head = LinearHead(**settings, augment=ClassGaussian(random_state=0)).fit(wide, y)
    assert head.score(wide, y) > 0.9


def test_what_cannot_give_fresh_rows_is_refused(blobs: Blobs) -> None:
    X, y = blobs
    table = KSame(k=2, random_state=0).fit(X, y)
    for source in (table, KSame(k=2), table.release(no_dp=True)):
        with pytest.raises(ConfigError, match="fixed table"):
            LinearHead(augment=source).fit(X, y)
    for source in ("cvae", ClassGaussian, 3):
        with pytest.raises(ConfigError, match="generator or a release"):
            LinearHead(augment=source).fit(X, y)


def test_another_generator_s_rows_are_refused_before_training(blobs: Blobs) -> None:
    X, y = blobs
    with pytest.raises(ConfigError, match="no class 2"):
        LinearHead(augment=ClassGaussian(random_state=0).fit(X[y < 2], y[y < 2])).fit(X, y)
    with pytest.raises(DataError, match="7 features"):
        LinearHead(augment=ClassGaussian(random_state=0).fit(X[:, :7], y)).fit(X, y)


def test_rows_in_another_space_are_refused(blobs: Blobs) -> None:
    X, y = blobs
    unit = to_space(X, "unit")
    source = ClassGaussian(space="unit", random_state=0)
    for each in (source, ClassGaussian(space="unit", random_state=0).fit(X, y).release(no_dp=True)):
        with pytest.raises(ConfigError, match="space 'unit'"):
            LinearHead(augment=each).fit(X, y)
        LinearHead(max_epochs=1, augment=each).fit(unit, y)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"sampler": "progressive"}, "no last epoch"),
        ({"sampler": "even"}, "sampler"),
        ({"p_max": 2.0}, "p_max"),
        ({"y": CODES[:5]}, "one label for each"),
        ({"X": np.full((380, 2), np.nan)}, "finite"),
    ],
)
def test_wrong_settings_of_the_stream_name_themselves(wrong: dict[str, Any], match: str) -> None:
    settings = {"X": RECORDS, "y": CODES, "generator": Numbered(), **wrong}
    with pytest.raises((ConfigError, DataError), match=match):
        AugmentedBatches(**settings)
