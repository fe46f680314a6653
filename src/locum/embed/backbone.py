"""What a backbone is: a frozen vision model, ready to run, with the contract on its pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from locum.embed.preprocessing import Preprocessing
from locum.types import EmbeddingInfo

Run = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Backbone:
    """A frozen vision model, ready to run. Use `load_backbone` to get one.

    Two backbones with the same revision and preprocessing give the same vectors, whatever their names.

    Parameters
    ----------
    name
        What its vectors are labeled with.
    revision
        Hash of the weights.
    preprocessing
        How images are prepared for it.
    dim
        Length of its vectors.
    run
        Maps pixels of shape (n, 3, height, width), float32, to vectors of shape (n, dim), float32. `embed_images`
        calls it from several threads.
    concurrent
        Whether these calls run at once, each on one core; False if `run` makes them wait for each other.
    batch
        How many images a thread prepares and runs at a time.
    device
        Where it runs: "cpu", "cuda" or "mps". Vectors of different devices differ in their last digits.
    model
        The ONNX file behind `run`, with which another process can run the same; None for other models.

    Examples
    --------
    >>> from locum.embed import Backbone, Preprocessing
    >>> color = Backbone("mean color", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)
    >>> color.info.backbone
    'mean color'
    """

    name: str
    revision: str
    preprocessing: Preprocessing
    dim: int
    run: Run
    concurrent: bool
    batch: int = 4
    device: str = "cpu"
    model: bytes | None = field(default=None, repr=False)

    @property
    def info(self) -> EmbeddingInfo:
        """The description that its vectors carry."""
        return EmbeddingInfo(self.name, self.revision, self.preprocessing.text)
