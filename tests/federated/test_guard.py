"""What is let in: no honest site is turned away, and what is turned away is told why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from locum.data import Reference
from locum.federated import FederationSettings, Reply, Request
from locum.federated.aggregation import farthest, too_large, why_refused
from locum.generate.private import COUNTS_ONLY, MEANS, MEANS_AND_PRODUCTS, query_sums

ZEROS = np.zeros((2, 2), np.float32)
ASKED = Request("train", 3, "n", {}, {"decoder/w": ZEROS, "means": ZEROS})
SAID = Reply("train", 3, "n", tensors={"decoder/w": ZEROS + np.float32(0.5)})
WANTED = {"decoder/w": (2, 2)}


def test_an_honest_answer_is_let_in() -> None:
    assert why_refused(ASKED, SAID, WANTED, 0.5) == ""
    assert why_refused(ASKED, SAID, WANTED) == ""
    words = {"sums": np.ones(3, np.uint64)}
    assert why_refused(replace(ASKED, step="sums"), replace(SAID, step="sums", tensors=words), {"sums": (3,)}) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step": "join"}, "another question"),
        ({"round": 2}, "another question"),
        ({"nonce": "old"}, "given before"),
        ({"tensors": {}}, "names or shapes"),
        ({"tensors": {"decoder/w": ZEROS, "more": ZEROS}}, "names or shapes"),
        ({"tensors": {"decoder/w": ZEROS[:1]}}, "names or shapes"),
        ({"tensors": {"decoder/w": ZEROS.ravel()}}, "names or shapes"),
        ({"tensors": {"decoder/w": np.float32([[0, 0], [0, np.nan]])}}, "not finite"),
        ({"tensors": {"decoder/w": np.float32([[0, 0], [0, -np.inf]])}}, "not finite"),
        ({"tensors": {"decoder/w": np.float32([[0, 0], [0, -0.6]])}}, "too far"),
        ({"tensors": {"decoder/w": np.zeros((2, 2), np.uint64)}}, "wrong kind"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_anything_else_is_not(change: dict[str, Any], told: str) -> None:
    assert told in why_refused(ASKED, replace(SAID, **change), WANTED, 0.55)


def test_masked_sums_are_words() -> None:
    """Numbers of another kind could not be added to the others'."""
    said = replace(SAID, step="sums", tensors={"sums": np.ones(3)})
    assert why_refused(replace(ASKED, step="sums"), said, {"sums": (3,)}) == "tensors of the wrong kind"


@settings(max_examples=12)
@given(st.integers(0, 2**16), st.integers(1, 40), st.sampled_from([1e-3, 0.1]))
def test_no_training_goes_farther_than_the_limit(seed: int, steps: int, rate: float) -> None:
    """Adam on gradients as wild as they come: still, then a burst; of any size."""
    rng = np.random.default_rng(seed)
    weight = torch.nn.Parameter(torch.zeros(5))
    adam = torch.optim.Adam([weight], lr=rate)
    for step in range(steps):
        size = 10.0 ** rng.uniform(-12, 12) * (step >= rng.integers(steps))
        weight.grad = torch.tensor(size * rng.choice([-1.0, 1.0, 1e-9], 5), dtype=torch.float32)
        adam.step()
    limit = farthest(FederationSettings(("a", "b"), dim=2, learning_rate=rate), steps)
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
    assert farthest(little(), 10) == pytest.approx(10 * farthest(little(), 1)) == pytest.approx(0.064)
