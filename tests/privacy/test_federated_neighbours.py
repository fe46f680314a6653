"""Neighbors in a federation: one unit more at one site moves each sum by at most 1, and canaries stay hidden."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from locum.accounting import epsilon_of
from locum.data import load_reference, load_sample, partition_iid
from locum.federated import FederationSettings, plan_site
from locum.federated.protocol import Request
from locum.federated.queries import Query, SiteQueries, read_query
from locum.mechanisms import noisy
from locum.types import DP, EmbeddingSet

CLASSES = ("ant", "bee", "cow")
TERMS = FederationSettings(CLASSES, dim=5)
PLAIN = load_reference("none", 5)


def queries(X: np.ndarray, y: np.ndarray, subject: np.ndarray | None = None) -> SiteQueries:
    data = EmbeddingSet.from_arrays(X.astype(np.float32), np.array(CLASSES)[y]).with_classes(CLASSES)
    return SiteQueries(data, subject, TERMS, PLAIN)


def asked(kind: str, seed: int, size: float, clip: float) -> Query:
    """A query as a site gets it: whatever a hostile coordinator likes, within what `read_query` lets through."""
    rng = np.random.default_rng(seed)
    tensors = {
        "center": rng.normal(size=5) * min(size, 10.0),
        "weights": rng.normal(size=(3, 5)) * size,
        "offsets": rng.normal(size=3) * size,
    }
    wanted = {"first": (), "classes": ("center",), "gradient": ("center", "weights", "offsets")}[kind]
    request = Request(
        "sum", 0, "n", {"query": kind, "share": 0.5, "clip": clip}, {name: tensors[name] for name in wanted}
    )
    return read_query(request, TERMS)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["first", "classes", "gradient"]),
    st.integers(0, 10**6),
    st.sampled_from([1e-3, 1.0, 1e3, 1e90]),
    st.sampled_from([1e-6, 0.5, 1e6]),
    st.sampled_from([1e-30, 1.0, 1e30]),
    st.booleans(),
)
def test_one_unit_more_moves_a_sum_by_at_most_one(
    kind: str, seed: int, size: float, clip: float, scale: float, by_subject: bool
) -> None:
    rng = np.random.default_rng(seed)
    n, more = int(rng.integers(1, 40)), int(rng.integers(1, 6)) if by_subject else 1
    X = rng.normal(size=(n + more, 5)) * scale
    y, who = rng.integers(0, 3, size=n + more), np.concatenate([rng.integers(0, 5, size=n), np.full(more, 99)])
    query = asked(kind, seed, size, clip)
    with_it = queries(X, y, who if by_subject else None).sums(query)
    without = queries(X[:n], y[:n], who[:n] if by_subject else None).sums(query)
    moved = (with_it.integers - without.integers).astype(object)
    steps = with_it.steps.astype(np.float64)
    length = math.sqrt(math.fsum((float(m) * s) ** 2 for m, s in zip(moved, steps, strict=True)))
    assert length <= 1 + 1e-9
    np.testing.assert_array_equal(with_it.steps, query.steps(TERMS))


def totals(member: bool, draws: int, seed: int, plan: Any, honest: int) -> np.ndarray:
    """What a coordinator learns along a canary's direction, over many runs of the sum of all sites."""
    sample = load_sample("digits")
    parts = list(partition_iid(sample, honest, np.random.default_rng(0)).values())
    terms = FederationSettings(tuple("0123456789"), dim=64)
    canary = np.zeros((1, 64), np.float32)
    canary[0, 0] = 1.0
    query = Query("classes", 1.0, tensors={"center": np.zeros(64)})
    exact = []
    for number, part in enumerate(parts):
        X, y = part.X[:50], part.y[:50]
        if number == 0 and member:
            X, y = np.concatenate([X, canary]), np.concatenate([y, [3]])
        data = EmbeddingSet.from_arrays(X, np.array(list("0123456789"))[y]).with_classes(tuple("0123456789"))
        exact.append(SiteQueries(data, None, terms, load_reference("none", 64)).sums(query))
    found = np.zeros(draws)
    for one in exact:
        for i in range(draws):
            part = noisy(one, plan.sums_noise, parts=honest, insecure_seed=seed, step=1000 * i + exact.index(one))
            found[i] += part.to_array()[3 * 64]
    return found


def test_a_canary_is_as_hidden_as_the_claim_says() -> None:
    """All of the precision in one sum, along the canary's own direction: the best test that there is."""
    honest, draws = 3, 400
    terms = FederationSettings(tuple("0123456789"), dim=64, epsilon=1.0, delta=1e-5)
    plan = plan_site(terms, DP(1.0, 1e-5))
    inside, outside = totals(True, draws, 1, plan, honest), totals(False, draws, 2, plan, honest)
    apart = (inside.mean() - outside.mean()) / np.sqrt((inside.var() + outside.var()) / 2)
    # A unit of length 1 against the planned noise of all honest sites; measured to about .07.
    assert apart == pytest.approx(1 / plan.sums_noise, abs=0.22)
    assert epsilon_of(plan.events, 1e-5) <= 1.0
    spread = np.sqrt((inside.var() + outside.var()) / 2)
    assert spread == pytest.approx(plan.sums_noise, rel=0.1)
