"""Who takes part in a run with canaries, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from locum.audit.epsilon.exact import Evidence
from locum.errors import DataError
from locum.types import DP

Floats = npt.NDArray[np.float64]

# Records of canaries that are subjects, in turn.
SIZES = (1, 2, 20, 40)
# A vector so much longer than usual that its length must be cut.
OVERLONG = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class CanaryRun:
    """One score for each canary, and whether it was included. A test: nothing here may be claimed or released.

    Scores are the log odds of inclusion for an attacker who knows the plan; they are exact if the code follows it.
    `evidence` is for tests that take the noise to be normal.
    """

    scores: Floats
    included: npt.NDArray[np.bool_]
    evidence: tuple[Evidence, ...] = ()
    is_test: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not np.isfinite(self.scores).all():
            raise DataError("The run with canaries gave numbers that are not finite, so it shows nothing.")


class Cast:
    """The units of a run: `records` made-up units, then the canaries, each with the sign of its contribution."""

    def __init__(self, privacy: DP, included: npt.NDArray[np.bool_], records: int) -> None:
        self.privacy, self.canaries, self.records, self.included = privacy, len(included), records, included
        self.replaced = privacy.relation == "replace-one"
        here = np.arange(len(included)) if self.replaced else np.flatnonzero(included)
        sizes = np.resize(SIZES, len(included)) if privacy.unit == "subject" else np.ones(len(included), np.int64)
        # The canary of each canary row.
        self.who = np.repeat(here, sizes[here])
        self.sign = np.where(included, 1.0, -1.0)[self.who]
        units = np.concatenate([np.arange(records), records + self.who])
        self.subject = units if privacy.unit == "subject" else None
