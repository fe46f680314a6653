"""The studio in a browser: first paint, a move of the dial to its first and to its settled picture, and its size.

Moves are made by key on the slider, at 10,000 records of 1,280 features, after the previews are computed. The peer in
the same run is one empty animation frame of the same page: what any page needs to show anything at all.

    python benchmarks/studio.py [--quick]

Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from io import BytesIO
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import locum

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
ADDRESS = "#/dial?units=10000&classes=A,B,C,D,E,F,G,H,I,J&features=1280"
# The slider is moved, and the time is taken when the map shows that epsilon; and again when its samples have settled.
MOVE = """async (place) => {
  const slider = document.querySelector("#epsilon");
  const map = document.querySelector("canvas.map");
  const until = (done) => new Promise((wake) => {
    const look = () => (done() ? wake(performance.now()) : requestAnimationFrame(look));
    look();
  });
  const before = performance.now();
  const frame = await new Promise((wake) => requestAnimationFrame(() => wake(performance.now())));
  const start = performance.now();
  slider.value = place;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  const wanted = Number((0.1 * 100 ** (place / 400)).toPrecision(2));
  const first = await until(() => Number(map.dataset.shown) === wanted);
  const settled = await until(() => map.dataset.settled === map.dataset.shown);
  return [first - start, settled - start, frame - before];
}"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 moves instead of 50")
    moves = 10 if parser.parse_args().quick else 50
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("skipped: there is no Chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = subprocess.Popen(
            [sys.executable, "-m", "locum", "studio", folder, "--no-browser"], stdout=subprocess.PIPE, text=True
        )
        try:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(link_of(server))
            page.wait_for_url("**/")
            page.reload()
            paint = float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            start = time.perf_counter()
            page.goto(page.url.split("#")[0] + ADDRESS)
            computed(page)
            seconds = time.perf_counter() - start
            times = measured(page, moves)
        finally:
            server.terminate()
            server.wait(10)
    first, settled, frame = (sorted(one) for one in zip(*times, strict=True))
    peer = statistics.median(frame)
    print(f"{'':34s}{'median':>10s}{'worst':>10s}{'x a frame':>12s}{'goal':>14s}")
    for name, found, goal in (
        ("first picture, ms", first, "median 100"),
        ("settled picture, ms", settled, "worst 3,000"),
    ):
        middle = statistics.median(found)
        print(f"{name:34s}{middle:10.1f}{found[-1]:10.1f}{middle / peer:12.1f}{goal:>14s}")
    print(f"{'an empty frame of the page, ms':34s}{peer:10.1f}{frame[-1]:10.1f}")
    print(f"{'first paint, ms':34s}{paint:10.1f}{'':22s}{'1,000':>14s}")
    print(f"{'a dozen previews, s (once)':34s}{seconds:10.1f}")
    packed = wheel_bytes()
    print(f"{'the studio in a wheel, kB':34s}{packed / 1000:10.1f}{'':22s}{'300':>14s}")


def link_of(server: subprocess.Popen[str]) -> str:
    """The link that the studio prints."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise SystemExit("the studio did not start")


def computed(page: Page) -> None:
    """Wait until all previews are there."""
    for _ in range(600):
        state = page.evaluate(
            "[document.querySelectorAll('canvas.map').length, document.querySelectorAll('.progress').length]"
        )
        if state == [1, 0]:
            return
        time.sleep(0.2)
    raise SystemExit("the previews did not end")


def measured(page: Page, moves: int) -> list[list[float]]:
    """Milliseconds to the first and to the settled picture, and of an empty frame, for each move."""
    places = [(137 * i) % 401 for i in range(1, moves + 1)]
    return [page.evaluate(MOVE, str(place)) for place in places]


def wheel_bytes() -> int:
    """What the studio's files take in a wheel, which is a deflated .zip."""
    folder, packed = Path(locum.__file__).parent / "studio", BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            archive.write(file, file.relative_to(folder))
    return len(packed.getvalue())


if __name__ == "__main__":
    main()
