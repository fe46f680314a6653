"""What federations keep on disk."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import numpy as np
import pytest

from locum.federated.state import UNREADABLE, locked, named, part_of, read_tensors, write_tensors


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
    spawn = multiprocessing.get_context("spawn")
    ready, done, file = spawn.Event(), spawn.Event(), tmp_path / "lock"
    other = spawn.Process(target=_hold, args=(file, ready, done))
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
