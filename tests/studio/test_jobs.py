"""Jobs: in turn, followed without loss, cancelled for good, and alive without the server that started them."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from locum.recipes import show_ledger
from locum.studio.jobs import Jobs, Reporter
from locum.studio.places import NotBelowRootError

# Seconds of work, with events on the way.
LONG = {"units": 1000, "features": 2000}
FIT = {"data": "data.npz#train", "out": "release", "classes": ["ant", "bee"]}


def events(answer: Any) -> list[dict[str, str]]:
    """Server-sent events: the fields of each block."""
    blocks = (block for block in answer.body.decode().split("\n\n") if block.strip())
    found = (dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")) for block in blocks)
    # A server that waits sends comments alone.
    return [one for one in found if one]


def alive(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def process_of(studio: Any, job: str) -> int:
    return int((studio.state / "jobs" / job / "process").read_text())


def test_events_go_on_where_they_were(studio: Any) -> None:
    job = studio.start("preview", units=100, features=20)
    whole = events(studio.ask("GET", f"/api/jobs/{job}/events"))
    assert whole[-1]["event"] == "over"
    assert json.loads(whole[-1]["data"])["state"] == "done"
    numbers = [int(one["id"]) for one in whole[:-1]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 10
    for seen in (0, 1, 5, len(numbers) - 1, len(numbers), 10**6):
        rest = events(studio.ask("GET", f"/api/jobs/{job}/events", last_event_id=str(seen)))
        assert rest == whole[seen:-1] + whole[-1:]
    for nonsense in ("-1", "x", "9" * 30, "\xb2"):
        assert events(studio.ask("GET", f"/api/jobs/{job}/events", last_event_id=nonsense)) == whole
    result = studio.state / "jobs" / job / "result.json"
    assert stat.S_IMODE(result.stat().st_mode) == 0o600
    assert studio.job(job)["result"] == json.loads(result.read_bytes())


def test_the_second_job_waits_and_both_can_be_cancelled(studio: Any) -> None:
    first = studio.start("preview", **LONG)
    studio.wait_for(lambda: studio.job(first)["state"] == "running")
    second = studio.start("preview", **LONG)
    assert studio.job(second)["state"] == "waiting"
    studio.wait_for(lambda: (studio.state / "jobs" / second / "events.jsonl").stat().st_size)
    assert studio.job(second)["state"] == "waiting"
    for job in (second, first):
        process = process_of(studio, job)
        assert alive(process)
        assert studio.ask("POST", f"/api/jobs/{job}/cancel").json["state"] == "cancelled"
        studio.wait_for(lambda process=process: not alive(process), 5)
        assert [
            json.loads(one["data"])["kind"] for one in events(studio.ask("GET", f"/api/jobs/{job}/events"))[-2:-1]
        ] == ["cancelled"]
        # A second time changes nothing.
        assert studio.ask("POST", f"/api/jobs/{job}/cancel").json["state"] == "cancelled"
    third = studio.start("survey", data="data.npz")
    studio.ask("POST", f"/api/jobs/{third}/cancel")
    assert studio.job(third)["state"] == "cancelled"
    assert studio.log == ""


def test_jobs_run_in_turn(studio: Any) -> None:
    jobs = [studio.start("survey", data="data.npz") for _ in range(3)]
    assert [studio.ended(job)["state"] for job in jobs] == ["done"] * 3


def test_a_job_outlives_its_server(
    start: Callable[..., Any], data_writer: Callable[[Path], Path], tmp_path: Path
) -> None:
    data_writer(tmp_path / "data.npz")
    studio = start()
    # Not even the turn is over: the job waits for us.
    with (studio.state / "jobs" / "turn.lock").open("wb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        done, ended = (studio.start("survey", data="data.npz") for _ in range(2))
        # At once: a job that has hardly begun counts too.
        studio.close(signal.SIGKILL)
        again = start()
        assert {again.job(job)["state"] for job in (done, ended)} == {"waiting"}
        assert again.ask("POST", f"/api/jobs/{ended}/cancel").json["state"] == "cancelled"
        again.wait_for(lambda: not alive(process_of(again, ended)), 5)
    whole = events(again.ask("GET", f"/api/jobs/{done}/events"))
    assert json.loads(whole[-1]["data"])["state"] == "done"
    assert again.job(done)["result"]
    assert [job["id"] for job in again.ask("GET", "/api/jobs").json] == [ended, done]


def test_closing_says_what_goes_on(start: Callable[..., Any]) -> None:
    studio = start()
    with (studio.state / "jobs" / "turn.lock").open("wb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        job = studio.start("preview", units=100, features=20)
        process = process_of(studio, job)
        # With a page that is still listening.
        page = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=30)
        headers = {"cookie": studio.cookie, "x-locum-key": studio.key}
        page.request("GET", f"/api/jobs/{job}/events", headers=headers)
        assert page.getresponse().status == 200
        assert studio.close(signal.SIGINT) == 130
        page.close()
        assert studio.log == ""
        assert b"1 job continues" in studio.said
        assert studio.complained == b"stopped\n"
        assert not (studio.state / "studio.json").exists()
        assert alive(process)
        os.killpg(process, signal.SIGKILL)


def test_a_killed_job_says_so(studio: Any) -> None:
    job = studio.start("preview", **LONG)
    studio.wait_for(lambda: studio.job(job)["progress"])
    os.kill(process_of(studio, job), signal.SIGKILL)
    found = studio.ended(job)
    assert (found["state"], found["result"]) == ("killed", None)
    assert "ended from outside" in found["words"]
    studio.ask("POST", f"/api/jobs/{job}/cancel")
    assert studio.job(job)["state"] == "killed"
    assert events(studio.ask("GET", f"/api/jobs/{job}/events"))[-1]["event"] == "over"


def test_a_failed_job_tells_the_reason(studio: Any) -> None:
    (studio.root / "broken.npz").write_bytes(b"no archive")
    found = studio.ended(studio.start("train", release="broken.npz"))
    assert found["state"] == "failed"
    assert "broken.npz" in found["words"]
    assert str(studio.root) not in found["words"]
    lost = studio.ended(studio.start("fit", data="data.npz#nosplit", out="lost", classes=["ant", "bee"]))
    assert lost["state"] == "failed"
    assert "nosplit" in lost["words"]


def test_the_root_is_checked_again_when_a_job_s_turn_comes(studio: Any, tmp_path: Path) -> None:
    data = studio.root / "for-later.npz"
    data.write_bytes((studio.root / "data.npz").read_bytes())
    with (studio.state / "jobs" / "turn.lock").open("ab") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        job = studio.start("survey", data=data.name)
        data.rename(tmp_path / "outside.npz")
        data.symlink_to(tmp_path / "outside.npz")
    found = studio.ended(job)
    assert (found["state"], "in the folder" in found["words"]) == ("failed", True)


def test_a_cancelled_private_fit_pays_once(
    start: Callable[..., Any], data_writer: Callable[..., Path], tmp_path: Path
) -> None:
    data_writer(tmp_path / "data.npz", 4000, 1500)
    studio, ledger = start(), tmp_path / ".locum" / "ledger.sqlite"

    def charges() -> list[Any]:
        holdings = show_ledger(ledger)["holdings"] if ledger.exists() and ledger.stat().st_size else []
        return [charge for holding in holdings for charge in holding["charges"]]

    job = studio.start("fit", **FIT)
    paid = studio.wait_for(charges)
    assert studio.ask("POST", f"/api/jobs/{job}/cancel").json["state"] == "cancelled"
    assert not (tmp_path / "release").exists()
    assert studio.ended(studio.start("fit", **FIT))["state"] == "done"
    assert charges() == paid
    assert len(paid) == 1


@pytest.mark.parametrize(
    "job",
    [
        "..",
        ".",
        "%2e%2e",
        "..%2f..",
        "x",
        "%00",
        "0" * 20 + "-" + "0" * 8,
        "a" * 3000,
        "%ff",
        "turn.lock",
        "*",
        "%0a",
        "../../studio.json",
        "0" * 20 + "-0000000g",
        "٣" * 20 + "-00000000",
    ],
)
def test_other_ids_are_no_jobs(studio: Any, job: str) -> None:
    job = job if job.isascii() else "%d9%a3" * 20 + "-00000000"
    for method, target in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        answer = studio.ask(method, f"/api/jobs/{job}{target}")
        assert answer.status in (404, 405)
        assert "/" not in answer.error


def test_damaged_jobs_do_not_break_the_others(studio: Any) -> None:
    before = {one["id"] for one in studio.ask("GET", "/api/jobs").json}
    good = studio.start("survey", data="data.npz")
    folder, names = studio.state / "jobs", iter(range(100))

    def broken(**files: bytes) -> Path:
        place = folder / f"{next(names):020d}-00000000"
        place.mkdir()
        for name, raw in files.items():
            (place / name.replace("_", ".")).write_bytes(raw)
        return place

    job = (folder / good / "job.json").read_bytes()
    broken()
    broken(job_json=job)
    broken(events_jsonl=b"")
    for raw in (b"", b"{", b"[]", b"null", b"{}", b'{"kind": "fit"}', b"\xff", b"[" * 10**5, job[:-20]):
        broken(job_json=raw, events_jsonl=b"")
    broken(job_json=job.replace(b'"arguments": {', b'"arguments": [{').replace(b"}, ", b"}], "), events_jsonl=b"")
    kept = [
        broken(job_json=job, events_jsonl=raw)
        for raw in (
            b"",
            b"{",
            b"\n\n",
            b"[]\n1\nnull\n",
            b'{"kind": 1}\n',
            b'{"kind": []}\n',
            b"\xff\n",
            b'{"number": 5}\n',
        )
    ]
    (folder / f"{next(names):020d}-00000000").symlink_to(folder / good)
    (folder / f"{next(names):020d}-00000000").symlink_to("/nowhere")
    (folder / f"{next(names):020d}-00000000").write_bytes(b"")
    (folder / "not-a-job").mkdir()
    linked = broken(job_json=job)
    (linked / "events.jsonl").symlink_to("/dev/zero")
    listed = [one for one in studio.ask("GET", "/api/jobs").json if one["id"] not in before]
    assert {one["id"] for one in listed} == {good, *(place.name for place in kept)}
    assert {one["state"] for one in listed if one["id"] != good} == {"killed"}
    for place in (place for place in folder.iterdir() if place.name not in before):
        for target in ("", "/events"):
            assert studio.ask("GET", f"/api/jobs/{place.name}{target}").status in (200, 404)
        assert (
            studio.ask("POST", f"/api/jobs/{place.name}/cancel").status in (200, 404) if place.name != good else True
        )
    for process in (b"", b"0", b"1", b"-1", b"x"):
        (kept[0] / "process").write_bytes(process)
        assert studio.ask("POST", f"/api/jobs/{kept[0].name}/cancel").json["state"] == "killed"
    (kept[0] / "result.json").write_bytes(b"{")
    assert studio.job(kept[0].name)["result"] is None
    assert studio.ended(good)["state"] == "done"
    assert studio.log == ""
    for place in folder.glob("*-00000000"):
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def test_a_line_that_was_cut_off_does_not_hide_the_end(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "jobs", tmp_path)
    job = jobs.start("none", {}, "")
    place = jobs.folder / job
    with (place / "events.jsonl").open("ab") as stream:
        stream.write(b'{"kind": "progr')
    jobs.cancel(job)
    assert jobs.about(job)["state"] in ("cancelled", "failed")
    with pytest.raises(NotBelowRootError):
        jobs.about("../jobs")


def test_a_list_of_long_jobs_is_quick(tmp_path: Path) -> None:
    """The page asks every second or two: the events of jobs that ended are not read again."""
    jobs = Jobs(tmp_path / "jobs", tmp_path)
    for i in range(200):
        place = jobs.folder / f"{i:020d}-00000000"
        place.mkdir()
        (place / "job.json").write_text('{"kind": "preview", "arguments": {}, "command": "", "started": 0}')
        with (place / "events.jsonl").open("wb") as stream:
            # A gigabyte each that takes no room on the disk: nobody could read them all.
            stream.truncate(2**30)
            stream.seek(2**30)
            stream.write(b'\n{"kind": "done"}\n' if i % 2 else b"")
    began = time.monotonic()
    assert [job["state"] for job in jobs.all()] == ["done", "killed"] * 100
    assert time.monotonic() - began < 10


def test_old_jobs_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.studio.jobs._KEPT", 3)
    jobs = Jobs(tmp_path / "jobs", tmp_path)
    for i in range(6):
        place = jobs.folder / f"{i:020d}-00000000"
        place.mkdir()
        (place / "job.json").write_text('{"kind": "survey", "arguments": {}, "command": "", "started": 0}')
        (place / "events.jsonl").write_text("")
    (jobs.folder / f"{0:020d}-00000000" / "job.json").write_text("{")
    with (jobs.folder / f"{1:020d}-00000000" / "events.jsonl").open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        job = jobs.start("none", {}, "")
    left = sorted(place.name for place in jobs.folder.glob("*-*"))
    assert left == [*(f"{i:020d}-00000000" for i in (1, 3, 4, 5)), job]
    jobs.cancel(job)


def test_progress_is_told_a_few_times_per_second(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "events.jsonl", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    report = Reporter(tmp_path, descriptor)
    for i in range(1, 1001):
        report(i, 1000, "note" * 100)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines[-1]["done"] == 1000
    assert len(lines) < 100
    assert not os.get_inheritable(descriptor)
