"""Reads the console blocks of the docs, and compares what they show with what was printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PROMPT = re.compile(r"^(?:[\w ]{1,20})?\$ ")


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


def words_of(text: str) -> list[str]:
    """A command line as its words, without the comment behind it, variables before it and where its output goes."""
    words = shlex.split(re.sub(r"\s# .*", "", text))  # FILE#split is no comment
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    for stop in (">", "2>", ">>"):
        if stop in words:
            words = words[: words.index(stop)]
    return words


def script_names(text: str) -> dict[str, str]:
    """Python blocks of a page whose first line names a file, `# subjects.py`, by that name."""
    blocks = (block for _, block in fenced(text, "python"))
    return {m.group(1): block for block in blocks if (m := re.match(r"# ([\w/]+\.py)\b", block))}


def shape(text: str) -> str:
    """A line with every number as 0 and rules and spaces as one: what must agree where figures may differ."""
    text = re.sub(r"[0-9a-f]{16,}", "HASH", text)
    text = re.sub(r"(?<=\s)/\S*/", "/", text)  # the folder of a file
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


COMMANDS = [c for page in PAGES for c in commands_of(page)]
