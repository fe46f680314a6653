"""Copies in the data: `fit` and `embed` list them, and say the way out."""

from __future__ import annotations

import csv
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum.cli.fit import show_fit
from locum.errors import ConfigError, DataError, PrivacyError
from locum.recipes import fit_release, verify_release
from locum.types import DP


def save(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)
    return str(path)


def with_copies(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """200 records, then 100 of them once more: what stopped a new user."""
    X, y = rng.normal(size=(200, 6)).astype(np.float32), np.arange(200) % 2
    return np.concatenate([X, X[:100]]), np.concatenate([y, y[:100]])


def test_copies_are_listed_before_the_work_with_the_way_out(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from locum.generate import ClassGaussian

    X, y = with_copies(rng)
    data = save(tmp_path / "MILLER.npz", X=X, y=y)
    with monkeypatch.context() as patch:
        patch.setattr(ClassGaussian, "fit", lambda *_, **__: pytest.fail("fitted before the check"))
        with pytest.raises(DataError, match=r"equal a member .* --drop-duplicates"):
            fit_release(data, tmp_path / "r", holdout=0.3, no_dp=True)
    listing = tmp_path / ".locum" / "MILLER.npz.duplicates.csv"
    assert stat.S_IMODE(listing.stat().st_mode) == 0o600
    rows = listing.read_text().splitlines()
    assert rows[:2] == ["split,row,equals_split,equals_row,label,subject", "all,200,all,0,same,unknown"]
    assert len(rows) == 101
    done = fit_release(data, tmp_path / "r", holdout=0.3, drop_duplicates=True, no_dp=True)
    assert (done.records, done.held_out) == (140, 60)
    assert (done.repeated, done.dropped, done.kept, done.duplicates_file) == (100, 100, 0, str(listing))
    assert done.membership is not None
    # Data without copies have no list, and the old one goes.
    save(tmp_path / "MILLER.npz", X=X[:200], y=y[:200])
    clean = fit_release(data, tmp_path / "r2", drop_duplicates=True, no_dp=True)
    assert (clean.repeated, clean.shared, clean.dropped, clean.duplicates_file) == (0, 0, 0, None)
    assert not listing.exists()


@pytest.mark.parametrize("private", [False, True])
def test_copies_between_splits_leave_the_side_of_the_non_members(
    tmp_path: Path, rng: np.random.Generator, private: bool
) -> None:
    """Members stay what they are: under a guarantee, test records must not decide what is learned from."""
    X, y = with_copies(rng)
    # A copy under another label is a copy too.
    arrays = {
        "train_x": X[:200],
        "train_y": y[:200],
        "val_x": np.concatenate([X[200:], X[:100] + 9]),
        "val_y": [1] * 200,
    }
    data = save(tmp_path / "d.npz", **arrays, test_x=X[150:152], test_y=[0, 1])
    options = {"privacy": DP(1.0, 1e-4, n_public=200), "classes": ["0", "1"]} if private else {"no_dp": True}
    if private:
        # Which records are learned from is settled; the check is made with those that are no copies.
        first = fit_release(data, tmp_path / "r", **options)
        assert (first.records, first.held_out, first.shared, first.problem) == (200, 100, 100, "")
        assert first.membership is not None
    else:
        with pytest.raises(DataError, match=r"100 of 200 non-members equal a member .* --drop-duplicates"):
            fit_release(data, tmp_path / "r", no_dp=True)
    done = fit_release(data, tmp_path / "r2", **options, drop_duplicates=True, holding="second")
    assert (done.records, done.held_out, done.shared, done.dropped) == (200, 100, 100, 100)
    rows = (tmp_path / ".locum" / "d.npz.duplicates.csv").read_text().splitlines()
    assert {"val,0,train,0,other,unknown", "val,1,train,1,same,unknown", "test,0,train,150,same,unknown"} <= set(rows)
    assert len(rows) == 1 + 102


def test_under_a_guarantee_only_copies_within_a_unit_are_dropped(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = with_copies(rng)
    # The second half of the copies belongs to others.
    who = np.concatenate([np.arange(200), np.arange(50), np.arange(1000, 1050)])
    data = save(tmp_path / "d.npz", train_x=X, train_y=y, train_subject=who, val_x=X[:50] + 9, val_y=y[:50])
    budget = DP(1.0, 1e-4, unit="subject", n_public=200)
    options = {"classes": ["0", "1"], "drop_duplicates": True}
    done = fit_release(data, tmp_path / "a", privacy=budget, **options)
    assert (done.records, done.dropped, done.repeated, done.kept) == (250, 50, 100, 50)
    assert done.claim.assumptions == ()
    told = fit_release(data, tmp_path / "b", privacy=budget, **options, duplicates_removed=True, holding="second")
    assert any("removed from the data before the fit" in line for line in told.claim.assumptions)
    assert "removed from the data before" in (tmp_path / "b" / "README.md").read_text()
    assert verify_release(tmp_path / "b", ledger=tmp_path / ".locum" / "ledger.sqlite").checks
    assert fit_release(data, tmp_path / "c", drop_duplicates=True, no_dp=True).records == 200


@pytest.mark.parametrize("subjects", [False, True])
def test_copies_are_told_before_anything_is_charged(subjects: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = with_copies(rng)
    who = {"subject": np.arange(300)} if subjects else {}
    data, ledger = save(tmp_path / "d.npz", X=X, y=y, **who), tmp_path / ".locum" / "ledger.sqlite"
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        assert not ledger.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_release(data, tmp_path / "r", classes=["0", "1"], announce=stop)
    assert not ledger.exists()
    assert not (tmp_path / "r").exists()
    assert told[0].startswith("duplicates: 100 records equal another of the same class (")
    assert "--drop-duplicates leaves" in told[0]
    assert ("Copies of different subjects stay" in told[0]) is subjects
    # Nothing is said where nothing is left to say.
    told.clear()
    options = {"classes": ["0", "1"], "announce": told.append}
    fit_release(data, tmp_path / "r", **options, drop_duplicates=True)
    assert len(told) == subjects
    assert all("Copies of different subjects stay" in line and "--drop" not in line for line in told)


def test_what_no_guarantee_allows_is_refused_before_data_are_read(tmp_path: Path) -> None:
    budget = DP(1.0, 1e-4, n_public=200, relation="replace-one")
    with pytest.raises(PrivacyError, match="replace-one"):
        fit_release(str(tmp_path / "no.npz"), tmp_path / "r", privacy=budget, classes=["0"], drop_duplicates=True)
    with pytest.raises(ConfigError, match="--no-dp"):
        fit_release(str(tmp_path / "no.npz"), tmp_path / "r", duplicates_removed=True, no_dp=True)


def test_the_program_prints_counts_and_the_way_out(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = with_copies(rng)
    who = np.concatenate([np.arange(200), np.arange(50), np.arange(1000, 1050)])
    data = save(tmp_path / "d.npz", train_x=X, train_y=y, train_subject=who, val_x=X[:50] + 9, val_y=y[:50])
    show_fit(fit_release(data, tmp_path / "a", no_dp=True))
    told = capsys.readouterr().out
    assert "duplicates  100 records equal another of their class, 0 non-members" in told
    assert "d.npz.duplicates.csv (private)" in told
    assert "none was left out: --drop-duplicates does that" in told
    budget = DP(1.0, 1e-4, unit="subject", n_public=200)
    show_fit(fit_release(data, tmp_path / "b", privacy=budget, classes=["0", "1"], drop_duplicates=True))
    told = " ".join(capsys.readouterr().out.split())
    assert "50 were left out" in told
    assert "copies of different subjects are kept" in told
    assert "--duplicates-removed" in told
    # Nothing of it is in what leaves.
    released = "".join(f.read_text(errors="replace") for f in (tmp_path / "b").iterdir())
    assert "duplicate" not in released


def test_copies_among_images_are_listed_by_name_and_told_once(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from locum.cli.main import main

    for label, low in (("benign", 0), ("malignant", 120)):
        folder = tmp_path / "scans" / label
        folder.mkdir(parents=True)
        for i in range(24):
            Image.fromarray(rng.integers(low, low + 90, (16, 16, 3)).astype(np.uint8)).save(folder / f"p{i:02}.png")
    (tmp_path / "scans" / "benign" / "MILLER.png").write_bytes(
        (tmp_path / "scans" / "benign" / "p03.png").read_bytes()
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["locum", "fit", "scans", "-o", "r", "--classes-public"])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert not ended.value.code, shown.err
    assert (shown.out + shown.err).count("duplicates: 1 record equals another") == 1
    assert "duplicates  " not in shown.out
    assert "MILLER" not in shown.out + shown.err
    rows = list(csv.DictReader((tmp_path / ".locum" / "scans.duplicates.csv").open()))
    assert [(row["image"], row["equals_image"]) for row in rows] == [("benign/p03.png", "benign/MILLER.png")]
    for file in (tmp_path / "r").iterdir():
        assert b"MILLER" not in file.read_bytes()
