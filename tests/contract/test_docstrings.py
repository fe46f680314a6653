"""Every name that a folder exports has a numpydoc docstring: parameters, returns, and an example that runs."""

from __future__ import annotations

import dataclasses
import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import locum

FOLDERS = ("locum", *(m.name for m in pkgutil.walk_packages(locum.__path__, "locum.") if m.ispkg))
REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_PARAMETER = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.MULTILINE)


def exported(folder: str) -> dict[str, Any]:
    """The functions and classes that a folder defines and exports, by name."""
    module = importlib.import_module(folder)
    found = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("locum")
    }


def sections(doc: str) -> dict[str, str]:
    """The parts of a numpydoc docstring, by heading."""
    parts = _HEADING.split(doc)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def listed(section: str) -> list[str]:
    """The names that a Parameters or Attributes section describes."""
    return [n.strip().lstrip("*") for m in _PARAMETER.finditer(section) for n in m[1].split(",")]


def parameters(value: Any) -> list[str]:
    """What a caller passes: the fields of a data class or model, or the arguments of a function."""
    if inspect.isclass(value) and hasattr(value, "model_fields"):
        return list(value.model_fields)
    if dataclasses.is_dataclass(value):
        return [f.name for f in dataclasses.fields(value) if f.init and not f.name.startswith("_")]
    if inspect.isclass(value) and value.__init__ is object.__init__:
        return []
    return [n for n in inspect.signature(value).parameters if not n.startswith("_")]


def is_special(value: Any) -> bool:
    """Errors, enumerations and protocols: their members say it all."""
    return inspect.isclass(value) and (
        issubclass(value, BaseException | enum.Enum) or bool(getattr(value, "_is_protocol", False))
    )


def faults(value: Any) -> list[str]:
    """What is missing in a docstring."""
    doc = value.__doc__ and inspect.cleandoc(value.__doc__)
    if not doc:
        return ["no docstring"]
    out = [] if doc.split("\n")[0].endswith((".", ":")) else ["the first line is not a sentence"]
    if is_special(value):
        return out
    parts = sections(doc)
    described = listed(parts.get("Parameters", "")) + listed(parts.get("Attributes", ""))
    wanted = parameters(value)
    out += [f"parameter {name!r} is not described" for name in wanted if name not in described]
    if inspect.isfunction(value):
        out += [f"{name!r} is described but is no parameter" for name in described if name not in wanted]
        returns = inspect.signature(value).return_annotation
        if returns not in (None, "None", "NoReturn") and not {"Returns", "Yields"} & set(parts):
            out.append("no Returns")
    if ">>>" not in parts.get("Examples", ""):
        out.append("no Examples")
    return out


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_exported_name_is_described(folder: str) -> None:
    found = [f"{name}: {fault}" for name, value in exported(folder).items() for fault in faults(value)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_examples_run(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    told: list[str] = []
    for name, value in exported(folder).items():
        module = importlib.import_module(value.__module__)
        for test in finder.find(value, name, module=module, globs=dict(vars(module))):
            runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)


@pytest.mark.parametrize("folder", ["locum.metrics", "locum.obfuscate", "locum.rebalance"])
def test_examples_of_names_that_are_not_exported_run(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above runs those of exported names."""
    monkeypatch.chdir(tmp_path)
    package = importlib.import_module(folder)
    inside = list(pkgutil.walk_packages(package.__path__, f"{folder}."))
    public = {
        (value.__module__, value.__name__)
        for place in (folder, *(m.name for m in inside if m.ispkg))
        for value in exported(place).values()
    }
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for name in (m.name for m in inside):
        for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
            if (name, test.name.removeprefix(f"{name}.").split(".")[0]) not in public:
                runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize("folder", FOLDERS[1:])
def test_every_folder_has_a_page_in_the_reference(folder: str) -> None:
    name = folder.removeprefix("locum.")
    if not exported(folder):
        pytest.skip("exports nothing")
    assert f".. automodule:: {folder}\n" in (REFERENCE / "python" / f"{name}.md").read_text()
    assert f"\npython/{name}\n" in (REFERENCE / "python.md").read_text()


def test_a_missing_part_is_found() -> None:
    def bare(a: int, b: int) -> int:
        """Add.

        Parameters
        ----------
        a
            One.
        c
            Another.
        """
        return a + b

    assert faults(bare) == [
        "parameter 'b' is not described",
        "'c' is described but is no parameter",
        "no Returns",
        "no Examples",
    ]
