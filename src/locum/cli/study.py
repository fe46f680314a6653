"""`locum study list|run|render|check|coverage`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import Json
from locum.cli.verb import Group

if TYPE_CHECKING:
    from locum.recipes import FoundStudy


group = Group("Reproduce a table or figure of a paper, or check committed results.")

Studies = Annotated[Path, typer.Option("--studies", help="Folder of the studies (in the source tree).")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `study list`.")]


@group.verb("list")
def list_(studies: Studies = Path("studies"), as_json: Json = False) -> None:
    """List the studies and their results."""
    from locum.recipes import find_studies

    found = find_studies(studies)
    rows = [
        {
            "name": s.name,
            "title": s.study.title,
            "results": str(_results(s)) if _results(s).is_file() else None,
        }
        for s in found.values()
    ]
    if as_json:
        output.print_json(rows)
    else:
        output.show_table(
            ["name", "what", "results"], [[str(r["name"]), str(r["title"]), str(r["results"] or "-")] for r in rows]
        )


@group.verb()
def run(
    name: Name,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, records or epochs; the output says so.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder (default: the study's results; with --quick: out/studies)."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of cells to compute at once.")] = 1,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting of its config.toml; may be repeated."),
    ] = None,
    studies: Studies = Path("studies"),
    as_json: Json = False,
) -> None:
    """Run a study; an interrupted run resumes where it stopped."""
    from locum.recipes import run_study

    found = _find(studies, name).changed(given or [])
    target = out or (Path("out/studies") if quick else found.folder / "results")
    if (minutes := found.minutes(quick)) is not None:
        typer.echo(
            f"{name}: about {max(1, round(minutes))} minutes of one core; a run that stops can go on.", err=True
        )
    with output.progress_bar(name) as progress:
        run_study(found, quick=quick, out=target, jobs=jobs, progress=progress)
    text = (target / f"{name}.md").read_text()
    if as_json:
        output.print_json({"study": name, "quick": quick, "results": str(target / f"{name}.json")})
    else:
        typer.echo(text)
        typer.echo(f"written to {target / name}.md and .json", err=True)


@group.verb()
def render(name: Name, studies: Studies = Path("studies"), as_json: Json = False) -> None:
    """Write the tables and figures of a finished study again from its raw figures."""
    from locum.recipes import render_study

    found = _find(studies, name)
    render_study(found, _results(found))
    if as_json:
        output.print_json({"study": name, "results": str(_results(found))})
    else:
        typer.echo(_results(found).with_suffix(".md").read_text())


@group.verb()
def check(
    name: Name,
    cell: Annotated[str | None, typer.Option(help="Cell to recompute (default: the first).")] = None,
    studies: Studies = Path("studies"),
    as_json: Json = False,
) -> None:
    """Recompute one cell of committed results; exit code 1 if it no longer agrees."""
    from locum.recipes import check_study
    from locum.types import Estimate

    found = _find(studies, name)
    result = check_study(found, _results(found), cell)
    if as_json:
        output.print_json(result)
    else:
        rows = [
            [
                metric,
                output.estimate(Estimate.from_dict(f["committed"]), 4),
                output.estimate(Estimate.from_dict(f["recomputed"]), 4),
                "yes" if f["agrees"] else "NO",
            ]
            for metric, f in result["figures"].items()
        ]
        output.show_table(["figure", "committed", "recomputed", "agrees"], rows, title=f"{name}: {result['cell']}")
    if not result["agrees"]:
        raise typer.Exit(1)


@group.verb()
def coverage(
    paper: Annotated[
        str | None, typer.Option("--paper", help="Rows of one paper: thesis, replica, federated or adjustable.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Rows in one state: done, 'in part', otherwise or not.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare paths and figures with the repository; exit code 1 if one is wrong."),
    ] = False,
    studies: Studies = Path("studies"),
    as_json: Json = False,
) -> None:
    """Count what the four papers describe and what of it is done; list rows with --paper or --state."""
    from locum.recipes import check_coverage, coverage_totals, read_coverage

    rows = read_coverage(studies, paper=paper, state=state)
    totals, wrong = coverage_totals(rows), check_coverage(studies) if check else []
    listed = paper is not None or state is not None
    if as_json:
        told = {"totals": totals, "rows": [r.to_dict() for r in rows]}
        output.print_json(told | {"wrong": wrong} if check else told)
    else:
        if listed:
            output.show_table(
                ["id", "what", "state", "shown", "note"], [[r.id, r.what, r.state, r.shown, r.note] for r in rows]
            )
        names = list(totals["all"])
        output.show_table(["paper", *names], [[p, *(str(t[n]) for n in names)] for p, t in totals.items()])
        for sentence in wrong:
            output.say(sentence, "red")
    if wrong:
        raise typer.Exit(1)


def _find(studies: Path, name: str) -> FoundStudy:
    from locum.errors import ConfigError
    from locum.recipes import find_studies

    found = find_studies(studies)
    if name not in found:
        raise ConfigError(f"There is no study {name!r}; there are {', '.join(found)}.")
    return found[name]


def _results(found: FoundStudy) -> Path:
    return found.folder / "results" / f"{found.name}.json"
