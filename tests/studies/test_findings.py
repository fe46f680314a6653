"""`docs/explain/findings.md` names studies and cells that exist, and figures of the committed results."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from locum.recipes import FoundStudy, find_studies

ROOT = Path(__file__).parents[2]
# One line per paragraph or item: what a line says is checked against the studies that it names.
PAGE = re.sub(r"\n *(?=[^\s|#-])", " ", (ROOT / "docs" / "explain" / "findings.md").read_text(encoding="utf-8"))
VERDICTS = {"holds", "holds in part", "does not hold", "not decided", "not tried"}
# Results that are being replaced.
NOT_QUOTED = ("cifar-curves", "nih-curves", "diabetes-curves")

_COMMAND = re.compile(r"`locum study (run|check) ([^`]+)`(?: \(((?:`[^`]+ = -?[\d.]+`(?:, )?)+)\))?")
_FIGURE = re.compile(r"`([^`]+) = (-?[\d.]+)`")
_INTERVAL = re.compile(r"[+-]?\d[\d.]* \[[^\]]+\]")


@cache
def studies() -> dict[str, FoundStudy]:
    return find_studies(ROOT / "studies")


@cache
def saved(study: str) -> dict[str, Any]:
    file = studies()[study].folder / "results" / f"{study}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


@cache
def rendered(study: str) -> str:
    file = studies()[study].folder / "results" / f"{study}.md"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def rows(page: str) -> list[list[str]]:
    """The cells of the rows that state a claim."""
    lines = (line for line in page.splitlines() if re.match(r"\| [A-Z]\d", line))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_first_lines_count_the_verdicts() -> None:
    found = [row[2] for row in rows(PAGE)]
    told = re.search(
        r"\*\*Of (\d+) claims\*\* (\d+) hold, (\d+) hold in part, (\d+) do not hold, "
        r"(\d+) are not decided and (\d+) were not tried",
        PAGE,
    )
    assert told is not None
    kinds = ("holds", "holds in part", "does not hold", "not decided", "not tried")
    assert [int(n) for n in told.groups()] == [len(found), *(found.count(kind) for kind in kinds)]


def wrong(page: str) -> Iterator[str]:
    """One sentence for each thing that the repository does not hold."""
    for line in page.splitlines():
        named = set()
        for verb, words, figures in _COMMAND.findall(line):
            name, *rest = shlex.split(words)
            if name == "NAME":
                continue
            if name not in studies():
                yield f"There is no study {name!r}."
                continue
            named.add(name)
            if verb == "run":
                if rest or figures:
                    yield f"A figure belongs to a cell: {words}."
                continue
            if len(rest) != 2 or rest[0] != "--cell" or not figures:
                yield f"A check names a cell and a figure: {words}."
                continue
            if name in NOT_QUOTED:
                yield f"{name} is being replaced."
            if rest[1] not in studies()[name].study.cells(saved(name)["config"]):
                yield f"{name} has no cell {rest[1]!r}."
                continue
            metrics = saved(name)["estimates"][rest[1]]
            for metric, figure in _FIGURE.findall(figures):
                if metric not in metrics:
                    yield f"{name} has no {metric!r} in {rest[1]!r}."
                    continue
                now = f"{metrics[metric]['value']:.{len(figure.partition('.')[2])}f}"
                if now != figure:
                    yield f"{name}: {rest[1]} > {metric} is {now}, the page says {figure}."
        for interval in _INTERVAL.findall(line):
            if not any(re.search(rf"(?<![\d.+-]){re.escape(interval)}", rendered(name)) for name in named):
                yield f"{interval} is not among the results of {', '.join(sorted(named))}."


def test_the_page_is_true() -> None:
    assert list(wrong(PAGE)) == []


def test_each_claim_has_a_verdict_and_a_command() -> None:
    found = rows(PAGE)
    for number, claim, verdict, what, command in found:
        assert verdict in VERDICTS, number
        assert claim.endswith("."), number
        assert what.endswith("."), number
        assert _COMMAND.match(command), number
    for letter in "RTPA":
        ids = [row[0] for row in found if row[0][0] == letter]
        assert ids == [f"{letter}{i}" for i in range(1, len(ids) + 1)]
        assert 0 < len(ids) <= 15
    assert {row[0][0] for row in found} == set("RTPA")


def test_every_code_span_that_looks_like_a_command_is_read() -> None:
    spans = [s for s in re.findall(r"`([^`]+)`", PAGE) if s.startswith("locum study")]
    assert len(spans) == len(_COMMAND.findall(PAGE))
    figures = [s for s in re.findall(r"`([^`]+)`", PAGE) if " = " in s]
    assert len(figures) == sum(len(_FIGURE.findall(f)) for _, _, f in _COMMAND.findall(PAGE))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("`p50 = 6.92`", "`p50 = 6.93`", "p50 is 6.92, the page says 6.93"),
        ("`p50 = 6.92`", "`p51 = 6.92`", "has no 'p51'"),
        ("--cell breastmnist/within`", "--cell breastmnist/without`", "has no cell 'breastmnist/without'"),
        ("run celeba-curves`", "run celeb-curves`", "There is no study 'celeb-curves'"),
        ("[-0.071, -0.028]", "[-0.072, -0.028]", "-0.049 [-0.072, -0.028] is not among the results"),
    ],
)
def test_what_is_not_true_is_told(old: str, new: str, told: str) -> None:
    assert old in PAGE
    found = list(wrong(PAGE.replace(old, new, 1)))
    assert len(found) == 1
    assert told in found[0]
