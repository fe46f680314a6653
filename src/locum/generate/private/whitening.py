"""Inputs of a private network: whitened vectors of length 1, less noisy class means.

Every private network starts with a noisy sum (counts, lengths and, for the scaling "class", class means), which its
plan pays for together with the training steps. The way back to raw vectors is folded into the released tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.accounting import Gaussian, SGDPlan, plan_query, plan_sgd
from locum.data import Reference
from locum.generate.private.estimate import shrunk
from locum.generate.private.query import COUNTS_ONLY, MEANS, Measured, Shares, measured
from locum.generate.private.units import unit_vectors
from locum.train.dp import InitialQuery
from locum.types import DP

Array = npt.NDArray[np.float64]
Tensors = dict[str, npt.NDArray[np.float32]]

# For each scaling: the part of the squared budget that the sums take, and their shares.
INITIAL_QUERIES: dict[str, tuple[float, Shares]] = {"class": (0.5, MEANS), "public": (0.05, COUNTS_ONLY)}


def plan_network(
    privacy: DP, scaling: str, *, batch: int, clip: float, epochs: float = 1.0, steps: int | None = None
) -> SGDPlan:
    """Plan of a private fit of a network, from public numbers alone; see `plan_sgd`.

    Parameters
    ----------
    privacy
        The budget, with `n_public`.
    scaling
        "class": half of the squared budget goes to noisy class means before training; "public": a twentieth goes to
        counts and lengths.
    batch
        The expected number of units in a batch.
    clip
        The bound on the norm of a unit's gradient.
    epochs
        Passes over `n_public` units.
    steps
        The number of batches, instead of `epochs`.

    Returns
    -------
    SGDPlan
        Steps and noise; its only extra event is the noisy sum.

    Examples
    --------
    >>> from locum.generate.private import plan_network
    >>> from locum.types import DP
    >>> plan = plan_network(DP(1.0, 1e-6, n_public=1000), "class", batch=200, clip=1.0, epochs=2)
    >>> plan.steps, plan.epsilon <= 1.0
    (10, True)
    """
    share, _ = INITIAL_QUERIES[scaling]
    sums = Gaussian(plan_query(privacy).noise_multiplier / np.sqrt(share))
    return plan_sgd(privacy, batch=batch, epochs=epochs, steps=steps, clip=clip, extra=(sums,))


def read_sums(noisy: Array, plan: SGDPlan, scaling: str, classes: int, d: int) -> Measured:
    """Estimates from the noisy sums of such a plan."""
    return measured(noisy, InitialQuery.noise(plan), classes, d, INITIAL_QUERIES[scaling][1])


@dataclass(frozen=True, slots=True, eq=False)
class Whitener:
    """Map between raw vectors and network inputs: whitened, of length 1, less the class mean, times sqrt(d).

    Parameters
    ----------
    reference
        The public statistics to whiten with.
    means
        One mean per class (classes, d), of whitened vectors of length 1: noisy, or 0.
    length
        The length that every vector gets on the way back: the noisy mean.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import Whitener
    >>> whitener = Whitener(load_reference("none", 2), np.zeros((1, 2)), length=5.0)
    >>> scaled = whitener.forward(np.array([[0.3, 0.4]], np.float32), np.array([0]))
    >>> whitener.backward(scaled, np.array([0])).round(3).tolist()
    [[3.0, 4.0]]
    """

    reference: Reference
    means: Array
    length: float

    @classmethod
    def bare(cls, reference: Reference, classes: int) -> Whitener:
        """Without any information from records: all class means are 0."""
        return cls(reference, np.zeros((classes, reference.dim)), 1.0)

    @classmethod
    def read(cls, found: Measured, reference: Reference) -> Whitener:
        """From noisy sums; class means are 0 if the sums hold none."""
        means = np.zeros((len(found.counts), reference.dim))
        if found.means is not None:
            means = shrunk(found.means, found.error)
        return cls(reference, means, found.length)

    def forward(self, X: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Network inputs. Lengths are dropped: they are private."""
        unit, _ = unit_vectors(X, self.reference)
        out: npt.NDArray[np.float32] = (np.sqrt(X.shape[1]) * (unit - self.means[labels])).astype(np.float32)
        return out

    def backward(self, scaled: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Undo `forward`, with the mean length for every vector."""
        unit = scaled / np.sqrt(scaled.shape[1]) + self.means[labels]
        out: npt.NDArray[np.float32] = self.reference.color(unit * self.length).astype(np.float32)
        return out

    def folded(self, tensors: Mapping[str, npt.NDArray[np.float32]], offset: Array) -> Tensors:
        """Tensors of an exported network whose last layer now gives raw vectors around each class's `offset`."""
        out, d = dict(tensors), self.reference.dim
        weight, bias = list(out)[-2:]
        size = self.length / np.sqrt(d)
        out[weight] = (size * self.reference.stretch(out[weight].T).T).astype(np.float32)
        out[bias] = (size * self.reference.stretch(out[bias])).astype(np.float32)
        out["span"] = np.ones(d, dtype=np.float32)
        out["offset"] = self.reference.color(self.length * offset).astype(np.float32)
        return out
