"""What a report shows, to whom, and where it is written."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locum
from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.errors import ConfigError, DataError, FormatError
from locum.generate import ClassGaussian, KSame
from locum.recipes import default_report_path, make_report
from locum.report import SUFFIXES, render

# Odd on purpose: whoever finds one of these in a file has found a count of records.
RECORDS, BY_CLASS = 637, (307, 183, 147)
HELD_OUT, HELD_BY_CLASS = 313, (109, 103, 101)
ODD_VALUE = 98765.4375


def draw(n: int, counts: tuple[int, ...], seed: int) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], counts)
    X = rng.normal(size=(n, 5)) + 2 * np.eye(3, 5)[y]
    return EmbeddingSet.from_arrays(X, np.array(["ant", "bee", "cat"])[y])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    train = draw(RECORDS, BY_CLASS, 0)
    # Only in the data: what the release tells of itself is another matter.
    odd = train.X.copy()
    odd[0, 0] = ODD_VALUE
    ClassGaussian(random_state=0).fit(train.X, train.y).release(train.info, no_dp=True).save(folder / "release")
    KSame(k=5, random_state=0).fit(train.X, train.y).release(train.info, no_dp=True).save(folder / "rows")
    write_embeddings(folder / "smith_john_1970.npz", EmbeddingSet(odd, train.y, info=train.info))
    write_embeddings(folder / "jones_mary_1981.npz", draw(HELD_OUT, HELD_BY_CLASS, 1))
    return folder


@pytest.fixture(scope="module")
def options(place: Path) -> dict[str, Any]:
    files = {"train": str(place / "smith_john_1970.npz"), "test": str(place / "jones_mary_1981.npz")}
    return {**files, "seeds": 1, "map": "pca", "overwrite": True}


@pytest.fixture(scope="module")
def measured(place: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The shareable report with measured figures, for all who compare something with it."""
    return make_report(place / "release", place / "m.json", share=True, include_measured=True, **options)


def numbers(text: str) -> set[str]:
    """Whole numbers as a reader meets them; hashes and the style sheet are no place for counts."""
    text = re.sub(r"(?s)<style>.*?</style>", "", text)
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "", text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    return set(re.findall(r"(?<![\d.#])\d+(?![\d.]*\d)", text))


COUNTS = {str(n) for n in (RECORDS, HELD_OUT, *BY_CLASS, *HELD_BY_CLASS, RECORDS + HELD_OUT)}


def test_an_internal_report_tells_the_holder(place: Path, options: dict[str, Any], tmp_path: Path) -> None:
    """The positive control of the tests below: what they look for is here to be found."""
    out = tmp_path / "r.html"
    report = make_report(place / "release", out, **options)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert out.read_text() == render(report, ".html")
    for suffix in SUFFIXES:
        text = render(report, suffix)
        assert {str(n) for n in (HELD_OUT, *BY_CLASS)} <= numbers(text)
        assert "internal" in text.lower()
        assert "smith" not in text
        assert str(place) not in text
    methods = [row["method"] for row in report["utility"]["rows"]]
    assert methods == ["release (ClassGaussian)", "real data", "2-Same", "5-Same", "10-Same", "15-Same"]
    assert report["membership"]["verdict"] in ("leak", "no excess risk found", "inconclusive")
    assert report["missing"] == {}
    assert len(report["distances"]["series"]) == 3


@pytest.mark.parametrize("release", ["release", "rows"])
@pytest.mark.parametrize("include", [False, True])
def test_a_shareable_report_holds_no_count_and_no_real_value(
    place: Path, options: dict[str, Any], tmp_path: Path, release: str, include: bool
) -> None:
    out = tmp_path / "r.html"
    report = make_report(place / release, out, share=True, include_measured=include, **options)
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert out.read_text() == render(report, ".html")
    for suffix in SUFFIXES:
        text = render(report, suffix)
        assert not COUNTS & numbers(text)
        for hidden in ("98765", "smith", "jones", str(place), "Real records", "Real held-out", "among records"):
            assert hidden not in text
        assert ("measured figures on this page" in text) == include
    assert (report["utility"] is not None) == include
    assert report["distances"] is None
    if report["map"] is not None:
        assert [p["title"] for p in report["map"]["panels"]] == ["Released vectors"]
    if include:
        figures = json.dumps([report["utility"], report["membership"]])
        assert all(len(d) <= 2 for d in re.findall(r"\.(\d+)", figures))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_shareable_report_does_not_open_the_data(
    place: Path, options: dict[str, Any], tmp_path: Path, suffix: str
) -> None:
    """Byte for byte the same with the data, without them, and with files that are not there."""
    seen = set()
    for i, files in enumerate(({}, options, options | {"train": "/nothing.npz", "test": "/nothing#test"})):
        out = tmp_path / f"{i}{suffix}"
        make_report(place / "release", out, **{"map": "pca"} | files, share=True)
        seen.add(out.read_bytes())
    assert len(seen) == 1


def test_measured_figures_do_not_move_the_map(place: Path, measured: dict[str, Any], tmp_path: Path) -> None:
    bare = make_report(place / "release", tmp_path / "a.json", share=True, map="pca")
    for section in ("map", "classes", "settings", "embedding", "files", "release", "distances"):
        assert measured[section] == bare[section]


def test_other_records_give_the_same_shareable_page(
    place: Path, options: dict[str, Any], measured: dict[str, Any], tmp_path: Path
) -> None:
    """Neighbor replay: only the blurred figures may depend on the data, and they are all that is asked for."""
    other = tmp_path / "other.npz"
    write_embeddings(other, draw(500, (200, 200, 100), 7))
    budget = {**options, "train": str(other), "share": True, "include_measured": True}
    found = make_report(place / "release", tmp_path / "r.json", **budget)
    moved = {k for k in measured if measured[k] != found[k]}
    assert moved <= {"utility", "membership", "summary"}


def test_train_or_test_alone(place: Path, options: dict[str, Any], tmp_path: Path) -> None:
    only_train = make_report(place / "release", tmp_path / "a.html", **options | {"test": None})
    assert set(only_train["missing"]) == {"utility", "membership"}
    assert len(only_train["distances"]["series"]) == 2
    only_test = make_report(place / "release", tmp_path / "b.html", **options | {"train": None})
    assert set(only_test["missing"]) == {"distances", "membership"}
    assert "one run" in (tmp_path / "b.html").read_text()


def test_data_that_lack_a_class(place: Path, options: dict[str, Any], tmp_path: Path) -> None:
    for name, counts, seed in (("train", (60, 60, 0), 3), ("test", (40, 30, 0), 4)):
        write_embeddings(tmp_path / f"{name}.npz", draw(sum(counts), counts, seed))
    files = {name: str(tmp_path / f"{name}.npz") for name in ("train", "test")}
    report = make_report(place / "release", tmp_path / "r.html", **options | files)
    assert [row["records"] for row in report["classes"]["rows"]] == [60, 60, 0]


@pytest.mark.parametrize(
    ("out", "settings", "error", "words"),
    [
        ("r.pdf", {}, ConfigError, r"\.html"),
        ("taken.html", {"overwrite": False}, ConfigError, "--force"),
        ("folder.html", {}, ConfigError, "is a folder"),
        ("nowhere/r.html", {}, ConfigError, "nowhere"),
        ("r.html", {"map": "umap"}, ConfigError, "tsne"),
        ("r.html", {"head": "forest"}, ConfigError, "linear"),
        ("r.html", {"seeds": 0}, ConfigError, "seeds"),
        ("r.html", {"train": "nothing.npz"}, DataError, "nothing.npz"),
        ("r.html", {"share": True, "include_measured": True, "test": None}, ConfigError, "--test DATA"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    place: Path, options: dict[str, Any], tmp_path: Path, out: str, settings: dict[str, Any], error: type, words: str
) -> None:
    (tmp_path / "taken.html").write_text("mine")
    (tmp_path / "folder.html").mkdir()
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(error, match=words):
        make_report(place / "release", tmp_path / out, **options | settings)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert (tmp_path / "taken.html").read_text() == "mine"


def test_a_release_stays_as_it_is(place: Path, options: dict[str, Any]) -> None:
    for out in (place / "release" / "r.html", place / "release" / ".." / "release" / "r.html"):
        with pytest.raises(ConfigError, match="next to it"):
            make_report(place / "release", out, **options)
    locum.load(place / "release")
    with pytest.raises(FormatError, match="not a folder"):
        make_report(place / "nothing", place / "r.html")


def test_overwriting_never_widens_who_may_read(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    make_report(place / "release", out, share=True, map="pca")
    make_report(place / "release", out, map="pca", overwrite=True)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_where_a_report_goes_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_report_path(Path("a/b/")) == Path("a/b-report.html")
    assert default_report_path(Path("a/b"), share=True) == Path("a/b-report-shareable.html")
    (tmp_path / "rel").mkdir()
    monkeypatch.chdir(tmp_path / "rel")
    assert default_report_path(Path(".")) == tmp_path / "rel-report.html"
