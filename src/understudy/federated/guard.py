"""What the coordinator lets in: an answer to its own question, of the right shape, finite, and not too far off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.federated.messages import Answer, Question, Tensors
from understudy.federated.settings import FederationSettings

__all__ = ["farthest", "too_large", "why_refused"]

# Adam moves no weight by more than 3.2 learning rates in a step, whatever the gradients: (1 - 0.9) / sqrt(1 - 0.999).
_ADAM = 3.2
# A site may count more records than it declared; a run of all sites is not ruined by one that doubles its steps.
_SLACK = 2.0


def farthest(settings: FederationSettings, steps: int) -> float:
    """How far one weight can move in so many steps of a site's training, generously."""
    return _SLACK * _ADAM * settings.learning_rate * steps


def why_refused(
    question: Question, answer: Answer, wanted: Mapping[str, tuple[int, ...]], limit: float | None = None
) -> str:
    """Why an answer is not used, in a few words; empty if it is.

    `wanted` are the shapes of its tensors. With `limit` no weight may lie farther than that from the one asked with.
    A site that keeps within the limit and lies is not found out here: that is what robust averages are for.
    """
    if (answer.step, answer.round) != (question.step, question.round):
        return "an answer to another question"
    if answer.nonce != question.nonce:
        return "an answer that was given before"
    # Masked sums are whole numbers, all else is not.
    if any((value.dtype.kind == "u") != (question.step == "sums") for value in answer.tensors.values()):
        return "tensors of the wrong kind"
    shapes = {name: tuple(value.shape) for name, value in answer.tensors.items()}
    if shapes != dict(wanted):
        return "tensors of the wrong names or shapes"
    if not all(_finite(value) for value in answer.tensors.values()):
        return "numbers that are not finite"
    if limit is not None and _distance(question.tensors, answer.tensors) > limit:
        return "weights that are too far from where training began"
    return ""


def too_large(sums: npt.NDArray[Any], size: int, noise: float) -> bool:
    """Whether sums are longer than those of twice the declared number of units could be, noise included.

    A unit moves them by at most 1. A site that declares a huge size is weighed by what it sends, like any other: how
    many it may declare is for the consortium to agree on.
    """
    # Noise of so many numbers has a length close to its square root; ten times as long it never is.
    limit = _SLACK * size + 10 * noise * np.sqrt(len(sums))
    return bool(np.linalg.norm(sums) > limit)


def _finite(value: npt.NDArray[Any]) -> bool:
    return bool(np.isfinite(value).all())


def _distance(before: Tensors, after: Tensors) -> float:
    gaps = [np.abs(after[k].astype(np.float64) - before[k]).max(initial=0.0) for k in after if k in before]
    return float(max(gaps, default=0.0))
