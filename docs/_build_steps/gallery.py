"""The page of examples, made from the folder `examples/`: a title, what it shows, its output, its source."""

from __future__ import annotations

import ast
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

MARK = "<!-- the examples -->"
# Not run here, because they need more than an installed package.
NEEDS_DATA = "LOCUM_DATA"


class Example(NamedTuple):
    """What the page says about a script."""

    path: Path
    title: str
    text: str
    missing: tuple[str, ...]
    needs_data: bool


def examples(folder: Path) -> list[Example]:
    """Every script of a folder, in the order of its name."""
    return [read_example(path) for path in sorted(folder.glob("*.py"))]


def read_example(path: Path) -> Example:
    """Title and text from a script's docstring, and which of its imports are not installed.

    The title is what comes before the first colon or full stop. Lines that show a command are left out.
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    doc = ast.get_docstring(tree)
    if not doc:
        raise ValueError(f"{path.name} needs a docstring that says what it shows: the gallery prints it.")
    lines = [line for line in doc.splitlines() if not line.strip().startswith("python examples/")]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    missing = sorted(n for n in names - set(sys.stdlib_module_names) if find_spec(n) is None)
    title, _, text = re.split(r"(?<=[\w)])([:.])(?=\s|$)", "\n".join(lines).strip(), maxsplit=1)
    text = text.strip()
    return Example(path, " ".join(title.split()), text[:1].upper() + text[1:], tuple(missing), NEEDS_DATA in source)


def gallery(folder: Path) -> str:
    """The sections of the page, one per script, as a MyST text notebook."""
    return "\n".join(section(example) for example in examples(folder))


def section(example: Example) -> str:
    """One script: it is run if everything it needs is here."""
    name = example.path.name
    parts = [f"## {example.title}", "", example.text, ""]
    if example.missing:
        words = ", ".join(f"`{m}`" for m in example.missing)
        parts += [f"It needs {words}, which these pages are built without, so it was not run here.", ""]
    elif example.needs_data:
        parts += [f"It reads data from the folder that `{NEEDS_DATA}` names, so it was not run here.", ""]
    else:
        run = f'!echo "$ python examples/{name}"; python "$EXAMPLES/{name}"'
        parts += ["```{code-cell} ipython3", ":tags: [remove-input]", run, "```", ""]
    parts += [f"<details><summary>Source: examples/{name}</summary>", ""]
    parts += [f"```{{literalinclude}} ../examples/{name}", ":language: python", "```", "", "</details>", ""]
    return "\n".join(parts)
