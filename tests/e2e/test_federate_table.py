"""`locum federate simulate TABLE`: what somebody sees who has a table of several hospitals and has read nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.cli.stages import Stages

Run = Callable[..., Any]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{('rome', 'oslo', 'bern')[i % 3]},{40 + 20 * (i % 2) + rng.normal():.1f},{'' if i % 5 else 1},{i % 2}"
        for i in range(90)
    ]
    (tmp_path / "table.csv").write_text("site,age,smoker,ill\n" + "\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.usefixtures("hardly_trained_personal_models")
def test_it_runs_and_says_what_it_did(program: Run, table: Path) -> None:
    words = ("--partition", "by-site", "--site-attribute", "site", "--mode", "sums")
    ran = program("federate", "simulate", "table.csv", *words)
    assert ran.code == 0, ran.err
    assert all(name in ran.out for name in ("rome", "oslo", "bern"))
    said = " ".join(ran.out.split())
    assert "ranges of the 2 features were read off the records" in said
    assert "72 missing values" in said
    # Progress, without a terminal: a line per stage.
    assert ran.err.splitlines()[0] == "read the data"
    assert "heads of sites: 1 of 3" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--partition", "by-site", "--site-attribute", "hospital"), "has no column `hospital`"),
        (("--partition", "by-site", "--ranges", "ranges.csv"), "no range for `smoker`"),
    ],
)
def test_what_is_missing_is_one_sentence(program: Run, table: Path, words: tuple[str, ...], told: str) -> None:
    (table / "ranges.csv").write_text("name,low,high\nage,20,90\n")
    ran = program("federate", "simulate", "table.csv", "--mode", "sums", *words)
    assert ran.code == 2
    assert told in ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("error")]) == 1


def test_stages_of_a_long_run(capsys: pytest.CaptureFixture[str]) -> None:
    moved: list[tuple[int, int, str]] = []
    stages = Stages(lambda done, of, note="": moved.append((done, of, note)))
    for site in (1, 2):
        stages({"event": "reply", "step": "join", "round": 0, "site": "x", "reply": site, "of": 2})
    stages({"event": "joined", "sites": ["x", "y"]})
    for number in (1, 2, 3):
        stages({"event": "reply", "step": "train", "round": number, "site": "x", "reply": 1, "of": 2})
        stages({"event": "round", "round": number, "of": 3, "sites": ["x", "y"]})
    stages({"event": "sum", "sum": 34, "of": 34, "sites": ["x"]})
    stages({"event": "refused", "site": "x", "reason": "y"})
    assert [(done, of) for done, of, _ in moved] == [(1, 2), (2, 2), (0, 1), (1, 2), (1, 3), (2, 3), (3, 3), (34, 34)]
    assert capsys.readouterr().err.splitlines() == [
        "sites join: 1 of 2",
        "2 sites joined",
        "first round, sites: 1 of 2",
        "rounds: 1 of 3",
        "sums: 34 of 34",
    ]
