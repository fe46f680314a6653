"""Two dimensions for the eye: vectors of several kinds on one map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError

METHODS = ("auto", "tsne", "pca")
Table = npt.NDArray[np.float64]
# With fewer points t-SNE's neighbourhoods would be most of the data.
_LEAST = 30
# t-SNE takes about 4 s on one core for twice so many, 9 s for twice `_MANY`; PCA next to nothing.
_QUICK, _MANY = 500, 1000
# Numbers a side that are held at once; only very wide vectors come near it.
_NUMBERS = 20_000_000


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Places in a unit square, one table for each table given, and how they were found."""

    method: str
    why: str
    axes: tuple[str, str]
    places: tuple[Table, ...]


def points_to_draw(method: str, features: int) -> int:
    """How many points a side make a map that is full enough, and quick enough where nobody asked for more."""
    check_method(method)
    return max(50, min(_QUICK if method == "auto" else _MANY, _NUMBERS // features))


def flat_map(parts: Sequence[npt.ArrayLike], method: str = "auto", *, random_state: int = 0) -> FlatMap:
    """Put the rows of all `parts` on one map; features must be on one scale already.

    "auto" is t-SNE, or PCA where there are too few points or too few features for it. t-SNE keeps
    neighbours together and nothing else: sizes of clusters and gaps between them mean little. PCA
    keeps straight lines, and hides what lies across them.

    >>> flat_map([np.eye(2), np.eye(2)]).method
    'PCA'
    """
    check_method(method)
    tables = [np.asarray(p, dtype=np.float64) for p in parts]
    X = np.concatenate(tables)
    distinct = len(np.unique(X, axis=0))
    if method == "tsne" and distinct < _LEAST:
        raise ConfigError(f"A t-SNE map needs {_LEAST} different points; there are {distinct}. Use --map pca.")
    if method == "tsne" or (method == "auto" and distinct >= _LEAST and X.shape[1] > 2):
        flat = _tsne(X, random_state)
        name, axes = "t-SNE", ("t-SNE, first axis (no unit)", "t-SNE, second axis (no unit)")
    else:
        flat, kept = _principal(X, 2, random_state)
        name = "PCA"
        axes = (f"first component, {100 * kept[0]:.0f} % of variance", f"second component, {100 * kept[1]:.0f} %")
    why = "as asked for"
    if method == "auto":
        why = "the automatic choice" + ("" if name == "t-SNE" else ": too few points or features for t-SNE")
    ends = np.cumsum([len(t) for t in tables])[:-1]
    return FlatMap(name, why, axes, tuple(np.split(_unit_square(flat), ends)))


def check_method(method: str) -> None:
    """Complain about a way to draw that nobody knows, before any work."""
    if method not in METHODS:
        raise ConfigError(f"`map` must be one of {', '.join(METHODS)}; got {method!r}.")


def _tsne(X: Table, random_state: int) -> Table:
    from sklearn.manifold import TSNE

    scores, _ = _principal(X, 50, random_state)
    flat: Table = TSNE(2, perplexity=min(30.0, len(X) / 4), init="pca", random_state=random_state).fit_transform(
        scores.astype(np.float32)
    )
    return flat.astype(np.float64)


def _principal(X: Table, n: int, random_state: int) -> tuple[Table, Table]:
    """Scores on the first `n` principal components, at least two, and the share of variance of each."""
    from sklearn.decomposition import PCA

    found = min(n, *X.shape)
    # Points that are all equal have no variance to divide by.
    with np.errstate(invalid="ignore", divide="ignore"):
        pca = PCA(found, random_state=random_state)
        scores = pca.fit_transform(X)
        kept = np.nan_to_num(pca.explained_variance_ratio_)
    if found < 2:
        scores, kept = np.pad(scores, ((0, 0), (0, 2 - found))), np.pad(kept, (0, 2 - found))
    return scores, kept


def _unit_square(flat: Table) -> Table:
    """One scale for both axes, or the picture would stretch distances; the middle in the middle."""
    low, high = flat.min(axis=0), flat.max(axis=0)
    size = float((high - low).max()) or 1.0
    out: Table = 0.5 + (flat - (low + high) / 2) / size
    return out
