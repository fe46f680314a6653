"""Every command in the docs must exist: the verb and every option, by the program's own parser.

`test_guides.py` runs the commands of console blocks; the docs build executes the tutorials, which are notebooks.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tests.docs_pages import COMMANDS, PAGES, ROOT, Command, agrees, fenced, script_names, words_of

from locum.cli.program import command

# Commands of other programs that a page may show: their first words, and why no test runs them.
OTHERS = {
    "make demo": "tests/e2e/test_demo.py runs what it calls",
    "make test": "this is what runs the tests",
    "make check": "CI runs it",
    "make docs": "builds these pages",
    "make bench": "takes many minutes",
    "make dist": "makes two more environments; tests/shelves runs its parts",
    ". .venv/bin/activate": "changes the reader's shell",
    "pip install": "needs an index of packages; tests/wheel installs the wheel",
    "ssh": "needs another machine",
    "git": "needs a remote repository",
    "docker": "needs a Docker daemon",
    "cat": "shows a file",
    "head": "shows a file",
    "echo": "shows an exit code",
    "stat": "shows modes of files",
}


def cells_of(page: Path) -> list[Command]:
    """The shell commands in the cells of a notebook; the docs build runs them, here they only have to exist."""
    name = page.relative_to(ROOT).as_posix()
    found = []
    for start, block in fenced(page.read_text(encoding="utf-8"), "{code-cell}"):
        whole = block.replace("\\\n", " ")
        found += [Command(name, start, line[1:].strip(), ()) for line in whole.splitlines() if line.startswith("!")]
    return found


CELLS = [c for page in PAGES for c in cells_of(page)]


def parts_of(text: str) -> list[list[str]]:
    """The words of each command of a line: `cd site && locum ... | grep ok` has three."""
    return [words_of(part) for part in re.split(r"\s(?:\|\||&&|\||;)\s", text)]


def parse(words: list[str]) -> click.Context:
    """The context of a command line; `UsageError` if verb, option or number of arguments is wrong.

    Values are not checked: files of the page are not here.
    """
    group: click.Command = command()
    ctx = click.Context(group, info_name="locum")
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        _, inner, words = group.resolve_command(ctx, words)
        assert inner is not None
        ctx, group = click.Context(inner, info_name=inner.name, parent=ctx), inner
        if isinstance(inner, click.Group) and words:
            inner.parse_args(ctx, list(words))  # a group may put its default verb in front
            words = [*ctx._protected_args, *ctx.args]
    values, rest, order = group.make_parser(ctx).parse_args(list(words))
    if rest:
        raise click.UsageError(f"unexpected {' '.join(rest)!r}", ctx)
    eager = any(getattr(p, "is_eager", False) for p in order)
    for param in group.params:
        if param.required and not eager and not values.get(param.name or "") and "..." not in words:
            raise click.UsageError(f"missing {param.name}", ctx)
    return ctx


def begins(text: str, table: dict[str, str]) -> str | None:
    """The entry of a table that a command begins with."""
    return next((start for start in table if text == start or text.startswith(start)), None)


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 40
    assert {"README.md", "docs/guides/auditing.md"} <= {c.page for c in COMMANDS}


@pytest.mark.parametrize(
    "wrong",
    [
        "locum fitt data.npz -o r",
        "locum fit data.npz -o r --epsilom 1",
        "locum fit data.npz",
        "locum sign r more --key k",
    ],
)
def test_a_command_that_does_not_exist_is_found(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parse(words_of(wrong)[1:])


@pytest.mark.parametrize("page", sorted({c.page for c in COMMANDS}))
def test_every_command_exists(page: str) -> None:
    wrong = []
    scripts = script_names((ROOT / page).read_text(encoding="utf-8"))
    for shown in (c for c in COMMANDS if c.page == page):
        words = parts_of(shown.text)[0]
        if words[0] == "locum":
            try:
                parse(words[1:])
            except click.UsageError as error:
                wrong.append(f"{shown}: {error.format_message()}")
        elif words[0] == "python":
            if words[1] not in scripts and not (ROOT / words[1]).is_file():
                wrong.append(f"{shown}: no script of that name on the page or in the repository")
        elif begins(shown.text, OTHERS) is None:
            wrong.append(f"{shown}: what is this? Give it a line in OTHERS, with the reason")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", sorted({c.page for c in CELLS}))
def test_every_command_of_a_notebook_exists(page: str) -> None:
    wrong = []
    for shown in (c for c in CELLS if c.page == page):
        for words in parts_of(shown.text):
            if words[0] == "locum":
                try:
                    parse(words[1:])
                except click.UsageError as error:
                    wrong.append(f"{shown}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)


def test_other_output_is_found() -> None:
    assert agrees(("a 1.5 b", " ────", "...", "end"), "a 2.25 b\n ─────── \nmore\nend\n") is None
    assert agrees(("a 1.5 b", "end"), "a 2.25 b\nmore\nend\n") == "end"
    assert agrees(("a 1.5 c",), "a 2.25 b\n") == "a 1.5 c"
