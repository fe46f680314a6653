"""The studio's tab "Noise and lambda" in a real browser: choose, measure, turn the knobs, all by keyboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    pytest.importorskip("fastapi", reason="the studio needs the extra locum[studio]")
    folder = tmp_path_factory.mktemp("root")
    rng = np.random.default_rng(0)
    sick, sex = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    table = {
        "name": [f"Ms {i:03d} Smith" for i in range(200)],
        "age": rng.normal(40, 8, 200) + 20 * sick,
        "height": rng.normal(165, 6, 200) + 14 * sex,
        "sick": np.array(["no", "yes"])[sick],
        "sex": np.array(["f", "m"])[sex],
    }
    pd.DataFrame(table).to_csv(folder / "people.csv", index=False)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "locum", "studio", str(folder), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
    )
    assert process.stdout is not None
    found = None
    while found is None and (line := process.stdout.readline()):
        found = re.search(r"http://127\.0\.0\.1:\d+/enter\?token=\S+", line)
    assert found is not None, "the studio printed no link"
    yield folder, found[0]
    process.send_signal(signal.SIGINT)
    process.wait(timeout=20)


def test_choose_measure_and_turn_the_knobs(browser: Any, studio: tuple[Path, str]) -> None:
    folder, link = studio
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(link)
    page.get_by_role("heading", level=1).wait_for()
    page.evaluate("location.hash = '#/dial'")
    page.get_by_role("tab", name="Noise and lambda").click()

    page.get_by_label("Table").select_option("people.csv")
    measure = page.get_by_role("button", name="Measure the trade-off")
    assert measure.is_disabled()
    # Neither names nor numbers can be kept or hidden as kinds.
    kept = page.get_by_role("group", name="Keep for the receiver")
    kept.wait_for()
    assert kept.get_by_role("checkbox").count() == 2
    kept.get_by_label("sick").focus()
    page.keyboard.press("Space")
    page.get_by_label("Hide from everyone").select_option("sex")
    page.get_by_role("button", name="Show the command lines").click()
    lines = page.get_by_label("The same in a terminal")
    lines.nth(1).wait_for()
    assert "--utility sick --drop sex --drop name" in lines.nth(0).inner_text()
    assert "--private sex" in lines.nth(1).inner_text()

    measure.focus()
    page.keyboard.press("Enter")
    noise = page.get_by_role("slider", name="noise")
    noise.wait_for(timeout=120_000)
    assert page.get_by_text("Measured, not proven: a better attacker may find more.").is_visible()
    attacker = page.get_by_role("region", name="The strongest attacker").locator(".headline")

    found = json.loads((folder / "people-keep-sick-hide-sex" / "trade-off" / "trade-off.json").read_bytes())
    known = {(p["knobs"]["noise"], p["knobs"]["lambda"]): p["attacker"]["value"] for p in found["points"]}
    for key, at in (("Home", 0), ("ArrowRight", 0.5), ("End", 8)):
        noise.focus()
        page.keyboard.press(key)
        assert noise.get_attribute("aria-valuetext") == f"noise {at:g}"
        said = re.match(r"finds sex at (\d\.\d\d) \(.*originals .*guessing", attacker.inner_text())
        assert said is not None, attacker.inner_text()
        assert float(said[1]) == pytest.approx(known[at, -50], abs=0.0051)
    page.get_by_role("slider", name="lambda").focus()
    page.keyboard.press("End")
    assert page.get_by_role("slider", name="lambda").get_attribute("aria-valuetext") == "lambda 0"
    assert page.get_by_text(re.compile(r"obfuscate apply .* --noise 8 --lambda 0")).is_visible()

    # After a reload the same choice shows what was measured, without reading records again.
    page.reload()
    page.get_by_role("tab", name="Noise and lambda").click()
    page.get_by_label("Table").select_option("people.csv")
    page.get_by_role("group", name="Keep for the receiver").get_by_label("sick").check()
    page.get_by_label("Hide from everyone").select_option("sex")
    page.get_by_role("slider", name="noise").wait_for(timeout=5000)
    assert complaints == []
