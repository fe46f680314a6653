"""Attack a release with Anonymeter: singling out, linkability and inference, each against a control.

Anonymeter needs numpy below 1.27 and Locum needs 2 or later, so they live in two environments and share files:

    python examples/anonymeter_risks.py make FOLDER       # with locum[fit]: original, synthetic and control rows
    python examples/anonymeter_risks.py attack FOLDER     # with anonymeter, without Locum

Without words it does what the installed packages can. `make` puts records into FOLDER: keep it private.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import pandas as pd

NAMES = ("original", "synthetic", "control")
ATTACKS = 100


def make(folder: Path) -> None:
    """Fit one half of a table, draw as many rows, keep the other half as control."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer

    from locum.generate import ClassGaussian

    data = load_breast_cancer(as_frame=True)
    table = data.data.iloc[:, :10].round(4).assign(label=np.asarray(data.target_names)[data.target])
    order = np.random.default_rng(0).permutation(len(table))
    original, control = table.iloc[order[::2]], table.iloc[order[1::2]]
    fitted = ClassGaussian(random_state=0).fit(original.drop(columns="label"), original["label"])
    synthetic = fitted.release(no_dp=True).to_pandas(2000, random_state=0)[list(table.columns)]
    for name, rows in zip(NAMES, (original, synthetic, control), strict=True):
        rows.to_csv(folder / f"{name}.csv", index=False)
    print(f"made {', '.join(f'{name}.csv' for name in NAMES)}")


def attack(folder: Path) -> None:
    """Print the privacy risk of each attack: what knowing the synthetic rows adds beyond the control."""
    from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator

    original, synthetic, control = (pd.read_csv(folder / f"{name}.csv") for name in NAMES)
    columns = list(original.columns)
    rows = {"ori": original, "syn": synthetic, "control": control}
    found = {
        "singling out": SinglingOutEvaluator(**rows, n_attacks=ATTACKS),
        "linkability": LinkabilityEvaluator(**rows, n_attacks=ATTACKS, aux_cols=(columns[:5], columns[5:10])),
        "inference": InferenceEvaluator(**rows, n_attacks=ATTACKS, aux_cols=columns[:10], secret="label"),
    }
    for name, evaluator in found.items():
        how = {"mode": "multivariate"} if name == "singling out" else {"n_jobs": 1}
        evaluator.evaluate(**how)
        risk = evaluator.risk(confidence_level=0.95)
        print(f"{name:13s} risk {risk.value:.3f}, 95 % interval {risk.ci[0]:.3f} to {risk.ci[1]:.3f}")


def main(words: list[str]) -> None:
    steps = {"make": (make, "locum"), "attack": (attack, "anonymeter")}
    if words:
        steps[words[0]][0](Path(words[1]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for name, (step, package) in steps.items():
            if importlib.util.find_spec(package) is None:
                print(f"{name}: {package} is not installed here, see the top of this file")
                break
            step(Path(temporary))


if __name__ == "__main__":
    main(sys.argv[1:])
