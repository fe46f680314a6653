"""Settings from `locum.toml` and from `LOCUM_*`, for options that the command line leaves out.

The command line comes first, then the environment (`LOCUM_FIT_EPSILON=1`), then the file, then the defaults.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from locum.errors import ConfigError
from locum.io import read_toml

FILE = "locum.toml"
PREFIX = "LOCUM"
# Consent is given each time, in words: no file and no variable can give it.
ONLY_TYPED = frozenset(
    {"force", "yes", "override", "no_dp", "classes_public", "help", "version", "quiet", "verbose", "as_json"}
    | {"approve", "refuse", "confirm", "install_completion", "show_completion"}
)


def read_settings(verbs: Mapping[str, object]) -> dict[str, Any]:
    """The settings in `locum.toml` of the current folder, or in the file that `LOCUM_CONFIG` names, by verb."""
    named = os.environ.get(f"{PREFIX}_CONFIG")
    path = Path(named or FILE)
    if not path.is_file():
        if named:
            raise ConfigError(f"There is no settings file {named!r}: correct or unset {PREFIX}_CONFIG.")
        return {}
    found = read_toml(path, "settings file")
    for name, value in found.items():
        if name not in verbs or not isinstance(value, dict):
            raise ConfigError(
                f"{str(path)!r} may hold one table per verb, such as [fit]; got {name!r}. Verbs: {', '.join(verbs)}."
            )
    return found


def apply_settings(ctx: click.Context) -> None:
    """Check what the file and the environment say about one verb, and say on standard error what is used."""
    words = ctx.command_path.split()[1:]
    prefix = "_".join([PREFIX, *words, ""]).upper().replace("-", "_")
    options = {p.name: p for p in ctx.command.params if isinstance(p, click.Option) and p.name}
    settable = sorted(name.replace("_", "-") for name in options.keys() - ONLY_TYPED)
    given = ctx.default_map or {}
    # TOML is written as the option is spelled: n-public and n_public are the same.
    given = {name.replace("-", "_"): value for name, value in given.items()}
    where = f"[{'.'.join(words)}] in the settings file"
    for name in given:
        _check(name, where, options, settable)
    for variable in os.environ:
        if variable.startswith(prefix):
            _check(variable.removeprefix(prefix).lower(), f"the environment ({variable})", options, settable)
    ctx.default_map = {name: _as_text(value, options[name]) for name, value in given.items()}


def tell_settings(ctx: click.Context) -> None:
    """Say which options came from the file or the environment: settings nobody remembers must not surprise."""
    from click.core import ParameterSource

    places = {ParameterSource.DEFAULT_MAP: "the settings file", ParameterSource.ENVIRONMENT: "the environment"}
    for source, place in places.items():
        names = [name for name in ctx.params if ctx.get_parameter_source(name) is source]
        if names:
            sys.stderr.write(f"from {place}: {', '.join('--' + n.replace('_', '-') for n in names)}\n")


def _check(name: str, where: str, options: Mapping[str, click.Option], settable: list[str]) -> None:
    if name in ONLY_TYPED and name in options:
        raise ConfigError(f"{name.replace('_', '-')!r} cannot be set in {where}: type --{name.replace('_', '-')}.")
    if name not in options:
        raise ConfigError(
            f"{where} sets {name.replace('_', '-')!r}, which is not an option here: {', '.join(settable)}."
        )


def _as_text(value: Any, option: click.Option) -> Any:
    """A TOML list for an option that takes A,B,C becomes that text."""
    if isinstance(value, list) and not option.multiple:
        return ",".join(str(item) for item in value)
    return value
