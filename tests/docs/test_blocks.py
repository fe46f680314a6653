"""Every console block of the docs: its commands run here, or parse, or are named below with a reason.

- A command of the program must parse: the verb and every option exist, by the program's own parser.
- A block that shows output is run, in a folder with the data it speaks of, and must print what it shows:
  numbers may differ, their number and the words may not.
- Tutorials are notebooks that the docs build executes, so they have no console blocks.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from locum.cli.program import command

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PROMPT = re.compile(r"^(?:[\w ]{1,20})?\$ ")

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

# Commands whose shown output is not compared, by how they begin, and why.
NOT_RUN = {
    "locum federate simulate heart4": "needs the UCI heart data; studies/federated has such runs",
    "locum embed digits -o own.npz --backbone onnx:": "embeds 1797 images; tests/embed runs custom models",
    "locum report out/demo/": "needs the output of `make demo`; tests/recipes/test_report.py checks the lines",
    "locum study": "reads or writes results of studies; tests/studies runs such studies",
    "python examples/": "the gallery of the docs build runs every example, and shows what it prints",
    "python make_model.py": "belongs to a custom model: tests/embed runs one",
}


class Command(NamedTuple):
    """A command of a block, and what the page says it prints."""

    page: str
    line: int
    text: str
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def fenced(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Line and content of each fenced block in a language."""
    for found in re.finditer(rf"^```{language}[^\n]*\n(.*?)^```", text, re.S | re.M):
        yield text[: found.start()].count("\n") + 2, found.group(1)


def commands_of(page: Path) -> list[Command]:
    """The commands of a page's console blocks. A line that ends in a backslash goes on."""
    name = page.relative_to(ROOT).as_posix()
    found: list[Command] = []
    for start, block in fenced(page.read_text(encoding="utf-8"), "console"):
        text, line, shown = "", 0, []
        for number, content in enumerate(block.splitlines(), start):
            if text.endswith("\\"):
                text = text[:-1].rstrip() + " " + content.strip()
            elif prompt := PROMPT.match(content):
                if text:
                    found.append(Command(name, line, text, tuple(shown)))
                text, line, shown = content[prompt.end() :].strip(), number, []
            else:
                assert text, f"{name}:{number}: a console block must begin with a prompt, `$ `"
                shown.append(content)
        found.append(Command(name, line, text, tuple(shown)))
    return found


COMMANDS = [c for page in PAGES for c in commands_of(page)]


def cells_of(page: Path) -> list[Command]:
    """The shell commands in the cells of a notebook; the docs build runs them, here they only have to exist."""
    name = page.relative_to(ROOT).as_posix()
    found = []
    for start, block in fenced(page.read_text(encoding="utf-8"), "{code-cell}"):
        whole = block.replace("\\\n", " ")
        found += [Command(name, start, line[1:].strip(), ()) for line in whole.splitlines() if line.startswith("!")]
    return found


CELLS = [c for page in PAGES for c in cells_of(page)]


def words_of(text: str) -> list[str]:
    """A command line as its words, without the comment behind it, variables before it and where its output goes."""
    words = shlex.split(re.sub(r"\s# .*", "", text))  # FILE#split is no comment
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    for stop in (">", "2>", ">>"):
        if stop in words:
            words = words[: words.index(stop)]
    return words


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


def script_names(text: str) -> dict[str, str]:
    """Python blocks of a page whose first line names a file, `# subjects.py`, by that name."""
    blocks = (block for _, block in fenced(text, "python"))
    return {m.group(1): block for block in blocks if (m := re.match(r"# ([\w/]+\.py)\b", block))}


WITH_OUTPUT = [c for c in COMMANDS if c.shown and begins(c.text, NOT_RUN) is None]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that pages speak of: tumors in three splits, a release of them, a head."""
    import json

    import numpy as np

    from locum.data import load_sample, split
    from locum.generate import ClassGaussian
    from locum.recipes import train_head
    from locum.types import EmbeddingInfo

    home = tmp_path_factory.mktemp("desk")
    tumors = load_sample("breast-cancer")
    parts = split(tumors, {"train": 0.6, "val": 0.2, "test": 0.2}, rng=np.random.default_rng(0))
    arrays = {"class_names": tumors.info.class_names, "info": json.dumps({"backbone": "measurements"})}
    for name, part in parts.items():
        arrays[f"{name}_x"], arrays[f"{name}_y"] = part.X, part.y
    np.savez(home / "tumors.npz", **arrays)
    train = parts["train"]
    generator = ClassGaussian(random_state=0).fit(train.X, train.y)
    info = EmbeddingInfo("measurements", class_names=tumors.info.class_names)
    generator.release(info, no_dp=True).save(home / "release")
    train_head(home / "release", home / "head.safetensors", samples=1000)
    return home


def shape(text: str) -> str:
    """A line with every number as 0 and rules and spaces as one: what must agree where figures may differ."""
    text = re.sub(r"[0-9a-f]{16,}", "HASH", text)
    text = re.sub(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "0", text)
    return re.sub(r"[─\s]+", " ", text).strip()


def agrees(shown: tuple[str, ...], printed: str) -> str | None:
    """None if a page's lines are those of the output; else the first line that is missing.

    `...` on a line of its own, or at the end of a line, stands for anything.
    """
    lines = [line for line in (shape(text) for text in printed.splitlines()) if line]
    at, gap = 0, False
    for text in shown:
        if not shape(text):
            continue
        if text.strip() == "...":
            gap = True
            continue
        want = shape(text)
        near = [i for i in range(at, len(lines)) if lines[i] == want or _starts(lines[i], want)]
        if not near or (near[0] != at and not gap):
            return text
        at, gap = near[0] + 1, False
    return None


def _starts(line: str, want: str) -> bool:
    return want.endswith("...") and line.startswith(want[:-3].rstrip())


def test_other_output_is_found() -> None:
    assert agrees(("a 1.5 b", " ────", "...", "end"), "a 2.25 b\n ─────── \nmore\nend\n") is None
    assert agrees(("a 1.5 b", "end"), "a 2.25 b\nmore\nend\n") == "end"
    assert agrees(("a 1.5 c",), "a 2.25 b\n") == "a 1.5 c"


@pytest.mark.parametrize("shown", WITH_OUTPUT, ids=str)
def test_the_output_is_what_the_page_shows(shown: Command, desk: Path) -> None:
    words = words_of(shown.text)
    if words[0] == "python":
        source = script_names((ROOT / shown.page).read_text(encoding="utf-8")).get(words[1])
        if source is not None:
            (desk / words[1]).write_text(source, encoding="utf-8")
    elif words[0] != "locum":
        pytest.skip(OTHERS[begins(shown.text, OTHERS) or ""])
    start = [sys.executable, "-m", "locum"] if words[0] == "locum" else [sys.executable]
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCUM_")}
    env |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "200"}
    done = subprocess.run([*start, *words[1:]], cwd=desk, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    missing = agrees(shown.shown, done.stdout)
    assert missing is None, f"{shown}\nthe page shows {missing!r}; the program printed:\n{done.stdout}"
