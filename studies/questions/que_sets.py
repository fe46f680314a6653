"""Sets, classifiers and generators that the open questions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.audit import Attack, ScoreAttack
from locum.errors import DataError
from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.metrics import auc_macro
from locum.recipes import study_set, study_splits
from locum.release import Release
from locum.types import EmbeddingSet

NAMES = {
    "real": "real records",
    "gaussian": "ClassGaussian",
    "cvae-paper": "CVAE as in the replica paper",
    "2-same": "2-Same",
    "5-same": "5-Same",
    "10-same": "10-Same",
    "head-1": "private head, epsilon 1",
    "head-3": "private head, epsilon 3",
}
# Generators without a guarantee; those of a paper have its settings.
PLAIN: dict[str, Callable[[int], BaseGenerator]] = {
    "gaussian": lambda seed: ClassGaussian(random_state=seed),
    "cvae-paper": lambda seed: CVAEGenerator("replica", authors_compat=True, random_state=seed),
    "2-same": lambda seed: KSame(2, random_state=seed),
    "5-same": lambda seed: KSame(5, random_state=seed),
    "10-same": lambda seed: KSame(10, random_state=seed),
}


def records(name: str, part: str) -> EmbeddingSet:
    """One split of a set."""
    return study_splits(name)[part]


def check_lone(names: Sequence[str]) -> None:
    """Raise `DataError` for sets with subjects: their records would be members and others at once."""
    for name in names:
        if study_set(name).unit == "subject":
            raise DataError(
                f"The set {name!r} names subjects, and this study draws single records: a subject would be on both "
                "sides of an attack. `audit-table` keeps subjects together."
            )


def probe() -> Pipeline:
    """Logistic regression, with the penalty that `private-epsilon` chose on training folds of each of these sets."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))


def probed(X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], test: EmbeddingSet) -> float:
    """The AUC of the probe on test records; a class that was never drawn counts as missed."""
    if len(np.unique(y)) < 2:
        return 0.5
    fitted = probe().fit(X, y)
    proba = np.zeros((len(test), len(test.info.class_names)))
    proba[:, fitted.classes_.astype(int)] = fitted.predict_proba(test.X)
    return auc_macro(test.y, proba, np.arange(proba.shape[1]))


def rank_auc(inside: npt.NDArray[np.float64], outside: npt.NDArray[np.float64]) -> float:
    """How often a member has the higher score; a tie counts one half."""
    order = np.sort(outside)
    below, upto = (np.searchsorted(order, inside, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / 2 / len(outside))


def found_by(attack: Attack, release: Release, members: EmbeddingSet, others: EmbeddingSet, seed: int) -> float:
    """The AUC of an attack."""
    rng = np.random.default_rng(seed)
    if not isinstance(attack, ScoreAttack):
        return attack.run(release, members, others, rng).attack.value
    scores = attack.score(release, members, others, rng)
    return rank_auc(scores.inside, scores.outside)
