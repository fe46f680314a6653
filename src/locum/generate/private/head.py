"""A private linear head from noisy results: a center, class sums, and noisy gradient steps. No record is used here.

`Descent` takes the noisy results in their order and says what to query next, so the holder who draws them and anyone
who reads them from a release compute the same head. `gradients.py` has the queries.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

import numpy as np
import numpy.typing as npt

from locum.accounting import HEAD_STEPS
from locum.data import Reference
from locum.generate.private.estimate import PrivateMeans, reference_hash, shrunk
from locum.generate.private.gradients import SoftmaxRule
from locum.generate.private.query import Measured, Shares, measured
from locum.release import HeadSpec

Array = npt.NDArray[np.float64]

# The first query takes this share of the precision: most of it for the common mean.
FIRST_SHARE = 0.12
FIRST = Shares(sums=9 / 12, counts=2 / 12, lengths=1 / 12, pooled=True)
# With less signal than this every step loses more than it gains.
_LEAST_SIGNAL = 2.5
# About so many noisy numbers are drawn if there are many classes: each takes some 15 microseconds.
_MOST_DRAWS = 160_000
# Class means explain at most this share of the squared length of a vector.
_MOST = 0.9
# The part of the reference's correlations that samples keep; see `_spread`.
_CORRELATED = 0.25


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a head is learned: shares of the precision, and settings of the steps. All of it is public or paid for.

    Parameters
    ----------
    start
        Share of the precision for the class sums; the steps share what is left equally.
    steps
        Number of gradient steps; 0: the class means are the result.
    learning_rate, momentum, decay
        Of the steps, on the mean gradient; `decay` pulls weights toward 0.
    clip
        Bound on the length of a unit's gradient.
    scale
        Initial weights are the class means times this.
    averaged
        The result is the mean of this share of the weights, the last ones.

    Examples
    --------
    >>> from locum.generate.private import schedule_for
    >>> schedule = schedule_for(count=2000, classes=2, d=1280, noise=4.2)
    >>> schedule.steps, round(0.12 + schedule.start + schedule.steps * schedule.share, 9)
    (11, 1.0)
    """

    start: float
    steps: int
    learning_rate: float
    momentum: float
    decay: float
    clip: float
    scale: float
    averaged: float

    @property
    def share(self) -> float:
        """The share of the precision for each step."""
        return (1 - FIRST_SHARE - self.start) / max(self.steps, 1)


def schedule_for(count: float, classes: int, d: int, noise: float) -> Schedule:
    """The schedule for about so many units, and the noise of the whole plan.

    `count` is noisy and paid for. The rule comes from training folds (`locum study run private-schedule`).

    Parameters
    ----------
    count
        About how many units there are.
    classes, d
        The numbers of classes and of features. With many of both, fewer steps are made: drawing secure noise takes
        most of the time.
    noise
        The noise multiplier of the whole plan.

    Returns
    -------
    Schedule
        The shares and settings.

    Examples
    --------
    >>> from locum.generate.private import schedule_for
    >>> [schedule_for(count, 2, 1280, 4.2).steps for count in (300, 1000, 10_000, 1_000_000)]
    [0, 8, 24, 32]
    """
    # Records against the noise on the length of a vector.
    signal = count / (noise * math.sqrt(d))
    if signal < _LEAST_SIGNAL:
        return Schedule(1 - FIRST_SHARE, 0, 0.0, 0.0, 0.0, 1.0, 10.0, 1.0)
    most = min(HEAD_STEPS, max(_MOST_DRAWS // (classes * d) - 1, 8))
    steps = min(max(round(3 * math.sqrt(signal)), 6), most)
    # How far weights may move in all: the more signal, the larger the best weights.
    rate = min(30 * signal**0.75 / steps, 65.0)
    return Schedule(0.09, steps, rate, momentum=0.7, decay=0.001, clip=0.5, scale=10.0, averaged=0.15)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A private rule for whitened vectors of length 1, less a center and brought to length 1 again.

    Attributes
    ----------
    center
        The common mean (d,) that is taken off first.
    weights
        One row per class (classes, d); their mean is 0.
    first
        What the first query measured: counts, lengths and the pooled mean.
    means
        Class means of the recentered vectors (classes, d), shrunk by their noise.
    schedule
        How it was learned.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.private import FIRST, Head, measured, schedule_for
    >>> first = measured(np.array([0.0, 0.0, 50.0, 50.0, 30.0]) / 4, 1e-3, 2, 2, FIRST)
    >>> schedule = schedule_for(100, classes=2, d=2, noise=1e-3)
    >>> Head(np.array([0.6, 0.0]), np.zeros((2, 2)), first, np.zeros((2, 2)), schedule).reach
    0.8
    """

    center: Array
    weights: Array
    first: Measured
    means: Array
    schedule: Schedule

    @property
    def prior(self) -> Array:
        """Class frequencies."""
        return self.first.shares

    @property
    def reach(self) -> float:
        """The typical distance of a vector of length 1 from the center."""
        return math.sqrt(max(1 - float(np.square(self.center).sum()), 0.1))


class Descent:
    """The public side of learning a head: noisy results in, the next query out.

    Parameters
    ----------
    noise
        The noise multiplier of the whole plan: that of a single sum with all of the precision.
    classes, d
        The numbers of classes and of features.
    schedule
        The schedule that a release names; None: it follows from the first result.

    Examples
    --------
    >>> from locum.generate.private import Descent, FIRST
    >>> descent = Descent(noise=4.0, classes=2, d=3)
    >>> descent.share, FIRST.size(2, 3) == descent.size
    (0.12, True)
    """

    def __init__(self, noise: float, classes: int, d: int, schedule: Schedule | None = None) -> None:
        self.noise, self.classes, self.d, self._given = noise, classes, d, schedule
        self.schedule: Schedule | None = None
        self.center: Array = np.zeros(d)
        self.taken = 0
        self._first: Measured | None = None
        self._means: Array = np.zeros((classes, d))
        self._weights: Array = np.zeros((classes, d))
        self._speed: Array = np.zeros((classes, d))
        self._total: Array = np.zeros((classes, d))
        self._summed = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left to query."""
        return self.schedule is not None and self.taken == 2 + self.schedule.steps

    @property
    def share(self) -> float:
        """The share of the precision for the next query."""
        if self.schedule is None:
            return FIRST_SHARE
        return self.schedule.start if self.taken == 1 else self.schedule.share

    @property
    def size(self) -> int:
        """How many numbers the next query has."""
        return FIRST.size(self.classes, self.d) if self.taken == 0 else self.classes * self.d

    @property
    def count(self) -> float:
        """About how many units there are, by the first result."""
        assert self._first is not None
        return float(self._first.counts.sum())

    @property
    def clip(self) -> float:
        """The bound on the length of a unit's gradient."""
        assert self.schedule is not None
        return self.schedule.clip

    @property
    def rule(self) -> SoftmaxRule:
        """Where the next gradient is taken."""
        assert self._first is not None
        return SoftmaxRule(self._weights, np.log(self._first.shares))

    def take(self, noisy: Array) -> None:
        """Use the noisy result of the query that was due."""
        noise = self.noise / math.sqrt(self.share)
        if self.taken == 0:
            self._take_first(noisy, noise)
        elif self.taken == 1:
            self._take_sums(noisy.reshape(self.classes, self.d), noise)
        else:
            self._take_step(noisy.reshape(self.classes, self.d))
        self.taken += 1

    def _take_first(self, noisy: Array, noise: float) -> None:
        found = measured(noisy, noise, self.classes, self.d, FIRST)
        assert found.means is not None
        mean, error = found.means[0], self.d * float(found.error[0])
        # A center that is mostly noise would spoil every vector: it is shrunk by what noise is known to add.
        self.center = mean * max(0.0, 1 - error / max(float(np.square(mean).sum()), 1e-300))
        self._first = found
        self.schedule = self._given or schedule_for(self.count, self.classes, self.d, self.noise)

    def _take_sums(self, sums: Array, noise: float) -> None:
        assert self._first is not None
        assert self.schedule is not None
        counts = self._first.counts
        self._means = shrunk(sums / counts[:, None], np.square(noise / counts))
        self._weights = self.schedule.scale * (self._means - self._means.mean(axis=0))

    def _take_step(self, gradient: Array) -> None:
        assert self._first is not None
        assert self.schedule is not None
        use = self.schedule
        # Residuals of a record sum to 0, so whatever the mean over classes holds is noise.
        mean = use.clip * (gradient - gradient.mean(axis=0)) / self.count
        self._speed = use.momentum * self._speed + mean + use.decay * self._weights
        self._weights = self._weights - use.learning_rate * self._speed
        step = self.taken - 2
        if step >= use.steps * (1 - use.averaged):
            self._total = self._total + self._weights
            self._summed += 1

    @property
    def head(self) -> Head:
        """The result, once everything was taken."""
        assert self._first is not None
        assert self.schedule is not None
        assert self.done
        weights = self._total / self._summed if self._summed else self._weights
        return Head(self.center, weights, self._first, self._means, self.schedule)


def place_means(head: Head, reference: Reference, separation: float) -> tuple[PrivateMeans, float]:
    """A Gaussian of raw vectors whose own Bayes rule is the head, only sharper; it costs nothing.

    Class means lie along the weights as the covariance bends them, around a common center. The center is moved within
    the span of these directions, so that the border between classes lies where the head has it, whatever the
    frequencies of the classes and the lengths of the weights. Without steps, the class means are the ones measured.

    Parameters
    ----------
    head
        The private head.
    reference
        The public statistics that the vectors were whitened with.
    separation
        How far class means are from their center, in standard deviations. A classifier that is trained on samples
        finds the head more easily if they are far, and samples are then less like real vectors.

    Returns
    -------
    found : PrivateMeans
        Class means, the spread around them, and class shares.
    sharper : float
        How many times sharper the Gaussian's Bayes rule is than the head.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import FIRST, Head, measured, place_means, schedule_for
    >>> first = measured(np.array([0.0, 0.0, 50.0, 50.0, 30.0]) / 4, 1e-3, 2, 2, FIRST)
    >>> schedule = schedule_for(100, classes=2, d=2, noise=1e-3)
    >>> head = Head(np.zeros(2), np.array([[1.0, 0.0], [-1.0, 0.0]]), first, np.zeros((2, 2)), schedule)
    >>> found, sharper = place_means(head, load_reference("none", 2), separation=3.0)
    >>> np.sign(found.means).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    length, prior = head.first.length, head.prior
    center, size = reference.color(length * head.center), length * head.reach / math.sqrt(reference.dim)
    if head.schedule.steps == 0:
        explained = min(float(prior @ np.square(head.means).sum(axis=1)), _MOST)
        factor, scale = (math.sqrt(1 - explained) * size * part for part in reference.factors())
        means = center + reference.stretch(length * head.reach * head.means)
        return PrivateMeans(means, factor.astype(np.float32), scale.astype(np.float32), prior), 1.0
    factor, scale = _spread(reference, size)
    # The head as a rule for raw vectors, less the center.
    weights = reference.whitened_weights(head.weights - head.weights.mean(axis=0)) / (length * head.reach)
    bent = (weights @ factor.T) @ factor + weights * np.square(scale)
    far = math.sqrt(float(np.einsum("ij,ij->i", weights, bent).mean()))
    sharper = min(max(separation / max(far, 1e-12), 1e-6), 1e6)
    weights, bent = sharper * weights, sharper * bent
    # Where the border lies: scores of the Gaussian's Bayes rule at the center, and what the head wants them to be.
    wanted = -np.einsum("ij,ij->i", weights, bent) / 2 - (sharper - 1) * np.log(prior)
    products = weights @ bent.T
    shift = np.linalg.lstsq(products - products.mean(axis=0), wanted - wanted.mean(), rcond=1e-8)[0] @ bent
    means = center + shift + bent
    return PrivateMeans(means, factor.astype(np.float32), scale.astype(np.float32), prior), sharper


def _spread(reference: Reference, size: float) -> tuple[Array, Array]:
    """The spread around class means: that of the reference, with a part of its correlations.

    An ordinary classifier with a penalty on its weights prefers directions in which samples vary much. The more
    equally samples vary in all directions, after the usual scaling of features, the less it misses the head.
    """
    factor, scale = (part.astype(np.float64) for part in reference.factors())
    alone = np.square(scale) + (1 - _CORRELATED) * np.square(factor).sum(axis=0)
    return size * math.sqrt(_CORRELATED) * factor, size * np.sqrt(alone)


def head_spec(descent: Descent, reference: Reference, separation: float, sharpness: float) -> HeadSpec:
    """The manifest entry that says how to read a transcript.

    Parameters
    ----------
    descent
        The descent that has taken all results.
    reference
        The public statistics.
    separation, sharpness
        As `place_means` takes and returns them.

    Returns
    -------
    HeadSpec
        The entry.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import Descent, head_spec
    >>> descent = Descent(noise=4.0, classes=2, d=3)
    >>> while not descent.done:
    ...     descent.take(np.zeros(descent.size))
    >>> head_spec(descent, load_reference("none", 3), separation=4.0, sharpness=1.0).noise
    4.0
    """
    assert descent.schedule is not None
    return HeadSpec(
        noise=descent.noise,
        **asdict(descent.schedule),
        separation=separation,
        sharpness=sharpness,
        reference=reference.name,
        reference_sha256=reference_hash(reference),
    )


def read_head(spec: HeadSpec, transcript: npt.NDArray[np.float32], classes: int, d: int) -> Head:
    """The head of a release, computed again from its own transcript.

    Parameters
    ----------
    spec
        The release's entry about its head.
    transcript
        The release's noisy results.
    classes, d
        The numbers of classes and of features.

    Returns
    -------
    Head
        The head.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.generate.private import read_head
    >>> from locum.types import DP
    >>> s = load_sample("breast-cancer")
    >>> made = ClassGaussian(privacy=DP(1.0, 1e-6), classes=[0, 1], insecure_seed=0).fit(s.X, s.y).release()
    >>> read_head(made.manifest.decoder.head, made.tensors["transcript"], 2, 30).weights.shape
    (2, 30)
    """
    schedule = Schedule(**{field.name: getattr(spec, field.name) for field in fields(Schedule)})
    descent, start, numbers = Descent(spec.noise, classes, d, schedule), 0, transcript.astype(np.float64)
    while not descent.done:
        stop = start + descent.size
        descent.take(numbers[start:stop])
        start = stop
    return descent.head
