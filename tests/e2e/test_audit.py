"""`locum audit` from the command line: attacks, shadows, canaries, the file, and the passport that reads it."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from locum.mechanisms import SecureRandom
from locum.types import verdict_text

Run = Callable[..., Any]
DATA = ("--members", "train.npz", "--non-members", "test.npz", "--seed", "0")
GUARANTEE = ("--generator", "gaussian", "--epsilon", "1", "--delta", "1e-4", "--n-public", "200")
CLASSES = ("--classes", "ant,bee,cat")


def test_verdict_first_then_attacks_then_policy(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", "train.npz", "-o", "r", "--no-dp", "--generator", "gaussian").code == 0
    shown = program("audit", "r", *DATA, "--shadows", "8", "--policy", "internal", "-o", "audit.json")
    assert shown.code in (0, 3), shown.err
    lines = shown.out.splitlines()
    told = json.loads((tmp_path / "audit.json").read_text())
    assert lines[0].startswith(verdict_text(told["verdict"]).title)
    assert lines[1].startswith("Policy internal")
    assert (shown.code == 0) is told["may_leave"]
    names = [result["name"] for result in told["results"]]
    assert {"nearest distance", "latent search", "LiRA", "RMIA"} <= set(names)
    assert "ELBO" not in names
    assert len(lines) <= 40, "more than a screen"
    assert ".." not in shown.out
    assert stat.S_IMODE((tmp_path / "audit.json").stat().st_mode) == 0o600


def test_a_guarantee_is_audited_and_the_passport_carries_it(
    program: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    assert program("fit", "train.npz", "-o", "r", *GUARANTEE, *CLASSES).code == 0
    attacks = ("--attack", "latent-search", "--attack", "LiRA on sums")
    options = ("--canaries", "200", *attacks, "--policy", "internal", "-o", "a.json")
    shown = program("audit", "r", *DATA, *options)
    assert shown.code in (0, 3), shown.err
    assert "200 canaries in one run" in shown.out
    assert "no proof" in shown.out
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["epsilon_audit"]["verdict"] == "no contradiction found"
    # What `fit` learns by default is attacked and tested.
    assert told["epsilon_audit"]["mechanism"] == "private head"
    assert "LiRA on sums" in [result["name"] for result in told["results"]]
    assert program("passport", "r", "--audit", "a.json").code == 0
    carried = json.loads((tmp_path / "r" / "passport.json").read_text())["audit"]
    assert carried["epsilon_audit"]["canaries"] == 200
    assert "lower bound on epsilon" in (tmp_path / "r" / "passport.md").read_text()


def test_a_broken_guarantee_fails_loudly(
    program: Run, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("fit", "train.npz", "-o", "r", *GUARANTEE, *CLASSES).code == 0
    honest = SecureRandom.__init__

    def silent(self: SecureRandom, counts: Any, rate: float, values: int, std: float, **rest: Any) -> None:
        honest(self, counts, rate, values, 0.0 * std, **rest)

    # The code that makes releases forgets its noise.
    monkeypatch.setattr(SecureRandom, "__init__", silent)
    shown = program("audit", "r", *DATA, "--canaries", "1000", "--attack", "hole", "--attack", "latent search")
    assert shown.code == 3
    assert shown.out.startswith("Broken guarantee: ")
    assert "Nothing made by this code may leave" in shown.out.replace("\n", " ")
    assert "NOT met" in shown.out


def test_a_file_of_findings_is_not_replaced_unasked(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("mine")
    quick = ("--synthetic", "train.npz", *DATA, "--attack", "nearest distance")
    refused = program("audit", *quick, "-o", "a.json")
    assert refused.code == 2
    assert "--force" in refused.err
    assert (tmp_path / "a.json").read_text() == "mine"
    # A leak is written down too: whoever decides must see it.
    assert program("audit", *quick, "-o", "a.json", "--force").code == 3
    assert json.loads((tmp_path / "a.json").read_text())["verdict"] == "leak"


def test_a_page_and_a_risk_map_are_for_their_owner(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    quick = ("--synthetic", "train.npz", *DATA, "--attack", "nearest distance")
    shown = program("audit", *quick, "--html", "a.html", "--risk", "risk.csv")
    assert shown.code == 3, shown.err
    assert "depends on the data" in " ".join(shown.out.split())
    rows = (tmp_path / "risk.csv").read_text().splitlines()
    assert "exposed" in rows[0]
    # Every member of an exact copy.
    assert len(rows) > 100
    assert all(",yes," in row for row in rows[1:])
    assert verdict_text("leak").audit in (tmp_path / "a.html").read_text()
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("risk.csv", "a.html")} == {0o600}
    # What names records does not even get into the JSON.
    assert "risk" not in json.loads(program("audit", *quick, "--json").out)


def test_wrong_use_gets_one_sentence_and_leaves_nothing(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", "train.npz", "-o", "r", "--no-dp", "--generator", "gaussian").code == 0
    before = sorted(tmp_path.rglob("*"))
    for options, word in (
        (("--attack", "magic"), "RMIA"),
        (("--attack", "hole", "--thorough"), "one of the two"),
        (("--shadows", "7"), "even number"),
        (("--state", "s.st"), "--shadows N"),
        (("--shadows", "8", "--state", "no/such/s.st"), "folder does not exist"),
        (("--shadows", "8", "--state", "r/s.st"), "next to it"),
        (("--canaries", "100"), "the claim here is of kind 'none'"),
        (("-o", "r/audit.json"), "next to it"),
        (("-o", "no/such/audit.json"), "folder does not exist"),
        (("--policy", "strict"), "no policy"),
    ):
        ran = program("audit", "r", *DATA, *options, *(() if "-o" in options else ("-o", "new.json")))
        assert ran.code == 2, (options, ran.out)
        assert word in ran.err, (options, ran.err)
        assert len(ran.err.strip().splitlines()) == 1, ran.err
        assert ran.out == ""
    unseeded = program("audit", "r", *DATA[:4], "--shadows", "8", "--state", "s.st")
    assert unseeded.code == 2
    assert "--seed" in unseeded.err
    tabled = program("audit", "--synthetic", "train.npz", *DATA, "--canaries", "100")
    assert tabled.code == 2
    assert "'none'" in tabled.err
    assert sorted(tmp_path.rglob("*")) == before
