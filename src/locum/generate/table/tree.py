"""A tree of columns with the label in every clique: chosen and fitted by noisy counts. No record is involved.

Each column depends on the label and on one other column, its parent. All cliques are (label, parent, column), so
inference is exact, in two passes over the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Logarithms of less are not taken.
_TINY = 1e-12
# How often rows and columns are scaled, and which part of what independence expects is mixed in before.
_SCALINGS, _LEFT = 30, 0.01
# A step of the descent is tried with half of its size so often before the descent ends.
_HALVINGS = 30


@dataclass(frozen=True, slots=True, eq=False)
class Clue:
    """Noisy counts about one clique: of groups of the parent's and of the column's values.

    `counts` and `precision` (one over the noise variance) are (labels, p, c); `parent` (p, parent's values) and
    `column` (c, column's values) say with 0 and 1 which values each group has.
    """

    clique: int
    parent: Floats
    column: Floats
    counts: Floats
    precision: Floats


def best_tree(scores: Floats) -> tuple[int, ...]:
    """The parent of each column in the tree with the largest sum of scores; -1 for the first, which has none.

    Parameters
    ----------
    scores
        How much two columns tell about each other given the label: symmetric.

    Returns
    -------
    tuple of int
        The parent of each column.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import best_tree
    >>> best_tree(np.array([[0, 3, 1], [3, 0, 2], [1, 2, 0]]))
    (-1, 0, 1)
    """
    n = len(scores)
    parent, best = np.full(n, -1), scores[0].astype(np.float64).copy()
    source, left = np.zeros(n, dtype=np.int64), np.arange(n) != 0
    while left.any():
        chosen = int(np.flatnonzero(left)[best[left].argmax()])
        parent[chosen], left[chosen] = source[chosen], False
        closer = left & (scores[chosen] > best)
        best[closer], source[closer] = scores[chosen][closer], chosen
    return tuple(int(p) for p in parent)


def order_of(parents: Sequence[int]) -> list[int]:
    """Columns with every parent before its children."""
    out = [i for i, p in enumerate(parents) if p < 0]
    for column in out:
        out.extend(i for i, p in enumerate(parents) if p == column)
    return out


def dependence(counts: Floats, a: Floats, b: Floats, variance: float) -> float:
    """How much two columns depend on each other given the label: chi-squared per record, without what noise adds.

    `counts` (labels, a, b) are noisy with `variance`; `a` and `b` are (labels, values) and less noisy.
    """
    n = np.maximum(a.sum(axis=1), 1.0)
    expected = np.maximum(a, 0.5)[:, :, None] * np.maximum(b, 0.5)[:, None, :] / n[:, None, None]
    # Cells in which next to nothing is expected would add noise alone.
    expected = np.maximum(expected, np.sqrt(variance))
    found = (np.square(counts - expected) - variance) / expected
    return float(found.sum() / n.sum())


def on_simplex(counts: Floats, total: Floats) -> Floats:
    """The nearest counts that are not negative and sum to `total` over the last axis: one subtracts a constant."""
    ordered = -np.sort(-counts, axis=-1)
    places = np.arange(1, counts.shape[-1] + 1)
    excess = (ordered.cumsum(axis=-1) - total[..., None]) / places
    last = (ordered > excess).sum(axis=-1, keepdims=True) - 1
    out: Floats = np.maximum(counts - np.take_along_axis(excess, np.maximum(last, 0), axis=-1), 0.0)
    return out


def consistent(counts: Floats, above: Floats, own: Floats) -> Floats:
    """Counts of a clique (labels, p, c) near noisy ones, none below 0, that sum to `above` (labels, p) and `own`."""
    labels, p, c = counts.shape
    # The nearest ones with these sums; then none below 0; then the sums again, by scaling rows and columns.
    rows, columns = above - counts.sum(axis=2), own - counts.sum(axis=1)
    moved = counts + rows[:, :, None] / c + columns[:, None, :] / p - rows.sum(axis=1)[:, None, None] / (p * c)
    flat = on_simplex(moved.reshape(labels, -1), above.sum(axis=1))
    # A cell that is 0 could never be more: a little of what independence expects is left in each.
    total = np.maximum(above.sum(axis=1), _TINY)[:, None, None]
    out = flat.reshape(counts.shape) + _LEFT * above[:, :, None] * own[:, None, :] / total
    for _ in range(_SCALINGS):
        out = out * (above / np.maximum(out.sum(axis=2), _TINY))[:, :, None]
        out = out * (own / np.maximum(out.sum(axis=1), _TINY))[:, None, :]
    found: Floats = out
    return found


class LabelTree:
    """A distribution over a label and columns, as potentials of the cliques (label, parent, column).

    Parameters
    ----------
    parents
        The parent of each column, -1 for the first.
    start
        For each column, where to start: its distribution given the label and its parent's value (labels, parent's
        values, values); for the first column the parent has one value.
    label
        The distribution of the label.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import LabelTree
    >>> start = [np.full((2, 1, 2), 0.5), np.full((2, 2, 3), 1 / 3)]
    >>> tree = LabelTree((-1, 0), start, np.array([0.25, 0.75]))
    >>> tree.marginals()[1].shape, round(float(tree.marginals()[1][1].sum()), 6)
    ((2, 2, 3), 0.75)
    """

    def __init__(self, parents: Sequence[int], start: Sequence[Floats], label: Floats) -> None:
        self.parents, self.order = tuple(parents), order_of(parents)
        self._children: list[list[int]] = [[] for _ in parents]
        for child, parent in enumerate(parents):
            if parent >= 0:
                self._children[parent].append(child)
        self.potentials = [np.log(np.maximum(part, _TINY)) for part in start]
        root = self.order[0]
        self.potentials[root] = self.potentials[root] + np.log(np.maximum(label, _TINY))[:, None, None]

    def conditionals(self, potentials: Sequence[Floats] | None = None) -> tuple[Floats, list[Floats]]:
        """The distribution of the label, and of each column given the label and its parent's value."""
        given = self.potentials if potentials is None else potentials
        out: list[Floats] = [np.empty(0)] * len(given)
        below: list[Floats] = [np.empty(0)] * len(given)
        for column in reversed(self.order):
            score = given[column]
            for child in self._children[column]:
                score = score + below[child][:, None, :]
            top = score.max(axis=2, keepdims=True)
            weight = np.exp(score - top)
            total = weight.sum(axis=2, keepdims=True)
            out[column] = weight / total
            below[column] = (top + np.log(total))[:, :, 0]
        root = below[self.order[0]][:, 0]
        label = np.exp(root - root.max())
        return label / label.sum(), out

    def marginals(self, potentials: Sequence[Floats] | None = None) -> list[Floats]:
        """The distribution of each clique (labels, parent's values, column's values)."""
        label, given = self.conditionals(potentials)
        out: list[Floats] = [np.empty(0)] * len(given)
        for column in self.order:
            parent = self.parents[column]
            above = label[:, None] if parent < 0 else out[parent].sum(axis=1)
            out[column] = above[:, :, None] * given[column]
        return out

    def fit(self, clues: Sequence[Clue], total: float, steps: int = 200) -> float:
        """Bring the counts close to noisy ones, each by its precision; returns the loss.

        Entropic mirror descent: potentials move against the gradient of half the weighted squares by the cliques'
        distributions, so all cliques stay consistent and no count is below 0.
        """
        loss, gradient = self._loss(self.marginals(), clues, total)
        size = 1.0 / max(1.0, max(float(np.abs(part).max()) for part in gradient))
        for _ in range(steps):
            for _ in range(_HALVINGS):
                tried = [old - size * part for old, part in zip(self.potentials, gradient, strict=True)]
                marginals = self.marginals(tried)
                found, new = self._loss(marginals, clues, total)
                if found < loss:
                    break
                size /= 2
            else:
                return loss
            self.potentials, gradient = tried, new
            done = loss - found < 1e-7 * loss
            loss, size = found, size * 1.5
            if done:
                break
        return loss

    def _loss(self, marginals: Sequence[Floats], clues: Sequence[Clue], total: float) -> tuple[float, list[Floats]]:
        loss, gradient = 0.0, [np.zeros_like(part) for part in marginals]
        for clue in clues:
            seen = clue.parent @ marginals[clue.clique] @ clue.column.T
            off = total * seen - clue.counts
            weighed = clue.precision * off
            loss += 0.5 * float((weighed * off).sum())
            gradient[clue.clique] += total * (clue.parent.T @ weighed @ clue.column)
        return loss, gradient
