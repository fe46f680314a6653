"""A data holder's first release: fit, save, attack, and see what a classifier learns from it.

python examples/first_release.py            # writes to a temporary folder
python examples/first_release.py FOLDER     # keeps the release in FOLDER/release
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import locum
from locum.audit import check_membership
from locum.data import load_sample, split
from locum.generate import ClassGaussian
from locum.heads import LinearHead
from locum.metrics import score_all


def main(folder: Path) -> None:
    # 569 tumors, 30 measurements each. In real life: read_embeddings("yours.npz").
    data = load_sample("breast-cancer")
    parts = split(data, {"train": 0.5, "others": 0.25, "test": 0.25}, rng=np.random.default_rng(0))
    train, others, test = parts["train"], parts["others"], parts["test"]

    # Neither `others` nor `test` is seen here. CVAEGenerator and KSame take the same arguments.
    generator = ClassGaussian(random_state=0)
    generator.fit(train.X, train.y, train.subject)
    path = generator.release(train.info, no_dp=True).save(folder / "release", overwrite=True)

    # From here on only the folder counts.
    release = locum.load(path)
    print("files      ", ", ".join(sorted(p.name for p in path.iterdir())))
    print("claim      ", release.claim.kind, "-", release.claim.sentence())

    # Members were used, non-members were not: is the difference visible?
    result = check_membership(release, train, others, np.random.default_rng(0))
    print("membership ", f"AUC {result.attack:.3f}, chance is 0.5: {result.verdict}")

    # The receiver's view: a classifier that never saw a record, beside one that did.
    X, y = release.sample(len(train), random_state=0)
    for name, rows in {"samples": (X, y), "records": (release.transform(train.X), train.y)}.items():
        head = LinearHead(random_state=0).fit(*rows)
        scores = score_all(test.y, head.predict_proba(release.transform(test.X)), head.classes_)
        print(f"{name:11} AUC {scores['auc']:.3f}, balanced accuracy {scores['balanced_accuracy']:.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
