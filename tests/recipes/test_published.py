"""A paper's figures beside ours: which orders are reversed, and whether a reason is given."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from locum.recipes.published import reversed_pairs, reversed_table
from locum.types import Estimate

NAMES = ("a", "b", "c", "d")


@given(seed=st.integers(0, 2**16), least=st.sampled_from([0.0, 0.3]))
def test_reversed_pairs_are_those_of_a_naive_twin(seed: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    paper = {name: float(rng.integers(0, 4)) / 4 for name in NAMES}
    ours = {name: (rng.integers(0, 4) + rng.normal(size=4) / 4).tolist() for name in NAMES[:3]}
    wanted = set()
    for i in ours:
        for j in ours:
            gap = Estimate.from_runs([x - y for x, y in zip(ours[i], ours[j], strict=True)])
            if i != j and paper[i] > paper[j] and paper[i] - paper[j] >= least and gap.high < 0:
                wanted.add((i, j))
    assert {(a, b) for a, b, _ in reversed_pairs(paper, ours, least)} == wanted


def test_a_reason_is_given_or_it_says_that_there_is_none() -> None:
    paper, ours = {"x": 3.0, "y": 2.0, "z": 1.0}, {"x": [1.0, 1.1], "y": [2.0, 2.1], "z": [3.0, 3.1]}
    text = reversed_table(paper, ours, {"x": "another head"}, what="orders of the thesis")
    assert (
        "| x | y | +1.00 | -1.0 [-1.0, -1.0] | another head |" in text or "| x | y | +1.00 | -1.0 | another" in text
    )
    assert text.count("not explained") == 1
    assert "None of the orders" in reversed_table(paper, {"x": [3.0, 3.1], "y": [1.0, 1.2]}, {}, what="orders")
