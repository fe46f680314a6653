"""Settings typed for a run of a study, compared with the study's own before anything is computed.

`config.toml` is the only description of a setting: its values are examples of what works. A new value must have their
form, and its texts must be among theirs or among the names that the study adds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from locum.errors import ConfigError
from locum.io import listed

# Measured on a scale: fractions work, even if all values in `config.toml` are whole.
SCALES = ("noise", "lambda")


def checked_setting(
    key: str, value: Any, examples: Sequence[Any], *, names: Collection[str] | None = (), sets: Collection[str] = ()
) -> Any:
    """The value in the form of the study's own, or `ConfigError` in one sentence.

    Parameters
    ----------
    key
        Name of the setting, for the error.
    value
        What was typed.
    examples
        The study's own values: the full one and, if there is one, the quick one.
    names
        Texts that work besides those of the examples; None: any text.
    sets
        Names of the sets of this run: a table with an entry per set takes all of them.

    Returns
    -------
    object
        The value. Whole numbers become fractions, and numbers become text, where the study writes them so.

    Examples
    --------
    >>> from locum.recipes.study_settings import checked_setting
    >>> checked_setting("epsilons", [1, 3], [[0.5, 1.0]])
    [1.0, 3.0]
    >>> checked_setting("methods", ["head", "tail"], [["head", "means"]])
    Traceback (most recent call last):
    ...
    locum.errors.ConfigError: `methods` takes 'head' or 'means'; got 'tail'.
    """
    return _like(key, value, list(examples), names, sets, alone=True)


def _like(
    key: str,
    value: Any,
    examples: list[Any],
    names: Collection[str] | None,
    sets: Collection[str],
    *,
    alone: bool = False,
) -> Any:
    if isinstance(value, bool) or all(isinstance(e, bool) for e in examples):
        if not (isinstance(value, bool) and any(isinstance(e, bool) for e in examples)):
            raise _form(key, value, examples)
        return value
    if isinstance(value, Mapping):
        return _table(key, value, [e for e in examples if isinstance(e, Mapping)], names, sets)
    if isinstance(value, list):
        return _list(key, value, [e for e in examples if isinstance(e, list)], names, sets)
    texts = [e for e in examples if isinstance(e, str)]
    numbers = [e for e in examples if isinstance(e, int | float) and not isinstance(e, bool)]
    if isinstance(value, int | float):
        if not numbers and texts and all(_is_number(e) for e in texts):
            return _text(key, f"{value:g}", texts, names)
        return _number(key, value, numbers, alone=alone)
    if isinstance(value, str) and texts:
        return _text(key, value, texts, names)
    raise _form(key, value, examples)


def _table(
    key: str,
    value: Mapping[str, Any],
    examples: list[Mapping[str, Any]],
    names: Collection[str] | None,
    sets: Collection[str],
) -> dict[str, Any]:
    if not examples:
        raise ConfigError(f"`{key}` is not a table; got {dict(value)!r}.")
    known = {k for e in examples for k in e}
    by_set = known <= set(sets)
    values = [v for e in examples for v in e.values()]
    out = {}
    for k, v in value.items():
        if k not in known and not by_set and names is not None and k not in names:
            raise ConfigError(f"`{key}` has entries {listed(map(repr, sorted({*known, *names})), 'and')}; got {k!r}.")
        out[k] = _like(key, v, [e[k] for e in examples if k in e] or values, names, sets)
    return out


def _list(
    key: str, value: list[Any], examples: list[list[Any]], names: Collection[str] | None, sets: Collection[str]
) -> list[Any]:
    if not examples:
        raise ConfigError(f"`{key}` is not a list; got {value!r}.")
    if _is_row(examples):
        if len(value) != len(examples[0]):
            raise _form(key, value, examples)
        return [_like(key, v, [e[i] for e in examples], names, sets) for i, v in enumerate(value)]
    entries = [entry for e in examples for entry in e]
    out = [_like(key, v, entries, names, sets) if entries else v for v in value]
    if twice := [v for i, v in enumerate(out) if v in out[:i]]:
        raise ConfigError(f"`{key}` lists {twice[0]!r} twice.")
    return out


def _number(key: str, value: float, examples: list[Any], *, alone: bool) -> float:
    if not examples:
        raise ConfigError(f"`{key}` does not take a number; got {value!r}.")
    if not math.isfinite(value) and value not in examples:
        raise ConfigError(f"`{key}` takes finite numbers; got {value!r}.")
    if value < 0 and min(examples) >= 0:
        raise ConfigError(f"`{key}` takes no negative numbers; got {value!r}.")
    # In a list or a table, 0 often leaves something out.
    if alone and value == 0 and min(examples) > 0:
        raise ConfigError(f"`{key}` takes numbers above 0; got {value!r}.")
    if all(isinstance(e, float) for e in examples):
        return float(value)
    if all(isinstance(e, int) for e in examples) and isinstance(value, float) and not any(s in key for s in SCALES):
        raise ConfigError(f"`{key}` takes whole numbers; got {value!r}.")
    return value


def _text(key: str, value: str, examples: list[str], names: Collection[str] | None) -> str:
    if names is None or value in examples or value in names:
        return value
    if all(_is_number(e) for e in examples):
        if not _is_number(value) or not float(value) > 0:
            raise ConfigError(f"`{key}` takes numbers above 0, such as {examples[0]!r}; got {value!r}.")
        if all(e.isdigit() for e in examples) and not value.isdigit():
            raise ConfigError(f"`{key}` takes whole numbers, such as {examples[0]!r}; got {value!r}.")
        return value
    raise ConfigError(f"`{key}` takes {listed(map(repr, sorted({*examples, *names})))}; got {value!r}.")


def _is_row(examples: list[list[Any]]) -> bool:
    """Whether lists are rows of a table, such as a name, an epsilon and a number of rounds: of one length, mixed."""
    lengths = {len(e) for e in examples}
    return len(lengths) == 1 and all(len({isinstance(v, str) for v in e}) > 1 for e in examples)


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _form(key: str, value: Any, examples: list[Any]) -> ConfigError:
    return ConfigError(f"`{key}` takes values such as {examples[0]!r}; got {value!r}.")
