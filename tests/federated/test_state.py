"""State files: complete, private, used by one process at a time, and only for the run they belong to."""

from __future__ import annotations

import multiprocessing
import os
import select
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from locum.errors import CheckpointError, ConfigError
from locum.federated import FederationSettings, Reply, Request
from locum.federated.state import (
    UNREADABLE,
    RunState,
    SiteState,
    locked,
    named,
    only_coordinator,
    part_of,
    read_tensors,
    request_key,
    write_tensors,
)
from locum.federated.terms import read_terms


def test_tensors_and_words_come_back(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    turned = np.arange(6.0).reshape(2, 3).T
    write_tensors(file, {"a": turned, "b": np.array([1], np.int64)}, {"round": 3})
    meta, tensors = read_tensors(file)
    assert meta == {"round": 3}
    assert np.array_equal(tensors["a"], turned)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_prefixes_can_be_undone() -> None:
    tensors = {"w": np.ones(1), "b": np.zeros(1)}
    both = {**named("encoder", tensors), **named("decoder", {"w": np.full(1, 2.0)})}
    assert part_of(both, "encoder") == tensors
    assert part_of(both, "decoder")["w"] == 2


@pytest.mark.parametrize("content", [b"", b"nothing like it", None])
def test_what_is_damaged_raises_what_callers_expect(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "state.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UNREADABLE):
        read_tensors(file)


def _hold(file: Path, ready: object, done: object) -> None:
    with locked(file, wait=True):
        ready.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    ready, done, file = fork.Event(), fork.Event(), tmp_path / "lock"
    other = fork.Process(target=_hold, args=(file, ready, done))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(BlockingIOError), locked(file, wait=False):
            pass
        done.set()
        with locked(file, wait=True):
            pass
    finally:
        done.set()
        other.join(30)


REQUEST = Request("train", 2, "n1", {"run": "r", "settings": {"a": 1, "b": [2]}}, {"w": np.ones((2, 3), np.float32)})
REPLY = Reply("train", 2, "n1", "", {"terms": None}, {"w": np.arange(3.0), "m": np.zeros(2, np.uint64)})


def test_the_next_process_finds_all_of_it(tmp_path: Path) -> None:
    with SiteState.opened(tmp_path / "f", "r") as state:
        assert state.reply is None
        assert state.replied(REQUEST) is None
        state.identity, state.used, state.master = "abc", 7, b"\x00\xff"
        state.masks, state.shares, state.clipped = {"a": [1]}, {"0": 0.25}, 0.5
        state.encoder = {"0.weight": np.float32([[1, 2]]), "0.bias": np.float32([3])}
        state.keep(REQUEST, REPLY)
    with SiteState.opened(tmp_path / "f", "r") as again:
        assert (again.identity, again.used, again.master) == ("abc", 7, b"\x00\xff")
        assert (again.masks, again.shares, again.clipped) == ({"a": [1]}, {"0": 0.25}, 0.5)
        assert {k: v.tolist() for k, v in again.encoder.items()} == {"0.weight": [[1.0, 2.0]], "0.bias": [3.0]}
        said = again.replied(replace(REQUEST, nonce="n2"))
        assert said is not None
        # The nonce is that of the new request, or the reply would look replayed.
        assert (said.step, said.round, said.nonce, said.declined, said.facts) == ("train", 2, "n2", "", REPLY.facts)
        assert {k: (v.dtype, v.tolist()) for k, v in said.tensors.items()} == {
            k: (v.dtype, v.tolist()) for k, v in REPLY.tensors.items()
        }
    with SiteState.opened(tmp_path / "f", "another run") as other:
        assert other.reply is None
        assert not other.identity


def test_the_same_request_has_the_same_key() -> None:
    assert request_key(REQUEST) == request_key(replace(REQUEST, nonce="n2"))
    turned = {"settings": {"b": [2], "a": 1}, "run": "r"}
    assert request_key(REQUEST) == request_key(replace(REQUEST, facts=turned))
    w = REQUEST.tensors["w"]
    others = [
        replace(REQUEST, step="finish"),
        replace(REQUEST, round=3),
        replace(REQUEST, facts={**REQUEST.facts, "noise": 1}),
        replace(REQUEST, tensors={"v": w}),
        replace(REQUEST, tensors={"w": w.reshape(3, 2)}),
        replace(REQUEST, tensors={"w": w.astype(np.float64)}),
        replace(REQUEST, tensors={"w": np.nextafter(w, 2)}),
        replace(REQUEST, tensors={}),
    ]
    assert len({request_key(q) for q in [REQUEST, *others]}) == len(others) + 1


def test_it_is_private_and_damage_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    with SiteState.opened(folder, "r") as state:
        state.keep(REQUEST, REPLY)
    files = sorted(folder.iterdir())
    assert [f.suffix for f in files] == [".lock", ".state"]
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    whole = files[1].read_bytes()
    for broken in (whole[:50], b"", whole.replace(b"identity", b"identify")):
        files[1].write_bytes(broken)
        with pytest.raises(CheckpointError, match="damaged"), SiteState.opened(folder, "r"):
            pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_state_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    with SiteState.opened(tmp_path, "r") as state:
        child = os.fork()
        if child == 0:
            with SiteState.opened(tmp_path, "other"):
                os.write(writable, b"o")
            with SiteState.opened(tmp_path, "r") as theirs:
                os.write(writable, theirs.identity.encode())
            os._exit(0)
        # Another run is free; this one is not.
        assert os.read(readable, 1) == b"o"
        assert not select.select([readable], [], [], 0.3)[0]
        state.identity = "x"
        state.keep(REQUEST, REPLY)
    assert select.select([readable], [], [], 30)[0]
    # It sees what was written while it waited.
    assert os.read(readable, 10) == b"x"
    os.waitpid(child, 0)
    os.close(readable)
    os.close(writable)


def test_an_error_lets_go(tmp_path: Path) -> None:
    with pytest.raises(KeyError), SiteState.opened(tmp_path, "r"):
        raise KeyError
    with SiteState.opened(tmp_path, "r") as state:
        assert state.reply is None


Settings = Callable[..., FederationSettings]


def test_a_run_resumes_where_it_stopped(tmp_path: Path, little: Settings) -> None:
    state = RunState.open(tmp_path / "out", little())
    assert (state.round, state.terms, state.sums, state.decoder, state.keys) == (0, {}, {}, {}, {})
    # Its name is on disk before any site gets it.
    assert RunState.open(tmp_path / "out", little()).run == state.run
    state.round, state.keys = 2, {"site/odd name": {"key": "ab", "noise": 1.0}}
    state.terms = {"site/odd name": read_terms({"noise": 1, "size": 3, "terms": None})}
    state.sums, state.decoder = {"site/odd name": np.arange(3.0)}, {"0.weight": np.float32([[1, 2]])}
    state.save()
    again = RunState.open(tmp_path / "out", little())
    assert (again.run, again.round, again.terms, again.keys) == (state.run, 2, state.terms, state.keys)
    assert {k: v.tolist() for k, v in again.sums.items()} == {"site/odd name": [0.0, 1.0, 2.0]}
    assert {k: v.tolist() for k, v in again.decoder.items()} == {"0.weight": [[1.0, 2.0]]}
    assert stat.S_IMODE(state.file.stat().st_mode) == 0o600


def test_two_runs_have_two_names(tmp_path: Path, little: Settings) -> None:
    assert RunState.open(tmp_path / "a", little()).run != RunState.open(tmp_path / "b", little()).run


def test_another_run_is_refused(tmp_path: Path, little: Settings) -> None:
    RunState.open(tmp_path / "out", little())
    with pytest.raises(ConfigError, match="other settings"):
        RunState.open(tmp_path / "out", little(rounds=9))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        RunState.open(tmp_path / "full", little())
    assert [f.name for f in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_damage_is_reported_and_nothing_starts_over(tmp_path: Path, little: Settings) -> None:
    file = RunState.open(tmp_path / "out", little()).file
    whole = file.read_bytes()
    for broken in (b"", whole[:40], whole.replace(b"rounds", b"sounds"), whole.replace(b"pending", b"pensive")):
        assert broken != whole
        file.write_bytes(broken)
        with pytest.raises(CheckpointError, match="damaged"):
            RunState.open(tmp_path / "out", little())
        assert file.read_bytes() == broken


def test_two_coordinators_do_not_share_a_folder(tmp_path: Path, little: Settings) -> None:
    with only_coordinator(tmp_path / "out"):
        with pytest.raises(ConfigError, match="Another coordinator"), only_coordinator(tmp_path / "out"):
            pass
        RunState.open(tmp_path / "out", little())
    with only_coordinator(tmp_path / "out"):
        pass
