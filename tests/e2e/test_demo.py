"""`locum demo`: a private release first, and what other budgets would have brought."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Ledger
from locum.data import load_digit_images
from locum.errors import ConfigError
from locum.recipes import verify_release

Run = Callable[..., Any]
LEDGER = Path("demo") / ".locum" / "ledger.sqlite"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty images of each of three digits: embedding and attacks take most of the time."""
    images, labels = load_digit_images()
    rows = np.concatenate([np.flatnonzero(labels == digit)[:60] for digit in range(3)])
    monkeypatch.setattr("locum.recipes.demo.load_digit_images", lambda: (images[rows], labels[rows]))


def spent(file: Path) -> dict[str, list[float]]:
    return {name: [c.epsilon for c in holding.charges] for name, holding in Ledger(file).holdings().items()}


@pytest.mark.usefixtures("few")
def test_the_demo_runs(program: Run, tmp_path: Path) -> None:
    done = program("demo", "-o", "demo", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert list(found) == ["audit", "compare", "embed", "fit", "predict", "train", "verify"]
    assert (found["fit"]["claim"]["kind"], found["train"]["kind"]) == ("dp", "bayes")
    assert found["audit"]["verdict"] != "leak"
    private, larger, unprotected = rows = found["compare"]["rows"]
    assert [row["name"] for row in rows] == ["epsilon 1", "epsilon 3", "no guarantee"]
    assert private["limit"] == found["fit"]["limit"]["auc"] < larger["limit"]
    assert unprotected["limit"] is None
    assert private["accuracy"] == found["predict"]["scores"]["accuracy"]
    assert all(row["attack"]["verdict"] != "leak" for row in rows[:2])
    # With 30 images per class the exact means give their images away.
    assert unprotected["attack"]["verdict"] == "leak"
    # One ledger knows that both private releases add up.
    first = spent(tmp_path / LEDGER)
    assert {name: len(charges) for name, charges in first.items()} == {"default": 1, "epsilon-3": 1}
    assert found["compare"]["epsilon_together"] == pytest.approx(sum(sum(charges) for charges in first.values()))
    for name in ("release", "release-epsilon-3"):
        verify_release(tmp_path / "demo" / name, ledger=tmp_path / LEDGER)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_demo_runs_again(program: Run, tmp_path: Path) -> None:
    """An earlier demo, also one that was interrupted, spends nothing of the next one's budget."""
    assert program("demo", "-o", "demo", "--json").code == 0
    shutil.rmtree(tmp_path / "demo" / "release-epsilon-3")
    done = program("demo", "-o", "demo")
    assert done.code == 0, done.err
    assert {name: len(charges) for name, charges in spent(tmp_path / LEDGER).items()} == {
        "default": 1,
        "epsilon-3": 1,
    }
    told = " ".join(done.out.split())
    for part in (
        "locum fit demo/digits.npz -o demo/release --classes-public",
        "it is the only release charged to this ledger so far",
        "anyone who gets both private ones has epsilon 4 in total",
        "has an AUC of at most 0.567 on average",
        "larger data sets lose less",
        "$ locum fit your-images -o my-release --classes-public",
    ):
        assert part in told
    assert (tmp_path / "demo" / "audit.html").stat().st_mode & 0o777 == 0o600


def test_a_link_out_of_the_folder_costs_no_other_ledger(tmp_path: Path) -> None:
    from locum.recipes.demo import MARK, _claim

    others, demo = tmp_path / "hospital", tmp_path / "demo"
    (others / ".locum").mkdir(parents=True)
    (others / ".locum" / "ledger.sqlite").write_text("spent")
    (others / "scans").mkdir()
    demo.mkdir()
    (demo / MARK).write_text("")
    (demo / "images").symlink_to(others / "scans")
    _claim(demo)
    (demo / ".locum").symlink_to(others / ".locum")
    with pytest.raises(ConfigError, match="is a link"):
        _claim(demo)
    assert (others / ".locum" / "ledger.sqlite").read_text() == "spent"


def test_the_demo_keeps_out_of_folders_that_are_not_its_own(tmp_path: Path) -> None:
    from locum.recipes import run_demo

    class Enough(Exception):  # noqa: N818
        pass

    def begins(title: str, commands: Sequence[str]) -> None:
        if commands:
            raise Enough

    def demo(folder: Path) -> None:
        run_demo(folder, begins=begins, ends=lambda name, result: None)

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "images").mkdir()
    (tmp_path / "file").write_text("")
    for place, told in (("mine", "not empty"), ("file", "Nothing can be written")):
        with pytest.raises(ConfigError, match=told):
            demo(tmp_path / place)
    assert [p.name for p in (tmp_path / "mine").rglob("*")] == ["images"]
    (tmp_path / "empty").mkdir()
    # A second time into the first one's folder, too.
    for place in ("empty", "deep/new", "empty"):
        with pytest.raises(Enough):
            demo(tmp_path / place)
        assert len(list((tmp_path / place / "images").rglob("*.png"))) == 1797
