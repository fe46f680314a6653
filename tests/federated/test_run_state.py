"""What a coordinator remembers: enough to go on, and only for the run it belongs to."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from locum.errors import CheckpointError, ConfigError
from locum.federated import FederationSettings
from locum.federated.state import RunState, alone_in
from locum.federated.terms import read_terms

Terms = Callable[..., FederationSettings]


def test_a_run_goes_on_where_it_was(tmp_path: Path, little: Terms) -> None:
    state = RunState.open(tmp_path / "out", little())
    assert (state.round, state.terms, state.sums, state.decoder, state.joined) == (0, {}, {}, {}, {})
    # Its name is on disk before any site could hear it.
    assert RunState.open(tmp_path / "out", little()).run == state.run
    state.round, state.joined = 2, {"site/odd name": {"key": "ab", "noise": 1.0}}
    state.terms = {"site/odd name": read_terms({"noise": 1, "size": 3, "terms": None})}
    state.sums, state.decoder = {"site/odd name": np.arange(3.0)}, {"0.weight": np.float32([[1, 2]])}
    state.save()
    again = RunState.open(tmp_path / "out", little())
    assert (again.run, again.round, again.terms, again.joined) == (state.run, 2, state.terms, state.joined)
    assert {k: v.tolist() for k, v in again.sums.items()} == {"site/odd name": [0.0, 1.0, 2.0]}
    assert {k: v.tolist() for k, v in again.decoder.items()} == {"0.weight": [[1.0, 2.0]]}
    assert stat.S_IMODE(state.file.stat().st_mode) == 0o600


def test_two_runs_have_two_names(tmp_path: Path, little: Terms) -> None:
    assert RunState.open(tmp_path / "a", little()).run != RunState.open(tmp_path / "b", little()).run


def test_another_run_is_refused(tmp_path: Path, little: Terms) -> None:
    RunState.open(tmp_path / "out", little())
    with pytest.raises(ConfigError, match="other settings"):
        RunState.open(tmp_path / "out", little(rounds=9))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        RunState.open(tmp_path / "full", little())
    assert [f.name for f in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_damage_is_told_and_nothing_begins_anew(tmp_path: Path, little: Terms) -> None:
    file = RunState.open(tmp_path / "out", little()).file
    whole = file.read_bytes()
    for broken in (b"", whole[:40], whole.replace(b"rounds", b"sounds"), whole.replace(b"joined", b"joyned")):
        assert broken != whole
        file.write_bytes(broken)
        with pytest.raises(CheckpointError, match="damaged"):
            RunState.open(tmp_path / "out", little())
        assert file.read_bytes() == broken


def test_two_coordinators_do_not_share_a_folder(tmp_path: Path, little: Terms) -> None:
    with alone_in(tmp_path / "out"):
        with pytest.raises(ConfigError, match="Another coordinator"), alone_in(tmp_path / "out"):
            pass
        RunState.open(tmp_path / "out", little())
    with alone_in(tmp_path / "out"):
        pass
