"""The program can do nothing that Python cannot: every verb is one function that `locum.recipes` exports."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator

import click
import pytest

import locum.recipes
from locum.cli.program import command


def commands(group: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every verb of the program, by the words that call it."""
    if isinstance(group, click.Group):
        ctx = click.Context(group)
        for word in group.list_commands(ctx):
            inner = group.get_command(ctx, word)
            assert inner is not None
            yield from commands(inner, f"{name} {word}".strip())
    elif name:
        yield name, group


VERBS = dict(commands(command()))


def taken_from_recipes(command: click.Command) -> set[str]:
    """Names that a verb's function, or a function of its module that it calls, takes from `locum.recipes`."""
    callback = inspect.unwrap(command.callback)  # type: ignore[arg-type]
    tree = ast.parse(inspect.getsource(importlib.import_module(callback.__module__)))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    seen: set[str] = set()
    todo, names = [callback.__name__], set()
    while todo:
        name = todo.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.ImportFrom) and node.module == "locum.recipes":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Name):
                todo.append(node.id)
    return names


def test_there_are_verbs() -> None:
    assert {"fit", "sample", "audit", "verify", "ledger show", "ledger restore", "federate init"} <= set(VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_verb_calls_an_exported_recipe(verb: str) -> None:
    names = taken_from_recipes(VERBS[verb])
    assert names, f"{verb} does its work outside `locum.recipes`"
    assert names <= set(locum.recipes.__all__)
    assert any(callable(getattr(locum.recipes, name)) for name in names)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_under_headings_every_option_of_a_verb_has_one(verb: str) -> None:
    """The rest is listed under "Output", where nobody looks for what a verb needs."""
    options = [p for p in VERBS[verb].params if isinstance(p, click.Option)]
    loose = {p.name for p in options if not getattr(p, "rich_help_panel", None)}
    if len(loose) < len(options):
        assert loose <= {"as_json", "explain", "quiet", "verbose"}


def test_an_option_that_means_the_same_is_declared_once() -> None:
    """The budget and what it buys: one alias in `cli.options` for all verbs, so that their words stay equal."""
    declared: dict[tuple[str, str, str | None, object], dict[int, list[str]]] = {}
    for verb, found in VERBS.items():
        callback = inspect.unwrap(found.callback)  # type: ignore[arg-type]
        names = vars(importlib.import_module(callback.__module__))
        for option in ("epsilon", "delta", "classes", "classes_public", "holding", "ledger", "relation", "backbone"):
            if option in callback.__annotations__:
                alias = callback.__annotations__[option]
                alias = eval(alias, names) if isinstance(alias, str) else alias  # noqa: S307  # our own source
                (info,) = alias.__metadata__
                same = declared.setdefault((option, info.help, info.rich_help_panel, info.callback), {})
                same.setdefault(id(info), []).append(verb)
    twice = {option: list(verbs.values()) for (option, *_), verbs in declared.items() if len(verbs) > 1}
    assert twice == {}
    shared = [sorted(v) for (option, *_), verbs in declared.items() if option == "delta" for v in verbs.values()]
    assert ["federate init", "federate simulate", "fit", "obfuscate fit", "publish"] in shared
    public = [v for (option, *_), verbs in declared.items() if option == "classes_public" for v in verbs.values()]
    assert [sorted(verbs) for verbs in public] == [["fit", "publish"]]
