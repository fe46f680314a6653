"""`demo`: the whole story on data that come with scikit-learn, in a minute or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data import load_sample, split, write_embeddings
from understudy.recipes.evaluate import evaluate_release
from understudy.recipes.fit import fit_release
from understudy.recipes.sample import sample_to_file
from understudy.release import verify

__all__ = ["run_demo"]

# Called before each step with its title and the command that would do the same, and after it with what it gave.
StepBegins = Callable[[str, str], None]
StepEnds = Callable[[str, Any], None]


def run_demo(folder: Path, *, begins: StepBegins, ends: StepEnds, verbose: bool = True) -> dict[str, Any]:
    """Digits become a generator, a release, samples and an evaluation; everything is written to `folder`.

    Returns what each step gave, by name: `fit`, `verify`, `sample`, `evaluate`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train, test, unused = (folder / f"digits-{name}.npz" for name in ("train", "test", "unused"))
    release, rows = folder / "release", folder / "synthetic.npz"
    begins("Take scikit-learn's handwritten digits: some are the records, some are not used, some are the world", "")
    parts = split(load_sample("digits"), {"train": 0.5, "unused": 0.2, "test": 0.3}, rng=np.random.default_rng(0))
    for name, path in (("train", train), ("unused", unused), ("test", test)):
        write_embeddings(path, parts[name])
    ends("data", parts)
    steps: list[tuple[str, str, str, Callable[[], Any]]] = [
        (
            "fit",
            "Data holder: learn a generator and write a release",
            f"understudy fit {train} -o {release} --non-members {unused}",
            lambda: fit_release(str(train), release, non_members=str(unused), overwrite=True, verbose=verbose),
        ),
        (
            "verify",
            "Anyone: check that the release is whole",
            f"understudy verify {release}",
            lambda: verify(release),
        ),
        (
            "sample",
            "Receiver: draw as many vectors as wanted",
            f"understudy sample {release} -n 2000 -o {rows}",
            lambda: sample_to_file(release, rows, n=2000, seed=0, overwrite=True),
        ),
        (
            "evaluate",
            "Data holder: judge it beside real data and k-Same",
            f"understudy evaluate {release} --test {test} --train {train}",
            lambda: evaluate_release(release, str(test), train=str(train)),
        ),
    ]
    results = {}
    for name, title, command, work in steps:
        begins(title, command)
        results[name] = work()
        ends(name, results[name])
    return results
