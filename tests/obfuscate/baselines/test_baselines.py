"""Every baseline keeps one contract; those that should hide the private attribute do, and leave the other usable."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from locum.errors import ConfigError, DataError, NotFittedError
from locum.obfuscate.baselines import BASELINES, NOT_BUILT, Baseline, strengths

Array = np.ndarray[Any, Any]
BLOCKS = (slice(0, 3), slice(3, 5), slice(5, 7))
TABLE = [name for name, baseline in BASELINES.items() if "table" in baseline.kinds]
IMAGE = [name for name, baseline in BASELINES.items() if "image" in baseline.kinds]
# A strength at which each hides well on the small rows below; epochs that it needs without strength, and with.
STRONG: dict[str, tuple[float, int, int]] = {
    "gaussian": (1.5, 1, 1), "learned-noise": (3.0, 4, 3), "gap": (1.0, 6, 18), "ae-pupet": (30.0, 8, 13),
    "uae-pupet": (30.0, 9, 10), "vae-pupet": (30.0, 22, 10), "beta-vae-pupet": (30.0, 32, 14),
    "vfae": (100.0, 11, 3), "lmifr": (6.0, 38, 13), "emb-g-filter": (0.5, 48, 36),
    "tiprdc": (30.0, 10, 20), "sanitizer": (10.0, 20, 20),
}  # fmt: skip
# Those that need most steps; `make test` runs these on few rows only.
LONG = {"uae-pupet", "vae-pupet", "beta-vae-pupet", "lmifr", "emb-g-filter", "tiprdc", "sanitizer"}
LEARNED = [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in TABLE]
STRONG_ON_IMAGES: dict[str, tuple[float, int, int]] = {
    "gaussian": (3.0, 1, 1), "learned-noise": (10.0, 1, 6), "gap": (1.0, 2, 24), "tiprdc": (30.0, 12, 12)
}  # fmt: skip


def table(n: int, seed: int) -> tuple[Array, Array, Array]:
    """The private bit shows in the second block and the first number, the utility bit in the first and the second."""
    rng = np.random.default_rng(seed)
    utility, private = rng.integers(0, 2, n), rng.integers(0, 2, n)
    X = np.zeros((n, 9), np.float32)
    first = np.where(rng.random(n) < 0.9, 2 * utility, 1)
    second = np.where(rng.random(n) < 0.9, private, 1 - private)
    X[np.arange(n), first], X[np.arange(n), 3 + second], X[np.arange(n), 5 + rng.integers(0, 2, n)] = 1, 1, 1
    X[:, 7] = np.clip(0.4 + 0.2 * private + 0.1 * rng.standard_normal(n), 0, 1)
    X[:, 8] = np.clip(0.4 + 0.2 * utility + 0.1 * rng.standard_normal(n), 0, 1)
    return X, utility, private


def images(n: int, seed: int) -> tuple[Array, Array, Array]:
    """The private bit lights the left half, the utility bit the upper half."""
    rng = np.random.default_rng(seed)
    utility, private = rng.integers(0, 2, n), rng.integers(0, 2, n)
    X = 0.3 + 0.1 * rng.standard_normal((n, 1, 8, 8))
    X[:, :, :4] += 0.2 * utility[:, None, None, None]
    X[:, :, :, :4] += 0.08 * private[:, None, None, None]
    return np.clip(X, 0, 1).astype(np.float32), utility, private


@cache
def fitted(name: str, kind: str, *, strong: bool) -> Baseline:
    X, utility, private = table(1200, 0) if kind == "table" else images(800, 0)
    strength, weakly, strongly = (STRONG if kind == "table" else STRONG_ON_IMAGES)[name]
    blocks = BLOCKS if kind == "table" else ()
    baseline = BASELINES[name](strength if strong else 0.0)
    return baseline.fit(X, utility, private, blocks=blocks, epochs=strongly if strong else weakly)


@cache
def scores(name: str, kind: str = "table", *, strong: bool) -> tuple[float, float]:
    """Accuracy for the private and for the utility bit of linear models that learned from releases."""
    baseline = fitted(name, kind, strong=strong)
    make = table if kind == "table" else images
    (X, u, p), (X2, u2, p2) = make(1000, 1), make(1000, 2)
    mask, rng = baseline.masking(), np.random.default_rng(3)
    R, R2 = (mask(rows, codes, rng).reshape(1000, -1) for rows, codes in ((X, u), (X2, u2)))

    def accuracy(a: Array, b: Array) -> float:
        return float(LogisticRegression(max_iter=500).fit(R, a).score(R2, b))

    return accuracy(p, p2), accuracy(u, u2)


def test_every_baseline_is_in_the_registry_with_as_many_strengths_as_any_other() -> None:
    assert {*TABLE} == {*STRONG}
    assert {*IMAGE} == {*STRONG_ON_IMAGES}
    for name, baseline in BASELINES.items():
        assert baseline.name == name
        assert "20" in (baseline.__doc__ or "") or baseline.__mro__[1].name == "ae-pupet", (
            "a docstring names the paper's year"
        )
        for kind, points in (("table", 6), ("image", 4)):
            if kind in baseline.kinds:
                grid = strengths(name, kind)  # type: ignore[arg-type]
                assert len(grid) == points
                assert grid[0] == 0
                assert sorted(set(grid)) == [*grid]
            else:
                with pytest.raises(ConfigError, match="There is no baseline"):
                    strengths(name, kind)  # type: ignore[arg-type]
    assert not {*NOT_BUILT} & {*BASELINES}


@pytest.mark.parametrize("name", LEARNED)
def test_without_strength_a_table_stays_usable(name: str) -> None:
    # Gaussian noise of no strength is none: records as they are.
    # What Sanitizer's private part carries besides the private attribute is lost at any strength.
    lost = 0.1 if name == "sanitizer" else 0.02
    assert scores(name, strong=False)[1] > scores("gaussian", strong=False)[1] - lost


@pytest.mark.parametrize("name", LEARNED)
def test_strength_hides_the_private_bit_of_a_table(name: str) -> None:
    open_, _ = scores(name, strong=False)
    hidden, useful = scores(name, strong=True)
    # The decoders of these are told a private bit, or a private part, at random: they hide it at any strength.
    if name not in {"vfae", "lmifr", "sanitizer"}:
        assert open_ > 0.85
        assert hidden < open_ - 0.1
    assert hidden < 0.8
    if name != "gaussian":
        assert useful > 0.8


@pytest.mark.parametrize("name", TABLE)
def test_a_release_of_a_table_is_made_of_records(name: str) -> None:
    X, utility, _ = table(200, 4)
    before = X.copy()
    baseline = BASELINES[name](STRONG[name][0]).fit(*table(200, 0), blocks=BLOCKS, epochs=1)
    R = baseline.masking()(X, utility, np.random.default_rng(0))
    assert R.shape == X.shape
    assert R.dtype == np.float32
    assert np.array_equal(X, before)
    assert R.min() >= 0
    assert R.max() <= 1
    for block in BLOCKS:
        assert np.array_equal(np.sort(R[:, block], axis=1)[:, -1], np.ones(200))
        assert np.array_equal(R[:, block].sum(axis=1), np.ones(200))


@pytest.mark.parametrize("name", IMAGE)
def test_images_stay_usable_and_hide_more_with_strength(name: str) -> None:
    open_, useful = scores(name, "image", strong=False)
    assert useful > 0.98
    assert open_ > 0.95
    assert scores(name, "image", strong=True)[0] < open_ - 0.02


@pytest.mark.parametrize("name", BASELINES)
def test_a_seed_decides_the_release_and_the_global_coins_stay(name: str) -> None:
    kind = BASELINES[name].kinds[0]
    X, utility, private = table(60, 0) if kind == "table" else images(40, 0)

    def release(seed: int, rng: int) -> Array:
        baseline = BASELINES[name](0.5).fit(X, utility, private, seed=seed, epochs=1)
        return np.asarray(baseline.masking()(X, utility, np.random.default_rng(rng)))

    state = torch.get_rng_state()
    first = release(1, 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(first, release(1, 1))
    if name != "gaussian":
        assert not np.array_equal(first, release(2, 1))
    # These two have no randomness but that of their training.
    assert np.array_equal(first, release(1, 2)) == (name in {"ae-pupet", "tiprdc"})


@pytest.mark.parametrize("name", BASELINES)
def test_parameters_are_counted(name: str) -> None:
    kind = BASELINES[name].kinds[0]
    rng = np.random.default_rng(0)
    X = rng.random((20, 102) if kind == "table" else (20, 3, 16, 16), dtype=np.float32)
    codes = np.arange(20) % 2
    count = BASELINES[name](1.0).fit(X, codes, codes, epochs=1).parameters
    if name in {"ae-pupet", "uae-pupet"}:
        # Provider and attacker: 102 to 128, 64 and 2, with biases.
        assert count == {"released": 83_716, "trained": 83_716 + 2 * (103 * 128 + 129 * 64 + 65 * 2)}
    assert count["trained"] > count["released"] > 0 or name == "gaussian"
    if name == "gaussian":
        assert count == {"released": 0, "trained": 0}


def test_several_utility_attributes_and_many_private_classes() -> None:
    X, utility, _ = table(200, 0)
    several = np.stack([utility, np.arange(200) % 3], axis=1)
    for name in TABLE:
        baseline = BASELINES[name](1.0).fit(X, several, np.arange(200) % 5, blocks=BLOCKS, epochs=1)
        assert baseline.masking()(X, several, np.random.default_rng(0)).shape == X.shape


def test_progress_is_reported_every_epoch() -> None:
    reported: list[tuple[int, int]] = []

    def progress(done: int, total: int, note: str = "") -> None:
        assert np.isfinite(float(note.removeprefix("loss ")))
        reported.append((done, total))

    BASELINES["gap"](0.1).fit(*table(60, 0), epochs=3, progress=progress)
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_bad_input_gets_one_clear_sentence() -> None:
    X, utility, private = table(30, 0)
    with pytest.raises(ConfigError, match="`strength` must be 0 or more"):
        BASELINES["gap"](-1.0).fit(X, utility, private)
    with pytest.raises(DataError, match="does not take images"):
        BASELINES["ae-pupet"](1.0).fit(*images(10, 0))
    with pytest.raises(DataError, match="pass `private`"):
        BASELINES["gap"](1.0).fit(X, utility, None)
    with pytest.raises(DataError, match="multiples of 8"):
        BASELINES["gap"](1.0).fit(np.zeros((9, 1, 28, 28)), np.zeros(9), np.zeros(9))
    with pytest.raises(DataError, match="n of 2 or more"):
        BASELINES["gap"](1.0).fit(X[0], utility, private)
    with pytest.raises(DataError, match="as many"):
        BASELINES["gap"](1.0).fit(X, utility, private[1:])
    with pytest.raises(NotFittedError, match="call `fit` first"):
        BASELINES["gap"](1.0).masking()
    with pytest.raises(DataError, match="must have the shape"):
        BASELINES["gaussian"](1.0).fit(X, utility, None).masking()(X[:, :4], utility, np.random.default_rng(0))


def test_a_fitted_baseline_can_be_copied() -> None:
    baseline = fitted("gaussian", "table", strong=False)
    X, utility, _ = table(10, 0)
    assert np.array_equal(copy.deepcopy(baseline).masking()(X, utility, np.random.default_rng(0)), X)
