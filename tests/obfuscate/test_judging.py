"""Maskings whose leak is known: each judge must find it, and nothing more."""

from __future__ import annotations

import json

import numpy as np
import pytest

from locum.errors import ConfigError, DataError
from locum.obfuscate import Judgment, Labeled, judge
from locum.obfuscate.evaluation import ATTACKERS, Originals, mean_release
from locum.obfuscate.judges import LabelCounts

KINDS = ("network", "trees")


def rows(n: int, seed: int) -> Labeled:
    """Utility and private code each lie in a column of their own, and agree in 7 of 10 rows."""
    rng = np.random.default_rng(seed)
    utility = rng.integers(0, 2, n)
    private = np.where(rng.random(n) < 0.7, utility, rng.integers(0, 2, n))
    X = rng.random((n, 5)) * 0.5
    X[:, 0] += 0.4 * utility
    X[:, 1] += 0.4 * private
    return Labeled(X.astype(np.float32), utility, private)


@pytest.fixture(scope="module")
def originals() -> Originals:
    return Originals.learn(rows(1200, 1), rows(1000, 2), seed=0, epochs=6)


def identity(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X


def label_alone(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.repeat(utility[:, None], X.shape[1], axis=1).astype(np.float32)


def noisy(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X + rng.normal(0, 0.8, X.shape).astype(np.float32)


@pytest.fixture(scope="module")
def found(originals: Originals) -> dict[str, Judgment]:
    maskings = {"identity": identity, "label": label_alone, "noise": noisy}
    return {name: originals.judge(masking, copies=8) for name, masking in maskings.items()}


def test_the_identity_leaks_as_the_original(found: dict[str, Judgment]) -> None:
    got = found["identity"]
    for kind in KINDS:
        assert got.weak[kind] == got.strong[kind] == got.original_private[kind]
        assert got.utility_original[kind] == got.utility_released[kind] == got.original_utility[kind]
        assert got.informed[kind] == got.original_informed[kind]
        # A mean of equal rows rounds.
        assert abs(got.averaged[kind].value - got.informed[kind].value) < 0.01
    assert got.attacker.low > 0.85


def test_the_label_alone_leaks_the_baseline_exactly(found: dict[str, Judgment]) -> None:
    got = found["label"]
    for kind in KINDS:
        assert got.strong[kind] == got.informed[kind] == got.averaged[kind] == got.label_only
        assert got.utility_released[kind].value == 1
    assert got.label_only.low > got.majority.high


def test_noise_lies_between(found: dict[str, Judgment]) -> None:
    low, mid, high = (found[name].attacker for name in ("label", "noise", "identity"))
    assert mid.value < high.low
    assert found["noise"].strong["trees"].value < low.value < high.value
    assert found["noise"].utility.value <= found["identity"].utility.high


def test_the_mean_of_releases_tells_more_than_one(found: dict[str, Judgment]) -> None:
    got = found["noise"]
    for kind in KINDS:
        assert got.averaged[kind].low > got.strong[kind].high
    assert got.attacker_name.startswith("averaged")
    assert got.attacker == max(got.averaged.values(), key=lambda e: e.value)


def test_who_knows_the_masking_is_never_worse_off(found: dict[str, Judgment]) -> None:
    for got in found.values():
        for kind in KINDS:
            assert got.strong[kind].high >= got.weak[kind].low


def test_a_masking_that_moves_rows_fools_only_the_weak(originals: Originals) -> None:
    """It turns the private column round: worthless to who knows it, ruin to who does not."""

    def turned(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        out = X.copy()
        out[:, 1] = 0.9 - out[:, 1]
        return out

    got = originals.judge(turned, copies=1)
    for kind in KINDS:
        assert got.strong[kind].low > 0.85
        assert got.weak[kind].high < 0.5
    assert got.averaged == got.informed


def test_figures_go_to_json_and_back(found: dict[str, Judgment]) -> None:
    got = found["noise"]
    again = Judgment.from_dict(json.loads(json.dumps(got.to_dict())))
    assert again == got
    flat = got.figures()
    assert flat["strong_trees"] == got.strong["trees"]
    assert flat["label_only"] == got.label_only
    assert len(flat) == 2 * 9 + 3
    assert all(0 <= e.low <= e.value <= e.high <= 1 and e.n == 1000 for e in flat.values())


def test_judging_learns_the_originals_itself_or_takes_them() -> None:
    train, test = rows(300, 1), rows(200, 2)
    once = Originals.learn(train, test, ["trees"], seed=4)
    given = judge(noisy, train, test, seed=4, copies=2, originals=once)
    assert given == judge(noisy, train, test, judges=["trees"], seed=4, copies=2)
    assert given != judge(noisy, train, test, judges=["trees"], seed=5, copies=2)
    with pytest.raises(ConfigError, match="rows other than"):
        judge(noisy, test, train, originals=once)
    with pytest.raises(ConfigError, match="learn them again"):
        judge(noisy, train, test, judges=["network"], originals=once)


def test_each_party_has_its_own_random_stream() -> None:
    """A masking that tells who asked: no two releases may be the same."""
    seen = []

    def spy(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        seen.append(rng.random())
        return X

    judge(spy, rows(60, 1), rows(40, 2), judges=["trees"], copies=3)
    # Published test, attacker's own, three copies of each part, three read one by one, published training rows.
    assert len(set(seen)) == len(seen) == 3 + 3 * 3


def test_means_are_made_in_pieces_and_are_means(monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows(50, 3)
    monkeypatch.setattr("locum.obfuscate.evaluation._AT_ONCE", 35)
    sizes = []

    def told(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        sizes.append(len(X))
        assert len(utility) == len(X)
        return X + rng.normal(0, 1, X.shape)

    got = mean_release(told, data, np.random.default_rng(0), copies=400)
    assert max(sizes) == 7
    assert sum(sizes) == 50 * 400
    # 250 means with a spread of 1/20 each.
    assert np.abs(got - data.X).max() < 0.25
    assert 0.04 < (got - data.X).std() < 0.06
    np.testing.assert_array_equal(mean_release(identity, data, np.random.default_rng(0)), data.X)


def test_several_utility_labels_reach_the_masking() -> None:
    def both(data: Labeled) -> Labeled:
        return Labeled(data.X, np.stack([data.utility, data.private], axis=1), data.private)

    def first(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        assert utility.shape == (len(X), 2)
        return label_alone(X, utility[:, 0], rng)

    got = judge(first, both(rows(200, 1)), both(rows(200, 2)), judges=["trees"], copies=1)
    assert got.utility_released["trees"].value == 1
    # The second label is the private one: the release would tell it.
    assert got.label_only.value == 1


def test_who_reads_the_label_finds_what_neither_tells_alone() -> None:
    """The released column is the private code, turned around for one of the two labels."""

    def turned(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        out = np.full_like(X, 0.5)
        private = X[:, 1] > 0.45
        out[:, 2] = private ^ (utility == 1)
        return out

    def fair(n: int, seed: int) -> Labeled:
        data = rows(n, seed)
        private = np.random.default_rng(seed + 9).integers(0, 2, n)
        data.X[:, 1] = 0.3 + 0.3 * private
        return Labeled(data.X, data.utility, private)

    got = judge(turned, fair(1000, 1), fair(800, 2), copies=1, epochs=10)
    for kind in KINDS:
        assert got.strong[kind].low < 0.55
        assert got.informed[kind].value > 0.99
    assert got.label_only.low < 0.55
    assert got.attacker.value > 0.99


def test_releases_are_read_one_by_one_where_their_mean_tells_nothing() -> None:
    """Two columns agree in sign or not: their means are nil, and each release tells a little."""

    def signs(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        out = np.full_like(X, 0.5)
        first = rng.choice([-0.4, 0.4], len(X))
        agrees = np.where(rng.random(len(X)) < 0.75, 1, -1) * np.where(X[:, 1] > 0.45, 1, -1)
        out[:, 2], out[:, 3] = 0.5 + first, 0.5 + first * agrees
        return out

    def sharp(n: int, seed: int) -> Labeled:
        data, private = rows(n, seed), np.random.default_rng(seed + 9).integers(0, 2, n)
        data.X[:, 1] = 0.3 + 0.3 * private
        return Labeled(data.X, data.utility, private)

    got = judge(signs, sharp(2000, 1), sharp(1000, 2), judges=["network"], copies=25, epochs=12)
    assert got.informed["network"].value < 0.85
    assert got.averaged["network"].low > got.informed["network"].high


def test_a_code_that_never_comes_with_a_label_is_ruled_out() -> None:
    counts = LabelCounts.fit(Labeled(np.zeros((4, 1)), np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2])))
    np.testing.assert_array_equal(counts.of(np.array([1, 0, 7])), [[0, 0, 2], [1, 1, 0], [1, 1, 2]])


def test_images_are_judged_by_network_windows_and_a_pretrained_backbone() -> None:
    def images(n: int, seed: int) -> Labeled:
        data = rows(n, seed)
        return Labeled(np.repeat(data.X[:, [0, 1, 1], None, None], 16, 2).repeat(16, 3), data.utility, data.private)

    got = judge(identity, images(100, 1), images(60, 2), copies=1, epochs=1)
    assert set(got.strong) == {"network", "patches", "backbone"}
    assert got.weak == got.strong == got.original_private
    assert got.strong["backbone"].value > got.label_only.value


def test_wrong_input_is_told() -> None:
    train, test = rows(60, 1), rows(40, 2)
    with pytest.raises(ConfigError, match="copies"):
        judge(identity, train, test, judges=["trees"], copies=0)
    with pytest.raises(DataError, match="shape"):
        judge(lambda X, u, rng: X[:, :2], train, test, judges=["trees"])
    with pytest.raises(DataError, match="shape"):
        judge(identity, train, Labeled(test.X[:, :2], test.utility, test.private))
    assert set(ATTACKERS) == {"weak", "strong", "informed", "averaged"}
