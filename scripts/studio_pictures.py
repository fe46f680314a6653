"""Pictures of every screen of the studio, light and dark, for the docs: docs/images/studio.

    python scripts/studio_pictures.py [--out FOLDER] [--only desk,dial]

Opens `locum studio --demo` in Chromium; needs playwright. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
RELEASE = "vectors/digits-release"
SCREENS = {
    "desk": "#/desk",
    "data": "#/data?path=vectors/digits.npz",
    "dial": "#/dial?units=5000&classes=benign,malignant,unclear",
    "make": "#/make?data=images/digits",
    "attack": f"#/attack?release={RELEASE}",
    "decide": f"#/decide?release={RELEASE}",
    "receive": f"#/receive?release={RELEASE}",
}
# What shows that a screen has all its facts.
THERE = {
    "desk": "main table .badge", "data": "main dl.facts", "dial": "canvas.map", "make": "main .command",
    "attack": ".attack", "decide": ".safe", "receive": "main dl.facts",
}  # fmt: skip
WIDE, HIGH, LONGEST = 1280, 800, {"attack": 1500}
OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "studio"


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write")
    parser.add_argument("--only", default=",".join(SCREENS), help="screens, separated by commas")
    asked = parser.parse_args()
    out, screens = asked.out, {name: SCREENS[name] for name in asked.only.split(",")}
    out.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, "-m", "locum", "studio", folder, "--demo", "--no-browser"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
            page.goto(link_of(server))
            page.wait_for_url("**/")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                for name, address in screens.items():
                    page.goto(page.url.split("#")[0] + address)
                    quiet(page, THERE[name])
                    # As high as the page, so that the rail on the left is too; of the attacks, the first few.
                    high = page.evaluate("document.querySelector('main').scrollHeight")
                    page.set_viewport_size({"width": WIDE, "height": min(max(high, HIGH), LONGEST.get(name, 9999))})
                    time.sleep(0.5)
                    save(page.screenshot(), out / f"{name}-{scheme}.png")
                    page.set_viewport_size({"width": WIDE, "height": HIGH})
        finally:
            server.terminate()
            server.wait(10)


def link_of(server: subprocess.Popen[str]) -> str:
    """The link that the studio prints."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise SystemExit("the studio did not start")


def quiet(page: Page, there: str) -> None:
    """Wait until something is there, and nothing is loading or working."""
    page.locator(there).first.wait_for(timeout=120_000)
    for _ in range(600):
        time.sleep(0.3)
        if page.evaluate("!document.querySelector('.progress') && !document.body.innerText.includes('reading…')"):
            break
    time.sleep(0.7)


def save(raw: bytes, file: Path) -> None:
    """Write a picture with 256 colors, which is enough for a page and half of the size."""
    Image.open(BytesIO(raw)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main()
