"""The program's list of verbs. A verb's module is imported when the verb is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import click
import typer

from locum._version import __version__
from locum.cli import settings
from locum.cli.verb import Group, make_verb


class Entry(NamedTuple):
    """Where a verb lives, and its line in the program's help."""

    module: str
    section: str
    summary: str


MAKE, JUDGE, RECEIVE, MORE, TOOLS = "Make a release", "Judge it", "Receive one", "More", "Tools"

VERBS: Mapping[str, Entry] = {
    "publish": Entry("publish", MAKE, "All steps from data to a signed release, in one command."),
    "embed": Entry("embed", MAKE, "Turn images into vectors with a frozen vision model."),
    "reference": Entry("reference", MAKE, "Public statistics of a backbone or a table, for private fits."),
    "plan": Entry("plan", MAKE, "Show what a private fit would do and cost, before any data are read."),
    "fit": Entry("fit", MAKE, "Fit a generator to records and write a release."),
    "ledger": Entry("ledger", MAKE, "What each data holding has spent, and what is left."),
    "studio": Entry("studio", JUDGE, "Open a local web page to make, attack, decide and receive."),
    "evaluate": Entry("evaluate", JUDGE, "Train a classifier on a release and test it on real data."),
    "audit": Entry("audit", JUDGE, "Attack a release, and check the results against a policy."),
    "report": Entry("report", JUDGE, "Write one self-contained page about a release."),
    "passport": Entry("passport", JUDGE, "Write the passport files into a release."),
    "keygen": Entry("passport", JUDGE, "Make a key pair for signing."),
    "sign": Entry("passport", JUDGE, "Sign a release."),
    "decide": Entry("passport", JUDGE, "Approve or refuse a release, and sign it with that decision."),
    "verify": Entry("verify", RECEIVE, "Check that a release is complete, well formed and signed."),
    "sample": Entry("sample", RECEIVE, "Draw vectors from a release into a file."),
    "train": Entry("receiver", RECEIVE, "Train a classifier on a release alone."),
    "predict": Entry("receiver", RECEIVE, "Predict the class of your own records."),
    "export": Entry("export", RECEIVE, "Write a release or a head as ONNX, or push a release to the hub."),
    "rebalance": Entry("rebalance", MORE, "Rare classes: fill them up, or compare methods."),
    "obfuscate": Entry("obfuscate", MORE, "Keep what a receiver needs of each record and hide the rest."),
    "federate": Entry("federate", MORE, "Sites train one stand-in together; no record leaves a site."),
    "demo": Entry("demo", TOOLS, "Run all steps on images that ship with scikit-learn."),
    "doctor": Entry("doctor", TOOLS, "Check whether this machine has what Locum needs."),
    "data": Entry("data", TOOLS, "Data that studies read: list, check, fetch."),
    "study": Entry("study", TOOLS, "Reproduce a table or figure of a paper."),
}


class Verbs(Group):
    """The program: verbs are listed without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return verb(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section per group of verbs."""
        for title in (MAKE, JUDGE, RECEIVE, MORE, TOOLS):
            with formatter.section(title):
                formatter.write_dl([(name, e.summary) for name, e in VERBS.items() if e.section == title], col_max=26)


def verb(name: str) -> click.Command:
    """A verb of the program, or a group of them."""
    module: Any = import_module(f"locum.cli.{VERBS[name].module}")
    group: Group | None = getattr(module, "group", None)
    if group is None:
        return make_verb(name, getattr(module, name))
    group.name = name
    return group


def _version(show: bool) -> None:
    if show:
        typer.echo(f"locum {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="locum",
    cls=Verbs,
    help="Share a stand-in for your data instead of the data.",
    epilog="`locum VERB --help` explains a verb. Exit codes: 0 done, 1 failed, 2 wrong usage or input, "
    "3 a policy was not met.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": settings.PREFIX},
)


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            allow_from_autoenv=False,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    ctx.default_map = settings.read_settings(VERBS)


def command() -> click.Command:
    """The program as one click command."""
    return typer.main.get_command(app)


def run(args: Sequence[str] | None = None) -> int:
    """Run the program with these words; the exit code. Errors are raised."""
    code = command().main(args, prog_name="locum", standalone_mode=False)
    return code if isinstance(code, int) else 0
