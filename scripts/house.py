"""How the package is laid out, in figures: modules, cycles, shortcuts past a folder's `__init__`, and hops per task.

    python scripts/house.py                      # this checkout
    python scripts/house.py --root ../old/src/x  # any other package with the same folders

The tasks (fit, sample, audit, verify, read one .npz) run for real on 240 small records; a module counts for a task
if one of its functions ran, not counting what merely importing it runs. `--static` leaves them out and
needs nothing but Python.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "locum"
SMALL = 60  # lines of code

TASKS = {
    "read .npz": "",
    "private fit": "fit records.npz#train -o private --epsilon 1 --delta 1e-5 --n-public 160 --classes 0,1",
    "sample": "sample private -n 50 -o samples.npz",
    "verify": "verify private",
    "audit, page": "audit private --members records.npz#train --non-members records.npz#test --html audit.html",
}
TRACE = """
import json, sys
from pathlib import Path
root, home, argv = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
seen = set()
def watch(frame, event, arg):
    file = frame.f_code.co_filename
    if event != "call" or not file.startswith(root) or file in seen:
        return
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root):
            return
        frame = frame.f_back
    seen.add(file)
package = Path(root).name
import threading
sys.path.insert(0, str(Path(root).parent))
if argv:
    from importlib import import_module
    main = import_module(package + ".cli.main").main
    sys.argv = [package, *argv]
    threading.setprofile(watch); sys.setprofile(watch)
    try:
        main()
    except SystemExit as end:
        code = end.code
    sys.setprofile(None)
else:
    from importlib import import_module
    read = import_module(package + ".data").read_splits
    threading.setprofile(watch); sys.setprofile(watch)
    read("records.npz")
    sys.setprofile(None)
print(json.dumps(sorted(file[len(root) :].lstrip("/") for file in seen)), file=sys.stderr)
"""


def module_name(file: Path, root: Path) -> str:
    """`package.folder.module` of a file."""
    return ".".join((root.name, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")


def module_files(root: Path) -> dict[str, Path]:
    """Every module of a package, packages included, by name."""
    return {module_name(file, root): file for file in sorted(root.rglob("*.py"))}


def imported(tree: ast.AST, modules: dict[str, Path], package: str) -> set[str]:
    """Modules of the package that a module names in an import, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == package}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else str(node.module) for name in names}
    return found & set(modules)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def lines_of_code(tree: ast.AST) -> int:
    """Lines that hold a statement or an expression; docstrings, comments and blank lines do not count."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    return len(
        {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.stmt | ast.expr)
            and id(node) not in docs
            and id(getattr(node, "value", None)) not in docs
            for line in (node.lineno, node.end_lineno)
        }
    )


def import_lines(tree: ast.AST) -> int:
    """Lines taken up by import statements."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def figures(root: Path) -> dict[str, object]:
    """What can be read from the source alone."""
    modules = module_files(root)
    trees = {name: ast.parse(file.read_text()) for name, file in modules.items()}
    packages = {name for name, file in modules.items() if file.name == "__init__.py"}
    plain = [name for name in modules if name not in packages]
    graph = {name: imported(trees[name], modules, root.name) - {name} for name in modules}
    inside = {name: graph[name] - packages for name in plain}
    users: dict[str, set[str]] = defaultdict(set)
    for name in plain:
        for other in inside[name]:
            users[other].add(name)
    single = [name for name in plain if len(users[name]) == 1]
    crossing = [
        (name, other)
        for name in modules
        for other in graph[name]
        if other != root.name and other.count(".") and folder(other) != folder(name)
    ]
    total = sum(len(file.read_text().splitlines()) for file in modules.values())
    return {
        "modules": len(modules),
        "median lines": statistics.median(len(modules[n].read_text().splitlines()) for n in plain),
        "median lines of code": statistics.median(lines_of_code(trees[n]) for n in plain),
        "imported by one other": len(single),
        f"of those under {SMALL} lines of code": len([n for n in single if lines_of_code(trees[n]) < SMALL]),
        "share of import lines, %": round(100 * sum(map(import_lines, trees.values())) / total, 1),
        "imports through a folder's __init__": len([1 for _, other in crossing if other in packages]),
        "imports past it": len([1 for _, other in crossing if other not in packages and other.count(".") > 1]),
        "cycles": len(cycles(inside)),
        "cycle members": cycles(inside),
        "small modules with one user": sorted(n for n in single if lines_of_code(trees[n]) < SMALL),
    }


def folder(module: str) -> str:
    """The part of a name that a level belongs to."""
    return module.split(".")[1] if "." in module else ""


def passed(root: Path) -> dict[str, str]:
    """Modules and folders whose functions run for each task."""
    import numpy as np

    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = (rng.normal(size=(240, 8)) + y[:, None]).astype(np.float32)
    found = {}
    with tempfile.TemporaryDirectory() as home:
        np.savez(Path(home) / "records.npz", train_x=X[:160], train_y=y[:160], test_x=X[160:], test_y=y[160:])
        for task, words in TASKS.items():
            run = subprocess.run(
                [sys.executable, "-c", TRACE, str(root), home, *words.split()],
                cwd=home,
                capture_output=True,
                text=True,
                check=False,
            )
            try:
                files = json.loads(run.stderr.splitlines()[-1])
            except (IndexError, json.JSONDecodeError):
                sys.exit(f"{task} failed:\n{run.stdout}\n{run.stderr}")
            inner = [f for f in files if "/" in f and not f.startswith(("cli/", "_"))]
            found[task] = f"{len(files)} modules, {len({f.split('/')[0] for f in inner})} folders below cli"
    return found


def main(argv: Iterable[str] | None = None) -> None:
    """Print the figures, as text or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the package")
    parser.add_argument("--static", action="store_true", help="leave the tasks out")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(list(argv) if argv is not None else None)
    root = chosen.root.resolve()
    result = figures(root)
    if not chosen.static:
        result |= passed(root)
    if chosen.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        if isinstance(value, list):
            print(f"{name}:" + ("" if value else " none"))
            for item in value:
                print("   ", item if isinstance(item, str) else " <-> ".join(item))
        else:
            print(f"{name:40} {value}")


if __name__ == "__main__":
    main()
