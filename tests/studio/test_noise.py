"""Requests that no browser sends: the server answers the next good one, and has nothing to complain about."""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

METHODS = [
    b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"PRI", b"\xff",
    b"get",
]  # fmt: skip
PATHS = [
    b"/", b"/enter", b"/enter?token=%ff", b"/link", b"/static/studio.css", b"/static/../app.py",
    b"/static/%2e%2e/app.py", b"/api/desk", b"/api/jobs", b"/api/jobs/..", b"/api/jobs/%00/events",
    b"/api/jobs/%2e%2e/cancel", b"/api/plan", b"/api/data?path=%00", b"/api/data?path=%ff%fe",
    b"/api/data?path=" + b"a" * 3000, b"/api/data", b"/api/drops", b"/api/data?path=a&path=b",
    b"/api/curves?units=nan&classes=2", b"/api/curves?units=1e999&classes=-1", b"/api/keys",
    b"/api/drops/x/file?path=..", b"/api/drops/" + b"0" * 32 + b"/keep", b"/api/decide", b"/api/zip?release=..",
    b"*", b"/api/epsilon?want_auc=x&units=2&classes=2", b"/\xff\xfe", b"/%ff%fe", b"/%", b"//", b"/a b",
    b"http://evil.example/", b"/api/ledger?path=.locum/ledger.sqlite", b"/api/verify?release=a&key=%0d%0a", b"",
    b"/?" + b"&" * 2000, b"/#", b"/\x00",
]  # fmt: skip
BODIES = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff\xfe", b"[" * 5000, b'{"a":' * 5000, b"9" * 6000, b"NaN",
    b'{"kind": 1}', b'{"kind": "fit"}', b'{"kind": "fit", "arguments": []}',
    b'{"kind": "\\ud800", "arguments": {}}', b'{"kind": "fit", "arguments": {"data": "\\ud800", "out": "\\u0000"}}',
    b'{"kind": "none", "arguments": {}}', b'{"kind": "fit", "arguments": {"data": "data.npz", "out": "../x"}}',
    b'{"kind": "survey", "arguments": {"data": 1e999}}', b'{"kind": "fit", "arguments": {"\\ud800": 1}}',
    b'{"data": "nowhere", "out": "x", "epsilon": NaN}', b'{"name": ".."}',
    b'{"data": "data.npz", "out": "x", "epsilon": -1}', b'{"data": "data.npz", "out": "x", "classes": [[[]]]}',
    b'{"release": [], "outcome": {}, "checklist": 3}', b'{"name": "\\n", "passphrase": 5}', b"a" * 70000,
]  # fmt: skip
EXTRAS = [
    b"", b"Content-Length: -1", b"Content-Length: 5, 6", b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: \x0bchunked",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13",
    b"Expect: 100-continue", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings", b"Range: bytes=0-,1-,2-",
    b"Range: bytes=x", b"A: " + b"b" * 20000, b"Cookie: \xff\xfe", b"Cookie: " + b"a=b; " * 2000,
    b"Content-Type: \xff", b"Content-Type: multipart/form-data; boundary=",
    b"Content-Type: application/json; charset=\xff", b"Last-Event-ID: " + b"9" * 30, b"Last-Event-ID: \xb2", b": x",
    b"no colon", b" folded: x", b"X: a\r\n folded", b"X-Locum-Key: \xff", b"X-Locum-Secret: \xff", b"Origin: \xff",
    b"Content-Encoding: gzip", b"If-None-Match: *", b"If-Range: x\r\nRange: bytes=1-2", b"Accept: \x00", b"\r\n",
    b"X-Forwarded-For: 1\r\nForwarded: host=a",
]  # fmt: skip


def noise(rng: random.Random, studio: Any) -> bytes:
    """One malformed request; half of them come from the browser that was let in."""
    kind = rng.random()
    if kind < 0.08:
        return rng.randbytes(rng.randrange(1, 400)) + rng.choice([b"", b"\r\n\r\n"])
    if kind < 0.12:
        return rng.choice(
            [b"GET /\r\n", b"GET / HTTP/0.9\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50, b"\x16\x03\x01\x02"]
        )
    let_in = b"Cookie: %s\r\nX-Locum-Key: %s\r\n" % (studio.cookie.encode(), studio.key.encode())
    host = b"Host: 127.0.0.1:%d\r\n" % studio.port if rng.random() < 0.9 else rng.choice([b"", b"Host: \xff\r\n"])
    body, extra = rng.choice(BODIES), rng.choice(EXTRAS) if rng.random() < 0.6 else b""
    head = (
        rng.choice(METHODS) + b" " + rng.choice(PATHS) + rng.choice([b" HTTP/1.1", b" HTTP/1.0", b" HTTP/1.1", b""])
    )
    head += b"\r\n" + host + (let_in if rng.random() < 0.7 else b"")
    if rng.random() < 0.3:
        size = rng.choice([b"%x" % len(body), b"fffffff", b"-1", b"zz", b"%x;a=b" % len(body)])
        framed = b"Transfer-Encoding: chunked\r\n", size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    else:
        framed = b"Content-Length: %d\r\n" % (len(body) + rng.choice([0, 0, 0, 5, -min(1, len(body))])), body
    raw = head + framed[0] + (extra + b"\r\n" if extra else b"") + b"\r\n" + framed[1]
    if rng.random() < 0.1:
        at = rng.randrange(len(raw))
        raw = raw[:at] + rng.randbytes(rng.randrange(4)) + raw[at + 1 :]
    # Another request behind it, as in smuggling; or only a part.
    return raw * 2 if rng.random() < 0.1 else raw[: rng.randrange(len(raw))] if rng.random() < 0.1 else raw


def shout(studio: Any, count: int) -> None:
    rng = random.Random(20)
    statuses: set[bytes] = set()
    waiting: deque[tuple[bytes, socket.socket]] = deque()

    def hear() -> None:
        raw, connection = waiting.popleft()
        back = b""
        # Many leave before they are answered.
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                back += data
        found = {line.split()[1] for line in back.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")}
        assert not any(status.startswith(b"5") for status in found), (raw[:300], back[:2000])
        statuses.update(found)

    for i in range(count):
        raw = noise(rng, studio)
        connection = socket.create_connection(("127.0.0.1", studio.port), timeout=20)
        with suppress(OSError):
            connection.sendall(raw)
        connection.setblocking(False)
        waiting.append((raw, connection))
        if len(waiting) > 60:
            hear()
        if i % 500 == 0:
            assert studio.ask("GET", "/api/desk").status == 200
    time.sleep(1)
    while waiting:
        hear()
    assert studio.ask("GET", "/api/desk").status == 200
    assert {b"200", b"400", b"401", b"403", b"404", b"405", b"421"} <= statuses
    assert studio.log == ""
    assert studio.complained == b""


def be_slow(studio: Any) -> None:
    """Clients that say nothing, or a byte now and then, or keep a connection: all are sent away."""
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % studio.port
    with (
        socket.create_connection(("127.0.0.1", studio.port), timeout=30) as silent,
        socket.create_connection(("127.0.0.1", studio.port), timeout=30) as slow,
        socket.create_connection(("127.0.0.1", studio.port), timeout=30) as kept,
    ):
        kept.sendall(head + b"\r\n")
        began, sent = time.monotonic(), 0
        slow.settimeout(0.5)
        while time.monotonic() - began < 25:
            try:
                slow.sendall((head + b"X: " + b"a" * 1000)[sent : sent + 1])
                sent += 1
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < 20
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
        with suppress(ConnectionError):
            while kept.recv(65536):
                pass
    # A stranger whose body never ends is sent away at once.
    with socket.create_connection(("127.0.0.1", studio.port), timeout=10) as endless:
        endless.sendall(head.replace(b"GET", b"POST") + b"Content-Length: 1000000\r\n\r\n")
        back = b""
        with suppress(ConnectionError):
            while data := endless.recv(65536):
                back += data
        assert back.startswith(b"HTTP/1.1 401")


def test_noise_changes_nothing_and_nobody_keeps_a_connection_by_being_slow(studio: Any) -> None:
    before = {p.name for p in studio.root.iterdir()}
    # Ten seconds of waiting, while others shout.
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(be_slow, studio)
        shout(studio, 10_000)
        slow.result()
    assert {p.name for p in studio.root.iterdir()} == before
    assert not any((studio.state / "jobs").glob("*-*"))


def test_many_connections_do_not_use_up_the_files(start: Callable[..., Any]) -> None:
    studio = start()
    opened = []
    try:
        for _ in range(400):
            opened.append(socket.create_connection(("127.0.0.1", studio.port), timeout=10))
    finally:
        for one in opened:
            one.close()
    assert studio.wait_for(lambda: studio.ask("GET", "/api/desk").status == 200)
    assert studio.complained == b""


def test_a_body_that_is_too_long_is_refused_in_words(studio: Any) -> None:
    long = b" " * (2**20 + 1)
    answer = studio.ask("POST", "/api/jobs", long)
    assert (answer.status, "drop the files" in answer.error) == (413, True)
    head = f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\nCookie: {studio.cookie}\r\n"
    head += f"X-Locum-Key: {studio.key}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n" % 2**16 + b" " * 2**16 + b"\r\n" for _ in range(17))
    assert studio.send(head.encode() + chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert studio.log == ""
