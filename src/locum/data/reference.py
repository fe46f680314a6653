"""Public statistics of a backbone: the mean and covariance of its vectors on images that a program drew.

Under differential privacy the records may not set a scale for free. These numbers may: they come from drawn images
(`scripts/make_reference.py`), so they do not depend on any record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError

REFERENCES = ("efflite0", "efflite1", "efflite2")
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A public mean and a public covariance: a few directions, and one variance for all others.

    All of it must be public: a private fit uses it without paying.

    Parameters
    ----------
    name
        A name in `REFERENCES`, "own" or "none".
    source
        Where the numbers come from; written into releases.
    mean
        Mean of shape (d,).
    directions
        Orthonormal rows of shape (r, d).
    values
        Variances of shape (r,) along `directions`.
    rest
        Variance in all other directions, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import Reference
    >>> stretched = Reference("own", "drawn", np.zeros(2), np.array([[1.0, 0.0]]), np.array([4.0]), rest=1.0)
    >>> stretched.whiten([[2.0, 2.0]]).tolist()
    [[1.0, 2.0]]
    """

    name: str
    source: str
    mean: Array
    directions: Array
    values: Array
    rest: float

    @property
    def dim(self) -> int:
        """Number of features of the vectors."""
        return len(self.mean)

    def whiten(self, X: npt.ArrayLike) -> Array:
        """Whitened vectors: variance 1 in all directions if the vectors vary as the reference does."""
        centered = np.asarray(X, dtype=np.float64) - self.mean
        gain = 1 / np.sqrt(self.values) - 1 / np.sqrt(self.rest)
        out: Array = centered / np.sqrt(self.rest) + ((centered @ self.directions.T) * gain) @ self.directions
        return out

    def color(self, Z: npt.ArrayLike) -> Array:
        """Undo `whiten`."""
        return self.mean + self.stretch(Z)

    def stretch(self, Z: npt.ArrayLike) -> Array:
        """Undo `whiten` for differences of vectors, without the mean."""
        z = np.asarray(Z, dtype=np.float64)
        gain = np.sqrt(self.values) - np.sqrt(self.rest)
        out: Array = z * np.sqrt(self.rest) + ((z @ self.directions.T) * gain) @ self.directions
        return out

    def whitened_weights(self, weights: npt.ArrayLike) -> Array:
        """Weights for raw vectors that score as `weights` score whitened ones, up to a constant."""
        # Whitening is symmetric, so that weights are whitened like differences of vectors.
        return self.whiten(np.asarray(weights, dtype=np.float64) + self.mean)

    def factors(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """`factor (r, d)` and `scale (d,)` with `factor.T @ factor + diag(scale**2)` the covariance."""
        strength = np.sqrt(self.values - self.rest)
        scale = np.full(self.dim, np.sqrt(self.rest))
        return (self.directions * strength[:, None]).astype(np.float32), scale.astype(np.float32)

    @classmethod
    def from_vectors(cls, X: npt.ArrayLike, *, source: str, rank: int = 128, shrinkage: float = 0.1) -> Reference:
        """Statistics of public vectors.

        With private vectors here, every guarantee that uses the result is void. Locum cannot check that.

        Parameters
        ----------
        X
            Two or more finite vectors that are public.
        source
            Where they come from; written into releases.
        rank
            How many directions keep their own variance, at most d - 1.
        shrinkage
            Added to the variance in all directions, as a share of the mean variance.
        """
        vectors = np.asarray(X, dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) < 2 or not np.isfinite(vectors).all():
            raise DataError(f"Public statistics need a finite table of two or more vectors; got {vectors.shape}.")
        if not source.strip():
            raise ConfigError("Public statistics need a `source`: say which public vectors they come from.")
        d = vectors.shape[1]
        rank = max(0, min(rank, d - 1))
        covariance = np.cov(vectors.T).reshape(d, d)
        covariance += max(shrinkage * np.trace(covariance) / d, 1e-12) * np.eye(d)
        values, columns = np.linalg.eigh(covariance)
        return cls(
            "own", source, vectors.mean(axis=0), columns[:, d - rank :].T.copy(), values[d - rank :],
            float(values[: d - rank].mean()),
        )  # fmt: skip

    def save(self, file: str | Path) -> Path:
        """Write a safetensors file, with directions in half precision."""
        from safetensors.numpy import save_file

        tensors: dict[str, npt.NDArray[Any]] = {
            "mean": self.mean.astype(np.float32),
            "directions": np.ascontiguousarray(self.directions).astype(np.float16),
            "values": self.values.astype(np.float32),
            "rest": np.array([self.rest], dtype=np.float32),
        }
        save_file(tensors, file, metadata={"source": self.source})
        return Path(file)

    @classmethod
    def plain(cls, dim: int) -> Reference:
        """No public statistics: mean 0 and variance 1."""
        return cls("none", "none", np.zeros(dim), np.zeros((0, dim)), np.zeros(0), 1.0)


def load_reference(name: str | Path, dim: int) -> Reference:
    """Public statistics: those that ship with a backbone, a file that `Reference.save` wrote, or "none".

    Parameters
    ----------
    name
        A name in `REFERENCES`, a .safetensors file, or "none" for mean 0 and variance 1.
    dim
        Number of features that the statistics must have.

    Returns
    -------
    Reference
        The statistics.

    Raises
    ------
    ConfigError
        If there are none of that name.
    DataError
        If the file is damaged, or has another number of features.

    Examples
    --------
    >>> from locum.data import load_reference
    >>> load_reference("efflite0", dim=1280).directions.shape[1]
    1280
    >>> load_reference("none", dim=2).whiten([[3.0, 4.0]]).tolist()
    [[3.0, 4.0]]
    """
    if name == "none":
        return Reference.plain(dim)
    if str(name) in REFERENCES:
        found = _shipped(str(name))
    elif Path(name).suffix == ".safetensors":
        found = _read(Path(name), "own")
    else:
        raise ConfigError(
            f"There are no public statistics {str(name)!r}: use none, {', '.join(REFERENCES)}, or a .safetensors "
            "file that `Reference.save` wrote."
        )
    if found.dim != dim:
        raise DataError(f"The public statistics {str(name)!r} have {found.dim} features, but the vectors have {dim}.")
    return found


@lru_cache(maxsize=4)
def _shipped(name: str) -> Reference:
    return _read(Path(__file__).parent / "references" / f"{name}.safetensors", name)


def _read(file: Path, name: str) -> Reference:
    from safetensors import SafetensorError, safe_open

    wrong = f"{str(file)!r} holds no public statistics: write them with `Reference.save`."
    if not file.is_file():
        raise DataError(wrong)
    try:
        with safe_open(file, framework="np") as opened:
            source = (opened.metadata() or {}).get("source", "")
            mean, values, rest, rows = (
                opened.get_tensor(key).astype(np.float64) for key in ("mean", "values", "rest", "directions")
            )
    except (SafetensorError, OSError) as error:
        raise DataError(wrong) from error
    shapes = mean.ndim == 1 and rows.shape == (len(values), len(mean)) and rest.shape == (1,)
    if not shapes or not all(np.isfinite(v).all() for v in (mean, values, rest, rows)):
        raise DataError(wrong)
    # `factors` needs every direction to be at least as strong as the rest, and a rest above 0.
    if not (rest[0] > 0 and (values >= rest[0]).all()):
        raise DataError(wrong)
    # Stored in half precision; made orthonormal again, so that `color` undoes `whiten`.
    directions, _ = np.linalg.qr(rows.T)
    return Reference(name, source, mean, directions.T.copy(), values, float(rest[0]))
