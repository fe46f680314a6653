"""Two-dimensional maps: vectors of several kinds in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError

METHODS = ("auto", "tsne", "pca")
Table = npt.NDArray[np.float64]
# With fewer points, a neighborhood of t-SNE would be most of the data.
_LEAST = 30
# t-SNE takes about 4 s on one core for twice `_QUICK` points, 9 s for twice `_MANY`; PCA hardly any time.
_QUICK, _MANY = 500, 1000
# Most numbers per kind that are held at once; only very wide vectors reach it.
_NUMBERS = 20_000_000


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Positions in a unit square, one table per table given, and the method.

    Parameters
    ----------
    method
        "t-SNE" or "PCA".
    why
        Why this method was used, in words.
    axes
        Titles of the two axes.
    places
        One array of shape (n, 2) for each table, with values in 0..1.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.report import flat_map
    >>> found = flat_map([np.eye(3), np.zeros((2, 3))])
    >>> [places.shape for places in found.places]
    [(3, 2), (2, 2)]
    """

    method: str
    why: str
    axes: tuple[str, str]
    places: tuple[Table, ...]


def points_to_draw(method: str, features: int) -> int:
    """Number of points per kind: fewer with "auto", to be quick."""
    check_method(method)
    return max(50, min(_QUICK if method == "auto" else _MANY, _NUMBERS // features))


def flat_map(parts: Sequence[npt.ArrayLike], method: str = "auto", *, random_state: int = 0) -> FlatMap:
    """Put the rows of several tables on one map; features must be on one scale already.

    t-SNE keeps neighbors together and nothing else: sizes of clusters and gaps between them mean little. PCA is a
    linear projection, and hides everything outside its plane.

    Parameters
    ----------
    parts
        Tables with the same number of columns.
    method
        "tsne", "pca", or "auto": t-SNE, or PCA if there are too few points or features for it.
    random_state
        Seed of the map.

    Returns
    -------
    FlatMap
        The positions of the rows, by table.

    Raises
    ------
    ConfigError
        If the method is unknown, or there are too few different points for t-SNE.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.report import flat_map
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
        axes = (f"first component, {100 * kept[0]:.0f}% of variance", f"second component, {100 * kept[1]:.0f}%")
    why = "as asked for"
    if method == "auto":
        why = "the automatic choice" + ("" if name == "t-SNE" else ": too few points or features for t-SNE")
    ends = np.cumsum([len(t) for t in tables])[:-1]
    return FlatMap(name, why, axes, tuple(np.split(_unit_square(flat), ends)))


def check_method(method: str) -> None:
    """Raise an error for an unknown method of a map, before any work.

    Parameters
    ----------
    method
        "auto", "tsne" or "pca".

    Raises
    ------
    ConfigError
        If it is none of these.

    Examples
    --------
    >>> from locum.report import check_method
    >>> check_method("umap")
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: `map` must be one of auto, tsne, pca; got 'umap'.
    """
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
    # If all points are equal, the variance is 0.
    with np.errstate(invalid="ignore", divide="ignore"):
        pca = PCA(found, random_state=random_state)
        scores = pca.fit_transform(X)
        kept = np.nan_to_num(pca.explained_variance_ratio_)
    if found < 2:
        scores, kept = np.pad(scores, ((0, 0), (0, 2 - found))), np.pad(kept, (0, 2 - found))
    return scores, kept


def _unit_square(flat: Table) -> Table:
    """Centered, with one scale for both axes, so that distances are not stretched."""
    low, high = flat.min(axis=0), flat.max(axis=0)
    size = float((high - low).max()) or 1.0
    out: Table = 0.5 + (flat - (low + high) / 2) / size
    return out
