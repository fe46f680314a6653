"""Whatever is given, the program ends in one sentence with code 2: no traceback, no hang, nothing half-written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from locum.data import load_sample, write_embeddings
from locum.recipes import fit_release

Run = Callable[..., Any]
SECONDS = 60


class Hung(BaseException):
    """Not an `Exception`: some code goes on after any of those."""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A pipe that nobody writes to would stop the tests for good."""

    def late(*_: object) -> None:
        raise Hung(f"it took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a release of them."""
    folder = tmp_path_factory.mktemp("made")
    write_embeddings(folder / "data.npz", load_sample("breast-cancer"))
    fit_release(str(folder / "data.npz"), folder / "release", no_dp=True)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    for entry in made.iterdir():
        if not entry.name.startswith("."):
            shutil.copytree(entry, tmp_path / entry.name) if entry.is_dir() else shutil.copy(entry, tmp_path)
    return tmp_path


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None
        for p in folder.rglob("*")
    }


def refused(run: Run, place: Path, *words: object, tells: str = "") -> str:
    """The sentence with which these words are refused; nothing in the folder changes."""
    before = everything(place)
    ran = run(*words)
    said = str(ran.err)
    assert ran.code == 2, said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert ran.out == ""
    assert "Traceback" not in said
    assert tells in said
    after = everything(place)
    assert after == before, f"left behind: {sorted(set(after) ^ set(before))}"
    return said


# Whatever takes a file, with STRANGE in its place.
READERS = [
    "fit STRANGE.npz --classes-public -o out",
    "fit STRANGE.csv --no-dp -o out",
    "fit STRANGE.parquet --classes-public -o out",
    "fit STRANGE.safetensors --classes-public -o out",
    "fit data.npz --no-dp --non-members STRANGE.npz -o out",
    "fit data.npz --epsilon 1 --delta 1e-5 --n-public 500 --classes benign,malignant --ledger STRANGE -o out",
    "fit data.npz --epsilon 1 --delta 1e-5 --n-public 500 --classes benign,malignant --reference STRANGE.safetensors"
    " -o out",
    "embed STRANGE.csv -o out.npz",
    "embed STRANGE.npz -o out.npz",
    "evaluate release --test STRANGE.npz",
    "evaluate release --test data.npz --train STRANGE.csv",
    "sample release -n 5 --min-distance 1 --real STRANGE.npz -o out.npz",
    "audit release --members STRANGE.npz --non-members data.npz",
    "audit release --members data.npz --non-members data.npz --policy STRANGE.toml",
    "passport release --audit STRANGE.json",
    "sign release --key STRANGE",
    "decide release --refuse --name n --reason r --key STRANGE",
    "decide release --refuse --name n --reason r --key data.npz --audit STRANGE.json",
    "verify release --key STRANGE",
    "verify release --decision STRANGE.json",
    "verify release --ledger STRANGE",
    "predict STRANGE.safetensors data.npz",
    "report release -o out.html --train STRANGE.npz",
    "ledger show STRANGE.npz",
    "ledger show --ledger STRANGE",
    "ledger set-budget --ledger STRANGE --epsilon 1 --delta 1e-6",
    "ledger restore STRANGE --ledger new.sqlite",
    "rebalance STRANGE.npz -o out.npz",
    "obfuscate fit STRANGE.csv --utility a -o out",
    "federate simulate STRANGE.npz -o out",
]


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and devices in folders")
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a device"])
@pytest.mark.parametrize("words", READERS)
def test_only_regular_files_are_read(words: str, kind: str, program: Run, place: Path) -> None:
    name = next(word for word in words.split() if "STRANGE" in word)
    if kind == "link to a device":
        (place / name).symlink_to("/dev/zero")
    else:
        strange = place / (name if kind == "pipe" else "elsewhere")
        os.mkfifo(strange)
        if kind != "pipe":
            (place / name).symlink_to(strange)
    assert "STRANGE" in refused(program, place, *words.split())


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and devices in folders")
def test_a_link_to_a_regular_file_is_read(program: Run, place: Path) -> None:
    (place / "link.npz").symlink_to(place / "data.npz")
    assert program("fit", "link.npz", "-o", "out", "--no-dp").code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and devices in folders")
def test_a_pipe_or_device_among_images_is_not_opened(program: Run, place: Path) -> None:
    for name in ("cat", "dog"):
        (place / "images" / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((16, 16), 40 * i, np.uint8)).save(place / "images" / name / f"{i}.png")
    os.mkfifo(place / "images" / "cat" / "pipe.png")
    (place / "images" / "dog" / "zero.png").symlink_to("/dev/zero")
    ran = program("embed", "images", "-o", "out.npz", "--no-cache", "--json")
    assert ran.code == 0
    assert (ran.json["images"], ran.json["skipped"]) == (6, 2)


MOST = str(2**63 - 1)


@pytest.mark.parametrize(
    ("words", "tells"),
    [
        (f"sample release -n {MOST} -o out.npz", "-n"),
        ("sample release --per-class benign=999999999999 -o out.npz", "per-class"),
        (f"evaluate release --test data.npz --samples {MOST}", "--samples"),
        ("evaluate release --test data.npz --samples 0", "--samples"),
        ("evaluate release --test data.npz --samples -5", "--samples"),
        (f"train release --samples {MOST} -o out.safetensors", "--samples"),
        (f"federate simulate data.npz --seed {MOST} -o out", "--seed"),
        (f"obfuscate trade-off release data.csv --test data.csv --seed {MOST} -o out", "--seed"),
        (f"obfuscate fit data.csv --utility label --seed {10**23 - 1} -o out", "--seed"),
        (f"fit data.npz --seed {10**23 - 1} -o out", "--seed"),
        ("sign loop --key key.pem", "'loop'"),
        ("train loop -o out.safetensors", "'loop'"),
        ("report loop -o out.html", "'loop'"),
        ("verify loop", "'loop'"),
        ("federate merge loop release -o out", "loop'"),
        ("sign release --key loop", "'loop'"),
        ("fit loop -o out", "'loop'"),
        ("fit data.npz -o loop", "'loop'"),
        ("fit data.npz --no-dp -o loop/out", "'loop"),
        ("sample release -n 5 -o loop", "'loop'"),
        ("keygen loop/key.pem", "loop"),
        ("keygen .", "'.'"),
        ("keygen /", "'/'"),
        ("keygen EMPTY", "KEY"),
        ("ledger show --ledger flipped.sqlite", "flipped.sqlite"),
        ("audit release --members data.npz --non-members data.npz --policy deep.toml", "nested too deeply"),
        ("audit release --members data.npz --non-members data.npz --policy long.toml", "long.toml"),
        ("federate simulate data.npz -o out --seed -1", "--seed"),
        ("fit constant.npz --no-dp -o out", "the same"),
        ("fit data.npz --epsilon 101 --delta 1e-5 --n-public 500 --classes benign,malignant -o out", "--epsilon"),
        ("plan --n-public 500 --epsilon 1e9", "--epsilon"),
        ("federate simulate data.npz --epsilon 101 --delta 1e-5 --n-public 500 -o out", "--epsilon"),
        ("ledger set-budget --ledger new.sqlite --epsilon 101 --delta 1e-6", "--epsilon"),
        ("ledger set-budget --ledger new.sqlite --epsilon -1 --delta 1e-6", "epsilon"),
        ("ledger set-budget --ledger new.sqlite --epsilon nan --delta 1e-6", "epsilon"),
        ("ledger set-budget --ledger new.sqlite --epsilon 1 --delta 2", "delta"),
        ("ledger set-budget --ledger new.sqlite --epsilon 1 --delta 1e-6 --holding EMPTY", "holding"),
        ("ledger set-budget data.npz --epsilon 1 --delta 2", "delta"),
    ],
)
def test_bad_input_is_one_sentence(words: str, tells: str, program: Run, place: Path) -> None:
    from locum.accounting import Ledger

    (place / "loop").symlink_to("loop")
    (place / "key.pem").write_text("")
    (place / "deep.toml").write_text("name = " + "[" * 20_000)
    (place / "long.toml").write_text("a." * 50_000 + "a = 1")
    (place / "data.csv").write_text("a,b,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(200)))
    np.savez(place / "constant.npz", X=np.ones((200, 4)), y=np.arange(200) % 2)
    Ledger(place / "flipped.sqlite").set_budget("scans", epsilon=1.0, delta=1e-6)
    raw = bytearray((place / "flipped.sqlite").read_bytes())
    raw[100] ^= 0x08
    (place / "flipped.sqlite").write_bytes(bytes(raw))
    refused(program, place, *("" if word == "EMPTY" else word for word in words.split()), tells=tells)


def test_any_flipped_byte_of_a_ledger_is_one_sentence_or_harmless(program: Run, tmp_path: Path) -> None:
    from locum.accounting import Ledger

    file = tmp_path / "ledger.sqlite"
    Ledger(file).set_budget("scans", epsilon=1.0, delta=1e-6)
    raw = file.read_bytes()
    rng = np.random.default_rng(0)
    # Headers of the file and of its pages, and some of the rest.
    places = [*range(120), *range(4096, 4110), *rng.integers(0, len(raw), 60).tolist()]
    for number in places:
        flipped = bytearray(raw)
        flipped[number % len(raw)] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(flipped))
        ran = program("ledger", "show", "--ledger", file)
        assert ran.code in (0, 2), (number, ran.err)
        if ran.code == 2:
            assert ran.err.count("\n") == 1
            assert ran.err.startswith("error: ")


def test_a_site_without_a_hash_is_no_traceback(program: Run, place: Path) -> None:
    """A hostile release lists sites whose ledger is a list, which cannot be looked up."""
    import json

    from locum.accounting import Gaussian, Ledger, events_to_json

    ledger = Ledger(place / "ledger.sqlite")
    ledger.set_budget("scans", epsilon=2.0, delta=1e-4)
    paid = ledger.charge("scans", [Gaussian(5.0)], delta=1e-5, purpose="means")
    file = place / "release" / "manifest.json"
    manifest = json.loads(file.read_text())
    dp = {"epsilon": 1.0, "delta": 1e-5, "relation": "add-or-remove", "ledger": paid.tip}
    manifest["claim"].update(kind="dp", dp={**dp, "events": events_to_json(paid.events)})
    for sites in ([{"ledger": []}], [{"ledger": {}}], [[]], {"ledger": 1}, "text", [None], 7):
        manifest["settings"]["sites"] = sites
        file.write_text(json.dumps(manifest))
        refused(program, place, "verify", "release", "--ledger", "ledger.sqlite")


def start(place: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "locum", *words], cwd=place, text=True, stderr=subprocess.PIPE, **more
    )


def test_a_question_without_an_input_is_one_sentence(place: Path) -> None:
    budget = ("ledger", "set-budget", "--ledger", "b.sqlite", "--delta", "1e-6", "--epsilon")
    assert start(place, *budget, "1").wait() == 0
    process = start(place, *budget, "2", preexec_fn=lambda: os.close(0))
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 2, said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "--yes" in said


@pytest.mark.parametrize("words", [("verify", "release"), ("verify", "release", "--json"), ("--help",)])
def test_no_output_is_one_sentence(place: Path, words: tuple[str, ...]) -> None:
    process = start(place, *words, preexec_fn=lambda: os.close(1))
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 2, said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "output" in said


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see when our code runs")
def test_ctrl_c_in_the_first_second_is_no_traceback(place: Path) -> None:
    """Wherever it hits, from our first line on; before that Python itself answers."""
    for wait in (0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8):
        process = start(place, "evaluate", "release", "--test", "data.npz", stdout=subprocess.DEVNULL)
        status = Path(f"/proc/{process.pid}/status")
        while not int(status.read_text().split("SigCgt:\t")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1:
            time.sleep(0.002)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
        assert said == "stopped\n", wait
        # Python ends by the signal itself if it came inside `exec`; shells show 130 for both.
        assert process.returncode in (130, -signal.SIGINT), wait


def test_ctrl_c_where_nothing_can_be_raised_still_stops() -> None:
    """Python only prints what is raised in a weak reference's callback, and would go on."""
    code = """if True:
        import os, signal, time, weakref
        from locum.cli import main, program

        class Thing: pass

        def run():
            thing = Thing()
            reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT) or time.sleep(0))
            del thing
            while True:
                time.sleep(0.01)

        program.run = run
        main.main()
    """
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (process.returncode, process.stderr) == (130, "stopped\n")


def test_the_script_that_gives_every_verb_bad_inputs_finds_no_fault() -> None:
    script = Path(__file__).parents[2] / "scripts" / "bad_inputs.py"
    process = subprocess.run(
        [sys.executable, script, "--only", "sample"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout
    assert "0 faults" in process.stdout
    # Two lines of sixteen inputs.
    assert process.stdout.count("| 2 ") == 32
