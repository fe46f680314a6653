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
