"""`__all__` equals what is public: nothing hidden that people may use, nothing shown by accident."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import understudy
import understudy.heads
import understudy.rebalance
import understudy.recipes

ROOT = Path(understudy.__file__).parent
MODULES = sorted(
    ".".join(("understudy", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for p in ROOT.rglob("*.py")
    if p.name not in ("__main__.py", "_version.py")
)


def defined(module: str) -> set[str]:
    """Classes and functions written at the top of a module, without an underscore."""
    file = importlib.import_module(module).__file__
    assert file is not None
    tree = ast.parse(Path(file).read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }


@pytest.mark.parametrize("name", MODULES)
def test_all_is_what_is_public(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    assert len(set(exported)) == len(exported)
    assert all(hasattr(module, n) for n in exported)
    if not name.startswith("understudy.cli."):
        assert defined(name) <= set(exported), "a public name that __all__ does not show"


@pytest.mark.parametrize(
    "folder",
    [
        "types",
        "accounting",
        "metrics",
        "release",
        "nets",
        "data",
        "embed",
        "train",
        "generate",
        "heads",
        "obfuscate",
        "rebalance",
        "audit",
        "report",
    ],
)
def test_a_folder_gives_only_names_of_its_own_modules(folder: str) -> None:
    package = importlib.import_module(f"understudy.{folder}")
    for name in package.__all__:
        owner = getattr(getattr(package, name), "__module__", f"understudy.{folder}")
        assert owner.startswith((f"understudy.{folder}", "typing", "types", "collections"))


def test_lazy_names_are_the_advertised_ones() -> None:
    for package in (understudy, understudy.heads, understudy.rebalance, understudy.recipes):
        assert set(package.__all__) - {"__version__"} == set(package._HOMES) == set(dir(package))
        with pytest.raises(AttributeError, match="nonsense"):
            package.nonsense  # noqa: B018
