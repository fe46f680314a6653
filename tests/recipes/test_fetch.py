"""Downloads from a real server on this machine: complete or not there, resumed, and never from where they may not."""

from __future__ import annotations

import hashlib
import os
import threading
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from locum.errors import ConfigError, DataError
from locum.recipes import fetch_data
from locum.recipes.fetch import _entry

RAW = os.urandom(700_000)


class Server(ThreadingHTTPServer):
    """Serves `raw`, in pieces that end after `stop` bytes, with an ETag or without; counts what it sent."""

    raw = RAW
    stop: int | None = None
    etag: str | None = '"v1"'
    ranges = True
    redirect: str | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []
        self.sent = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.asked.append(self.headers["Range"])
        if self.path == "/missing":
            self.send_error(404)
            return
        if server.redirect is not None and self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", server.redirect)
            self.end_headers()
            return
        start = 0
        asked = self.headers["Range"]
        same = self.headers["If-Range"] in (None, server.etag)
        if server.ranges and asked and same:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.raw):
                self.send_error(416)
                return
        body = server.raw[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.raw) - 1}/{len(server.raw)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: server.stop]
        server.sent += len(body)
        # Whoever sees a wrong length hangs up.
        with suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def sources(folder: Path, url: str, **more: object) -> Path:
    lines = ["[thing]", f'url = "{url}"', *(f"{k} = {v if isinstance(v, int) else repr(v)}" for k, v in more.items())]
    (folder / "sources.toml").write_text("\n".join(lines) + "\n")
    return folder / "sources.toml"


def hidden(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("."))


SHA = hashlib.sha256(RAW).hexdigest()
MD5 = hashlib.md5(RAW, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("given", "verified"), [({"sha256": SHA}, "sha256"), ({"md5": MD5.upper()}, "md5"), ({}, "")]
)
def test_it_brings_the_file(server: Server, tmp_path: Path, given: dict[str, str], verified: str) -> None:
    settings = sources(tmp_path, f"{server.address}/a/thing.npz?download=1", **given)
    seen: list[tuple[int, int]] = []
    done = fetch_data("thing", settings, tmp_path / "new" / "out", progress=lambda d, t, note="": seen.append((d, t)))
    assert (tmp_path / "new" / "out" / "thing.npz").read_bytes() == RAW
    assert (done.bytes, done.sha256, done.verified, done.already) == (len(RAW), SHA, verified, False)
    assert hidden(tmp_path / "new" / "out") == []
    assert seen[-1] == (len(RAW), len(RAW))


def test_what_is_there_is_not_brought_again(server: Server, tmp_path: Path) -> None:
    settings = sources(tmp_path, f"{server.address}/thing.npz", sha256=SHA)
    fetch_data("thing", settings, tmp_path)
    assert fetch_data("thing", settings, tmp_path).already
    assert len(server.asked) == 1
    (tmp_path / "thing.npz").write_bytes(b"another")
    with pytest.raises(ConfigError, match="another sha256 than the settings say"):
        fetch_data("thing", settings, tmp_path)
    assert (tmp_path / "thing.npz").read_bytes() == b"another"
    fetch_data("thing", settings, tmp_path, overwrite=True)
    assert (tmp_path / "thing.npz").read_bytes() == RAW


@pytest.mark.parametrize("etag", ['"v1"', None])
def test_a_stopped_download_resumes(server: Server, tmp_path: Path, etag: str | None) -> None:
    settings = sources(tmp_path, f"{server.address}/thing.npz", sha256=SHA)
    server.etag = etag
    server.stop = 300_000
    for _ in range(2):
        with pytest.raises(DataError, match="run the same command again to resume"):
            fetch_data("thing", settings, tmp_path)
        assert not (tmp_path / "thing.npz").exists()
    server.stop = None
    done = fetch_data("thing", settings, tmp_path)
    assert (tmp_path / "thing.npz").read_bytes() == RAW
    assert done.resumed == 600_000
    # Every byte was sent once.
    assert server.sent == len(RAW)
    assert server.asked == [None, "bytes=300000-", "bytes=600000-"]
    assert hidden(tmp_path) == []


def test_a_file_that_changed_meanwhile_is_brought_anew(server: Server, tmp_path: Path) -> None:
    settings = sources(tmp_path, f"{server.address}/thing.npz")
    server.stop = 300_000
    with pytest.raises(DataError):
        fetch_data("thing", settings, tmp_path)
    server.stop, server.raw, server.etag = None, bytes(reversed(RAW)), '"v2"'
    assert fetch_data("thing", settings, tmp_path).resumed == 0
    assert (tmp_path / "thing.npz").read_bytes() == server.raw


@pytest.mark.parametrize(("etag", "ranges"), [(None, True), ('W/"v1"', True), ('"v1"', False)])
def test_nothing_is_resumed_that_could_be_another_file(
    server: Server, tmp_path: Path, etag: str | None, ranges: bool
) -> None:
    settings = sources(tmp_path, f"{server.address}/thing.npz")
    server.etag, server.ranges, server.stop = etag, ranges, 300_000
    with pytest.raises(DataError):
        fetch_data("thing", settings, tmp_path)
    server.stop = None
    assert fetch_data("thing", settings, tmp_path).resumed == 0
    assert (tmp_path / "thing.npz").read_bytes() == RAW


def test_a_run_that_was_killed_at_the_end_needs_no_byte_more(server: Server, tmp_path: Path) -> None:
    settings = sources(tmp_path, f"{server.address}/thing.npz", md5=MD5)
    (tmp_path / ".thing.npz.part").write_bytes(RAW)
    assert fetch_data("thing", settings, tmp_path).resumed == len(RAW)
    assert server.asked == []


def test_a_longer_part_of_something_else_is_thrown_away(server: Server, tmp_path: Path) -> None:
    url = f"{server.address}/thing.npz"
    settings = sources(tmp_path, url, sha256=SHA)
    (tmp_path / ".thing.npz.part").write_bytes(RAW + b"more")
    (tmp_path / ".thing.npz.part.json").write_text(f'{{"url": "{url}", "version": "\\"v1\\""}}')
    fetch_data("thing", settings, tmp_path)
    assert (tmp_path / "thing.npz").read_bytes() == RAW


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sha256": "0" * 64}, "the sha256"),
        ({"md5": "0" * 32}, "the md5"),
        ({"bytes": 10}, "offers 700000 bytes where the settings say 10"),
    ],
)
def test_what_does_not_agree_is_removed(server: Server, tmp_path: Path, given: dict[str, Any], words: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(DataError, match=words):
        fetch_data("thing", sources(tmp_path, f"{server.address}/thing.npz", **given), out)
    assert hidden(out) == []
    assert not (out / "thing.npz").exists()


def test_a_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_bytes(RAW)
    settings = sources(tmp_path, (tmp_path / "a b.csv").as_uri(), file="sub/copy.csv", sha256=SHA)
    assert fetch_data("thing", settings, tmp_path / "out").verified == "sha256"
    assert (tmp_path / "out" / "sub" / "copy.csv").read_bytes() == RAW
    with pytest.raises(DataError, match="There is no file"):
        fetch_data("thing", sources(tmp_path, "file:///nowhere/x.csv"), tmp_path / "out")


def test_answers_that_are_no_file(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"404 \(Not Found\)"):
        fetch_data("thing", sources(tmp_path, f"{server.address}/missing"), tmp_path)
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"stopped: .*refused"):
        fetch_data("thing", sources(tmp_path, f"{server.address}/thing.npz"), tmp_path)


@pytest.mark.parametrize("target", ["http://example.org/x", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_to_an_unsafe_address_is_not_followed(server: Server, tmp_path: Path, target: str) -> None:
    server.redirect = target
    # Of redirects to files, Python itself makes an error.
    with pytest.raises(DataError, match=r"is not followed|answered 302"):
        fetch_data("thing", sources(tmp_path, f"{server.address}/moved"), tmp_path)


def test_a_redirect_on_the_same_machine_is_followed(server: Server, tmp_path: Path) -> None:
    server.redirect = f"{server.address}/elsewhere"
    fetch_data("thing", sources(tmp_path, f"{server.address}/moved", file="thing.npz"), tmp_path)
    assert (tmp_path / "thing.npz").read_bytes() == RAW


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        ("http://example.org/x.npz", {}, "https://"),
        ("ftp://example.org/x.npz", {}, "https://"),
        ("file://host/x.npz", {}, "https://"),
        ("x.npz", {}, "https://"),
        ("https://me:secret@example.org/x.npz", {}, "password"),
        ("https://example.org:port/x.npz", {}, "not valid"),
        ("https://example.org/a b.npz", {}, "not valid"),
        ("https://example.org/", {}, "must set `file`"),
        ("https://example.org/x.npz", {"file": "../x.npz"}, "must set `file`"),
        ("https://example.org/%2e%2e%2fx.npz", {}, "must set `file`"),
        ("https://example.org/x.npz", {"sha256": "abc"}, "64 hexadecimal digits"),
        ("https://example.org/x.npz", {"bytes": 0}, "above 0"),
        ("https://example.org/x.npz", {"sha": "abc"}, "known are url"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, url: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        fetch_data("thing", sources(tmp_path, url, **more), tmp_path / "out")
    assert "secret" not in str(told.value)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match=r"no table \[other\]; it has thing"):
        fetch_data("other", tmp_path / "sources.toml", tmp_path / "out")


def test_the_shipped_sources_can_be_used() -> None:
    file = Path(__file__).resolve().parents[2] / "examples" / "data_sources.toml"
    entries = {name: _entry(name, file) for name in tomllib.loads(file.read_text())}
    assert len({entry["file"] for entry in entries.values()}) == len(entries) >= 8
