"""`study coverage`: what four papers describe, item by item, and what of it is built, tested and shown.

The tables of `studies/coverage.md` are the source. They are read strictly and compared with the repository: paths
have to exist, and figures have to be those of the committed results.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locum.errors import ConfigError

# By the first part of an id.
PAPERS = {"000": "thesis", "001": "replica", "002": "federated", "003": "adjustable"}
STATES = ("done", "in part", "otherwise", "not")

_HEADER = ["id", "what the paper describes", "built", "tested", "shown", "state", "note"]
_TOTALS = ["paper", "items", *STATES, "shown with a figure", "shown without a figure"]
_QUOTED = re.compile(r"`([^`]+)`(?:, `([^`]+)`)*")
_FIGURE = re.compile(r"(?P<study>[a-z0-9-]+): (?P<cell>.+) > (?P<metric>.+) = (?P<figure>-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One thing that a paper describes.

    Parameters
    ----------
    id
        The paper's number and the item's, such as "001-13".
    paper
        "thesis", "replica", "federated" or "adjustable".
    what
        What the paper describes, and where.
    built, tested
        Paths in the repository.
    study
        The study that shows it, or None.
    cell, metric, figure
        One figure of that study as it is written in the table, or None.
    state
        "done", "in part", "otherwise" or "not".
    note
        Why it is not done, or a remark.

    Examples
    --------
    >>> from locum.recipes import CoverageRow
    >>> row = CoverageRow("001-13", "replica", "D.", (), (), "replica-results", "a/5-Same", "D", "20.8", "done", "")
    >>> row.command
    'locum study check replica-results --cell a/5-Same'
    """

    id: str
    paper: str
    what: str
    built: tuple[str, ...]
    tested: tuple[str, ...]
    study: str | None
    cell: str | None
    metric: str | None
    figure: str | None
    state: str
    note: str

    @property
    def command(self) -> str | None:
        """What computes the figure again."""
        if self.study is None:
            return None
        if self.cell is None:
            return f"locum study check {self.study}"
        return f"locum study check {self.study} --cell {shlex.quote(self.cell)}"

    @property
    def shown(self) -> str:
        """The study and its figure, in words."""
        if self.study is None:
            return "-"
        return self.study if self.cell is None else f"{self.study}: {self.cell} > {self.metric} = {self.figure}"

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON data."""
        return {
            "id": self.id,
            "paper": self.paper,
            "what": self.what,
            "built": list(self.built),
            "tested": list(self.tested),
            "study": self.study,
            "cell": self.cell,
            "metric": self.metric,
            "figure": None if self.figure is None else float(self.figure),
            "command": self.command,
            "state": self.state,
            "note": self.note,
        }


def read_coverage(studies: Path, *, paper: str | None = None, state: str | None = None) -> list[CoverageRow]:
    """Read the rows of `coverage.md`, all of them or those of one paper or state.

    Parameters
    ----------
    studies
        Folder of the studies.
    paper
        "thesis", "replica", "federated" or "adjustable"; None: all.
    state
        "done", "in part", "otherwise" or "not"; None: all.

    Returns
    -------
    list of CoverageRow
        In the order of the file.

    Raises
    ------
    ConfigError
        The file is missing or breaks its own form, or there is no such paper or state.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import read_coverage
    >>> rows = read_coverage(Path("studies"), paper="thesis", state="not")  # doctest: +SKIP
    """
    for name, value, known in (("paper", paper, tuple(PAPERS.values())), ("state", state, STATES)):
        if value is not None and value not in known:
            raise ConfigError(f"`{name}` must be one of {', '.join(map(repr, known))}; got {value!r}.")
    rows = [_row(line) for line in _lines(_text(studies)) if re.match(r"\| \d", line)]
    _in_order(rows)
    return [r for r in rows if paper in (None, r.paper) and state in (None, r.state)]


def coverage_totals(rows: Sequence[CoverageRow]) -> dict[str, dict[str, int]]:
    """Count rows by paper: items, those in each state, and those shown with and without a figure.

    Parameters
    ----------
    rows
        From `read_coverage`.

    Returns
    -------
    dict
        Counts by paper, and under "all".

    Examples
    --------
    >>> from locum.recipes import CoverageRow, coverage_totals
    >>> row = CoverageRow("001-11", "replica", "Hulls.", (), (), None, None, None, None, "not", "impractical")
    >>> coverage_totals([row])["all"]["not"]
    1
    """
    papers = [name for name in PAPERS.values() if any(r.paper == name for r in rows)]
    totals = {}
    for name in [*papers, "all"]:
        of = [r for r in rows if name in (r.paper, "all")]
        totals[name] = {
            "items": len(of),
            **{s: sum(r.state == s for r in of) for s in STATES},
            "shown with a figure": sum(r.figure is not None for r in of),
            "shown without a figure": sum(r.study is not None and r.figure is None for r in of),
        }
    return totals


def check_coverage(studies: Path) -> list[str]:
    """Compare `coverage.md` with the repository.

    Paths of code and tests must exist beside the folder, studies must have committed results, figures must equal them
    to the digits written, and the totals must be those of the rows. Nothing is computed.

    Parameters
    ----------
    studies
        Folder of the studies, in the source tree.

    Returns
    -------
    list of str
        One sentence for each thing that is not true; empty if all is.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import check_coverage
    >>> check_coverage(Path("studies"))  # doctest: +SKIP
    []
    """
    rows = read_coverage(studies)
    results = _committed(studies)
    root = studies.resolve().parent
    wrong = [
        f"{r.id}: there is no {path!r}." for r in rows for path in (*r.built, *r.tested) if not (root / path).exists()
    ]
    wrong += [problem for r in rows if (problem := _figure_problem(r, results)) is not None]
    wrong += [f"{r.id}: {r.state!r} needs a note that says why." for r in rows if r.state != "done" and not r.note]
    wrong += [
        f"{r.id}: 'done' needs something built, and a test or a study."
        for r in rows
        if r.state == "done" and not (r.built and (r.tested or r.study))
    ]
    wrong += [f"{r.id}: 'not' has nothing built or shown." for r in rows if r.state == "not" and (r.built or r.study)]
    written, counted = _written_totals(_text(studies)), coverage_totals(rows)
    wrong += [
        f"The totals of {name!r} are written as {written.get(name)}; the rows give {list(counted[name].values())}."
        for name in counted
        if written.get(name) != list(counted[name].values())
    ]
    return wrong


def _text(studies: Path) -> str:
    file = studies / "coverage.md"
    if not file.is_file():
        raise ConfigError(f"There is no {str(file)!r}: it is in the source tree. Run from there, or use --studies.")
    return file.read_text(encoding="utf-8")


def _lines(text: str) -> list[str]:
    """Lines of the four tables; each stands under a heading with the name of its paper."""
    lines, under = [], None
    for line in text.splitlines():
        if line.startswith("## "):
            under = line.removeprefix("## ").strip()
        elif under in PAPERS.values() and line.startswith("|"):
            cells = _cells(line)
            prefix = cells[0].partition("-")[0]
            if cells != _HEADER and not set(line) <= set("|-") and PAPERS.get(prefix) != under:
                raise ConfigError(
                    f"A row under {under!r} in coverage.md begins with {cells[0]!r:.40}, not with its id."
                )
            lines.append(line)
    return lines


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _row(line: str) -> CoverageRow:
    cells = _cells(line)
    if len(cells) != len(_HEADER) or not re.fullmatch(r"\d{3}-\d{2,3}", cells[0]) or not all(cells):
        raise ConfigError(
            f"A row of coverage.md needs {len(_HEADER)} cells ({', '.join(_HEADER)}); got {line!r:.120}."
        )
    number, what, built, tested, shown, state, note = cells
    if state not in STATES:
        raise ConfigError(f"{number}: the state must be one of {', '.join(map(repr, STATES))}; got {state!r}.")
    study = cell = metric = figure = None
    shows = _names(number, shown)
    if len(shows) > 1:
        raise ConfigError(f"{number}: one study with one figure is shown per row; got {shown!r:.120}.")
    if shows:
        found = _FIGURE.fullmatch(shows[0])
        if found is not None:
            study, cell, metric, figure = found.group("study", "cell", "metric", "figure")
        elif re.fullmatch(r"[a-z0-9-]+", shows[0]):
            study = shows[0]
        else:
            raise ConfigError(f"{number}: write `STUDY` or `STUDY: CELL > METRIC = FIGURE`; got {shows[0]!r:.120}.")
    paper = PAPERS[number.partition("-")[0]]
    built_, tested_, why = _names(number, built), _names(number, tested), "" if note == "-" else note
    return CoverageRow(number, paper, what, built_, tested_, study, cell, metric, figure, state, why)


def _names(number: str, cell: str) -> tuple[str, ...]:
    """What a cell names in backticks; a dash for nothing."""
    if cell == "-":
        return ()
    if _QUOTED.fullmatch(cell) is None:
        raise ConfigError(f"{number}: names stand in backticks with commas between them, or `-`; got {cell!r:.120}.")
    return tuple(re.findall(r"`([^`]+)`", cell))


def _in_order(rows: Sequence[CoverageRow]) -> None:
    """Ids count from 01 within each paper, without a gap and without repeating one."""
    for prefix, paper in PAPERS.items():
        ids = [r.id for r in rows if r.paper == paper]
        for given, due in zip(ids, (f"{prefix}-{i:02d}" for i in range(1, len(ids) + 1)), strict=True):
            if given != due:
                raise ConfigError(
                    f"Ids of {paper!r} in coverage.md count up without gaps: {due!r} is due, got {given!r}."
                )
        if not ids:
            raise ConfigError(f"coverage.md has no rows under the heading {paper!r}.")


def _committed(studies: Path) -> dict[str, Mapping[str, Any]]:
    """Estimates of every study that has results, by the names in `config.toml`."""
    found = {}
    for config in sorted(studies.glob("*/config.toml")):
        with config.open("rb") as f:
            names = list(tomllib.load(f))
        for name in names:
            results = config.parent / "results" / f"{name}.json"
            if results.is_file():
                found[name] = json.loads(results.read_text(encoding="utf-8"))["estimates"]
    return found


def _figure_problem(row: CoverageRow, results: Mapping[str, Mapping[str, Any]]) -> str | None:
    if row.study is None:
        return None
    if row.study not in results:
        return f"{row.id}: the study {row.study!r} has no committed results."
    if row.cell is None or row.metric is None or row.figure is None:
        return None
    metrics = results[row.study].get(row.cell, {})
    if row.metric not in metrics:
        return f"{row.id}: the results of {row.study!r} have no {row.metric!r} in the cell {row.cell!r}."
    digits = len(row.figure.partition(".")[2])
    now = f"{metrics[row.metric]['value']:.{digits}f}"
    return None if now == row.figure else f"{row.id}: {row.study!r} now has {now}, the table says {row.figure}."


def _written_totals(text: str) -> dict[str, list[int]]:
    """The first table of the page."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("|")), len(lines))
    end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
    rows = [_cells(line) for line in lines[begin:end]]
    if not rows or rows[0] != _TOTALS:
        raise ConfigError(f"coverage.md must begin with a table of totals: {', '.join(_TOTALS)}.")
    return {row[0]: [int(n) if n.isdecimal() else -1 for n in row[1:]] for row in rows[2:]}
