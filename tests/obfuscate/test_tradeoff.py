"""Sweeps: the right points, the same after a kill, and no state of another sweep."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from locum.errors import CheckpointError, ConfigError, DataError
from locum.obfuscate import Labeled, Masking, sweep, trade_off
from locum.obfuscate.tradeoff import Knobs

CHEAP = {"judges": ["trees"], "copies": 2}


class ColumnNoise:
    """A stand-in for an obfuscator: noise on the private column, `scale` as its weights."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def matrix(self, X: pd.DataFrame) -> np.ndarray:
        return X.to_numpy(dtype=np.float32)

    def codes(self, utility: pd.Series) -> np.ndarray:
        return (utility.to_numpy() == "rich").astype(np.int64)

    def masking(self, *, noise: float, lambda_: float) -> Masking:
        def mask(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            out = X.copy()
            out[:, 1] += (self.scale * noise * rng.normal(size=len(X))).astype(np.float32)
            return out

        return mask


def rows(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return (
        pd.DataFrame(X, columns=["wage", "height", "hours"]),
        pd.Series(np.where(X[:, 0] > 0.5, "rich", "poor")),
        pd.Series(np.where(X[:, 1] > 0.4, "tall", "small")),
    )


def labeled(n: int, seed: int) -> Labeled:
    X, utility, private = rows(n, seed)
    return Labeled(X.to_numpy(np.float32), (utility == "rich").to_numpy(int), (private == "tall").to_numpy(int))


def test_more_noise_leaks_less_and_costs_nothing_here() -> None:
    told: list[tuple[int, int, str]] = []
    found = trade_off(
        ColumnNoise(),
        rows(500, 1),
        rows(400, 2),
        noises=[0, 0.3, 100],
        lambdas=[-50],
        progress=lambda *what: told.append(what),
        **CHEAP,
    )
    assert [p.name for p in found.points] == ["noise 0, lambda -50", "noise 0.3, lambda -50", "noise 100, lambda -50"]
    nothing, some, all_of_it = (p.judgment for p in found.points)
    assert nothing.attacker.low > 0.95
    assert all_of_it.attacker.high < some.attacker.low < some.attacker.high < nothing.attacker.low
    assert all_of_it.attacker.low < all_of_it.label_only.high
    assert all(p.judgment.utility.low > 0.95 for p in found.points)
    # Three points; trees attack, attack with several releases, and receive.
    assert [(done, total) for done, total, _ in told] == [(i, 9) for i in range(10)]
    assert told[5][2] == "noise 0.3, lambda -50: attacked by trees with 2 releases"
    assert found.pick(attacker_at_most=0.9).noise == 0.3


def spied(calls: list[str], stop_at: str | None = None) -> dict[Knobs, Masking]:
    def make(name: str, scale: float) -> Masking:
        def mask(X: np.ndarray, utility: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            if name == stop_at:
                raise KeyboardInterrupt
            calls.append(name)
            return (X + scale * rng.normal(size=X.shape)).astype(np.float32)

        return mask

    return {(("noise", scale),): make(f"noise {scale:g}", scale) for scale in (0.1, 0.5, 2.0)}


def test_after_a_kill_it_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    train, test, state = labeled(200, 1), labeled(150, 2), tmp_path / "state.json"
    whole = sweep(spied([]), train, test, **CHEAP)
    with pytest.raises(KeyboardInterrupt):
        sweep(spied([], stop_at="noise 2"), train, test, state=state, **CHEAP)
    assert set(json.loads(state.read_text())["points"]) == {"noise 0.1", "noise 0.5"}
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    calls: list[str] = []
    told: list[tuple[int, int, str]] = []
    again = sweep(spied(calls), train, test, state=state, progress=lambda *what: told.append(what), **CHEAP)
    assert again == whole
    assert set(calls) == {"noise 2"}
    assert told[0][:2] == (6, 9)
    calls.clear()
    assert sweep(spied(calls), train, test, state=state, **CHEAP) == whole
    assert calls == []
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


def test_points_can_be_added_to_a_state(tmp_path: Path) -> None:
    train, test, state = labeled(200, 1), labeled(150, 2), tmp_path / "state.json"
    calls: list[str] = []
    every = spied(calls)
    first = dict(list(every.items())[:1])
    sweep(first, train, test, state=state, **CHEAP)
    calls.clear()
    sweep(every, train, test, state=state, **CHEAP)
    assert set(calls) == {"noise 0.5", "noise 2"}


def test_a_state_of_another_sweep_is_refused(tmp_path: Path) -> None:
    train, test, state = labeled(100, 1), labeled(80, 2), tmp_path / "state.json"
    one = dict(list(spied([]).items())[:1])
    sweep(one, train, test, state=state, **CHEAP)
    before = state.read_bytes()
    others = [
        (train, test, {**CHEAP, "seed": 1}),
        (train, test, {**CHEAP, "copies": 3}),
        (train, test, {**CHEAP, "identity": "other weights"}),
        (train.take(np.arange(99)), test, CHEAP),
        (train, Labeled(test.X, test.utility, 1 - test.private), CHEAP),
    ]
    for a, b, settings in others:
        with pytest.raises(CheckpointError, match="other data, settings or weights"):
            sweep(one, a, b, state=state, **settings)
    assert state.read_bytes() == before
    for text in ("{", "[1]", '{"format": 1, "key": "x", "points": {"a": {"weak": 3}}}'):
        state.write_text(text)
        with pytest.raises(CheckpointError, match="damaged"):
            sweep(one, train, test, state=state, **CHEAP)
    with pytest.raises(DataError, match="folder does not exist"):
        sweep(one, train, test, state=tmp_path / "no" / "state.json", **CHEAP)


def test_another_obfuscator_is_not_taken_for_the_first(tmp_path: Path) -> None:
    state, data = tmp_path / "state.json", (rows(100, 1), rows(80, 2))
    first = trade_off(ColumnNoise(), *data, noises=[1], lambdas=[-1], state=state, **CHEAP)
    assert trade_off(ColumnNoise(), *data, noises=[1], lambdas=[-1], state=state, **CHEAP) == first
    with pytest.raises(CheckpointError, match="weights"):
        trade_off(ColumnNoise(scale=2), *data, noises=[1], lambdas=[-1], state=state, **CHEAP)


def test_settings_can_go_by_name() -> None:
    found = sweep({"ours": lambda X, u, rng: X}, labeled(100, 1), labeled(80, 2), **CHEAP)
    assert found.points[0].name == "ours"
    assert found.points[0].knobs == {}


def test_wrong_input_is_told() -> None:
    train, test = rows(100, 1), rows(80, 2)
    non_member = (test[0], test[1], test[2].replace("small", "Erika"))
    with pytest.raises(DataError, match="'Erika' is in the test rows and in no training row"):
        trade_off(ColumnNoise(), train, non_member, noises=[1], lambdas=[1], **CHEAP)
    with pytest.raises(ConfigError, match="at least one value"):
        trade_off(ColumnNoise(), train, test, noises=[], lambdas=[1], **CHEAP)
    with pytest.raises(ConfigError, match="at least one setting"):
        sweep({}, labeled(50, 1), labeled(50, 2))
    with pytest.raises(DataError, match="as many"):
        trade_off(ColumnNoise(), (train[0], train[1], train[2][:5]), test, noises=[1], lambdas=[1], **CHEAP)
