"""What every verb of the program is: a command with help under headings, settings, --quiet and --verbose."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import click
import typer
from typer import core

from locum.cli import output, settings
from locum.cli.options import WHERE
from locum.io import did_you_mean

# Verbs that read images: what reads these is imported first, whatever the data are. `locum[images]` brings all.
_WITH_IMAGES = ("fit", "publish", "train", "predict", "evaluate", "audit")

# Typer's boxes take three times as long as the whole program otherwise needs to answer, and are cut off in narrow
# terminals. Plain text is wrapped.
core.HAS_RICH = False

Function = TypeVar("Function", bound=Callable[..., None])


class HelpFormatter(click.HelpFormatter):
    """Click's formatter with bold headings in a terminal."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(heading, bold=True)}\n")


class VerbContext(click.Context):
    formatter_class = HelpFormatter


def _common_options() -> list[click.Option]:
    """What every verb takes."""

    def level(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        chosen = ctx.meta.setdefault("locum.level", {"quiet": False, "verbose": False})
        chosen[param.name] = value
        if chosen["quiet"] and chosen["verbose"]:
            raise click.UsageError("--quiet and --verbose cannot be combined: leave one out.", ctx)
        output.set_level(**chosen)

    quiet = click.Option(
        ["--quiet", "-q"], is_flag=True, expose_value=False, callback=level, help="Print errors and data only."
    )
    verbose = click.Option(
        ["--verbose", "-v"], is_flag=True, expose_value=False, callback=level, help="Also log what is being done."
    )
    return [quiet, verbose]


# Short names of types, for the help.
_METAVARS = {click.types.IntParamType: "N", click.types.FloatParamType: "NUMBER", click.types.StringParamType: "TEXT"}


def _tidy(params: list[click.Parameter]) -> None:
    """Keep the help short, and let no variable say what must be typed."""
    for param in params:
        if isinstance(param, click.Option):
            param.show_envvar = False
            param.allow_from_autoenv = param.name not in settings.ONLY_TYPED
            if param.metavar is None and not param.is_flag:
                param.metavar = next((m for kind, m in _METAVARS.items() if isinstance(param.type, kind)), None)


class Verb(core.TyperCommand):
    """A command whose help groups options under headings, and that every verb of the program is."""

    context_class = VerbContext

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _common_options()
        _tidy(self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        settings.apply_settings(ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        settings.tell_settings(ctx)
        try:
            return super().invoke(ctx)
        except ImportError as error:
            if self.name in _WITH_IMAGES:
                raise _all_at_once(error) from None
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments, then one section per heading, in the order of their first option; where to write comes last."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        last: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            line = param.get_help_record(ctx)
            if line is None:
                continue
            panel = getattr(param, "rich_help_panel", None)
            if param.param_type_name == "argument":
                sections["Arguments"].append(line)
            elif panel:
                sections.setdefault(panel, []).append(line)
            else:
                last.append(line)
        if not sections["Arguments"]:
            del sections["Arguments"]
        if WHERE in sections:
            sections[WHERE] = sections.pop(WHERE)
        if last:
            sections["Output" if sections.keys() - {"Arguments"} else "Options"] = last
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines, col_max=26)


def _all_at_once(error: ImportError) -> ImportError:
    """One command for all that is missing, not `locum[train]` first and `locum[images]` next."""
    from locum.errors import MissingExtraError, missing_extra

    known = missing_extra(error) if isinstance(error, ModuleNotFoundError) else error
    if isinstance(known, MissingExtraError) and known.extra in ("fit", "train"):
        return MissingExtraError(known.package, "images")
    return error


class Group(core.TyperGroup):
    """A group of verbs, such as `ledger`. A verb's options are read when it is used or explained.

    Parameters
    ----------
    help
        What the verbs are about.
    settings
        As for a click group.
    """

    context_class = VerbContext

    def __init__(self, help: str | None = None, **settings: Any) -> None:
        super().__init__(help=help, **{"no_args_is_help": True, "subcommand_metavar": "VERB ...", **settings})
        self._functions: dict[str, Callable[..., None]] = {}
        _tidy(self.params)

    def verb(self, name: str | None = None) -> Callable[[Function], Function]:
        """Add a function as a verb, under its own name or another."""

        def add(function: Function) -> Function:
            self._functions[name or function.__name__.replace("_", "-")] = function
            return function

        return add

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._functions)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return make_verb(cmd_name, self._functions[cmd_name]) if cmd_name in self._functions else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb; a mistyped one gets a suggestion."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            hint = did_you_mean(args[0], names, f"There are {', '.join(names)}.")
            ctx.fail(f"There is no verb {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All verbs, with the first paragraph of each."""
        lines = [
            (name, " ".join(inspect.cleandoc(f.__doc__ or "").split("\n\n")[0].split()))
            for name, f in self._functions.items()
        ]
        with formatter.section("Verbs"):
            formatter.write_dl(lines, col_max=26)


def make_verb(name: str, function: Callable[..., None]) -> click.Command:
    """A command from a function with annotated parameters."""
    # Typer would evaluate the annotations four times.
    function.__annotations__ = get_type_hints(function, include_extras=True)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name, cls=Verb)(function)
    return typer.main.get_command(app)
