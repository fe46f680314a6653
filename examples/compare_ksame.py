"""Class Gaussian, CVAE and k-Same on one split: what a probe learns, and how near they come to records.

python examples/compare_ksame.py
"""

from __future__ import annotations

import numpy as np

from locum.data import load_sample, split
from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.heads import LinearHead
from locum.metrics import auc_macro, average_nearest_distance, membership_auc, nearest


def main() -> None:
    data = load_sample("breast-cancer")
    parts = split(data, {"train": 0.6, "test": 0.4}, rng=np.random.default_rng(0))
    train, test = parts["train"], parts["test"]

    # One scaler for all, fitted on the training records: distances then mean the same for each method.
    mean, scale = train.X.mean(axis=0), train.X.std(axis=0)
    real, unseen = (train.X - mean) / scale, (test.X - mean) / scale

    generators: dict[str, BaseGenerator] = {
        "class Gaussian": ClassGaussian(random_state=0),
        "CVAE": CVAEGenerator(random_state=0),
        **{f"{k}-Same": KSame(k=k, random_state=0) for k in (2, 5, 10)},
    }
    print(f"{'method':15} {'claim':12} {'AUC':>6}   D to nearest record      membership AUC")
    for name, generator in generators.items():
        generator.fit(real, train.y)
        # k-Same has as many rows as there are records; the others are asked for as many.
        X, y = generator.sample() if isinstance(generator, KSame) else generator.sample(len(real))
        head = LinearHead(random_state=0).fit(X, y)
        auc = auc_macro(test.y, head.predict_proba(unseen), head.classes_)
        distance = average_nearest_distance(X, real)
        guess = membership_auc(nearest(real, X)[0], nearest(unseen, X)[0])
        print(f"{name:15} {generator.claim_.kind:12} {auc:6.3f}   {distance:.2f}      {guess:.3f}")
    print("\nOne split and one seed: `locum evaluate` gives intervals over seeds.")


if __name__ == "__main__":
    main()
