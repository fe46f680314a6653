"""Whitened vectors of length 1, computed so that a record's vector depends on that record alone, bit for bit.

A matrix product of floating-point numbers rounds differently when other rows are beside a row. So matrix products are
done on integers that are small enough for every partial sum to be exact in double precision; everything else is done
element by element, with operations that IEEE 754 rounds correctly.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from locum.data import Reference

Array = npt.NDArray[np.float64]

# Lengths are clipped at this multiple of what the reference expects.
LONGEST = 3.0
# Rows at a time: few enough to stay in the cache.
_ROWS = 512


def unit_vectors(X: npt.NDArray[np.float32], reference: Reference) -> tuple[Array, Array]:
    """Whitened vectors of length 1, and their lengths as a share of the longest allowed.

    A record with a number that is not finite becomes the zero vector with length 0.

    Parameters
    ----------
    X
        Raw vectors (n, d).
    reference
        The public statistics to whiten with.

    Returns
    -------
    unit : ndarray of shape (n, d)
        Whitened vectors of length 1; a vector that is whitened to 0 stays 0. Each depends on its own record alone.
    relative : ndarray of shape (n,)
        Lengths before scaling, divided by 3 sqrt(d) and clipped to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import unit_vectors
    >>> unit, relative = unit_vectors(np.array([[3.0, 4.0]], np.float32), load_reference("none", 2))
    >>> unit.round(6).tolist(), relative.tolist()
    ([[0.6, 0.8]], [1.0])
    """
    n, d = X.shape
    unit, relative = np.zeros((n, d)), np.zeros(n)
    public = _whitening(reference)
    for start in range(0, n, _ROWS):
        rows = slice(start, min(start + _ROWS, n))
        unit[rows], relative[rows] = public.units(X[rows])
    return unit, relative


def recentered(unit: Array, center: Array) -> Array:
    """Vectors minus a public center, brought to length 1 again; a vector equal to the center becomes 0.

    Each depends on its own record and the center alone, bit for bit.

    Parameters
    ----------
    unit
        Vectors (n, d), as `unit_vectors` returns them.
    center
        The center (d,): public, or noisy and paid for.

    Returns
    -------
    ndarray of shape (n, d)
        Vectors of length 1 or 0.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.private import recentered
    >>> recentered(np.array([[0.6, 0.8], [0.0, 0.8]]), np.array([0.0, 0.8])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    out = np.empty_like(unit)
    bits = _bits(unit.shape[1])
    for start in range(0, len(unit), _ROWS):
        rows = slice(start, start + _ROWS)
        whole, _ = _on_grid(unit[rows] - center, bits)
        out[rows] = whole / _norms(whole)[1][:, None]
    return out


def _bits(d: int) -> int:
    """A sum of d products of two whole numbers of so many bits is below 2**53."""
    return (53 - math.ceil(math.log2(d + 1))) // 2


def _on_grid(rows: Array, bits: int) -> tuple[Array, npt.NDArray[np.int32]]:
    """Each row as whole numbers of so many bits, times a power of two of its own, so that any scale fits."""
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    power = np.frexp(largest)[1][:, None]
    # A power of two is exact, and so is the product, unless it is so small that it is rounded to 0 anyway.
    whole = np.ldexp(rows, bits - power)
    return np.rint(whole, out=whole), power


def _norms(whole: Array) -> tuple[Array, Array]:
    """Lengths of rows of whole numbers, and the same with 1 in place of 0, to divide by."""
    # Squares of whole numbers: their sum is exact in any order.
    norm = np.sqrt(np.einsum("ij,ij->i", whole, whole))
    return norm, np.where(norm > 0, norm, 1.0)


@lru_cache(maxsize=4)
def _whitening(reference: Reference) -> _Whitening:
    return _Whitening(reference)


class _Whitening:
    """The public numbers of whitening, on a grid."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._bits = _bits(max(reference.dim, len(reference.values), 1))
        self._directions = np.rint(reference.directions * 2.0**self._bits)
        self._gain = 1 / np.sqrt(reference.values) - 1 / np.sqrt(reference.rest)

    def units(self, X: npt.NDArray[np.float32]) -> tuple[Array, Array]:
        usable = np.asarray(np.isfinite(X).all(axis=1))
        if not usable.all():
            X = np.where(usable[:, None], X, np.float32(0))
        white = X - self._reference.mean
        if self._reference.scale is not None:
            white /= self._reference.scale
        if len(self._gain):
            whole, power = _on_grid(white, self._bits)
            along = np.ldexp(whole @ self._directions.T * self._gain, power - 2 * self._bits)
            whole, power = _on_grid(along, self._bits)
            white /= math.sqrt(self._reference.rest)
            white += np.ldexp(whole @ self._directions, power - 2 * self._bits)
        else:
            white /= math.sqrt(self._reference.rest)
        unit, power = _on_grid(white, self._bits)
        norm, divisor = _norms(unit)
        length = np.ldexp(norm, power[:, 0] - self._bits)
        unit /= divisor[:, None]
        unit[~usable] = 0.0
        longest = LONGEST * math.sqrt(X.shape[1])
        return unit, np.where(usable, np.minimum(length / longest, 1.0), 0.0)
