"""Jobs: one process each, which outlives the server. Everything about a job is in its folder, for its owner alone.

`job.json` says what to do, `events.jsonl` what happened so far, `result.json` what came of it. The process holds a
lock on its events as long as it lives, and takes its turn by a second lock that all jobs share: so a new server, or
the same one after a crash, sees at once which jobs are running, waiting, done, or were killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from locum.errors import ConfigError
from locum.io import private_folder, write_bytes
from locum.studio.places import NotBelowRootError

JOB, EVENTS, RESULT, LOG, PROCESS = "job.json", "events.jsonl", "result.json", "log.txt", "process"
TURN = "turn.lock"
ENDED = frozenset({"done", "failed", "cancelled"})
# How many jobs are kept; the oldest that ended are removed.
_KEPT = 200
_PATIENCE = 5.0
_TAIL = 2**14
_ID = re.compile(r"\d{20}-[0-9a-f]{8}")


class Jobs:
    """The jobs of one root.

    Parameters
    ----------
    folder
        Private folder that holds one folder per job.
    cwd
        Folder in which jobs run: paths in their arguments are relative to it.
    """

    def __init__(self, folder: Path, cwd: Path) -> None:
        self.folder, self._cwd = private_folder(folder), cwd
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str, arguments: Mapping[str, Any], command: str) -> str:
        """Start a job, and return its id. It waits for its turn by itself."""
        self._forget()
        # Sorted by name, jobs are in the order of their start.
        job = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        place = private_folder(self.folder / job)
        body = {"kind": kind, "arguments": dict(arguments), "command": command, "started": int(time.time())}
        write_bytes(place / JOB, json.dumps(body).encode())
        with _private(place / LOG) as log, _private(place / EVENTS) as events:
            # The process inherits the lock, so that there is no moment at which it lives without.
            fcntl.flock(events, fcntl.LOCK_EX)
            self._started[job] = subprocess.Popen(
                [sys.executable, "-m", "locum.studio.work", str(place), str(events.fileno())],
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(events.fileno(),),
            )
        write_bytes(place / PROCESS, str(self._started[job].pid).encode())
        return job

    def all(self) -> list[dict[str, Any]]:
        """Every job without its result, the newest first; what is damaged is left out."""
        found = []
        for place in sorted(self.folder.glob("*-*"), reverse=True):
            with suppress(NotBelowRootError):
                found.append(self.about(place.name))
        return found

    def about(self, job: str) -> dict[str, Any]:
        """What a job is and how far it got."""
        place = self._place(job)
        try:
            body = read_job(place)
            known = {**body, "command": str(body["command"]), "started": int(body["started"])}
        except (ConfigError, ValueError, KeyError, TypeError):
            raise _no_job(job) from None
        # Looked at first: after the end of a process nothing is added, so that its last event is its last.
        alive = self._alive(job)
        last = _last(place / EVENTS)
        steps, state = [], str(last.get("kind")) if last.get("kind") in ENDED else "killed"
        if state == "killed" and alive:
            # Only the few jobs that have not ended are read from the start.
            events = self.events(job)
            state = "running" if any(event["kind"] == "started" for event in events) else "waiting"
            steps = [event for event in events if event["kind"] == "progress"]
        words = {
            "failed": str(last.get("words", "")),
            "killed": "It was ended from outside, or the machine was restarted.",
        }
        return {
            "id": job,
            **known,
            "state": state,
            "progress": steps[-1] if steps and state == "running" else None,
            "words": words.get(state, ""),
        }

    def result(self, job: str) -> Any:
        """What came of a job that is done; None otherwise."""
        try:
            return json.loads((self._place(job) / RESULT).read_bytes())
        except (OSError, ValueError):
            return None

    def events(self, job: str, after: int = 0) -> list[dict[str, Any]]:
        """Events of a job with numbers above `after`; a line that is still being written is left for later."""
        lines = (self._place(job) / EVENTS).read_bytes().split(b"\n")[:-1]
        numbered = ((i, _event(line)) for i, line in enumerate(lines[after:], start=after + 1))
        return [{**event, "number": i} for i, event in numbered if event is not None]

    def over(self, job: str) -> bool:
        """Whether nothing more will happen to a job."""
        return self.about(job)["state"] not in ("running", "waiting")

    def cancel(self, job: str) -> None:
        """End a job's process, and everything that it started; a job that has ended stays as it is."""
        place = self._place(job)
        number = _process(place)
        if not self._alive(job) or number is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(number, how)
            end = time.monotonic() + _PATIENCE
            while self._alive(job) and time.monotonic() < end:
                time.sleep(0.05)
        if not any(event["kind"] in ENDED for event in self.events(job)):
            with (place / EVENTS).open("ab") as stream:
                # On a line of its own, whatever was being written when the process was killed.
                stream.write(
                    b"\n" * (not _ends_a_line(place / EVENTS)) + json.dumps({"kind": "cancelled"}).encode() + b"\n"
                )

    def running(self) -> int:
        """How many jobs are running or waiting."""
        return sum(job["state"] in ("running", "waiting") for job in self.all())

    def _alive(self, job: str) -> bool:
        if (process := self._started.get(job)) is not None:
            # Otherwise it stays in the list of processes for as long as the server runs.
            process.poll()
        # Also of an earlier server: the lock ends with the last process that holds it.
        with (self._place(job) / EVENTS).open("rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _place(self, job: str) -> Path:
        place = self.folder / job
        if not _ID.fullmatch(job) or not _whole(place):
            raise _no_job(job)
        return place

    def _forget(self) -> None:
        import shutil

        for place in sorted(self.folder.glob("*-*"))[:-_KEPT]:
            with suppress(NotBelowRootError):
                if not self.over(place.name):
                    continue
            shutil.rmtree(place, ignore_errors=True)
            self._started.pop(place.name, None)


class Reporter:
    """The job's side: events, one line each, in the file that its process holds; also a `locum.types.Progress`.

    Parameters
    ----------
    place
        Folder of the job.
    events
        Descriptor of its events, locked by whoever started the process.
    """

    def __init__(self, place: Path, events: int) -> None:
        self._place = place
        os.set_inheritable(events, False)
        self._stream = os.fdopen(events, "ab", buffering=0)
        self._last = 0.0

    def tell(self, kind: str, **facts: Any) -> None:
        """Add an event; a page sees it at once."""
        self._stream.write(json.dumps({"kind": kind, **facts}, allow_nan=False).encode() + b"\n")

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Progress, a few times per second at most."""
        now = time.monotonic()
        if now - self._last > 0.1 or done >= total:
            self._last = now
            self.tell("progress", done=int(done), total=int(total), note=str(note)[:200])

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other job is at work: one heavy job at a time."""
        with _private(self._place.parent / TURN) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.tell("waiting")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self.tell("started")
            yield


def read_job(place: Path) -> dict[str, Any]:
    """What the job in a folder is to do: `kind`, `arguments`, and whatever else was noted about it."""
    try:
        body = json.loads((place / JOB).read_bytes())
        return {**body, "kind": str(body["kind"]), "arguments": dict(body["arguments"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{str(place)!r} is not the folder of a job: the studio starts jobs.") from None


def _no_job(job: str) -> NotBelowRootError:
    return NotBelowRootError(f"There is no job {job[:60]!r}.")


def _whole(place: Path) -> bool:
    files = (place / JOB, place / EVENTS)
    return not any(p.is_symlink() for p in (place, *files)) and all(p.is_file() for p in files)


def _event(line: bytes) -> dict[str, Any] | None:
    """An event; None for a line that a killed process left unfinished."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def _last(file: Path) -> dict[str, Any]:
    """The last event of a file, without reading all of it: a job can tell much, and pages ask often."""
    with file.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL))
        lines = stream.read().split(b"\n")[:-1]
    # The events that end a job are short: a longer line need not be read.
    return next((event for line in reversed(lines) if (event := _event(line)) is not None), {})


def _ends_a_line(file: Path) -> bool:
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - 1))
        return size == 0 or stream.read() == b"\n"


def _process(place: Path) -> int | None:
    """The process of a job, which leads a group of its own."""
    try:
        number = int((place / PROCESS).read_text())
    except (OSError, ValueError):
        return None
    # 0 would be our own group, and 1 that of the system.
    return number if number > 1 else None


@contextmanager
def _private(file: Path) -> Iterator[Any]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as stream:
        yield stream
