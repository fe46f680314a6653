"""Figures measured on records: right for the holder, blurred for the rest."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from locum.errors import DataError
from locum.report import measured as module, shareable_figures
from locum.report.measured import Scale, blurred, closeness


def naive(queries: np.ndarray, records: np.ndarray, *, same: bool = False) -> np.ndarray:
    all_pairs = np.linalg.norm(queries[:, None] - records[None], axis=2)
    if same:
        np.fill_diagonal(all_pairs, np.inf)
    return all_pairs.min(axis=1)


def test_closeness_agrees_with_all_pairs(rng: np.random.Generator) -> None:
    released, records, non_members = (rng.normal(size=(n, 4)) for n in (70, 90, 40))
    records[7], released[3] = records[8], records[0]
    found = closeness(released, records, non_members, rng)
    expected = {
        "released": naive(released, records),
        "held-out": naive(non_members, records),
        "among records": naive(records, records, same=True),
    }
    assert [s["name"] for s in found["series"]] == list(expected)
    # In units of the usual distance among records.
    assert found["unit"] == pytest.approx(np.median(expected["among records"]))
    expected = {name: d / found["unit"] for name, d in expected.items()}
    edges = np.array(found["edges"])
    for s in found["series"]:
        d = expected[s["name"]]
        assert s["quantiles"]["median"] == pytest.approx(np.median(d), rel=1e-3)
        assert s["quantiles"]["closest"] == pytest.approx(d.min(), rel=1e-3, abs=1e-9)
        assert sum(s["shares"]) == pytest.approx(1, abs=0.01)
        assert s["shares"][-1] == pytest.approx(np.mean(d >= edges[-2]), abs=0.03)
    assert found["copies"] == 1
    limit = np.quantile(expected["among records"], 0.05)
    assert found["closer"] == pytest.approx(np.mean(expected["released"] < limit), abs=1e-4)


def test_far_vectors_do_not_squeeze_the_picture(rng: np.random.Generator) -> None:
    records = rng.normal(size=(200, 4))
    found = closeness(1e4 * rng.normal(size=(100, 4)), records, rng.normal(size=(80, 4)), rng)
    shown = {s["name"]: s for s in found["series"]}
    assert shown["released"]["shares"][-1] == pytest.approx(1, abs=0.02)
    assert sum(share > 0 for share in shown["held-out"]["shares"]) > 5
    assert shown["among records"]["quantiles"]["median"] == pytest.approx(1)


def test_many_records_are_asked_by_a_sample(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(module, "_QUERIES", 50)
    found = closeness(rng.normal(size=(80, 2)), rng.normal(size=(300, 2)), None, rng)
    assert [s["asked"] for s in found["series"]] == [50, 50]
    assert found["closer_held_out"] is None
    with pytest.raises(DataError, match="single row"):
        closeness(np.ones((3, 2)), np.ones((1, 2)), None, rng)


def test_equal_vectors_have_a_picture_too(rng: np.random.Generator) -> None:
    found = closeness(np.ones((9, 2)), np.ones((9, 2)), None, rng)
    assert found["copies"] == 9
    assert found["series"][0]["shares"][0] == 1


def test_scale_puts_features_on_one_scale(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 3)).astype(np.float32) * (1, 1000, 0) + (0, 5, 7)
    z = Scale(X)(X)
    np.testing.assert_allclose(z.std(axis=0), [1, 1, 0], atol=1e-6)
    assert np.abs(z.mean(axis=0)).max() < 1e-6


@given(st.floats(-2, 60), st.floats(0, 1), st.floats(0, 1))
@example(0.9999999999999999, 0.0, 0.0)
def test_blurring_keeps_the_figure_inside_its_interval(value: float, below: float, above: float) -> None:
    seen = blurred({"value": value, "low": value - below, "high": value + above, "n": 1237})
    assert set(seen) == {"value", "low", "high"}
    assert seen["low"] <= seen["value"] <= seen["high"]
    assert seen["low"] <= value - below + 1e-6
    assert seen["high"] >= value + above - 1e-6
    assert all(abs(100 * v - round(100 * v)) < 1e-6 for v in seen.values())
    assert abs(seen["value"] - value) <= 0.0101
    assert (seen["value"] >= 1) == (value >= 1)


def test_nothing_that_is_not_named_leaves(measured: dict[str, Any]) -> None:
    measured["rows"][0]["secret"] = measured["membership"]["secret"] = measured["secret"] = 1237
    text = json.dumps(shareable_figures(measured))
    for hidden in ("1237", "313", "1550", "secret", "0.876", "kappa", '"n"'):
        assert hidden not in text
    assert "0.88" in text
    assert "inconclusive" in text
    assert shareable_figures(measured | {"membership": None})["membership"] is None
