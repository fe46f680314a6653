"""`demo`: the whole story on data that come with scikit-learn, in a minute or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data import load_sample, split, write_embeddings
from understudy.recipes.evaluate import Evaluation, evaluate_release
from understudy.recipes.fit import FitSummary, fit_release
from understudy.recipes.sample import sample_to_file
from understudy.release import Verification, verify

__all__ = ["DemoStep", "run_demo"]

# Called before each step with its title and the command that would do the same.
DemoStep = Callable[[str, str], None]


def run_demo(
    folder: Path, *, step: DemoStep, progress: Callable[[int, int, str], None] | None = None
) -> dict[str, Any]:
    """Digits become a generator, a release, samples and an evaluation; everything is written to `folder`.

    Returns what each step gave, by name: `fit`, `verification`, `sample`, `evaluation`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train, test = folder / "digits-train.npz", folder / "digits-test.npz"
    release, rows = folder / "release", folder / "synthetic.npz"
    step("Take scikit-learn's handwritten digits, and set a third aside as the world outside", "")
    parts = split(load_sample("digits"), {"train": 2 / 3, "test": 1 / 3}, rng=np.random.default_rng(0))
    write_embeddings(train, parts["train"])
    write_embeddings(test, parts["test"])
    step("Data holder: learn a generator and write a release", f"understudy fit {train} -o {release}")
    fitted: FitSummary = fit_release(str(train), release, overwrite=True, verbose=True)
    step("Anyone: check that the release is whole", f"understudy verify {release}")
    verification: Verification = verify(release)
    step("Receiver: draw as many vectors as wanted", f"understudy sample {release} -n 2000 -o {rows}")
    drawn = sample_to_file(release, rows, n=2000, seed=0, overwrite=True)
    step(
        "Data holder: judge it beside real data and k-Same",
        f"understudy evaluate {release} --test {test} --train {train}",
    )
    evaluation: Evaluation = evaluate_release(release, str(test), train=str(train), progress=progress)
    return {"fit": fitted, "verification": verification, "sample": drawn, "evaluation": evaluation}
