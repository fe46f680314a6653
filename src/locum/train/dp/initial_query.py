"""One noisy sum before the first step of a private fit: means, counts or norms that training needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from locum.accounting import Gaussian
from locum.errors import PrivacyError
from locum.mechanisms import ExactSums, noisy

if TYPE_CHECKING:
    from torch import Tensor

    from locum.accounting import SGDPlan


@dataclass(frozen=True, slots=True, eq=False)
class InitialQuery:
    """Sums that one unit changes by at most 1 in L2, and the rows to train on given their noisy values.

    The plan pays for the sums as its only `extra` event, a `Gaussian`.

    Parameters
    ----------
    sums
        The sums without noise: private. The caller guarantees that one unit changes them by at most 1 in L2, and that
        what it adds does not depend on other units.
    rows
        Makes the rows to train on from the noisy sums; it may read records, since rows are private anyway.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from locum.accounting import Gaussian, SGDPlan
    >>> from locum.mechanisms import ExactSums
    >>> from locum.train.dp import InitialQuery
    >>> from locum.types import DP
    >>> plan = SGDPlan(DP(1.0, 1e-6, n_public=100), 0.2, 20, 10, 1.0, 5.0, extra=(Gaussian(8.0),))
    >>> query = InitialQuery(ExactSums(np.full(2, 2.0**-30)), lambda noisy: torch.zeros(100, 3))
    >>> query.noise(plan), tuple(query.noisy(plan, insecure_seed=0).shape)
    (8.0, (2,))
    """

    sums: ExactSums
    rows: Callable[[npt.NDArray[np.float64]], Tensor]

    def noisy(self, plan: SGDPlan, insecure_seed: int | None) -> Tensor:
        """The sums with the noise that the plan pays for."""
        # Imported late: a plan needs this class, and no torch.
        import torch

        # No training step has this number, so seeded noise is not used twice.
        drawn = noisy(self.sums, self.noise(plan), insecure_seed=insecure_seed, step=plan.steps)
        return torch.from_numpy(drawn.to_array())

    @staticmethod
    def noise(plan: SGDPlan) -> float:
        """Standard deviation of the noise on each sum."""
        if len(plan.extra) != 1 or not isinstance(plan.extra[0], Gaussian):
            raise PrivacyError("Sums before training must be paid for by one Gaussian event in the plan's `extra`.")
        return plan.extra[0].noise_multiplier
