"""Public statistics: the mean and covariance of a backbone's vectors on drawn images, or declared ranges of a table.

Under differential privacy the records may not set a scale for free. These numbers may: they do not depend on any
record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data.ranges import read_ranges
from locum.errors import ConfigError, DataError
from locum.io import write_bytes
from locum.types import EmbeddingInfo

REFERENCES = ("efflite0", "efflite1", "efflite2")
Array = npt.NDArray[np.float64]
# The entry of a file's metadata that says where its numbers come from.
_ABOUT = "locum_reference"
# Drawn images have 8 bits, so the window of 16-bit images changes nothing. It is the last part of the text.
_WINDOW = " window="


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A public mean and a public covariance: a few directions, and one variance for all others.

    All of it must be public: a private fit uses it without paying. With `scale`, directions and variances are those
    of vectors whose features were divided by it: a table with declared ranges has a scale and no directions.

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
    scale
        What each feature is divided by before anything else, of shape (d,) and above 0; None: by 1.
    info
        The backbone, revision and preprocessing that it describes: others are refused. "unknown": any vectors.
    images, seed, drawing
        Of drawn images: how many, the seed, and the version of the program that drew them; 0: none were drawn.

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
    scale: Array | None = None
    info: EmbeddingInfo = field(default_factory=EmbeddingInfo)
    images: int = 0
    seed: int = 0
    drawing: int = 0

    @property
    def dim(self) -> int:
        """Number of features of the vectors."""
        return len(self.mean)

    def whiten(self, X: npt.ArrayLike) -> Array:
        """Whitened vectors: variance 1 in all directions if the vectors vary as the reference does."""
        centered = np.asarray(X, dtype=np.float64) - self.mean
        if self.scale is not None:
            centered /= self.scale
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
        return out if self.scale is None else out * self.scale

    def whitened_weights(self, weights: npt.ArrayLike) -> Array:
        """Weights for raw vectors that score as `weights` score whitened ones, up to a constant."""
        w = np.asarray(weights, dtype=np.float64)
        gain = 1 / np.sqrt(self.values) - 1 / np.sqrt(self.rest)
        out: Array = w / np.sqrt(self.rest) + ((w @ self.directions.T) * gain) @ self.directions
        return out if self.scale is None else out / self.scale

    def factors(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """`factor (r, d)` and `scale (d,)` with `factor.T @ factor + diag(scale**2)` the covariance."""
        strength = np.sqrt(self.values - self.rest)
        factor, scale = self.directions * strength[:, None], np.full(self.dim, np.sqrt(self.rest))
        if self.scale is not None:
            factor, scale = factor * self.scale, scale * self.scale
        return factor.astype(np.float32), scale.astype(np.float32)

    def check_source(self, info: EmbeddingInfo) -> None:
        """Refuse vectors of another backbone, or of images prepared in another way."""
        mine = self.info
        if "unknown" in (mine.backbone, info.backbone):
            return
        same = mine.revision == info.revision if mine.revision and info.revision else mine.backbone == info.backbone
        if not same:
            raise DataError(
                f"The public statistics are those of {_model(mine)}, but the vectors come from {_model(info)}: make "
                "some for that backbone with `locum reference make`."
            )
        pixels = [text.partition(_WINDOW)[0] for text in (mine.preprocessing, info.preprocessing)]
        if all(pixels) and pixels[0] != pixels[1]:
            raise DataError(
                f"The public statistics are of images prepared as {pixels[0]!r}, the vectors of images prepared as "
                f"{pixels[1]!r}: make new statistics with `locum reference make`."
            )

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

    @classmethod
    def from_ranges(cls, low: npt.ArrayLike, high: npt.ArrayLike, *, source: str) -> Reference:
        """Statistics of a table from public ranges of its features, without any record.

        The mean is the middle of a range and the standard deviation a quarter of its width. A normal distribution
        then has 95 % of its values in the range, and no record whose values lie in their ranges is clipped.

        With ranges read off the records, every guarantee that uses the result is void. Locum cannot check that.

        Parameters
        ----------
        low, high
            Smallest and largest usual value of each feature, of shape (d,).
        source
            Where they come from; written into releases.
        """
        ends = [np.asarray(end, dtype=np.float64) for end in (low, high)]
        if ends[0].ndim != 1 or not len(ends[0]) or ends[0].shape != ends[1].shape:
            raise DataError(
                f"Ranges need one lowest and one highest value per feature; got {ends[0].shape} and {ends[1].shape}."
            )
        if not source.strip():
            raise ConfigError("Public statistics need a `source`: say where the ranges come from.")
        # Rounded as a file would, so that saving changes nothing.
        with np.errstate(over="ignore", invalid="ignore"):
            mean, scale = (
                v.astype(np.float32).astype(np.float64) for v in ((ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 4)
            )
        fine = np.isfinite(mean) & np.isfinite(scale) & (scale > 0)
        if not fine.all():
            at = int(np.argmin(fine))
            raise DataError(
                f"A range goes from a lower to a higher finite number; feature {at + 1} goes from {ends[0][at]:g} to "
                f"{ends[1][at]:g}."
            )
        return cls("own", source, mean, np.zeros((0, len(mean))), np.zeros(0), 1.0, scale)

    def save(self, file: str | Path) -> Path:
        """Write a safetensors file, with directions in half precision; it is complete or not there at all."""
        from safetensors.numpy import save

        tensors: dict[str, npt.NDArray[Any]] = {
            "mean": self.mean.astype(np.float32),
            "directions": np.ascontiguousarray(self.directions).astype(np.float16),
            "values": self.values.astype(np.float32),
            "rest": np.array([self.rest], dtype=np.float32),
        }
        if self.scale is not None:
            tensors["scale"] = self.scale.astype(np.float32)
        about = {
            "source": self.source,
            "backbone": self.info.backbone,
            "revision": self.info.revision,
            "preprocessing": self.info.preprocessing,
            "images": self.images,
            "seed": self.seed,
            "drawing": self.drawing,
        }
        # One entry: safetensors writes several in any order, and equal statistics should be equal files.
        write_bytes(file, save(tensors, metadata={_ABOUT: json.dumps(about)}), mode=0o644)
        return Path(file)

    @classmethod
    def plain(cls, dim: int) -> Reference:
        """No public statistics: mean 0 and variance 1."""
        return cls("none", "none", np.zeros(dim), np.zeros((0, dim)), np.zeros(0), 1.0)


def reference_for(info: EmbeddingInfo) -> str:
    """The public statistics for some vectors, from what is known about their source: `reference` of a generator.

    Parameters
    ----------
    info
        Where the vectors come from, such as `read_embeddings(file).info`.

    Returns
    -------
    str
        The name of the statistics that ship with the backbone; else the file that `embed` made; else "none".

    Examples
    --------
    >>> from locum.data import reference_for
    >>> from locum.types import EmbeddingInfo
    >>> reference_for(EmbeddingInfo("efflite1")), reference_for(EmbeddingInfo())
    ('efflite1', 'none')
    """
    return info.backbone if info.backbone in REFERENCES else info.reference or "none"


def load_reference(name: str | Path, dim: int | None = None, info: EmbeddingInfo | None = None) -> Reference:
    """Public statistics: those that ship with a backbone, a file that `Reference.save` wrote, or none.

    Parameters
    ----------
    name
        A name in `REFERENCES`, a .safetensors file, a .csv of declared ranges (name, low, high), or "none" for mean 0
        and variance 1. "auto" is "none" here: vectors without a description say nothing about their source; see
        `reference_for`.
    dim
        Number of features that the statistics must have; None: any, but "none" needs it.
    info
        Where the vectors come from; statistics of another backbone are refused. None: not checked.

    Returns
    -------
    Reference
        The statistics.

    Raises
    ------
    ConfigError
        If there are none of that name.
    DataError
        If the file is damaged, or has another number of features or another backbone.

    Examples
    --------
    >>> from locum.data import load_reference
    >>> load_reference("efflite0", dim=1280).directions.shape[1]
    1280
    >>> load_reference("none", dim=2).whiten([[3.0, 4.0]]).tolist()
    [[3.0, 4.0]]
    """
    if name in ("none", "auto") and dim is not None:
        return Reference.plain(dim)
    if str(name) in REFERENCES:
        found = _shipped(str(name))
    elif Path(name).suffix == ".safetensors":
        found = _read(Path(name), "own")
    elif Path(name).suffix.lower() == ".csv":
        found = reference_from_ranges(Path(name))
    else:
        raise ConfigError(
            f"There are no public statistics {str(name)!r}: use none, {', '.join(REFERENCES)}, a .safetensors file "
            "that `locum reference make` wrote, or a .csv with the range of each column (name,low,high)."
        )
    if dim is not None and found.dim != dim:
        raise DataError(f"The public statistics {str(name)!r} have {found.dim} features, but the vectors have {dim}.")
    if info is not None:
        found.check_source(info)
    return found


def reference_from_ranges(file: Path) -> Reference:
    """Public statistics of a table, from a file with the range of each feature; see `Reference.from_ranges`.

    Parameters
    ----------
    file
        A .csv with the columns name, low and high and one line per feature, in the order of the features.

    Returns
    -------
    Reference
        The statistics.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import reference_from_ranges
    >>> written = Path("ranges.csv").write_text("name,low,high\\nage,18,98\\nheight,140,200\\n")
    >>> reference_from_ranges(Path("ranges.csv")).mean.tolist()
    [58.0, 170.0]
    """
    low, high = zip(*read_ranges(file).values(), strict=True)
    return Reference.from_ranges(low, high, source=f"declared ranges of {len(low)} features")


@lru_cache(maxsize=4)
def _shipped(name: str) -> Reference:
    return _read(Path(__file__).parent / "references" / f"{name}.safetensors", name)


def _read(file: Path, name: str) -> Reference:
    from safetensors import SafetensorError, safe_open

    wrong = f"{str(file)!r} holds no public statistics: make some with `locum reference make`."
    if not file.is_file():
        raise DataError(
            f"There is no file {str(file)!r} with public statistics: make it with `locum reference make`, or go "
            "without (`--reference none`)."
        )
    try:
        with safe_open(file, framework="np") as opened:
            about = _about((opened.metadata() or {}).get(_ABOUT, ""))
            mean, values, rest, rows = (
                opened.get_tensor(key).astype(np.float64) for key in ("mean", "values", "rest", "directions")
            )
            scale = opened.get_tensor("scale").astype(np.float64) if "scale" in opened.keys() else None  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise DataError(wrong) from error
    shapes = mean.ndim == 1 and rows.shape == (len(values), len(mean)) and rest.shape == (1,)
    every = (mean, values, rest, rows) if scale is None else (mean, values, rest, rows, scale)
    if not shapes or not all(np.isfinite(v).all() for v in every):
        raise DataError(wrong)
    # `factors` needs every direction to be at least as strong as the rest, and a rest above 0.
    if not (rest[0] > 0 and (values >= rest[0]).all()):
        raise DataError(wrong)
    if scale is not None and (scale.shape != mean.shape or not (scale > 0).all()):
        raise DataError(wrong)
    # Stored in half precision; made orthonormal again, so that `color` undoes `whiten`.
    directions, _ = np.linalg.qr(rows.T)
    return Reference(
        name, mean=mean, directions=directions.T.copy(), values=values, rest=float(rest[0]), scale=scale, **about
    )


def _about(text: str) -> dict[str, Any]:
    """What a file says about itself, or a ValueError."""
    about = json.loads(text)
    texts, numbers = ("source", "backbone", "revision", "preprocessing"), ("images", "seed", "drawing")
    if not all(isinstance(about[key], str) for key in texts) or not all(
        isinstance(about[key], int) for key in numbers
    ):
        raise ValueError
    info = EmbeddingInfo(*(about[key] for key in texts[1:]))
    return {"source": about["source"], "info": info, **{key: about[key] for key in numbers}}


def _model(info: EmbeddingInfo) -> str:
    return f"{info.backbone!r}" + (f" (weights {info.revision[:16]})" if info.revision else "")
