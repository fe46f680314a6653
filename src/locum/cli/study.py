"""`locum study list|run|render|check|coverage`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import Json
from locum.cli.verb import Group

if TYPE_CHECKING:
    from locum.errors import MissingExtraError
    from locum.recipes import FoundStudy, Paper


group = Group("Reproduce a table or figure of a paper, or check committed results.")

Studies = Annotated[Path, typer.Option("--studies", help="Folder of the studies (in the source tree).")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `study list`.")]


@group.verb("list")
def list_(studies: Studies = Path("studies"), as_json: Json = False) -> None:
    """List the studies and their results; a study whose extra is not installed is listed with that extra."""
    from locum.recipes import find_papers, load_studies

    found, missing = load_studies(studies)
    rows: list[dict[str, str | None]] = [
        {
            "name": s.name,
            "title": s.study.title,
            "results": str(_results(s)) if _results(s).is_file() else None,
            "needs": None,
        }
        for s in found.values()
    ]
    rows += [
        {"name": name, "title": None, "results": None, "needs": f"locum[{error.extra}]"}
        for name, error in missing.items()
    ]
    for paper in find_papers(studies).values():
        title = f"{paper.title}, all of it: {', '.join(part.study for part in paper.parts)}"
        rows.append({"name": paper.name, "title": title, "results": None, "needs": None})
    if as_json:
        output.print_json(rows)
    else:
        what = [r["title"] or f"not installed: pip install '{r['needs']}'" for r in rows]
        output.show_table(
            ["name", "what", "results"],
            [[str(r["name"]), w, str(r["results"] or "-")] for r, w in zip(rows, what, strict=True)],
        )


@group.verb()
def run(
    name: Name,
    quick: Annotated[
        bool, typer.Option("--quick", help="Quick settings, such as fewer seeds or epochs; the page names them.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output folder (default: the study's results; with --quick or a set of your own: out/studies).",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of cells to compute at once.")] = 1,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=PATH",
            help="Run on this set instead: a file of vectors, or a folder or .npz of images. KEY=VALUE replaces a "
            "setting of its config.toml. May be repeated.",
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="Model that embeds images given with --set.")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Number of seeds.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the committed cells; compute those of seeds, sets or methods added.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace results that a run with other settings left in the folder.")
    ] = False,
    studies: Studies = Path("studies"),
    as_json: Json = False,
) -> None:
    """Run a study, or all studies of a paper; an interrupted run resumes where it stopped."""
    from locum.errors import ConfigError
    from locum.recipes import apply_settings, expect_time, find_papers, run_study

    papers = find_papers(studies)
    if name in papers:
        if keep:
            raise ConfigError(f"--keep is for one study; {name!r} is a paper. Name one of its studies.")
        _run_paper(papers[name], studies, quick, out, jobs, given or [], backbone, seeds, force, as_json)
        return
    found = _find(studies, name)
    with output.progress_bar("embed") as progress:
        found = apply_settings(
            found, given or [], place=Path("out/studies/sets"), backbone=backbone, seeds=seeds, progress=progress
        )
    if found.given:
        usual = Path("out/studies") / "+".join(found.given)
    else:
        usual = Path("out/studies") if quick else found.folder / "results"
    target = out or usual
    found.check(found.settings(quick))
    output.say_aside(f"{name}: {expect_time(found, quick=quick, out=target, keep=keep).sentence(jobs)}.")
    with output.progress_bar(name) as progress:
        run_study(
            found,
            quick=quick,
            out=target,
            jobs=jobs,
            keep=keep,
            overwrite=force,
            progress=output.in_lines(progress),
        )
    text = (target / f"{name}.md").read_text()
    if as_json:
        output.print_json({"study": name, "quick": quick, "results": str(target / f"{name}.json")})
    else:
        typer.echo(text)
        output.say_aside(f"written to {target / name}.md and .json")


def _run_paper(
    paper: Paper,
    studies: Path,
    quick: bool,
    out: Path | None,
    jobs: int,
    given: list[str],
    backbone: str | None,
    seeds: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Every study of a paper, and its page."""
    from dataclasses import asdict

    from locum.recipes import run_paper

    target = out or Path("out/studies") / paper.name
    output.say_aside(f"{paper.name}: {len(paper.parts)} studies; a stopped run can resume.")
    with output.progress_bar(paper.name) as progress:
        results = run_paper(
            paper,
            studies,
            out=target,
            quick=quick,
            given=given,
            backbone=backbone,
            seeds=seeds,
            jobs=jobs,
            overwrite=force,
            tell=output.say_aside,
            progress=output.in_lines(progress),
        )
    if as_json:
        output.print_json({"paper": paper.name, "quick": quick, "parts": [asdict(result) for result in results]})
    else:
        typer.echo((target / f"{paper.name}.md").read_text())
        output.say_aside(f"written to {target / paper.name}.md and .json")


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
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A name from `study list`.")] = None,
    cell: Annotated[str | None, typer.Option(help="Cell to recompute (default: the first).")] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Recompute one seed of one cell, drawn at random.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="The same for each study with committed results.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed for choosing the cells (default: a new one each time).")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=0, help="Choose cells known to take at most this long, and stop one that takes longer."
        ),
    ] = None,
    studies: Studies = Path("studies"),
    as_json: Json = False,
) -> None:
    """Recompute one cell of committed results; exit code 1 if it no longer agrees."""
    from locum.errors import ConfigError
    from locum.recipes import check_at_random, check_study, load_studies

    if every == (name is not None):
        raise ConfigError("Name one study, or use --all for one random cell of each.")
    by_chance = random or every
    if by_chance and cell is not None:
        raise ConfigError("--cell names a cell, and --random and --all draw one: leave one of them out.")
    if not by_chance and (seed is not None or seconds is not None):
        raise ConfigError("--seed and --seconds are for cells drawn at random: add --random.")
    results: list[dict[str, Any]] = []
    if by_chance:
        import secrets

        missing: dict[str, MissingExtraError] = {}
        if name is None:
            found_all, missing = load_studies(studies)
            chosen = list(found_all.values())
        else:
            chosen = [_find(studies, name)]
        drawn = secrets.randbelow(1_000_000) if seed is None else seed
        output.say_aside(f"Cells are drawn with --seed {drawn}.")
        left_out = ({"study": study, "skipped": str(error)} for study, error in missing.items())
        checked = chain(check_at_random(chosen, drawn, most_seconds=seconds), left_out)
        with output.progress_bar("check") as bar:
            progress = output.in_lines(bar)
            # Each is shown as soon as it is known: all of them can take hours.
            for done, result in enumerate(checked, start=1):
                if name is not None and "skipped" in result:
                    raise ConfigError(f"{name}: {result['skipped']}.")
                progress(done, len(chosen) + len(missing), result["study"])
                results.append(result)
                if not as_json:
                    _show_check(result)
    else:
        assert name is not None
        found = _find(studies, name)
        results.append(check_study(found, _results(found), cell))
        if not as_json:
            _show_check(results[0])
    if as_json:
        output.print_json(results if every else results[0])
    if not all(result.get("agrees", True) for result in results):
        raise typer.Exit(1)


def _show_check(result: dict[str, Any]) -> None:
    """One cell as a table, or why there is none."""
    from locum.types import Estimate

    if "skipped" in result:
        output.say(f"{result['study']}: skipped, {result['skipped'].rstrip('.')}.")
        return
    if "problem" in result:
        output.say(f"{result['study']}: {result['problem']}", "red")
        return
    rows = [
        [
            metric,
            output.estimate(Estimate.from_dict(f["committed"]), 4),
            output.estimate(Estimate.from_dict(f["recomputed"]), 4),
            "yes" if f["agrees"] else "NO",
        ]
        for metric, f in result["figures"].items()
    ]
    seeds = f", seed {result['seeds'][0]}" if len(result["seeds"]) == 1 else ""
    title = f"{result['study']}: {result['cell']}{seeds}"
    output.show_table(["figure", "committed", "recomputed", "agrees"], rows, title=title)


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
    """Count what the four papers describe and how much of it is done; list rows with --paper or --state."""
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
    from locum.io import did_you_mean
    from locum.recipes import find_papers, load_studies

    found, missing = load_studies(studies)
    if name in missing:
        raise missing[name]
    if name in (papers := find_papers(studies)):
        parts = ", ".join(part.study for part in papers[name].parts)
        raise ConfigError(
            f"{name!r} is a whole paper, which can be run; this command takes one of its studies: {parts}."
        )
    if name not in found:
        known = [*found, *missing, *papers]
        hint = did_you_mean(name, known, f"There are {', '.join(known)}.")
        raise ConfigError(f"There is no study {name!r}. {hint}")
    return found[name]


def _results(found: FoundStudy) -> Path:
    return found.folder / "results" / f"{found.name}.json"
