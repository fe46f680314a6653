"""Anonymeter and `locum.audit` on the same releases, in one table.

    LOCUM_DATA=path/to/data python benchmarks/audit_anonymeter.py [--attacks 200] [--seed 0]

Anonymeter is not one of our requirements and needs an older numpy than we use: give it a separate environment that
sees ours (`python -m venv --system-site-packages`, or a .pth file), and there `pip install polars numba` and
`pip install --no-deps anonymeter`.

Records are three random thirds of BreastMNIST's training embeddings, on 8 principal components, with the label as one
more column for Anonymeter: members, non-members (Anonymeter's control) and fresh records. Releases: copies of the
members; the same with jitter of 0.001 of each feature's standard deviation; samples of a ClassGaussian fitted on the
members, as many as there are members; the fresh records. Anonymeter's figures are its risk, the attack's success
beyond the control's, with 95 % intervals. Ours are the verdict, the smallest p-value after Holm, and the attacks that
found a leak.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from locum.audit import audit
from locum.data import read_embeddings
from locum.generate import ClassGaussian
from locum.recipes.audit import rows_release
from locum.types import EmbeddingSet

COMPONENTS = 8
JITTER = 0.001


def thirds(path: Path, seed: int) -> list[EmbeddingSet]:
    """Members, non-members and fresh records, on the principal components of all three."""
    data = read_embeddings(path, "train")
    centered = data.X.astype(np.float64) - data.X.mean(axis=0)
    axes = np.linalg.svd(centered, full_matrices=False)[2][:COMPONENTS]
    table = EmbeddingSet((centered @ axes.T).astype(np.float32), data.y)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(table)), 3)
    return [table.take(np.sort(part)) for part in parts]


def releases(members: EmbeddingSet, fresh: EmbeddingSet, seed: int) -> dict[str, EmbeddingSet]:
    """What is shown to both tools, by name."""
    noise = np.random.default_rng([seed, 1]).normal(size=members.X.shape) * members.X.std(axis=0)
    model = ClassGaussian(random_state=seed).fit(members.X, members.y)
    return {
        "exact copy": members,
        f"jitter {JITTER:g}": EmbeddingSet((members.X + JITTER * noise).astype(np.float32), members.y),
        "ClassGaussian": EmbeddingSet(*model.release(no_dp=True).sample(len(members), random_state=seed)),
        "fresh records": fresh,
    }


def frame(data: EmbeddingSet) -> Any:
    """As Anonymeter needs it: one named column per feature, and the label as text."""
    import pandas as pd

    out = pd.DataFrame(data.X.astype(np.float64), columns=[f"pc{i}" for i in range(data.dim)])
    out["label"] = np.asarray(data.y).astype(str)
    return out


def anonymeter_risks(release: EmbeddingSet, members: EmbeddingSet, others: EmbeddingSet, attacks: int) -> list[str]:
    """Singling out by one column and by several, linkability, and inference of the label."""
    from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator

    given = {"ori": frame(members), "syn": frame(release), "control": frame(others)}
    columns = [f"pc{i}" for i in range(members.dim)]
    half = len(columns) // 2
    fewer = min(attacks, len(others))
    jobs = [
        (SinglingOutEvaluator(**given, n_attacks=attacks), {"mode": "univariate"}),
        (SinglingOutEvaluator(**given, n_attacks=attacks, n_cols=4), {"mode": "multivariate"}),
        (LinkabilityEvaluator(**given, n_attacks=fewer, aux_cols=(columns[:half], columns[half:])), {}),
        (InferenceEvaluator(**given, n_attacks=fewer, aux_cols=columns, secret="label"), {}),
    ]
    out = []
    for evaluator, options in jobs:
        try:
            risk = evaluator.evaluate(**options).risk(confidence_level=0.95)
            out.append(f"{risk.value:.2f} [{risk.ci[0]:.2f}, {risk.ci[1]:.2f}]")
        except RuntimeError as error:
            # It refuses where it finds too few predicates to attack with.
            out.append(f"refused ({str(error).split('.')[0][:40]})")
    return out


def ours(release: EmbeddingSet, members: EmbeddingSet, others: EmbeddingSet, seed: int) -> list[str]:
    """Verdict, smallest corrected p-value, and who found it."""
    report = audit(rows_release(release), members, others, random_state=seed)
    lowest = min(r.adjusted for r in report.results if r.adjusted is not None)
    found = [r.name for r in report.results if r.verdict == "leak"]
    return [report.verdict, f"{lowest:.1e}", ", ".join(found) or "none"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--attacks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        import anonymeter  # noqa: F401
    except ImportError:
        sys.exit("Anonymeter is missing: see the top of this file for how to install it beside Locum.")
    path = Path(os.environ.get("LOCUM_DATA", ".")) / "breastmnist_efflite0.npz"
    if not path.is_file():
        sys.exit("Set LOCUM_DATA to the folder that holds breastmnist_efflite0.npz.")
    warnings.simplefilter("ignore")
    # Anonymeter uses numpy's global generator.
    np.random.seed(args.seed)  # noqa: NPY002
    members, others, fresh = thirds(path, args.seed)
    header = ["release", "singling out, 1 column", "4 columns", "linkability", "inference of label"]
    header += ["our verdict", "lowest p", "found by"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for name, release in releases(members, fresh, args.seed).items():
        row = [name, *anonymeter_risks(release, members, others, args.attacks)]
        print("| " + " | ".join([*row, *ours(release, members, others, args.seed)]) + " |", flush=True)


if __name__ == "__main__":
    main()
