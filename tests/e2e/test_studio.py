"""The studio in a real browser: each screen used once as a person would, and checked for what people stumble over."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

from locum.recipes import audit_data, show_ledger

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PATIENCE = 120_000
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
expect.set_options(timeout=PATIENCE)


class Server:
    """`locum studio` as a process of its own, and the link that it prints."""

    def __init__(self, *arguments: object, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "locum", "studio", *map(str, arguments), "--no-browser", "--port", "0"],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
        )
        self.link = self._link()
        self.origin = re.match(r"http://[^/]+", self.link)[0]  # type: ignore[index]

    def _link(self) -> str:
        assert self.process.stdout is not None
        said = []
        giving_up = threading.Timer(90, self.process.kill)
        giving_up.start()
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"http://\S+", line)
            if found:
                giving_up.cancel()
                return found[0]
        raise AssertionError("".join(said))

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


class Visit:
    """One browser that was let in, and all that its pages complained of, asked for and sent."""

    def __init__(self, browser: Any, server: Server) -> None:
        self.server = server
        self.root = Path()
        self.context = browser.new_context(viewport={"width": 1280, "height": 720}, accept_downloads=True)
        self.context.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.requests: list[Any] = []
        self.pending: set[Any] = set()
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: (self.requests.append(request), self.pending.add(request)))
        for end in ("requestfinished", "requestfailed"):
            self.page.on(end, lambda request: self.pending.discard(request))
        self.page.goto(server.link)
        self.page.wait_for_url(re.compile(r"/$|/#"))
        expect(self.page.locator("main h1")).to_be_visible()

    def screen(self, name: str, **parameters: str) -> Any:
        query = f"?{urlencode(parameters)}" if parameters else ""
        target = f"{self.server.origin}/#/{name}{query}"
        if self.page.url == target:
            self.page.reload()
        self.page.goto(target)
        expect(self.page.locator(f".rail a[href='#/{name}'][aria-current=page]")).to_be_visible()
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until nothing on the screen is still being read or computed."""
        waiting = "document.body.innerText.includes('reading…') || Boolean(document.querySelector('.progress'))"
        calm = 0
        until = time.monotonic() + PATIENCE / 1000
        while calm < 3:
            calm = 0 if self.pending or self.page.evaluate(waiting) else calm + 1
            assert time.monotonic() < until, "the screen did not come to rest"
            self.page.wait_for_timeout(80)

    def check(self) -> None:
        """Nothing was complained of, and nobody but the studio was asked."""
        assert self.complaints == []
        foreign = [r.url for r in self.requests if not r.url.startswith((self.server.origin, "data:", "blob:"))]
        assert foreign == []

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def violations(self) -> list[str]:
        """What axe finds on the screen as it is. It comes through the debugger: the page's policy stays in force."""
        page = self.page
        if not page.evaluate("'axe' in window"):
            debugger = self.context.new_cdp_session(page)
            debugger.send("Runtime.evaluate", {"expression": AXE.read_text()})
            debugger.detach()
        found = page.evaluate("levels => axe.run(document, {runOnly: levels, resultTypes: ['violations']})", LEVELS)
        return [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"]
        ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """`locum studio --demo`, with its release twice more: one to be refused, one that does not meet its policy."""
    above = tmp_path_factory.mktemp("studio")
    server = Server(above, "--demo", cwd=above)
    vectors = above / "locum-studio-demo" / "vectors"
    for name in ("to-refuse", "too-weak"):
        shutil.copytree(vectors / "digits-release", vectors / name)
        shutil.copy(vectors / "digits-release-audit.json", vectors / f"{name}-audit.json")
    # Without the ledger there is no proven limit, which this policy asks for.
    data = str(vectors / "digits.npz")
    audit_data(
        vectors / "too-weak",
        f"{data}#train",
        f"{data}#val",
        policy="public",
        attacks=("nearest distance",),
        out=vectors / "too-weak-audit.json",
        overwrite=True,
        seed=0,
    )
    try:
        opened = Visit(browser, server)
        opened.root = vectors.parent
        yield opened
    finally:
        server.close()


@pytest.fixture
def demo(visit: Visit) -> Iterator[Visit]:
    """The demo, at its usual size; whatever a test did, nothing was complained of."""
    visit.page.set_viewport_size({"width": 1280, "height": 720})
    visit.page.emulate_media(color_scheme="light")
    visit.requests.clear()
    yield visit
    visit.check()


SIZES = {"1280x720": (1280, 720), "1024x576": (1024, 576), "390": (390, 844)}
VERDICTS = {"leak", "inconclusive", "no excess risk found", "within the proven limit"}
RELEASE = "vectors/digits-release"
SCREENS: dict[str, dict[str, str]] = {
    "desk": {},
    "data": {"path": "images/digits"},
    "dial": {},
    "make": {"data": "tables/tumors.csv"},
    "attack": {"release": RELEASE},
    "decide": {"release": RELEASE},
    "receive": {"release": RELEASE},
}


def test_the_demo_has_something_on_every_screen(demo: Visit) -> None:
    page = demo.screen("desk")
    expect(page.get_by_role("cell", name="images/digits")).to_be_visible()
    releases = page.locator("section", has_text="Releases")
    expect(releases.get_by_text("policy met by proof, not decided").first).to_be_visible()
    expect(page.get_by_text("epsilon 1 of 1 is spent")).to_be_visible()
    demo.screen("data", path="images/digits")
    expect(page.get_by_role("heading", name="10 classes")).to_be_visible()
    demo.screen("dial")
    expect(page.locator("canvas.map")).to_have_attribute("data-points", re.compile(r"[1-9]\d*"))
    demo.screen("make", data="tables/tumors.csv")
    expect(page.locator(".command code")).to_contain_text("locum fit tables/tumors.csv")
    demo.screen("attack", release=RELEASE)
    assert page.locator(".attack").count() >= 8
    demo.screen("decide", release=RELEASE)
    expect(page.locator(".verdict")).to_have_text("Policy research-sharing: met")
    expect(
        page.get_by_text("A linear classifier from the release tells two real records of different classes apart")
    ).to_be_visible()
    demo.screen("receive", release=RELEASE)
    expect(page.get_by_role("heading", name="Complete and unchanged")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_at_every_size(demo: Visit, scheme: str) -> None:
    page, found = demo.page, {}
    page.emulate_media(color_scheme=scheme)
    for name, parameters in SCREENS.items():
        demo.screen(name, **parameters)
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(50)
            assert demo.overflow() <= 0, f"{name} at {size}"
            found[f"{name} at {size}"] = demo.violations()
        page.set_viewport_size({"width": 1280, "height": 720})
    assert not any(found.values()), "\n".join(f"{where}: {words}" for where, words in found.items() if words)
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(18, 23, 29)"
    assert dark == (scheme == "dark")


@pytest.mark.slow
def test_an_empty_folder_and_then_long_names(browser: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    root = tmp_path / "root"
    root.mkdir()
    server = Server(root, cwd=tmp_path)
    try:
        visit = Visit(browser, server)
        page = visit.page
        page.set_viewport_size({"width": 390, "height": 844})
        for name, words in (
            ("data", "There are no data"),
            ("make", "There are no data"),
            ("attack", "There is no release"),
        ):
            visit.screen(name)
            expect(page.locator("main .note")).to_contain_text(words)
            assert visit.overflow() <= 0, name
            assert visit.violations() == [], name
        # No line can break inside these, and 50 classes are the most that need not be declared.
        folder, y = root / ("unbroken" * 12), np.arange(1500) % 50
        folder.mkdir()
        names = np.array(
            [f"malignant_neoplasm_of_upper_lobe_bronchus_or_lung_without_a_break_{c:02d}" for c in range(50)]
        )
        np.savez(folder / "vectors.npz", X=rng.normal(size=(1500, 4)) + y[:, None], y=names[y])
        page.reload()
        visit.screen("desk")
        for name in ("desk", "data", "make"):
            visit.screen(name)
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                assert visit.overflow() <= 0, f"{name} at {width}"
                assert visit.violations() == [], f"{name} at {width}"
        visit.check()
    finally:
        server.close()


@pytest.mark.slow
def test_the_dial(demo: Visit) -> None:
    page = demo.screen("dial")
    slider, output = page.get_by_role("slider", name="Epsilon"), page.locator(".dial output")
    canvas, headlines = page.locator("canvas.map"), page.locator(".headline")
    expect(output).to_have_text("epsilon 1")
    before = headlines.all_inner_texts(), canvas.get_attribute("data-shown")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(output).to_have_text("epsilon 1.1")
    for _ in range(51):
        page.keyboard.press("ArrowLeft")
    expect(output).to_have_text("epsilon 0.5")
    expect(canvas).to_have_attribute("data-shown", "0.5")
    after = headlines.all_inner_texts(), canvas.get_attribute("data-shown")
    assert before[1] != after[1]
    assert all(old != new for old, new in zip(before[0], after[0], strict=True))
    limit = re.compile(r"AUC at most (0\.\d+)")
    assert float(limit.findall(after[0][1])[0]) < float(limit.findall(before[0][1])[0]), "less epsilon, a lower limit"
    page.get_by_label("I need an AUC of at least").fill("0.85")
    page.get_by_role("button", name="Find epsilon").click()
    solved = page.get_by_text("is expected to give an AUC of")
    expect(solved).to_be_visible()
    asked = re.findall(r"Epsilon ([\d.]+) is expected to give an AUC of (0\.\d+)", solved.inner_text())[0]
    assert float(asked[1]) >= 0.85
    expect(output).to_have_text(f"epsilon {float(asked[0]):g}")
    page.get_by_role("tab", name="k groups").click()
    slider = page.get_by_role("slider", name="k")
    expect(slider).to_be_enabled()
    demo.settle()
    first = page.locator(".dial output").inner_text()
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".dial output")).not_to_have_text(first)
    expect(page.locator(".headline").nth(1)).to_contain_text("1 in ")
    page.get_by_role("tab", name="Noise and lambda").click()
    expect(page.get_by_role("tab", name="Noise and lambda")).to_have_attribute("aria-selected", "true")
    sent = " ".join(f"{r.url} {r.post_data or ''}" for r in demo.requests)
    assert "preview" in sent
    assert not re.search("digits|tumors", sent), "on public numbers no request names data"


def test_a_look_at_the_records_is_noted_for_good(demo: Visit) -> None:
    page = demo.screen("dial")
    page.locator("summary", has_text="Preview on public numbers").click()
    page.get_by_label("My records, for my eyes only").check()
    expect(page.get_by_text("For your eyes only: this reads your records.")).to_be_visible()
    red = page.evaluate("getComputedStyle(document.querySelector('.card.eyes')).borderTopColor")
    assert red == "rgb(143, 47, 11)"
    page.get_by_label("Records", exact=True).select_option("tables/tumors.csv")
    page.get_by_role("button", name="Look at my records, and note it").click()
    expect(page.get_by_text("measured on your records")).to_be_visible()
    demo.settle()
    assert show_ledger(demo.root / "tables" / ".locum" / "ledger.sqlite")["looks"] == 1
    demo.screen("make", data="tables/tumors.csv")
    expect(page.get_by_text("Usual range of each column")).to_be_visible()
    page.get_by_label("A file gives the ranges").check()
    page.get_by_label("File of ranges").select_option("tables/tumors-ranges.csv")
    expect(page.locator(".command code")).to_contain_text("--reference tables/tumors-ranges.csv")
    make_release(demo, "tables/tumors-release")
    claim = json.loads((demo.root / "tables" / "tumors-release" / "manifest.json").read_text())["claim"]
    assert any("preview" in line for line in claim["not_covered"]), claim["not_covered"]
    demo.screen("desk")
    expect(page.get_by_text("1 look at the records was noted")).to_be_visible()


def make_release(visit: Visit, out: str, *, reload: bool = False) -> None:
    """Make a private release of the data that the screen names, and wait for it."""
    page = visit.page
    expect(page.get_by_label("Name of the release")).to_have_value(out)
    button = page.get_by_role("button", name="Make the release")
    expect(button).to_be_disabled()
    page.get_by_label("Everyone may know the class names in the data").check()
    expect(page.locator(".command code")).to_contain_text("--classes-public")
    page.get_by_label("Spend it, and make the release").check()
    button.click()
    if reload:
        expect(page.locator(".progress")).to_be_visible()
        page.reload()
        expect(page.locator(".progress")).to_be_visible()
    expect(page.get_by_role("heading", name=f"{out} was made")).to_be_visible()


def png(file: Path, rng: np.random.Generator, kind: int) -> None:
    """A small image of one of three kinds, unlike any other."""
    pixels = rng.integers(0, 90, size=(32, 32, 3))
    pixels[8 * kind : 8 * kind + 12, :, kind] += 150
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(file)


def drop(visit: Visit, place: Any, folder: Path) -> None:
    """Drag a folder from the system onto a part of the page, and let it go there."""
    box = place.bounding_box()
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 10}
    mouse = visit.context.new_cdp_session(visit.page)
    what = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        mouse.send("Input.dispatchDragEvent", {"type": kind, **at, "data": what})
    mouse.detach()


@pytest.mark.slow
def test_from_a_dropped_folder_to_a_prediction(browser: Any, tmp_path: Path) -> None:
    rng, scans, root = np.random.default_rng(0), tmp_path / "scans", tmp_path / "root"
    for part, n in (("train", 30), ("test", 14)):
        for kind, name in enumerate(("benign", "malignant", "normal")):
            for i in range(n):
                png(scans / part / name / f"{i:03d}.png", rng, kind)
    shutil.copy(scans / "train" / "benign" / "000.png", scans / "train" / "benign" / "copy.png")
    (scans / "train" / "normal" / "torn.png").write_bytes(b"this is no image")
    root.mkdir()
    server = Server(root, cwd=tmp_path)
    try:
        visit = Visit(browser, server)
        look_at_dropped_data(visit, scans, root)
        release_and_attack(visit)
        approve(visit)
        receive(visit, tmp_path)
        visit.check()
    finally:
        server.close()
    words = ["verify", "scans-release", "--key", "holder.pem.pub", "--decision", "scans-release-decision.json"]
    terminal = subprocess.run([sys.executable, "-m", "locum", *words], cwd=root, capture_output=True, text=True)
    assert terminal.returncode == 0, terminal.stderr
    assert "approved" in terminal.stdout


def look_at_dropped_data(visit: Visit, scans: Path, root: Path) -> None:
    page = visit.screen("desk")
    expect(page.get_by_text("There are none yet: drop a folder of images")).to_be_visible()
    drop(visit, page.locator(".drop"), scans)
    expect(page.get_by_text("Copied: scans")).to_be_visible()
    page.get_by_role("link", name="Look at it").click()
    visit.settle()
    expect(page.get_by_role("heading", name="3 classes")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("benign 45"))).to_be_visible()
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("1 file: ")
    expect(facts).to_contain_text("1 within a part")
    expect(page.get_by_text("A private release would be refused: 1 of")).to_be_visible()
    for name in ("train/normal/torn.png", "train/benign/copy.png"):
        (root / "scans" / name).unlink()
    page.get_by_role("button", name="Look again").click()
    expect(facts.locator("dt:text-is('Unreadable') + dd")).to_have_text("none")
    expect(facts.locator("dt:text-is('Duplicates') + dd")).to_have_text("none")
    # The same through the button; a name that is taken gets a number.
    visit.screen("desk")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a folder").click()
    chooser.value.set_files(str(root / "scans" / "test"))
    expect(page.get_by_text("Copied: test")).to_be_visible()
    shutil.rmtree(root / "test")


def release_and_attack(visit: Visit) -> None:
    page = visit.screen("make", data="scans")
    expect(page.get_by_text("this opens their budget with exactly this amount")).to_be_visible()
    make_release(visit, "scans-release", reload=True)
    expect(page.locator("dl.facts")).to_contain_text("epsilon 1")
    page.get_by_role("button", name="Attack it").click()
    visit.settle()
    expect(page.get_by_label("Records it was made from")).to_have_value("scans")
    page.get_by_label("given that these class names are public").check()
    expect(page.get_by_label("Also test the claimed epsilon with 1,000 canaries")).not_to_be_checked()
    page.get_by_role("button", name="Run the attacks").click()
    expect(page.get_by_role("heading", name="Attacks", exact=True)).to_be_visible(timeout=90_000)
    rows = page.locator(".attack")
    assert rows.count() >= 5
    assert set(rows.locator(".badge").all_inner_texts()) <= VERDICTS
    assert all(re.search(r"\w+ \w+ \w+.*\.$", words) for words in rows.locator("p:not(.muted)").all_inner_texts())
    assert not any("/api/risk" in r.url for r in visit.requests), "single records are shown only on request"
    page.get_by_role("button", name="Show the most exposed records").click()
    expect(page.get_by_role("group", name="The most exposed records").get_by_role("row").nth(1)).to_be_visible()
    assert any("/api/risk" in r.url for r in visit.requests)


def approve(visit: Visit) -> None:
    page = visit.screen("decide", release="scans-release")
    page.get_by_role("button", name="Measure it").click()
    expect(
        page.get_by_text("A linear classifier from the release tells two real records of different classes apart")
    ).to_be_visible()
    visit.settle()
    for box in page.locator(".safe input[type=checkbox]").all():
        box.check()
    page.get_by_label("Remark on Safe people").fill("They signed our terms.")
    page.get_by_label("Approve: it may leave").check()
    page.get_by_label("Your name").fill("A. Officer")
    page.get_by_label("Reason", exact=True).fill("A test.")
    if page.get_by_label("Why you approve although the policy is not met").count():
        page.get_by_label("Why you approve although the policy is not met").fill("Made-up images.")
    use_key(page)
    page.get_by_role("button", name="Approve and sign").click()
    expect(page.get_by_role("heading", name="Approved and signed")).to_be_visible()


def receive(visit: Visit, folder: Path) -> None:
    page = visit.page
    with page.expect_download() as download:
        page.get_by_role("button", name="Download scans-release.zip").click()
    sent = folder / download.value.suggested_filename
    download.value.save_as(sent)
    visit.screen("receive")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files(str(sent))
    expect(page.get_by_role("heading", name="Complete and unchanged")).to_be_visible()
    expect(page.get_by_label("Or open one that is here")).to_have_value("received/scans-release")
    page.get_by_text("checks passed").click()
    page.get_by_label("The sender's public key").select_option("holder.pem.pub")
    expect(page.get_by_text("The release is exactly what its owner signed.")).to_be_visible()
    page.get_by_role("button", name="Draw samples").click()
    expect(page.locator("canvas.map")).to_have_attribute("data-points", re.compile(r"[1-9]\d*"))
    page.get_by_role("button", name="Train a classifier").click()
    page.get_by_label("Your own records to classify").select_option("scans")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_text("Predictions are in received/scans-release-predictions.csv.")).to_be_visible()


def test_a_release_is_refused(demo: Visit) -> None:
    page = demo.screen("decide", release="vectors/to-refuse")
    page.get_by_label("Refuse: it stays").check()
    page.get_by_label("Your name").fill("A. Officer")
    page.get_by_label("Reason").fill("The receiver has no use for it.")
    use_key(page)
    page.get_by_role("button", name="Refuse and sign").click()
    expect(page.get_by_role("heading", name="Refused and signed")).to_be_visible()
    assert page.get_by_role("button", name="Download").count() == 0
    demo.screen("desk")
    row = page.get_by_role("row", name=re.compile("to-refuse"))
    expect(row.get_by_text("refused", exact=True)).to_be_visible()
    demo.screen("receive", release="vectors/to-refuse")
    expect(page.get_by_role("heading", name="Complete, but refused")).to_be_visible()


def test_to_approve_against_the_policy_takes_a_public_reason(demo: Visit) -> None:
    page = demo.screen("decide", release="vectors/too-weak")
    expect(page.locator(".verdict")).to_have_text("Policy public: NOT met")
    for box in page.locator(".safe input[type=checkbox]").all():
        box.check()
    page.get_by_label("Approve: it may leave").check()
    page.get_by_label("Your name").fill("A. Officer")
    page.get_by_label("Reason", exact=True).fill("It is a demo.")
    use_key(page)
    button = page.get_by_role("button", name="Approve and sign")
    expect(button).to_be_disabled()
    page.get_by_label("Why you approve although the policy is not met").fill("These digits are public.")
    button.click()
    expect(page.get_by_role("heading", name="Approved and signed")).to_be_visible()
    demo.screen("receive", release="vectors/too-weak")
    words = "Signed although the policy was not met, because: These digits are public."
    expect(page.get_by_text(words)).to_be_visible()


def use_key(page: Any) -> None:
    """Sign with the key that is there, or make one first."""
    if page.get_by_role("button", name="Make a key pair").count():
        page.get_by_label("Passphrase").fill("correct horse")
        page.get_by_role("button", name="Make a key pair").click()
    expect(page.get_by_label("Sign with the key")).to_have_value("holder.pem")
    page.get_by_label("Passphrase of the key").fill("correct horse")


def focused(page: Any) -> dict[str, Any]:
    """What has the focus: its words, and whether one can see that it has it."""
    found: dict[str, Any] = page.evaluate(
        """() => {
        const own = document.activeElement, look = getComputedStyle(own);
        const label = own.labels?.[0]?.innerText ?? own.getAttribute("aria-label") ?? own.innerText ?? "";
        const box = own.getBoundingClientRect();
        return {tag: own.tagName, words: label.trim(), type: own.type ?? "", value: own.value ?? "",
                seen: look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
                inside: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth};
        }"""
    )
    return found


def tab_to(page: Any, wanted: str, tag: str = "", most: int = 90) -> dict[str, Any]:
    """Press Tab until something that starts with these words has the focus; all on the way must show it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        found = focused(page)
        if found["tag"] == "BODY":
            continue
        assert found["seen"], f"no visible focus on {found}"
        assert found["inside"], f"the focus is out of sight on {found}"
        if found["words"].startswith(wanted) and found["tag"].startswith(tag):
            return found
    raise AssertionError(f"Tab does not reach {wanted!r}")


def test_the_keyboard_is_enough(demo: Visit) -> None:
    page, keys = demo.page, demo.page.keyboard
    demo.screen("desk")
    page.reload()
    expect(page.locator("main h1")).to_be_visible()
    demo.settle()
    assert tab_to(page, "Skip to the content", most=1)["tag"] == "A"
    keys.press("Enter")
    assert focused(page)["tag"] == "MAIN"
    assert tab_to(page, "Look at it", most=1)["tag"] == "A", "the navigation was skipped"
    page.reload()
    expect(page.locator("main h1")).to_be_visible()
    tab_to(page, "Decide")
    keys.press("Enter")
    expect(page.locator("h1")).to_have_text("May it leave?")
    tab_to(page, "Release", "SELECT")
    for _ in range(6):
        if focused(page)["value"] == RELEASE:
            break
        keys.press("ArrowDown")
        demo.settle()
        assert focused(page)["tag"] == "SELECT", "choosing keeps the focus"
    expect(page.locator(".verdict")).to_have_text("Policy research-sharing: met")
    # A word is explained where it stands, and reading on goes on there.
    tab_to(page, "What is this?")
    keys.press("Enter")
    drawer = page.get_by_role("complementary", name="Help")
    expect(drawer.locator(".chosen")).to_contain_text("proven limit")
    assert demo.violations() == []
    keys.press("Escape")
    expect(drawer).to_have_count(0)
    assert focused(page)["words"] == "What is this?"
    for title in ("Safe projects", "Safe people", "Safe settings", "Safe data", "Safe outputs"):
        tab_to(page, title, "INPUT")
        keys.press("Space")
    tab_to(page, "Approve", "INPUT")
    keys.press("Space")
    tab_to(page, "Your name")
    keys.type("A. Officer")
    tab_to(page, "Reason")
    keys.type("Within the proven limit.")
    if page.get_by_role("button", name="Make a key pair").count():
        tab_to(page, "Passphrase")
        keys.type("correct horse")
        tab_to(page, "Make a key pair")
        keys.press("Enter")
        expect(page.get_by_label("Sign with the key")).to_have_value("holder.pem")
    tab_to(page, "Passphrase of the key")
    keys.type("correct horse")
    tab_to(page, "Approve and sign", "BUTTON")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Approved and signed")).to_be_visible()
    decision = json.loads((demo.root / "vectors" / "digits-release-decision.json").read_text())
    assert decision["outcome"] == "approved"


def test_the_link_lets_a_browser_in_from_a_local_file_and_only_once(browser: Any, tmp_path: Path) -> None:
    """As `locum studio` opens it: a strict cookie is not sent along a redirect that began elsewhere."""
    (tmp_path / "root").mkdir()
    server = Server(tmp_path / "root", cwd=tmp_path)
    try:
        (tmp_path / "open.html").write_text(f'<meta http-equiv="refresh" content="0;url={server.link}">')
        for context, works in ((browser.new_context(), True), (browser.new_context(), False)):
            page = context.new_page()
            page.goto((tmp_path / "open.html").as_uri())
            if works:
                expect(page.get_by_role("heading", name="Desk")).to_be_visible()
            else:
                expect(page.get_by_text("This link was used already")).to_be_visible()
            context.close()
    finally:
        server.close()
