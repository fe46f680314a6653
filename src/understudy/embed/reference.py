"""Public statistics of a backbone: where its vectors lie and how they vary, learnt from images that hold no person.

Under differential privacy nothing of the records may set a scale for free. These numbers may: they come from images
that a program drew (`scripts/make_reference.py`), so they are the same whoever's records are fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError, DataError

__all__ = ["REFERENCES", "Reference", "load_reference"]

REFERENCES = ("efflite0",)
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A public mean, and a public covariance of a few directions and one variance for all others.

    `directions` has orthonormal rows with variances `values`; what they leave has the variance `rest`.
    """

    name: str
    source: str
    mean: Array
    directions: Array
    values: Array
    rest: float

    @property
    def dim(self) -> int:
        """Length of the vectors it is about."""
        return len(self.mean)

    def whiten(self, X: npt.ArrayLike) -> Array:
        """Vectors whose directions would all have variance 1, if they varied as the reference does."""
        centred = np.asarray(X, dtype=np.float64) - self.mean
        gain = 1 / np.sqrt(self.values) - 1 / np.sqrt(self.rest)
        out: Array = centred / np.sqrt(self.rest) + ((centred @ self.directions.T) * gain) @ self.directions
        return out

    def colour(self, Z: npt.ArrayLike) -> Array:
        """Undo `whiten`."""
        return self.mean + self.stretch(Z)

    def stretch(self, Z: npt.ArrayLike) -> Array:
        """Undo `whiten` for differences of vectors: without the mean."""
        z = np.asarray(Z, dtype=np.float64)
        gain = np.sqrt(self.values) - np.sqrt(self.rest)
        out: Array = z * np.sqrt(self.rest) + ((z @ self.directions.T) * gain) @ self.directions
        return out

    def factors(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """`factor (r, d)` and `scale (d,)` with `factor.T @ factor + diag(scale**2)` the covariance."""
        strength = np.sqrt(self.values - self.rest)
        scale = np.full(self.dim, np.sqrt(self.rest))
        return (self.directions * strength[:, None]).astype(np.float32), scale.astype(np.float32)

    @classmethod
    def plain(cls, dim: int) -> Reference:
        """No knowledge at all: mean 0 and variance 1."""
        return cls("none", "none", np.zeros(dim), np.zeros((0, dim)), np.zeros(0), 1.0)


def load_reference(name: str, dim: int) -> Reference:
    """The statistics that ship with a backbone, or the plain ones for "none"."""
    if name == "none":
        return Reference.plain(dim)
    if name not in REFERENCES:
        raise ConfigError(f"There are no public statistics {name!r}; there are none, {', '.join(REFERENCES)}.")
    found = _shipped(name)
    if found.dim != dim:
        raise DataError(f"The public statistics {name!r} are about {found.dim} features; the vectors have {dim}.")
    return found


@lru_cache(maxsize=4)
def _shipped(name: str) -> Reference:
    from safetensors import safe_open

    with safe_open(Path(__file__).parent / "references" / f"{name}.safetensors", framework="np") as file:
        source = (file.metadata() or {}).get("source", "")
        mean, values, rest = (file.get_tensor(key).astype(np.float64) for key in ("mean", "values", "rest"))
        # Stored in half the bits; made orthonormal again, so that `colour` undoes `whiten`.
        directions, _ = np.linalg.qr(file.get_tensor("directions").astype(np.float64).T)
    return Reference(name, source, mean, directions.T.copy(), values, float(rest[0]))
