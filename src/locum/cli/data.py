"""`locum data list|check|fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import WHERE, Force, Json, existing
from locum.cli.verb import Group

if TYPE_CHECKING:
    from locum.recipes import FetchSummary

group = Group("The data that studies read: list them, check them, or download them.")

Studies = Annotated[
    Path, typer.Option("--studies", help="Folder of the studies, with the manifest data.toml (in the source tree).")
]
Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="FOLDER", help="Folder of the data (default: LOCUM_DATA).")
]


@group.verb("list")
def list_(studies: Studies = Path("studies"), folder: Folder = None, as_json: Json = False) -> None:
    """List the data sets: whether they are there, their terms, and which studies need them."""
    from locum.recipes import list_data

    rows = list_data(studies, folder)
    if as_json:
        output.print_json(rows)
        return
    shown = [[r["name"], r["present"], _size(r["files"]), r["license"], ", ".join(r["studies"]) or "-"] for r in rows]
    output.show_table(["name", "there", "size", "license", "needed by"], shown)


@group.verb()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names from `data list` (default: every set that is there)."),
    ] = None,
    studies: Studies = Path("studies"),
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Compare files with their hashes in the manifest; exit code 1 if one differs or is missing."""
    from locum.recipes import check_data

    with output.progress_bar("check") as progress:
        found = check_data(names or [], studies, folder, progress=progress)
    wrong = [file for file in found if not file.right]
    if as_json:
        output.print_json({"right": not wrong, "files": [file.to_dict() for file in found]})
    else:
        for file in found:
            output.say(file.sentence, "" if file.right else "red")
        if not found:
            output.say("None of the data sets is there: see `locum data list`.")
    if wrong:
        raise typer.Exit(1)


@group.verb()
def fetch(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A table of the settings file.")],
    settings: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="FILE.toml",
            help="Addresses of public originals, such as examples/data_sources.toml.",
            rich_help_panel="Where to read",
            callback=existing,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the file.", rich_help_panel=WHERE)
    ],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Download a public original; a stopped download resumes, and the file is compared with its hash."""
    from locum.recipes import fetch_data

    with output.resumable(), output.progress_bar("fetch") as progress:
        done = fetch_data(name, settings, out, overwrite=force, progress=progress)
    output.show(done, as_json, _show_fetched)


def _show_fetched(done: FetchSummary) -> None:
    output.say(f"file        {done.file} ({done.bytes / 1e6:.1f} MB)", "bold")
    if done.already:
        output.say("            it was there already")
    elif done.resumed:
        output.say(f"            resumed after {done.resumed / 1e6:.1f} MB")
    output.say(f"sha256      {done.sha256}")
    agreed = f"agrees with the {done.verified} of the settings" if done.verified else "not checked: no hash was given"
    output.say(f"verified    {agreed}")


def _size(files: list[dict[str, object]]) -> str:
    sizes = [file["bytes"] for file in files]
    known = [size for size in sizes if isinstance(size, int)]
    return f"{sum(known) / 1e6:.1f} MB" if len(known) == len(sizes) else "-"
