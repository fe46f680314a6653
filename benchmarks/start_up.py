"""How long the program takes to answer when there is nothing to compute, against importing what it is made of.

    python benchmarks/start_up.py [--quick] [--runs 5] [--root PATH/TO/src]

Each line is processor time of a fresh interpreter (the best of several runs) as a ratio to
`python -c 'import typer, rich'`, taken in turn with it: help of every verb, `plan --explain`, and usage or file
errors.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
CALLS = {
    "--help": ["--help"],
    "plan --explain": ["plan", "--explain", "--epsilon", "1", "--delta", "1e-5"],
    "fit, no such file": ["fit", "nowhere.npz", "-o", "out"],
    "fit, wrong option": ["fit", "nowhere.npz", "-o", "out", "--no-such-option"],
    "sample, no such release": ["sample", "nowhere", "-n", "3", "-o", "out.npz"],
    "verify, no such release": ["verify", "nowhere"],
    "evaluate, no such release": ["evaluate", "nowhere", "--test", "nowhere.npz"],
    "audit, no such release": ["audit", "nowhere", "--members", "a.npz", "--non-members", "b.npz"],
    "ledger show, no ledger": ["ledger", "show", "--ledger", "nowhere.sqlite"],
}


def cpu_seconds(argv: list[str], folder: str, path: Path) -> float:
    """User and system time of one child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def verbs(path: Path, package: str) -> list[list[str]]:
    """Every verb and sub-verb, as words."""
    # Before 0.2 the program was in `main`.
    module = "program" if (path / package / "cli" / "program.py").exists() else "main"
    code = (
        "import click, json, typer\n"
        f"from {package}.cli.{module} import app\n"
        "def walk(c, words):\n"
        "    yield words\n"
        "    for name in c.list_commands(None) if isinstance(c, click.Group) else ():\n"
        "        yield from walk(c.get_command(None, name), [*words, name])\n"
        "print(json.dumps(list(walk(typer.main.get_command(app), []))[1:]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    import json

    found: list[list[str]] = json.loads(run.stdout)
    return found


def main() -> None:
    """Print one line per call, then the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two runs")
    parser.add_argument("--root", type=Path, default=HERE / "src", help="the folder that holds the package")
    parser.add_argument("--package", default="locum")
    chosen = parser.parse_args()
    calls = dict(CALLS)
    for words in verbs(chosen.root, chosen.package):
        calls[f"{' '.join(words)} --help"] = [*words, "--help"]
    runs = 2 if chosen.quick else chosen.runs
    peer = [sys.executable, "-c", "import typer, rich"]
    with tempfile.TemporaryDirectory() as folder:
        worst = ("", 0.0)
        for name, words in calls.items():
            ours, theirs = [], []
            for _ in range(runs):
                theirs.append(cpu_seconds(peer, folder, chosen.root))
                ours.append(cpu_seconds([sys.executable, "-m", chosen.package, *words], folder, chosen.root))
            ratio = min(ours) / min(theirs)
            worst = max(worst, (name, ratio), key=lambda pair: pair[1])
            print(f"{name:42} {min(ours):6.3f} s  {ratio:5.2f} x  (import typer, rich {min(theirs):.3f} s)")
        print(f"worst: {worst[0]} at {worst[1]:.2f} x")


if __name__ == "__main__":
    main()
