"""Imports point down only; folders on one level never import each other; a folder's `__init__` is its only door."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from functools import cache
from pathlib import Path

import pytest

import locum

ROOT = Path(locum.__file__).parent
HOUSE = ROOT.parents[1] / "scripts" / "house.py"
LEVELS = {
    "_version": 0, "errors": 0,
    "_lazy": 0.5,  # names the extra that is missing
    "_threads": 0.5,
    "types": 1, "io": 1,
    "mechanisms": 2, "accounting": 2, "metrics": 2, "release": 2, "nets": 2, "data": 2,
    "embed": 3, "train": 3,
    "generate": 4, "heads": 4, "obfuscate": 4,
    "rebalance": 5, "audit": 5, "federated": 5,
    "report": 6,
    "recipes": 7,
    "studio": 8,
    "cli": 9, "__main__": 10,
}  # fmt: skip


def load_house():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("house", HOUSE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


house = load_house()
MODULES = house.module_files(ROOT)
PACKAGES = {name for name, file in MODULES.items() if file.name == "__init__.py"}


# Parsed by the first test that asks: each process that only collects tests would wait for it.
@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(file.read_text()) for name, file in MODULES.items()}


@cache
def graph() -> dict[str, set[str]]:
    """Who imports whom."""
    return {name: house.imported(tree, MODULES, "locum") - {name} for name, tree in trees().items()}


def violations(edges: dict[str, set[str]]) -> list[str]:
    """Imports between folders that do not point down."""
    return sorted(
        f"{owner} imports {other}"
        for owner, others in edges.items()
        for other in others
        if house.folder(owner) != house.folder(other) and LEVELS[house.folder(other)] >= LEVELS[house.folder(owner)]
    )


def exported(package: str) -> set[str]:
    """Names that a package's `__init__` lists."""
    return set(getattr(importlib.import_module(package), "__all__", ())) if package in PACKAGES else set()


def names_taken(tree: ast.AST) -> list[tuple[str, str]]:
    """Module and name of each `from locum.x import y`."""
    return [
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("locum.")
        for alias in node.names
    ]


def test_every_folder_has_a_level() -> None:
    assert {house.folder(name) for name in MODULES} - {""} <= set(LEVELS)


def test_imports_are_absolute() -> None:
    relative = [n for n, tree in trees().items() for k in ast.walk(tree) if isinstance(k, ast.ImportFrom) and k.level]
    assert relative == []


def test_imports_point_down_only() -> None:
    assert len(graph()) > 100
    assert violations({name: others for name, others in graph().items() if name != "locum"}) == []


def test_no_module_cycles() -> None:
    assert house.cycles({name: others - PACKAGES for name, others in graph().items() if name not in PACKAGES}) == []


def test_other_folders_are_reached_through_their_init() -> None:
    past = [
        f"{owner} takes {name} from {module}"
        for owner, tree in trees().items()
        if owner != "locum.__main__"  # starts the program, which nobody else imports
        for module, name in names_taken(tree)
        if house.folder(module) != house.folder(owner)
        and module.count(".") >= 1
        and (ROOT / house.folder(module)).is_dir()
        and name not in exported(module)
    ]
    assert past == []


@pytest.mark.parametrize("folder", sorted({house.folder(n) for n in PACKAGES} - {"", "cli"}))
def test_a_name_is_listed_once(folder: str) -> None:
    """By one `__init__` of the folder, from a module of that folder, and not under the name of a module."""
    seen: dict[str, str] = {}
    for package in sorted(n for n in PACKAGES if house.folder(n) == folder):
        listed = [name for name in names_listed(package) if not name.startswith("__")]
        assert len(set(listed)) == len(listed)
        assert all(
            module.startswith(f"{package}.") for module, _ in names_taken(trees()[package]) if "_lazy" not in module
        )
        for name in listed:
            assert name not in seen, f"{name} is listed by {seen[name]} and by {package}"
            assert f"{package}.{name}" not in MODULES, f"{package}.{name} is a module: the name would give either"
            seen[name] = package
    assert all(not defines_all(trees()[n]) for n in MODULES if house.folder(n) == folder)


def names_listed(package: str) -> list[str]:
    return [name for module, name in names_taken(trees()[package]) if module not in ("locum._lazy", "locum._version")]


def defines_all(tree: ast.Module) -> bool:
    """Whether a module writes its own list; `__init__` derives its list from what it imports."""
    return any(isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__" for n in tree.body)


def test_every_listed_name_is_there() -> None:
    listing = [m for m in map(importlib.import_module, sorted(PACKAGES)) if hasattr(m, "__all__")]
    assert len(listing) > 15
    for module in listing:
        assert set(module.__all__) == set(names_listed(module.__name__)) == set(dir(module)), module
        for name in module.__all__:
            assert getattr(module, name) is not None, (module, name)
        with pytest.raises(AttributeError, match="nonsense"):
            module.nonsense  # noqa: B018


def test_the_checks_see_a_violation() -> None:
    upward = house.imported(ast.parse("def f():\n    from locum.generate import KSame"), MODULES, "locum")
    assert violations({"locum.metrics.utility": upward}) == ["locum.metrics.utility imports locum.generate"]
    assert house.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
