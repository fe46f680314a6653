"""Another user of the same machine gets nothing: no file, no answer, no token."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

SPY = """
import http.client, json, os, sys
port, place = int(sys.argv[1]), sys.argv[2]
found = {"uid": os.geteuid(), "read": [], "words": "", "statuses": []}
for folder, _, files in os.walk(place):
    for name in files:
        try:
            found["read"].append([name, open(os.path.join(folder, name), "rb").read().decode("latin-1")])
        except OSError:
            pass
try:
    found["read"] += os.listdir(place)
except OSError:
    pass
for process in filter(str.isdecimal, os.listdir("/proc")):
    for name in ("cmdline", "environ"):
        try:
            found["words"] += open(f"/proc/{process}/{name}", "rb").read().decode("latin-1")
        except OSError:
            pass
for method, target in (("GET", "/"), ("GET", "/api/desk"), ("GET", "/enter?token=x"), ("POST", "/link")):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, target)
    found["statuses"].append(connection.getresponse().status)
print(json.dumps(found))
"""


def as_nobody(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as another user."""
    # The system's own Python: others may not be able to read ours.
    return subprocess.run(
        [shutil.which("python3", path="/usr/bin:/bin") or sys.executable, "-c", code, *words],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def shared(data_writer: Callable[[Path], Path]) -> Iterator[Path]:
    """A folder that everybody on the machine can reach and read; pytest's own are private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        data_writer(place / "data.npz")
        yield place


def modes(place: Path) -> dict[str, int]:
    """Permissions of everything below a folder."""
    return {str(p.relative_to(place)): stat.S_IMODE(p.lstat().st_mode) for p in [place, *place.rglob("*")]}


@pytest.mark.parametrize("there", [False, True], ids=["new", "open to all before"])
def test_whatever_the_umask_is_everything_is_private(start: Callable[..., Any], shared: Path, there: bool) -> None:
    if there:
        for folder in (shared / ".locum", shared / ".locum" / "studio"):
            folder.mkdir()
            folder.chmod(0o777)
    studio = start(shared, umask=0)
    drop = studio.ask("POST", "/api/drops").json["id"]
    assert studio.ask("PUT", f"/api/drops/{drop}/file?path=a/b/c.txt", b"x").status == 201
    job = studio.start("fit", data="data.npz#train", out="release", classes=["ant", "bee"])
    assert studio.ended(job)["state"] == "done"
    found = modes(studio.state)
    assert {f"jobs/{job}/{name}" for name in ("job.json", "events.jsonl", "result.json", "log.txt", "process")} < set(
        found
    )
    assert {"studio.json", "studio.lock", "jobs/turn.lock", f"drops/{drop}/a/b/c.txt"} < set(found)
    for name, mode in found.items():
        assert mode == (0o700 if (studio.state / name).is_dir() else 0o600), name
    # Nobody else can put another folder in the place of ours.
    assert stat.S_IMODE((shared / ".locum").stat().st_mode) & 0o022 == 0


@needs_root
def test_another_user_gets_nothing(start: Callable[..., Any], shared: Path) -> None:
    studio = start(shared)
    job = studio.start("survey", data="data.npz")
    # A second start makes a link and opens it, with a program that shows what it was given.
    seen = shared / "seen"
    browser = shared / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}\ncp {studio.state}/open.html {shared}/copy.html\nsleep 5\n')
    browser.chmod(0o755)
    again = subprocess.run(
        [sys.executable, "-m", "locum", "studio", str(shared)],
        env={**os.environ, "BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert again.returncode == 0, again.stderr
    token = re.findall(r"token=([\w-]+)", again.stdout + again.stderr)[0]
    studio.wait_for(lambda: (shared / "copy.html").exists())
    assert token in (shared / "copy.html").read_text()
    assert token not in seen.read_text()
    (shared / "copy.html").chmod(0o600)
    answer = as_nobody(SPY, str(studio.port), str(studio.state))
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert (found["uid"], found["read"], found["statuses"]) == (NOBODY, [], [401, 401, 403, 403])
    for secret in (token, studio.token, studio.key, studio.cookie.split("=")[1]):
        assert secret not in found["words"]
    assert str(studio.root) in found["words"]
    assert stat.S_IMODE((studio.state / "open.html").stat().st_mode) == 0o600
    assert studio.ended(job)["state"] == "done"


def refused(root: Path, *options: str, **how: Any) -> str:
    """The one sentence with which the studio does not start."""
    answer = subprocess.run(
        [sys.executable, "-m", "locum", "studio", str(root), "--no-browser", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **how,
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    return answer.stderr


def test_links_in_place_of_the_state_are_refused(shared: Path, tmp_path: Path) -> None:
    (shared / ".locum").symlink_to(tmp_path)
    assert "is a link" in refused(shared)
    (shared / ".locum").unlink()
    (shared / ".locum").mkdir(mode=0o700)
    (shared / ".locum" / "studio").symlink_to(tmp_path)
    assert "is a link" in refused(shared)
    (shared / ".locum" / "studio").unlink()
    (shared / ".locum" / "studio").write_bytes(b"")
    refused(shared)
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_state_folder_of_another_user_is_refused(shared: Path) -> None:
    shared.chmod(0o1777)
    (shared / ".locum").mkdir()
    os.chown(shared / ".locum", NOBODY, NOBODY)
    assert "belongs to another user" in refused(shared)
    os.chown(shared / ".locum", 0, 0)
    (shared / ".locum" / "studio").mkdir()
    os.chown(shared / ".locum" / "studio", NOBODY, NOBODY)
    assert "belongs to another user" in refused(shared)


def test_a_bad_root_or_port_is_one_sentence(start: Callable[..., Any], tmp_path: Path) -> None:
    assert "no folder" in refused(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    assert "no folder" in refused(tmp_path / "file")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop")
    refused(tmp_path / ("x" * 300))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    studio = start(tmp_path / "one")
    assert "in use" in refused(tmp_path / "two", "--port", str(studio.port))
    assert "range" in refused(tmp_path / "two", "--port", "70000")
    assert not (tmp_path / "two" / ".locum" / "studio" / "studio.json").exists()


@needs_root
def test_a_folder_that_cannot_be_written_is_one_sentence(shared: Path) -> None:
    code = (
        "import os, sys\nsys.argv = ['locum', 'studio', sys.argv[1], '--no-browser']\n"
        "from locum.studio import serve_studio\nimport locum.io.safe_text, locum.cli.studio, locum.cli.program\n"
        # Imported first: another user cannot read the packages everywhere.
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\nfrom locum.cli.main import main\nmain()"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(shared)], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.startswith("error: The studio cannot keep its files")
    assert answer.stderr.count("\n") == 1


def test_help_and_a_missing_extra(tmp_path: Path) -> None:
    """Without the web packages help works, and the rest names what to install."""
    block = "import sys\nfor name in ('fastapi', 'uvicorn', 'starlette', 'h11'): sys.modules[name] = None\n"
    code = block + "sys.argv = ['locum', 'studio', *sys.argv[1:]]\nfrom locum.cli.main import main\nmain()"
    for words, expected in ((["--help"], 0), ([str(tmp_path), "--no-browser"], 2)):
        answer = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=60
        )
        assert answer.returncode == expected, answer.stderr
        assert ("locum[studio]" in answer.stderr) == bool(expected)
        assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 10**6,
        b'{"port": 99999999, "secret": "x"}',
        b'{"port": 1, "secret": "a\\nb"}',
        b"\xff",
    ],
    ids=lambda state: repr(state[:12]),
)
def test_a_damaged_state_is_one_sentence(start: Callable[..., Any], tmp_path: Path, state: bytes) -> None:
    studio = start(tmp_path)
    (studio.state / "studio.json").write_bytes(state)
    assert "does not answer" in refused(tmp_path)
    assert studio.ask("GET", "/").status == 200


def test_the_port_of_a_killed_studio_is_not_trusted(start: Callable[..., Any], tmp_path: Path) -> None:
    """Whoever listens there now could send the owner's browser to a page of their own."""
    studio = start(tmp_path)
    studio.close(signal.SIGKILL)
    assert (studio.state / "studio.json").exists()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", studio.port))
        stranger.listen()
        again = start(tmp_path)
        assert again.port != studio.port
        stranger.settimeout(0.2)
        with pytest.raises(TimeoutError):
            stranger.accept()


def test_a_second_start_gives_a_link_of_the_first(start: Callable[..., Any], tmp_path: Path) -> None:
    studio = start(tmp_path)
    again = subprocess.run(
        [sys.executable, "-m", "locum", "studio", str(tmp_path), "--no-browser"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    (link,) = re.findall(rf"http://127\.0\.0\.1:{studio.port}(/enter\?token=[\w-]+)", again.stdout)
    assert [studio.raw("GET", link).status for _ in range(2)] == [200, 403]
