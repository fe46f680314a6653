"""A real object store for tests: moto's server in a process of its own, and a proxy in front that fails and delays.

Both listen on this machine only. `object_store()` sets the environment that s3:// addresses read, for the test alone.
"""

from __future__ import annotations

import http.client
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pyarrow import fs

_BUCKETS = itertools.count()


@dataclass
class Store:
    """A running store; `bucket()` makes a new bucket, so that tests do not see each other's objects."""

    port: int
    env: dict[str, str] = field(default_factory=dict)

    def bucket(self) -> str:
        """Address of a new, empty bucket."""
        name = f"bucket-{os.getpid()}-{next(_BUCKETS)}"
        self.system().create_dir(name)
        return f"s3://{name}"

    def system(self) -> fs.S3FileSystem:
        """The store itself, never the proxy."""
        return fs.S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
        )

    def upload(self, folder: Path, address: str) -> None:
        """Copy a folder into the store."""
        system, place = self.system(), address.removeprefix("s3://")
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                with system.open_output_stream(f"{place}/{file.relative_to(folder).as_posix()}") as stream:
                    stream.write(file.read_bytes())

    def objects(self, address: str) -> dict[str, bytes]:
        """Name and content of all objects below an address."""
        system, place = self.system(), address.removeprefix("s3://").rstrip("/")
        found = system.get_file_info(fs.FileSelector(place, recursive=True, allow_not_found=True))
        return {
            info.path[len(place) + 1 :]: bytes(system.open_input_stream(info.path, compression=None).read())
            for info in found
            if info.type == fs.FileType.File
        }

    def download(self, address: str, folder: Path) -> Path:
        """Copy what is below an address into a new folder."""
        for name, raw in self.objects(address).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        return folder


@contextmanager
def object_store() -> Iterator[Store]:
    """Start a store on a free port, and let the environment name it."""
    log = subprocess.PIPE
    code = (
        "from moto.server import ThreadedMotoServer\nimport os, sys\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\nserver.start()\n"
        "print(server.get_host_and_port()[1], flush=True)\nsys.stdin.read()\nos._exit(0)\n"
    )
    # It ends when its input is closed, also if the tests are killed. It does not wait for open connections, of which
    # Arrow keeps some, and has nothing to save.
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        with pointed_at(port) as env:
            yield Store(port, env)
    finally:
        process.stdin.close()
        process.wait(timeout=20)


@contextmanager
def pointed_at(port: int) -> Iterator[dict[str, str]]:
    """Let s3:// addresses lead to a port of this machine, in this process and those it starts."""
    env = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield env
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass
class Proxy:
    """What a flaky proxy did."""

    port: int = 0
    requests: int = 0
    failed: int = 0
    delayed: int = 0


@contextmanager
def flaky_proxy(
    store: Store,
    *,
    fail: float = 0.2,
    delay: float = 0.2,
    seconds: float = 0.1,
    seed: int = 0,
    refuse: Callable[[str, str], bool] = lambda method, path: False,
) -> Iterator[Proxy]:
    """A proxy before `store` that answers 500 to a share of requests and delays another; addresses lead to it.

    Requests that `refuse` names by method and path always get a 500.
    """
    told, rng, lock = Proxy(), random.Random(seed), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
                body = self._chunks()
            with lock:
                drawn = -1.0 if refuse(self.command, self.path) else rng.random()
                told.requests += 1
                told.failed += drawn < fail
                told.delayed += fail <= drawn < fail + delay
            if drawn < fail:
                self._reply(500, [("Content-Type", "text/plain")], b"")
                return
            if drawn < fail + delay:
                time.sleep(seconds)
            inner = http.client.HTTPConnection("127.0.0.1", store.port, timeout=30)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "connection")}
            headers["Content-Length"] = str(len(body))
            inner.request(self.command, self.path, body, headers)
            answer = inner.getresponse()
            content = answer.read()
            kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")]
            self._reply(answer.status, kept, content)
            inner.close()

        def _chunks(self) -> bytes:
            out = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return out

        def _reply(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            sized = False
            for name, value in headers:
                sized |= name.lower() == "content-length"
                self.send_header(name, value)
            if not sized:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pointed_at(told.port):
            yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
