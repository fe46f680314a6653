"""What a backbone is: a frozen vision model, ready to run, with the contract on its pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.embed.preprocessing import Preprocessing
from locum.types import EmbeddingInfo

Run = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Backbone:
    """A frozen vision model, ready to run.

    `revision` is a hash of the weights: two backbones with the same revision and preprocessing give the same vectors,
    whatever their names. `concurrent` says that several threads may run it at once, each on one core.
    """

    name: str
    revision: str
    preprocessing: Preprocessing
    dim: int
    run: Run
    concurrent: bool
    batch: int = 4

    @property
    def info(self) -> EmbeddingInfo:
        """The description that its vectors carry."""
        return EmbeddingInfo(self.name, self.revision, self.preprocessing.text)
