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


# Several starts in one process, each after a file was damaged: most of the time of a start is that of the imports.
STARTS = """
import io, json, sys, time
from contextlib import redirect_stderr, redirect_stdout
from locum.cli.main import main
wait = time.sleep
# A start tries twenty times within two seconds, since the other studio may be starting; here none is.
time.sleep = lambda seconds: wait(seconds / 20)
for words, file, content in json.load(sys.stdin):
    if file:
        with open(file, "wb") as stream:
            stream.write(content.encode("latin-1"))
    code, sys.argv = None, ["locum", "studio", *words, "--no-browser"]
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()) as complained:
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.getvalue(), complained.getvalue()]), flush=True)
"""


def refused(*starts: tuple[Path | str, ...], damage: tuple[Path, list[bytes]] | None = None) -> list[str]:
    """The one sentence with which each start ends; with `damage`, one start after each damage to a file."""
    words = [[str(word) for word in start] for start in starts]
    file, contents = (None, [b""] * len(words)) if damage is None else damage
    given = [
        (start, file and str(file), content.decode("latin-1"))
        for start, content in zip(words if damage is None else words * len(contents), contents, strict=True)
    ]
    answer = subprocess.run(
        [sys.executable, "-c", STARTS],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.stderr == ""
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(found) == len(given)
    for code, said, complained in found:
        assert (code, said) == (2, "")
        assert complained.startswith("error: ")
        assert complained.count("\n") == 1
    return [complained for _, _, complained in found]


def test_links_in_place_of_the_state_are_refused(shared: Path, tmp_path: Path) -> None:
    roots = [shared / name for name in ("link", "link within", "file within")]
    for root in roots:
        root.mkdir()
    (roots[0] / ".locum").symlink_to(tmp_path)
    for root in roots[1:]:
        (root / ".locum").mkdir(mode=0o700)
    (roots[1] / ".locum" / "studio").symlink_to(tmp_path)
    (roots[2] / ".locum" / "studio").write_bytes(b"")
    link, within, _ = refused(*((root,) for root in roots))
    assert "is a link" in link
    assert "is a link" in within
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_state_folder_of_another_user_is_refused(shared: Path) -> None:
    outer, inner = shared / "outer", shared / "inner"
    for root, theirs in ((outer, ".locum"), (inner, ".locum/studio")):
        (root / ".locum" / "studio").mkdir(parents=True)
        root.chmod(0o1777)
        os.chown(root / theirs, NOBODY, NOBODY)
    assert all("belongs to another user" in words for words in refused((outer,), (inner,)))


def test_a_bad_root_or_port_is_one_sentence(studio: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "two").mkdir()
    missing, no_folder, _, _, taken, beyond = refused(
        (tmp_path / "nowhere",),
        (tmp_path / "file",),
        (tmp_path / "loop",),
        (tmp_path / ("x" * 300),),
        (tmp_path / "two", "--port", str(studio.port)),
        (tmp_path / "two", "--port", "70000"),
    )
    assert "no folder" in missing
    assert "no folder" in no_folder
    assert "in use" in taken
    assert "range" in beyond
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


def test_a_damaged_state_is_one_sentence(studio: Any) -> None:
    state = studio.state / "studio.json"
    damages = [b"", b"{", b"[]", b"[" * 10**6, b"\xff"]
    damages += [b'{"port": 99999999, "secret": "x"}', b'{"port": 1, "secret": "a\\nb"}']
    whole = state.read_bytes()
    for words in refused((studio.root,), damage=(state, damages)):
        assert "does not answer" in words
    assert studio.ask("GET", "/").status == 200
    state.write_bytes(whole)


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


def test_a_second_start_gives_a_link_of_the_first(studio: Any) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "locum", "studio", str(studio.root), "--no-browser"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    (link,) = re.findall(rf"http://127\.0\.0\.1:{studio.port}(/enter\?token=[\w-]+)", again.stdout)
    assert [studio.raw("GET", link).status for _ in range(2)] == [200, 403]
