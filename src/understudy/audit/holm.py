"""Several attacks on one release: each one more is one more chance to be fooled by luck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from understudy.types import AttackResult

__all__ = ["holm", "holm_p_values"]


def holm(results: Sequence[AttackResult]) -> tuple[AttackResult, ...]:
    """The results, in their order, with `adjusted` p-values after Holm.

    The chance that any attack accuses a harmless release is then at most its `level`, however the attacks hang
    together. Results without a p-value stay as they are, and do not count.
    """
    tested = [i for i, result in enumerate(results) if result.p_value is not None]
    adjusted = dict(zip(tested, holm_p_values([results[i].p_value or 0.0 for i in tested]), strict=True))
    return tuple(replace(r, adjusted=adjusted[i]) if i in adjusted else r for i, r in enumerate(results))


def holm_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the smallest of n is multiplied by n, the next one by n - 1, and so on.

    >>> holm_p_values([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(v) for v in out]
