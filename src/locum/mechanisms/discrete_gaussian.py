"""The Gaussian mechanism on integers: exact sums plus noise of OpenDP's discrete Gaussian sampler.

The proof is in docs/explain/proofs.md: on a grid this fine, it costs at most `GRID_GAP` of epsilon more than normal
noise without a grid, and the accountant adds that to every sum with normal noise.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, PrivacyError
from locum.mechanisms.exact_sums import ExactSums, Integers
from locum.mechanisms.secure_random import SecureRandom
from locum.types import GRID_GAP

# Noise beyond this many standard deviations has a probability below 1e-340 per number.
_REACH = 40
# The proof needs an epsilon below 700.
LEAST_NOISE = 0.07
# Squares and quotients of the steps are rounded; this much more noise covers it many times over.
_SLACK = 1 + 1e-12


def noisy(
    sums: ExactSums, noise_multiplier: float, *, parts: int = 1, insecure_seed: int | None = None, step: int = 0
) -> ExactSums:
    """Exact sums with discrete Gaussian noise, on the same grid; the only thing about the sums that may leave.

    Parameters
    ----------
    sums
        Sums that one unit moves by at most 1 in L2, as floating-point numbers.
    noise_multiplier
        Standard deviation of the noise on each number, above 0.
    parts
        The noise is one of so many equal parts: that many parts, drawn by different holders, together have
        `noise_multiplier`. The sums may leave only inside a total with at least as many parts.
    insecure_seed
        For tests: seeds the noise, which is then rounded normal noise. Nothing is private then. None: secure noise.
    step
        With `insecure_seed`: noise for different steps differs.

    Returns
    -------
    ExactSums
        The noisy sums.

    Raises
    ------
    PrivacyError
        If the grid is too coarse for this noise and this many numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.mechanisms import ExactSums, noisy
    >>> sums = ExactSums(np.full(3, 2.0**-30))
    >>> sums.add(np.array([2**40, 2**30, -(2**30)]))
    >>> abs(noisy(sums, 0.1).to_array() - [1024, 1, -1]).max() < 1
    np.True_
    """
    if not 0 < noise_multiplier < math.inf:
        raise ConfigError(f"`noise_multiplier` must be above 0 and finite; got {noise_multiplier!r}.")
    if insecure_seed is None:
        check_noise(noise_multiplier)
    if isinstance(parts, bool) or not isinstance(parts, int) or parts < 1:
        raise ConfigError(f"`parts` must be a whole number, 1 or more; got {parts!r}.")
    own = noise_multiplier / math.sqrt(parts)
    stds = own / sums.steps * _SLACK
    if insecure_seed is not None:
        normal = SecureRandom(np.ones(1, np.int64), 1.0, len(stds), own, insecure_seed=insecure_seed)
        noise = np.rint(normal.draw(step).noise / sums.steps).astype(np.int64)
    else:
        check_grid(stds)
        noise = np.empty(len(stds), dtype=np.int64)
        for std in np.unique(stds):
            where = stds == std
            noise[where] = discrete_gaussian(float(std), int(where.sum()))
    released = ExactSums(sums.steps)
    released.add(sums.integers)
    released.add(noise)
    return released


def check_noise(noise_multiplier: float) -> None:
    """Raise if there is so little noise that it protects nobody.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise, divided by how far one unit can move the sums.

    Raises
    ------
    PrivacyError
        If it is below 0.07: the proof needs an epsilon below 700.

    Examples
    --------
    >>> from locum.mechanisms import check_noise
    >>> check_noise(4.2)
    """
    if noise_multiplier < LEAST_NOISE:
        raise PrivacyError(
            f"A noise multiplier of {noise_multiplier:.3g} protects nobody, and its proof does not hold below "
            f"{LEAST_NOISE:g}: ask for less epsilon."
        )


def check_grid(stds: npt.NDArray[np.float64]) -> None:
    """Raise if noise of these standard deviations, in steps of the grid, would cost more than `GRID_GAP`."""
    gap = (1 + _REACH**2) * float(np.sum(1 / (24 * np.square(stds))))
    if gap > GRID_GAP:
        raise PrivacyError(
            f"{len(stds)} sums with so little noise would need a finer grid ({gap:.2g} of epsilon is lost on it, "
            f"{GRID_GAP:g} is charged): use more noise, or fewer classes or features."
        )


def discrete_gaussian(std: float, count: int) -> Integers:
    """Integers from the discrete Gaussian distribution of parameter `std`, by OpenDP's exact sampler.

    Parameters
    ----------
    std
        The parameter, above 0; about the standard deviation.
    count
        How many.

    Returns
    -------
    ndarray of int64
        Independent draws from a generator that the operating system keys.

    Examples
    --------
    >>> from locum.mechanisms.discrete_gaussian import discrete_gaussian
    >>> discrete_gaussian(0.1, 3).tolist()
    [0, 0, 0]
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    if not count:
        return np.zeros(0, dtype=np.int64)
    enable_features("contrib")
    mechanism = make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="i64"), scale=std)
    return np.array(mechanism([0] * count), dtype=np.int64)
