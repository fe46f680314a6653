"""The program. Starts without torch: what a verb needs is imported when the verb runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from locum._version import __version__
from locum.cli import federate, ledger, obfuscate, output, rebalance, study, verbs
from locum.errors import LocumError, missing_extra

app = typer.Typer(
    name="locum",
    help="Share a stand-in for your data instead of the data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
verbs.register(app)
app.add_typer(study.app, name="study")
app.add_typer(ledger.app, name="ledger")
app.add_typer(rebalance.app, name="rebalance")
app.add_typer(federate.app, name="federate")
app.add_typer(obfuscate.app, name="obfuscate")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"locum {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 a policy was not met."""


def main() -> None:
    """Run the program; what we foresee ends in one sentence, not in a traceback."""
    try:
        app()
    except LocumError as error:
        sys.stderr.write(f"error: {output.plain(str(error))}\n")
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        told = missing_extra(error)
        if told is None:
            raise
        sys.stderr.write(f"error: {told}\n")
        sys.exit(told.exit_code)
    except (MemoryError, OverflowError):
        sys.stderr.write("error: this asks for more than the machine's memory holds; ask for less at a time.\n")
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has left; say nothing more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        sys.stderr.write(f"error: {error.strerror or error}: {error.filename or 'the system refused'}.\n")
        sys.exit(1)
