"""The choice of one entry of a block, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from locum.data.table_columns import choose


def one_by_one(block: np.ndarray, rng: np.random.Generator | None) -> list[int]:
    uniforms = rng.random(len(block)) if rng is not None else np.zeros(len(block))
    found = []
    for row, uniform in zip(block.astype(float), uniforms, strict=True):
        best = max(range(len(row)), key=lambda j: row[j])
        clipped = [min(max(v, 0.0), 1.0) for v in row]
        if rng is not None and sum(clipped) > 0:
            height, best = 0.0, -1
            while height <= uniform * sum(clipped):
                best += 1
                height += clipped[best]
        found.append(best)
    return found


@pytest.mark.parametrize("width", [1, 2, 7])
@pytest.mark.parametrize("seed", [None, 3])
def test_choice_is_that_of_a_plain_loop(rng: np.random.Generator, width: int, seed: int | None) -> None:
    # More rows than one piece, inside a wider matrix, with ties and rows without a positive entry.
    wide = np.round(rng.normal(0.2, 1, size=(5000, 20)), 1).astype(np.float32)
    block = wide[:, 3 : 3 + width]
    uniforms = [np.random.default_rng(seed) if seed is not None else None for _ in range(2)]
    assert choose(block, uniforms[0]).tolist() == one_by_one(block, uniforms[1])
