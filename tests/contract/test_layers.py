"""Imports point down only; folders on one level never import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import understudy

ROOT = Path(understudy.__file__).parent
LEVELS = {
    "_version": 0, "_lazy": 0, "errors": 0,
    "types": 1,
    "accounting": 2, "metrics": 2, "release": 2, "nets": 2, "data": 2,
    "embed": 3, "train": 3,
    "generate": 4, "heads": 4, "obfuscate": 4,
    "rebalance": 5, "audit": 5, "federated": 5,
    "report": 6,
    "recipes": 7,
    "cli": 8, "__main__": 9,
}  # fmt: skip


def home(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(source: str) -> set[str]:
    """Parts of understudy that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            base = node.module or ""
            names = [f"understudy.{alias.name}" for alias in node.names] if base == "understudy" else [base]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("understudy.")}
    return found


def violations(files: dict[str, set[str]]) -> list[str]:
    return [
        f"{owner} imports {other}"
        for owner, others in files.items()
        for other in others
        if other != owner and LEVELS[other] >= LEVELS[owner]
    ]


def test_every_folder_has_a_level() -> None:
    found = {home(p) for p in ROOT.rglob("*.py")} - {"__init__"}
    assert found <= set(LEVELS)


def test_imports_point_down_only() -> None:
    graph: dict[str, set[str]] = {}
    for file in ROOT.rglob("*.py"):
        if file != ROOT / "__init__.py":
            graph.setdefault(home(file), set()).update(imports(file.read_text()))
    assert len(graph) > 8
    assert violations(graph) == []


def test_the_check_sees_a_violation() -> None:
    upward = imports("def f():\n    from understudy.generate import KSame")
    assert violations({"metrics": upward}) == ["metrics imports generate"]
    assert violations({"metrics": imports("import understudy.data.npz")}) == ["metrics imports data"]
