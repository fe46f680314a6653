"""Replies of honest sites are used, all others are refused with a reason; averages agree with plain loops."""

from __future__ import annotations

import doctest
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from locum.data import Reference
from locum.errors import ConfigError
from locum.federated import FederationSettings, Reply, Request, aggregation as averaging, average
from locum.federated.aggregation import max_move, too_large, why_refused
from locum.generate.private import COUNTS_ONLY, MEANS, MEANS_AND_PRODUCTS, query_sums

ZEROS = np.zeros((2, 2), np.float32)
REQUEST = Request("train", 3, "n", {}, {"decoder/w": ZEROS, "means": ZEROS})
REPLY = Reply("train", 3, "n", tensors={"decoder/w": ZEROS + np.float32(0.5)})
WANTED = {"decoder/w": (2, 2)}


def test_an_honest_reply_is_used() -> None:
    assert why_refused(REQUEST, REPLY, WANTED, 0.5) == ""
    assert why_refused(REQUEST, REPLY, WANTED) == ""
    words = {"sums": np.ones(3, np.uint64)}
    masked = replace(REPLY, step="sum", tensors=words)
    assert why_refused(replace(REQUEST, step="sum"), masked, {"sums": (3,)}) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step": "join"}, "another request"),
        ({"round": 2}, "another request"),
        ({"nonce": "old"}, "sent before"),
        ({"tensors": {}}, "names or shapes"),
        ({"tensors": {"decoder/w": ZEROS, "more": ZEROS}}, "names or shapes"),
        ({"tensors": {"decoder/w": ZEROS[:1]}}, "names or shapes"),
        ({"tensors": {"decoder/w": ZEROS.ravel()}}, "names or shapes"),
        ({"tensors": {"decoder/w": np.float32([[0, 0], [0, np.nan]])}}, "not finite"),
        ({"tensors": {"decoder/w": np.float32([[0, 0], [0, -np.inf]])}}, "not finite"),
        ({"tensors": {"decoder/w": np.float32([[0, 0], [0, -0.6]])}}, "too far"),
        ({"tensors": {"decoder/w": np.zeros((2, 2), np.uint64)}}, "wrong type"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_any_other_reply_is_refused(change: dict[str, Any], told: str) -> None:
    assert told in why_refused(REQUEST, replace(REPLY, **change), WANTED, 0.55)


def test_masked_sums_are_words() -> None:
    """Other number types could not be added to them."""
    said = replace(REPLY, step="sum", tensors={"sums": np.ones(3)})
    assert why_refused(replace(REQUEST, step="sum"), said, {"sums": (3,)}) == "tensors of the wrong type"


@settings(max_examples=12)
@given(st.integers(0, 2**16), st.integers(1, 40), st.sampled_from([1e-3, 0.1]))
def test_no_training_goes_farther_than_the_limit(seed: int, steps: int, rate: float) -> None:
    """Adam on extreme gradients: zeros, then a burst, of any size."""
    rng = np.random.default_rng(seed)
    weight = torch.nn.Parameter(torch.zeros(5))
    adam = torch.optim.Adam([weight], lr=rate)
    for step in range(steps):
        size = 10.0 ** rng.uniform(-12, 12) * (step >= rng.integers(steps))
        weight.grad = torch.tensor(size * rng.choice([-1.0, 1.0, 1e-9], 5), dtype=torch.float32)
        adam.step()
    limit = max_move(FederationSettings(("a", "b"), dim=2, learning_rate=rate), steps)
    assert float(weight.detach().abs().max()) <= limit / 2 * (1 + 1e-5)


@settings(max_examples=30)
@given(st.integers(0, 2**16), st.integers(1, 80), st.sampled_from([0.0, 0.5, 30.0]))
def test_honest_sums_are_never_too_large(seed: int, n: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    X, codes = rng.normal(size=(n, 3), scale=10.0 ** rng.integers(-3, 4)).astype(np.float32), rng.integers(0, 2, n)
    for shares in (MEANS, MEANS_AND_PRODUCTS, COUNTS_ONLY):
        sums = query_sums(X, codes, None, 2, Reference.plain(3), shares)
        noisy = sums + noise * rng.normal(size=len(sums))
        assert not too_large(noisy, n, noise)
        assert too_large(noisy + 100 * n + 100 * noise, n, noise)


def test_a_limit_grows_with_the_steps(little: Callable[..., FederationSettings]) -> None:
    assert max_move(little(), 10) == pytest.approx(10 * max_move(little(), 1)) == pytest.approx(0.064)


HOWS = ("mean", "median", "trimmed-mean")
numbers = st.floats(-1e3, 1e3, width=32)
tables = st.integers(3, 9).flatmap(
    lambda m: st.tuples(
        st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=m, max_size=m),
        st.lists(st.floats(0.1, 100), min_size=m, max_size=m),
    )
)


def as_updates(rows: list[list[float]]) -> list[dict[str, np.ndarray]]:
    """Two tensors of two numbers each."""
    return [{"w": np.float32([row[:2]]), "b": np.float32(row[2:])} for row in rows]


def flat(weights: dict[str, np.ndarray]) -> list[float]:
    return [float(v) for v in (*weights["w"].ravel(), *weights["b"].ravel())]


def naive(rows: list[list[float]], shares: list[float], how: str, trim: float) -> list[float]:
    out = []
    for column in zip(*rows, strict=True):
        if how == "mean":
            out.append(sum(s * v for s, v in zip(shares, column, strict=True)) / sum(shares))
        elif how == "median":
            out.append(statistics.median(column))
        else:
            cut = max(1, int(trim * len(column)))
            out.append(statistics.fmean(sorted(column)[cut:-cut]))
    return out


@given(tables, st.sampled_from(HOWS), st.sampled_from([0.0, 0.2, 0.33]))
def test_it_equals_a_plain_loop(table: tuple[list[list[float]], list[float]], how: str, trim: float) -> None:
    rows, shares = table
    found = average(as_updates(rows), shares, how, trim)
    assert {k: (v.shape, v.dtype) for k, v in found.items()} == {
        "w": ((1, 2), np.float32),
        "b": ((2,), np.float32),
    }
    np.testing.assert_allclose(flat(found), naive(rows, shares, how, trim), rtol=1e-5, atol=1e-3)
    # The order of the replies does not matter.
    turned = average(as_updates(rows[::-1]), shares[::-1], how, trim)
    np.testing.assert_allclose(flat(turned), flat(found), rtol=1e-5, atol=1e-4)


@given(tables, st.lists(st.sampled_from([1e30, -1e30, 0.0]), min_size=4, max_size=4), st.floats(0.1, 1e9))
def test_one_liar_keeps_a_robust_average_within_the_honest_range(
    table: tuple[list[list[float]], list[float]], lie: list[float], weight: float
) -> None:
    rows, shares = table
    low, high = np.min(rows, axis=0), np.max(rows, axis=0)
    for how in HOWS[1:]:
        found = flat(average(as_updates([*rows, lie]), [*shares, weight], how))
        assert (np.float32(low) - 1e-3 <= found).all()
        assert (found <= np.float32(high) + 1e-3).all()


@pytest.mark.parametrize(
    ("shares", "how"),
    [
        ([], "mean"),
        ([1.0], "mean"),
        ([1, 0], "mean"),
        ([1, -1], "mean"),
        ([1, np.inf], "mean"),
        ([1, 1], "trimmed-mean"),
    ],
)
def test_what_has_no_average_is_refused(shares: list[float], how: str) -> None:
    with pytest.raises(ConfigError):
        average(as_updates([[0.0] * 4] * (2 if shares else 0)), shares, how)
    with pytest.raises(ConfigError, match="how"):
        average(as_updates([[0.0] * 4]), [1.0], "mode")


def test_the_example_runs() -> None:
    assert doctest.testmod(averaging).failed == 0
