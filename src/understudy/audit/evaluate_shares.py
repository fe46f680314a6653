"""From hits to a result: is a member hit more often than a stranger?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understudy.audit.evaluate_scores import LEAST_IN_PART, more_often
from understudy.errors import DataError
from understudy.metrics import clopper_pearson
from understudy.types import AttackResult, EmbeddingSet, Estimate

__all__ = ["evaluate_shares"]

Bools = npt.NDArray[np.bool_]


def evaluate_shares(
    name: str,
    inside: Bools,
    outside: Bools,
    *,
    baseline: Estimate,
    members: EmbeddingSet | None = None,
    material: float = 0.05,
    tests: int = 1,
    notes: tuple[str, ...] = (),
) -> AttackResult:
    """Share of members that were hit, beside that of non-members (the control), with exact intervals.

    The p-value is Fisher's, one-sided, times the number of `tests` of which this one was chosen. Entries must be
    independent witnesses: one a person. `members`, in the order of `inside`, gives shares by class.
    """
    if not len(inside) or not len(outside):
        raise DataError(f"Attack {name!r} needs a member and a non-member; got {len(inside)} and {len(outside)}.")
    hits, others = int(inside.sum()), int(outside.sum())
    by_class: dict[str, Estimate] = {}
    if members is not None:
        labels = members.labels
        parts = {label: inside[labels == label] for label in members.info.class_names}
        by_class = {
            label: clopper_pearson(int(part.sum()), len(part))
            for label, part in parts.items()
            if len(part) >= LEAST_IN_PART
        }
    return AttackResult(
        name=name,
        attack=clopper_pearson(hits, len(inside)),
        control=clopper_pearson(others, len(outside)),
        baseline=baseline,
        material=material,
        p_value=min(1.0, tests * more_often(hits, len(inside), others, len(outside))),
        by_class=by_class,
        notes=notes,
    )
