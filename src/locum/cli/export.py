"""`locum export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import WHERE, Force, Json, existing, unused_file
from locum.errors import ConfigError

if TYPE_CHECKING:
    from locum.recipes import ExportSummary

ONNX, HUB = "ONNX", "The Hugging Face hub"


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RELEASE|HEAD",
            help="A release (folder or .zip), or a head of `train`.",
            callback=existing,
        ),
    ],
    onnx: Annotated[
        bool,
        typer.Option(
            "--onnx", help="Write the decoder or head as ONNX, for R, C#, Java or a browser.", rich_help_panel=ONNX
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="With --onnx: the file to write; ends in .onnx.",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ] = None,
    hub: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Push the release to this repository.", rich_help_panel=HUB),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="With --hub: let everybody see it.", rich_help_panel=HUB)
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --hub: push without being asked again.", rich_help_panel=HUB)
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a release or a head as ONNX, or push a release to the Hugging Face hub.

    The claim goes with it. An exported file holds nothing that the release does not hold.
    """
    if onnx == (hub is not None):
        raise ConfigError("Say where to export to: --onnx -o FILE.onnx, or --hub OWNER/NAME.")
    if hub is not None:
        if out is not None:
            raise ConfigError("--out is for --onnx; --hub writes no file: leave it out.")
        _push(source, hub, public, yes, as_json)
        return
    if public or yes:
        raise ConfigError("--public and --yes are for --hub: leave them out.")
    if out is None:
        raise ConfigError("Say where to write: add -o FILE.onnx.")
    from locum.recipes import export_onnx

    output.show(export_onnx(source, out, overwrite=force), as_json, show_export)


def _push(release: Path, repo: str, public: bool, yes: bool, as_json: bool) -> None:
    from locum.recipes import push_to_hub

    def confirm(meaning: str) -> None:
        if not yes:
            output.confirm(meaning, "--yes")

    output.show(push_to_hub(release, repo, public=public, confirm=confirm), as_json, show_push)


def show_export(made: ExportSummary) -> None:
    """What was written, how well it agrees, and what is claimed."""
    output.say(f"exported    {made.file} ({made.kind}, {made.megabytes:.2f} MB)", "bold")
    output.say(f"inputs      {', '.join(made.inputs)}")
    output.say(f"outputs     {', '.join(made.outputs)}")
    if made.difference is None:
        output.say("checked     no: onnxruntime is not installed, so the file was not run")
    else:
        output.say(
            f"checked     in onnxruntime: 256 rows differ by at most {made.difference:.1g} of the largest number"
        )
    output.show_claim(made.claim)
    output.say("            The claim is in the file's metadata, too.")


def show_push(made: dict[str, Any]) -> None:
    """What was pushed, who can see it, and how to load it."""
    who = "everybody" if made["public"] else "those you give access to"
    output.say(f"pushed      {made['kind']} {made['repo']}: {', '.join(made['files'])}", "bold")
    output.say(f"seen by     {who}")
    output.say(f"commit      {made['commit']}")
    output.say(f"fingerprint {made['fingerprint']}")
    output.say(f'            Receivers use locum.load("{made["address"]}").')
