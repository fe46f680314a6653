"""A site's memory: whole, private, one process at a time."""

from __future__ import annotations

import os
import select
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from locum.errors import CheckpointError
from locum.federated import Reply, Request
from locum.federated.state import SiteState, request_key

ASKED = Request("train", 2, "n1", {"run": "r", "settings": {"a": 1, "b": [2]}}, {"w": np.ones((2, 3), np.float32)})
SAID = Reply("train", 2, "n1", "", {"terms": None}, {"w": np.arange(3.0), "m": np.zeros(2, np.uint64)})


def test_the_next_process_finds_all_of_it(tmp_path: Path) -> None:
    with SiteState.opened(tmp_path / "f", "r") as state:
        assert state.reply is None
        assert state.replied(ASKED) is None
        state.identity, state.used, state.key_pair = "abc", 7, b"\x00\xff"
        state.encoder = {"0.weight": np.float32([[1, 2]]), "0.bias": np.float32([3])}
        state.keep(ASKED, SAID)
    with SiteState.opened(tmp_path / "f", "r") as again:
        assert (again.identity, again.used, again.key_pair) == ("abc", 7, b"\x00\xff")
        assert {k: v.tolist() for k, v in again.encoder.items()} == {"0.weight": [[1.0, 2.0]], "0.bias": [3.0]}
        said = again.replied(replace(ASKED, nonce="n2"))
        assert said is not None
        # The nonce is the new question's, or the answer would pass for a replayed one.
        assert (said.step, said.round, said.nonce, said.declined, said.facts) == ("train", 2, "n2", "", SAID.facts)
        assert {k: (v.dtype, v.tolist()) for k, v in said.tensors.items()} == {
            k: (v.dtype, v.tolist()) for k, v in SAID.tensors.items()
        }
    with SiteState.opened(tmp_path / "f", "another run") as other:
        assert other.reply is None
        assert not other.identity


def test_the_same_question_is_the_same_whoever_asks() -> None:
    assert request_key(ASKED) == request_key(replace(ASKED, nonce="n2"))
    turned = {"settings": {"b": [2], "a": 1}, "run": "r"}
    assert request_key(ASKED) == request_key(replace(ASKED, facts=turned))
    w = ASKED.tensors["w"]
    others = [
        replace(ASKED, step="finish"),
        replace(ASKED, round=3),
        replace(ASKED, facts={**ASKED.facts, "noise": 1}),
        replace(ASKED, tensors={"v": w}),
        replace(ASKED, tensors={"w": w.reshape(3, 2)}),
        replace(ASKED, tensors={"w": w.astype(np.float64)}),
        replace(ASKED, tensors={"w": np.nextafter(w, 2)}),
        replace(ASKED, tensors={}),
    ]
    assert len({request_key(q) for q in [ASKED, *others]}) == len(others) + 1


def test_it_is_private_and_damage_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    with SiteState.opened(folder, "r") as state:
        state.keep(ASKED, SAID)
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
def test_one_process_at_a_time(tmp_path: Path) -> None:
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
        state.keep(ASKED, SAID)
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
