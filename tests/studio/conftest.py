"""A real studio in a process of its own, and ways to talk to it: well-behaved ones and others."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from locum.studio.jobs import Jobs

# A busy machine is slow; nothing waits longer.
PATIENCE = 60.0


def wait_for(true: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first true answer; fails if there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing came of it in {seconds:g} seconds")


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class Studio:
    """`python -m locum studio ROOT --no-browser`, and a browser that was let in."""

    def __init__(self, root: Path, *options: str, **popen: Any) -> None:
        self.root = root
        command = [sys.executable, "-m", "locum", "studio", str(root), "--no-browser", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=popen.pop("cwd", "/"), **popen
        )
        self.said, self.complained = b"", b""
        self._threads = [
            threading.Thread(target=self._read, args=(name,), daemon=True) for name in ("stdout", "stderr")
        ]
        for thread in self._threads:
            thread.start()
        found = wait_for(self._link)
        self.port, self.token = int(found[1]), found[2].decode()
        self.cookie, self.key = "", ""

    def _read(self, name: str) -> None:
        stream = getattr(self.process, name)
        while data := os.read(stream.fileno(), 65536):
            if name == "stdout":
                self.said += data
            else:
                self.complained += data

    def _link(self) -> re.Match[bytes] | None:
        assert self.process.poll() is None, self.complained
        # `say` may write to either.
        return re.search(rb"http://127\.0\.0\.1:(\d+)/enter\?token=([\w-]+)", self.said + self.complained)

    def enter(self) -> Studio:
        """Open the link, as a browser does."""
        answer = self.raw("GET", f"/enter?token={self.token}")
        assert answer.status == 200, answer.body
        self.cookie = answer.headers["set-cookie"].split(";")[0]
        found = re.search(rb'name="locum-key" content="([\w-]+)"', answer.body)
        assert found is not None
        self.key = found[1].decode()
        return self

    def raw(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """One request with exactly these headers, and `Host`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, target, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        """One request as the page sends it."""
        own = {"cookie": self.cookie, "x-locum-key": self.key, **{k.replace("_", "-"): v for k, v in headers.items()}}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if raw is not None and not isinstance(body, bytes):
            own["content-type"] = "application/json"
        return self.raw(method, target, own, raw)

    def send(self, raw: bytes, seconds: float = PATIENCE) -> bytes:
        """Bytes as they are; all that comes back before the end or the time limit."""
        back = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection, suppress(OSError):
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                back += data
        return back

    def start(self, kind: str, **arguments: Any) -> str:
        """Start a job; its id."""
        answer = self.ask("POST", "/api/jobs", {"kind": kind, "arguments": arguments})
        assert answer.status == 201, answer.body
        return str(answer.json["id"])

    def job(self, job: str) -> dict[str, Any]:
        """A job, with its result."""
        answer = self.ask("GET", f"/api/jobs/{job}")
        assert answer.status == 200, answer.body
        return dict(answer.json)

    def ended(self, job: str) -> dict[str, Any]:
        """A job at its end."""
        found = wait_for(lambda: j if (j := self.job(job))["state"] not in ("running", "waiting") else None, 120)
        return dict(found)

    wait_for = staticmethod(wait_for)

    @property
    def state(self) -> Path:
        return self.root / ".locum" / "studio"

    @property
    def log(self) -> str:
        file = self.state / "studio.log"
        return file.read_text() if file.exists() else ""

    def close(self, how: int = signal.SIGINT) -> int:
        """End the server; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code


def write_data(file: Path, records: int = 300, features: int = 6) -> Path:
    """Two classes far apart, in three splits."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name in ("train", "val", "test"):
        y = np.arange(records) % 2
        arrays |= {f"{name}_x": (rng.normal(size=(records, features)) + 3 * y[:, None]).astype(np.float32)}
        arrays |= {f"{name}_y": np.array(["ant", "bee"])[y]}
    np.savez(file, **arrays)
    return file


@pytest.fixture(scope="session")
def data_writer() -> Callable[..., Path]:
    return write_data


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Studio]]:
    """Start studios that end with the test."""
    running: list[Studio] = []

    def begin(root: Path = tmp_path, *options: str, **popen: Any) -> Studio:
        running.append(Studio(root, *options, **popen))
        return running[-1].enter()

    yield begin
    for one in running:
        # By their locks: the number of a process that has ended may be another's by now.
        jobs = Jobs(one.state / "jobs", one.root)
        for job in jobs.all():
            jobs.cancel(job["id"])
        one.close(signal.SIGKILL)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One studio for all tests of a module, on a folder with data; what they leave does not matter to the others."""
    # In a folder of its own: tests list what is above it, which must not be the files of all tests before.
    root = tmp_path_factory.mktemp("studio") / "root"
    root.mkdir()
    write_data(root / "data.npz")
    one = Studio(root).enter()
    yield one
    one.close()
