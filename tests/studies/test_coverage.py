"""`studies/coverage.md` says nothing that the repository does not hold; a page that does is found out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from locum.errors import ConfigError
from locum.recipes import CoverageRow, check_coverage, coverage_totals, find_studies, read_coverage
from locum.recipes.study_coverage import PAPERS, STATES

ROOT = Path(__file__).parents[2] / "studies"
HEADER = "| id | what the paper describes | built | tested | shown | state | note |\n|---|---|---|---|---|---|---|\n"
ROWS = {
    "thesis": "| 000-01 | A (1). | `src/a.py` | `tests/a.py`, `tests/b.py` | `one: big/a b > x = 0.50` | done | - |",
    "replica": "| 001-01 | B (2). | `src/a.py` | `tests/a.py` | `one` | in part | one seed |",
    "federated": "| 002-01 | C (3). | - | - | - | not | no data |",
    "adjustable": "| 003-01 | D (4). | `src/a.py` | - | `one: big/a b > x = 0.5` | otherwise | other networks |",
}
TOTALS = """| paper | items | done | in part | otherwise | not | shown with a figure | shown without a figure |
|---|---|---|---|---|---|---|---|
| thesis | 1 | 1 | 0 | 0 | 0 | 1 | 0 |
| replica | 1 | 0 | 1 | 0 | 0 | 0 | 1 |
| federated | 1 | 0 | 0 | 0 | 1 | 0 | 0 |
| adjustable | 1 | 0 | 0 | 1 | 0 | 1 | 0 |
| all | 4 | 1 | 1 | 1 | 1 | 2 | 1 |
"""
PAGE = f"# Title\n\n{TOTALS}\n| other | table |\n|---|---|\n\n" + "\n".join(
    f"## {paper}\n\n{HEADER}{row}\n" for paper, row in ROWS.items()
)


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    """A source tree with one study, whose result is 0.496, and a page that is true."""
    for name in ("src/a.py", "tests/a.py", "tests/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    folder = tmp_path / "studies"
    (folder / "first" / "results").mkdir(parents=True)
    (folder / "first" / "config.toml").write_text("[one]\nseeds = [0]\n[two]\nseeds = [0]\n")
    results = {"estimates": {"big/a b": {"x": {"value": 0.496, "low": 0.4, "high": 0.6, "n": 3}}}}
    (folder / "first" / "results" / "one.json").write_text(json.dumps(results))
    (folder / "coverage.md").write_text(PAGE)
    return folder


def changed(studies: Path, old: str, new: str) -> Path:
    assert old in PAGE
    (studies / "coverage.md").write_text(PAGE.replace(old, new))
    return studies


def test_the_page_is_true() -> None:
    assert check_coverage(ROOT) == []


def test_every_item_of_the_papers_has_a_row() -> None:
    rows = read_coverage(ROOT)
    assert {paper: totals["items"] for paper, totals in coverage_totals(rows).items()} == {
        "thesis": 105,
        "replica": 46,
        "federated": 58,
        "adjustable": 68,
        "all": 277,
    }
    assert len({r.id for r in rows}) == len({r.what for r in rows}) == len(rows)


def test_every_command_names_a_cell_that_its_study_still_has() -> None:
    found = find_studies(ROOT)
    named: dict[str, set[str]] = {}
    for row in read_coverage(ROOT):
        if row.study is not None and row.cell is not None:
            named.setdefault(row.study, set()).add(row.cell)
    for study, cells in named.items():
        saved = json.loads((found[study].folder / "results" / f"{study}.json").read_text())
        assert cells <= set(found[study].study.cells(saved["config"])), study


def test_a_made_up_page_is_read(studies: Path) -> None:
    assert check_coverage(studies) == []
    first = read_coverage(studies)[0]
    assert (first.paper, first.built, first.tested) == ("thesis", ("src/a.py",), ("tests/a.py", "tests/b.py"))
    assert (first.study, first.cell, first.metric, first.figure) == ("one", "big/a b", "x", "0.50")
    assert first.command == "locum study check one --cell 'big/a b'"
    assert first.to_dict()["figure"] == 0.5
    assert [r.id for r in read_coverage(studies, state="not")] == ["002-01"]
    assert read_coverage(studies, paper="replica", state="done") == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("x = 0.50", "x = 0.51", "000-01: 'one' now has 0.50, the table says 0.51."),
        ("x = 0.50", "x = 0.496", None),
        ("x = 0.50", "y = 0.50", "000-01: the results of 'one' have no 'y' in the cell 'big/a b'."),
        ("one: big/a b > x = 0.50", "one: small > x = 0.50", "no 'x' in the cell 'small'"),
        ("`one` |", "`two` |", "001-01: the study 'two' has no committed results."),
        ("`tests/b.py`", "`tests/c.py`", "000-01: there is no 'tests/c.py'."),
        ("one seed", "-", "001-01: 'in part' needs a note that says why."),
        ("| C (3). | -", "| C (3). | `src/a.py`", "002-01: 'not' has nothing built or shown."),
        ("A (1). | `src/a.py`", "A (1). | -", "000-01: 'done' needs something built, and a test or a study."),
        (
            "| all | 4 |",
            "| all | 5 |",
            "The totals of 'all' are written as [5, 1, 1, 1, 1, 2, 1]; the rows give [4, ",
        ),
    ],
)
def test_what_is_not_true_is_told(studies: Path, old: str, new: str, told: str | None) -> None:
    wrong = check_coverage(changed(studies, old, new))
    assert len(wrong) == (told is not None)
    assert told is None or told in wrong[0]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("| not |", "| never |", "002-01: the state must be one of"),
        ("| one seed |", "|", "needs 7 cells"),
        ("001-01", "001-02", "'001-01' is due, got '001-02'"),
        ("001-01", "002-01", "under 'replica'"),
        ("001-01", "item 1", "under 'replica'"),
        ("`src/a.py` | `tests/a.py` |", "src/a.py | `tests/a.py` |", "backticks"),
        ("one: big/a b > x = 0.50", "one: big/a b, x", "`STUDY: CELL > METRIC = FIGURE`"),
        ("`one` |", "`one`, `two` |", "one figure is shown per row"),
        (ROWS["federated"], "", "no rows under the heading 'federated'"),
        ("| paper | items |", "| papers | items |", "table of totals"),
    ],
)
def test_a_page_that_breaks_its_form_is_refused(studies: Path, old: str, new: str, word: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as told:
        check_coverage(changed(studies, old, new))
    assert word in str(told.value)


@given(st.lists(st.tuples(st.sampled_from([*PAPERS.values()]), st.sampled_from(STATES), st.integers(0, 2))))
def test_totals_add_up(drawn: list[tuple[str, str, int]]) -> None:
    rows = [
        CoverageRow("", p, "", (), (), "one" if n else None, None, None, "1" if n > 1 else None, s, "")
        for p, s, n in drawn
    ]
    totals = coverage_totals(rows)
    whole = totals.pop("all")
    assert whole["items"] == len(rows) == sum(whole[s] for s in STATES)
    assert all(whole[name] == sum(t[name] for t in totals.values()) for name in whole)
    assert whole["shown with a figure"] + whole["shown without a figure"] == sum(n > 0 for _, _, n in drawn)


@pytest.fixture
def program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    from locum.cli.main import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["locum", "study", "coverage", *(str(a) for a in arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


def test_the_verb(program: Callable[..., tuple[int, str, str]], studies: Path) -> None:
    code, out, _ = program("--studies", studies)
    assert (code, "001-01" in out) == (0, False)
    assert out.split("all")[1].split()[:7] == ["4", "1", "1", "1", "1", "2", "1"]
    code, out, _ = program("--studies", studies, "--paper", "replica")
    assert (code, "one seed" in out, "C (3)." in out) == (0, True, False)
    code, out, _ = program("--studies", studies, "--state", "done", "--json")
    told = json.loads(out)
    assert (code, [r["id"] for r in told["rows"]], told["totals"]["all"]["items"]) == (0, ["000-01"], 1)
    changed(studies, "x = 0.50", "x = 0.51")
    code, out, _ = program("--studies", studies, "--check", "--json")
    assert (code, json.loads(out)["wrong"]) == (1, ["000-01: 'one' now has 0.50, the table says 0.51."])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(("--paper", "seed"), "'thesis', 'replica'"), (("--state", "maybe"), "'in part'"), ((), "coverage.md")],
)
def test_the_verb_on_wrong_use(
    program: Callable[..., tuple[int, str, str]], studies: Path, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    code, out, err = program("--studies", studies if arguments else tmp_path, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert word in err
