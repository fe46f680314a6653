"""Files that are dropped on the page: whatever their names, they arrive whole, in one place, and replace nothing."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest


def add(studio: Any, drop: str, name: str, raw: bytes = b"new") -> Any:
    return studio.ask("PUT", f"/api/drops/{drop}/file?path={quote(name, safe='')}", raw)


def begin(studio: Any) -> str:
    return str(studio.ask("POST", "/api/drops").json["id"])


def files(place: Path) -> dict[str, bytes]:
    """All files below a folder but the server's own, with what they hold."""
    found = (p for p in place.rglob("*") if p.is_file() and not p.name.startswith("studio."))
    return {str(p.relative_to(place)): p.read_bytes() for p in found}


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../x",
        "a/../../x",
        "/etc/x",
        "/x",
        "a//b",
        "a/",
        ".hidden",
        "a/.hidden",
        ".",
        "a\\b",
        "..\\x",
        "a\0b",
        "x" * 300,
        "é" * 200,
        "a\nb",
        "\x1b[31m",
        "a/" * 25 + "b",
        "\u202e",
        "a\u2028b",
        ".locum/studio/studio.json",
        "a\x7f",
        "",
    ],
)
def test_hostile_names_are_refused(studio: Any, name: str) -> None:
    drop = begin(studio)
    before = files(studio.root.parent)
    answer = add(studio, drop, name)
    assert answer.status == 400
    assert answer.error.count("\n") == 0
    assert files(studio.root.parent) == before
    assert studio.ask("POST", f"/api/drops/{drop}/keep").status == 400
    assert studio.log == ""


def test_what_was_dropped_is_kept_once(studio: Any) -> None:
    drop = begin(studio)
    for name in ("set/ants/1.txt", "set/ants/2.txt", "set/bees/%2e%2e", "set/#.txt", "set/ü -x.txt"):
        assert add(studio, drop, name, name.encode()).status == 201
    assert add(studio, drop, "set/ants/1.txt", b"other").status == 400
    assert add(studio, drop, "set/ants/1.txt/below").status == 400
    assert add(studio, drop, "set/ants").status == 400
    assert studio.ask("POST", f"/api/drops/{drop}/keep").json == {"path": "set"}
    kept = files(studio.root / "set")
    assert kept["ants/1.txt"] == b"set/ants/1.txt"
    assert len(kept) == 5
    assert not (studio.state / "drops" / drop).exists()
    for action in ("keep", "receive", "forget"):
        assert studio.ask("POST", f"/api/drops/{drop}/{action}").status == 404
    assert add(studio, drop, "x").status == 404


def test_nothing_that_is_there_is_replaced(studio: Any, tmp_path: Path) -> None:
    (studio.root / "there.txt").write_bytes(b"old")
    (studio.root / "folder").mkdir()
    (studio.root / "empty").mkdir()
    (studio.root / "folder" / "x").write_bytes(b"old")
    (studio.root / "dangling").symlink_to(tmp_path / "nowhere")
    (studio.root / "inside").symlink_to(studio.root / "nowhere")
    (studio.root / "out").symlink_to(tmp_path)
    before = files(studio.root)
    for name in (
        "there.txt",
        "there.txt/x",
        "folder",
        "folder/x",
        "empty",
        "dangling",
        "inside",
        "inside/x",
        "out",
        "out/x",
    ):
        drop = begin(studio)
        assert add(studio, drop, name).status == 201
        assert studio.ask("POST", f"/api/drops/{drop}/keep").status in (400, 404), name
        assert studio.ask("POST", f"/api/drops/{drop}/forget").status == 200
    assert files(studio.root) == before
    assert list(tmp_path.iterdir()) == []
    assert (studio.root / "dangling").is_symlink()


def test_one_thing_at_a_time(studio: Any) -> None:
    drop = begin(studio)
    assert studio.ask("POST", f"/api/drops/{drop}/keep").status == 400
    add(studio, drop, "one")
    add(studio, drop, "two")
    assert "one folder at a time; got 2" in studio.ask("POST", f"/api/drops/{drop}/keep").error


@pytest.mark.parametrize("drop", ["..", "%2e%2e", "x", "0" * 32, "0" * 5000, "%00", "A" * 32])
def test_other_ids_are_no_drops(studio: Any, drop: str) -> None:
    for method, target in (("PUT", "file?path=x"), ("POST", "keep"), ("POST", "receive"), ("POST", "forget")):
        assert studio.ask(method, f"/api/drops/{drop}/{target}", b"x").status in (404, 405)


def test_half_a_file_is_never_kept(studio: Any) -> None:
    drop = begin(studio)
    head = f"PUT /api/drops/{drop}/file?path=half.npz HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\n"
    head += f"Cookie: {studio.cookie}\r\nX-Locum-Key: {studio.key}\r\nContent-Length: 1000\r\n\r\n"
    file = studio.state / "drops" / drop / "half.npz"
    with socket.create_connection(("127.0.0.1", studio.port), timeout=30) as connection:
        connection.sendall(head.encode() + b"x" * 500)
        studio.wait_for(file.exists)
    studio.wait_for(lambda: not file.exists())
    assert studio.ask("POST", f"/api/drops/{drop}/keep").status == 400
    assert studio.ask("GET", "/api/desk").status == 200
    assert studio.log == ""


def test_what_a_server_left_is_removed_at_the_next_start(start: Callable[..., Any], tmp_path: Path) -> None:
    studio = start()
    drop = begin(studio)
    add(studio, drop, "a/b", b"left")
    (studio.state / "drops" / "stray").write_bytes(b"")
    (studio.state / "drops" / "link").symlink_to(tmp_path)
    (tmp_path / "data").write_bytes(b"mine")
    studio.close(signal.SIGKILL)
    again = start()
    assert list((again.state / "drops").iterdir()) == []
    assert (tmp_path / "data").read_bytes() == b"mine"
    assert add(again, drop, "a/c").status == 404


def test_what_is_no_release_is_not_received(studio: Any, tmp_path: Path) -> None:
    for raw in (b"", b"PK\x03\x04nonsense", os.urandom(5000)):
        drop = begin(studio)
        add(studio, drop, "release.zip", raw)
        answer = studio.ask("POST", f"/api/drops/{drop}/receive")
        assert answer.status == 400
        assert str(studio.root) not in answer.error
        assert not (studio.state / "drops" / drop).exists()
    # What is received stays below the root, whatever is in the way.
    (studio.root / "received").symlink_to(tmp_path)
    drop = begin(studio)
    add(studio, drop, "release.zip", b"")
    assert studio.ask("POST", f"/api/drops/{drop}/receive").status == 404
    assert list(tmp_path.iterdir()) == []
    assert studio.log == ""
