"""`locum obfuscate fit|apply|trade-off` as users type them, and as they mistype them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from locum.cli import output
from locum.data import read_frame

Run = Callable[..., Any]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def subjects(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    income, sex = rng.integers(0, 2, (2, n))
    return pd.DataFrame(
        {
            "age": rng.integers(20, 40, n) + 20 * income,
            "job": np.where(rng.random(n) < 0.9, np.array(["cook", "smith"])[sex], "clerk"),
            "income": np.array(["low", "high"])[income],
            "sex": np.array(["f", "m"])[sex],
        }
    )


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    subjects(400, 0).to_csv(tmp_path / "train.csv", index=False)
    subjects(200, 1).to_csv(tmp_path / "test.csv", index=False)
    return tmp_path


def one_sentence(err: str) -> str:
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    return lines[0]


def test_help_shows_all_three(program: Run) -> None:
    shown = program("obfuscate", "--help")
    assert shown.code == 0
    for verb in ("fit", "apply", "trade-off"):
        assert verb in shown.out
        own = program("obfuscate", verb, "--help")
        assert own.code == 0
        assert "--json" in own.out
    assert "obfuscate" in program("--help").out


def test_from_records_to_a_release_that_was_measured(program: Run, tables: Path) -> None:
    fit = program("obfuscate", "fit", "train.csv", "-o", "o", "--utility", "income", "--drop", "sex", "--epochs", 150)
    assert fit.code == 0, fit.err
    assert fit.err == ""
    for words in ("keeps       income: high, low", "takes       age, job", "left out    sex", "claim       none"):
        assert words in fit.out
    measured = program(
        *("obfuscate", "trade-off", "o", "train.csv", "--test", "test.csv", "--private", "sex", "--noise", "0,inf"),
        *("--lambda", "-50", "--judges", "trees", "--copies", 2, "--attacker-at-most", ".7", "-o", "found"),
    )
    assert measured.code == 0, measured.err
    assert measured.err == ""
    for words in ("attacker on sex", "original records", "utility label alone", "INTERNAL", "picked      noise"):
        assert words in measured.out
    names = {file.name for file in (tables / "found").iterdir()}
    assert {"trade-off.json", "trade-off.md", "report.html", "state.json"} <= names
    assert b"<svg" in (tables / "found" / "curve.svg").read_bytes()
    applied = program("obfuscate", "apply", "o", "test.csv", "-o", "out.csv", "--noise", 5, "--lambda", -50)
    assert applied.code == 0, applied.err
    assert "Measured, not proven" in applied.out
    assert list(read_frame(tables / "out.csv").columns) == ["age", "job", "income"]
    assert json.loads((tables / "out.claim.json").read_text())["claim"]["kind"] == "none"


def test_json_and_a_policy_that_is_not_met(program: Run, tables: Path) -> None:
    fit = program("obfuscate", "fit", "train.csv", "-o", "o", "--utility", "income", "--drop", "sex",
                  "--preset", "paper", "--epochs", 1, "--no-resume", "--json")  # fmt: skip
    assert fit.code == 0, fit.err
    assert fit.json["takes"] == ["age", "job"]
    assert not (tables / ".locum").exists()
    applied = program("obfuscate", "apply", "o", "train.csv", "-o", "a.parquet", "--noise", 1, "--lambda", "own",
                      "--no-true-label", "--json")  # fmt: skip
    assert applied.code == 0, applied.err
    assert applied.json["about"]["knobs"] == {"noise": 1.0, "lambda": "own", "labels": "guessed"}
    measured = program("obfuscate", "trade-off", "o", "train.csv", "--private", "sex", "--noise", "0", "-o", "t",
                       "--judges", "trees", "--copies", 1, "--attacker-at-most", 0.2, "--json")  # fmt: skip
    assert measured.code == 3, measured.err
    assert "utility label alone" in measured.json["problem"]
    assert measured.json["target"]["picked"] is None
    assert (tables / "t" / "report.html").is_file(), "what was measured is kept"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("fit", "nothing.csv", "-o", "n", "--utility", "income"), "nothing.csv"),
        (("fit", "train.csv", "-o", "n", "--utility", "wage"), "wage"),
        (("fit", "train.csv", "-o", "n", "--utility", "income", "--utility", "income"), "twice"),
        (("fit", "train.csv", "-o", "n", "--utility", "income", "--drop", "wage"), "--drop"),
        (("fit", "train.csv", "-o", "train.csv", "--utility", "income"), "already exists"),
        (("fit", "train.csv#test", "-o", "n", "--utility", "income"), "no split"),
        (("fit", "train.csv", "-o", "n", "--utility", "income", "--beta", "0"), "beta"),
        (("apply", "nothing", "test.csv", "-o", "a.csv", "--noise", "1"), "not a folder"),
        (("apply", ".", "test.csv", "-o", "a.csv", "--noise", "1"), "no manifest.json"),
        (("apply", "o", "test.csv", "-o", "a.csv", "--noise", "-1"), "noise"),
        (("apply", "o", "test.csv", "-o", "a.csv", "--noise", "nan"), "noise"),
        (("apply", "o", "test.csv", "-o", "a.csv", "--noise", "1", "--lambda", "much"), "--lambda"),
        (("apply", "o", "test.csv", "-o", "a.csv", "--noise", "1", "--lambda", "3"), "lambda_"),
        (("apply", "o", "test.csv", "-o", "test.csv", "--noise", "1"), "already exists"),
        (("apply", "o", "test.csv", "-o", "a.txt", "--noise", "1"), ".csv or .parquet"),
        (("apply", "o", "empty.csv", "-o", "a.csv", "--noise", "1"), "empty.csv"),
        (("apply", "o", "numbers.csv", "-o", "a.csv", "--noise", "1"), "income"),
        (("trade-off", "o", "train.csv", "-o", "t", "--private", "wage"), "wage"),
        (("trade-off", "o", "train.csv", "-o", "t", "--private", "income"), "keeps"),
        (("trade-off", "o", "train.csv", "-o", "t", "--private", "sex", "--noise", "a,b"), "--noise"),
        (("trade-off", "o", "train.csv", "-o", "t", "--private", "sex", "--noise", "1,1"), "different numbers"),
        (("trade-off", "o", "train.csv", "-o", "t", "--private", "sex", "--judges", "oracle"), "judges"),
        (("trade-off", "o", "train.csv", "-o", "t", "--private", "sex", "--test", "nothing.csv"), "nothing.csv"),
    ],
)
def test_wrong_input_gets_one_sentence_and_leaves_nothing(
    program: Run, fitted: Path, arguments: tuple[str, ...], word: str
) -> None:
    before = {p: p.stat().st_mtime_ns for p in fitted.rglob("*") if p.is_file()}
    ran = program("obfuscate", *arguments)
    assert ran.code == 2, ran.out + ran.err
    assert word in one_sentence(ran.err)
    assert ran.out == ""
    after = {p: p.stat().st_mtime_ns for p in fitted.rglob("*") if p.is_file() and p.name != "state.json"}
    assert after == before


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from locum.recipes import fit_obfuscator

    folder = tmp_path_factory.mktemp("once")
    subjects(100, 0).to_csv(folder / "train.csv", index=False)
    fit_obfuscator(str(folder / "train.csv"), folder / "o", utility=["income"], drop=["sex"], epochs=1, resume=False)
    return folder / "o"


@pytest.fixture
def fitted(tables: Path, once: Path) -> Path:
    shutil.copytree(once, tables / "o")
    (tables / "empty.csv").touch()
    subjects(30, 2).assign(income=np.arange(30) % 2).to_csv(tables / "numbers.csv", index=False)
    return tables


@pytest.mark.slow
def test_a_trade_off_tells_the_time_left_and_once_stopped_how_to_go_on(fitted: Path) -> None:
    # More settings than it can judge before it is stopped.
    noises = ",".join(map(str, range(500)))
    words = ["obfuscate", "trade-off", "o", "train.csv", "--private", "sex", "--judges", "trees", "--copies", "1",
             "-o", "t", "--noise", noises]  # fmt: skip
    screen, side = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "locum", *words],
        cwd=fitted,
        stdout=subprocess.DEVNULL,
        stderr=side,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        # A shell that runs the tests in the background ignores SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(side)
    try:
        shown = read_until(screen, re.compile(r"judging: noise [1-9]\d*, .* by trees.*\d/1000.*\d:\d\d:\d\d left"))
        assert shown is not None, "no time left after the first point"
        hint = None
        while hint is None and running.poll() is None:
            # A Ctrl-C that meets compiled code of a judge can get lost.
            running.send_signal(signal.SIGINT)
            hint = read_until(screen, re.compile("stopped; run the same command again to resume"), seconds=10)
        assert hint is not None
        assert running.wait(timeout=60) == 130
    finally:
        running.kill()
        running.wait()
        os.close(screen)
    assert json.loads((fitted / "t" / "state.json").read_bytes())["points"]


def test_a_run_that_starts_over_is_resumed_without_that_option() -> None:
    with output.resumable(starts_over="--force"):
        assert output.stop_hint == "run the same command without --force to resume"
    assert output.stop_hint == ""


def read_until(screen: int, wanted: re.Pattern[str], seconds: float = 60) -> str | None:
    """What a terminal shows until `wanted` appears, or None after some seconds or at the end."""
    shown, until = "", time.monotonic() + seconds
    while time.monotonic() < until:
        if not select.select([screen], [], [], 1)[0]:
            continue
        try:
            shown += os.read(screen, 65536).decode(errors="replace")
        except OSError:
            return None
        if wanted.search(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)):
            return shown
    return None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox"])
        yield opened
        opened.close()


def test_the_page_opens_without_a_network(browser: Any, program: Run, fitted: Path) -> None:
    ran = program("obfuscate", "trade-off", "o", "train.csv", "--private", "sex", "--noise", "0,3", "-o", "t",
                  "--judges", "trees", "--copies", 1, "--lambda", "-50,0")  # fmt: skip
    assert ran.code == 0, ran.err
    heard: list[str] = []
    for width, scheme in ((1200, "light"), (400, "dark")):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        heard.clear()
        page.on("console", lambda message: heard.append(message.text))
        page.on("request", lambda request: heard.append(request.url))
        address = (fitted / "t" / "report.html").as_uri()
        page.goto(address)
        assert heard == [address]
        assert "INTERNAL" in page.locator(".banner").inner_text()
        for section in ("summary", "curve", "points", "claim", "measured", "glossary"):
            assert page.locator(f"#{section}").is_visible(), section
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0, "no sideways scrolling"
        context.close()
