"""The report from the command line to a browser without a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.data import load_sample, split, write_embeddings
from locum.recipes import fit_release, make_report

Run = Callable[..., Any]
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
SECTIONS = ("summary", "claim", "utility", "map", "distances", "classes", "membership", "settings", "glossary")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Page:
    """A page opened offline, and all that it complained of or asked for."""

    def __init__(self, browser: Any, file: Path, width: int = 1200, scheme: str = "light") -> None:
        self.context = browser.new_context(
            offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        assert self.complaints == []
        assert self.requests == [file.as_uri()]
        for section in SECTIONS:
            assert self.page.locator(f"#{section}").is_visible(), section

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    parts = split(load_sample("digits"), {"train": 300, "test": 200}, rng=np.random.default_rng(0))
    for name, part in parts.items():
        write_embeddings(folder / f"{name}.npz", part)
    fit_release(str(folder / "train.npz"), folder / "release", non_members=str(folder / "test.npz"), no_dp=True)
    return folder


def test_the_verb_says_where_it_wrote_and_for_whom(program: Run, digits: Path) -> None:
    data = ("--train", digits / "train.npz", "--test", digits / "test.npz")
    ran = program("report", digits / "release", *data, "--seeds", 1, "--map", "pca")
    assert ran.code == 0, ran.err
    assert str(digits / "release-report.html") in ran.out
    assert "INTERNAL" in ran.out
    assert "do not send" in ran.out
    shared = program("report", digits / "release", *data, "--share", "--map", "pca", "--json")
    assert shared.code == 0, shared.err
    assert shared.json["audience"] == "shareable"
    assert shared.json["data_not_opened"] is True
    assert Path(shared.json["file"]).name == "release-report-shareable.html"
    assert program("verify", digits / "release").code == 0, "a report leaves the release as it was"
    again = program("report", digits / "release", "--share")
    assert again.code == 2
    assert "--force" in again.err


def test_wrong_use_gets_one_sentence(program: Run, digits: Path) -> None:
    for arguments, word in (
        (("report", "nothing"), "not a folder"),
        (("report", digits / "release", "-o", "r.docx"), ".html, .md or .json"),
        (("report", digits / "release", "-o", digits / "release" / "r.html"), "next to it"),
        (("report", digits / "release", "--share", "--include-measured", "-o", "r.html"), "--test DATA"),
    ):
        ran = program(*arguments)
        assert ran.code == 2
        assert word in ran.err
        assert len(ran.err.strip().splitlines()) == 1
        assert ran.out == ""


@needs_browser
def test_the_page_opens_without_a_network(browser: Any, digits: Path) -> None:
    files = {"train": str(digits / "train.npz"), "test": str(digits / "test.npz")}
    make_report(digits / "release", digits / "page.html", **files, seeds=1)
    for width, scheme in ((1200, "light"), (1200, "dark"), (400, "light")):
        opened = Page(browser, digits / "page.html", width, scheme)
        assert opened.overflow() <= 0, "no sideways scrolling"
        assert "INTERNAL" in opened.page.locator(".banner").inner_text()
        assert opened.page.locator("#map svg.chart").count() == 2
        assert opened.page.locator("#utility tbody tr").count() == 6
        dark = opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)"
        assert dark == (scheme == "dark")
        real, released = (opened.page.locator("#map svg.chart").nth(i).bounding_box() for i in (0, 1))
        assert (real["y"] == released["y"]) == (width == 1200), "side by side where there is room"
        opened.context.close()
    assert (digits / "page.html").stat().st_size < 1_000_000


@needs_browser
@pytest.mark.parametrize("share", [False, True])
def test_a_hostile_name_does_not_run(browser: Any, tmp_path: Path, rng: np.random.Generator, share: bool) -> None:
    names = ["<script>window.owned = 1; alert(1)</script>", '"><img src=x onerror="window.owned = 1">', "plain"]
    y = np.arange(90) % 3
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(90, 4)) + y[:, None], y=np.array(names)[y])
    fit_release(str(tmp_path / "d.npz"), tmp_path / "r", no_dp=True)
    make_report(tmp_path / "r", tmp_path / "page.html", train=str(tmp_path / "d.npz"), share=share, map="pca")
    opened = Page(browser, tmp_path / "page.html")
    assert opened.page.evaluate("window.owned") is None
    assert opened.page.locator("script, img, iframe").count() == 0
    shown = opened.page.locator("#classes").inner_text()
    assert all(name in shown for name in names)
    # The page's own policy is a second wall: markup that got in would not run either.
    opened.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.owned=1\">')")
    opened.page.wait_for_timeout(100)
    assert opened.page.evaluate("window.owned") is None


@needs_browser
@pytest.mark.parametrize("case", ["one feature", "thirty classes", "k-Same", "shared k-Same"])
def test_unusual_releases(browser: Any, tmp_path: Path, rng: np.random.Generator, case: str) -> None:
    classes, features = (30, 6) if case == "thirty classes" else (2, 1 if case == "one feature" else 6)
    for name, n in (("train", 300), ("test", 240)):
        y = np.arange(n) % classes
        X = rng.normal(size=(n, features)) + y[:, None]
        np.savez(tmp_path / f"{name}.npz", X=X, y=np.array([f"kind {c:02d}" for c in range(classes)])[y])
    generator = "ksame" if "k-Same" in case else "gaussian"
    files = {"train": str(tmp_path / "train.npz"), "test": str(tmp_path / "test.npz")}
    fit_release(files["train"], tmp_path / "r", generator=generator, non_members=files["test"], no_dp=True)
    make_report(tmp_path / "r", tmp_path / "page.html", **files, seeds=1, share="shared" in case, map="pca")
    opened = Page(browser, tmp_path / "page.html", 400)
    assert opened.overflow() <= 0
    assert opened.page.locator("#classes tbody tr").count() == classes
    assert opened.page.locator("#map svg.chart").count() == (0 if "shared" in case else 2)
