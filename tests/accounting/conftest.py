"""Other ways to work out what events cost: each knows something that the product does not use."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import fft, optimize, special, stats

from locum.accounting import Event, Gaussian, PoissonGaussian

Oracle = Callable[..., float]


@pytest.fixture(scope="session")
def exact_gaussian() -> Oracle:
    """Epsilon of normal noise, from the formula of Balle and Wang (2018), without any grid."""

    def epsilon(noise: float, delta: float) -> float:
        def log_delta(value: float) -> float:
            near = stats.norm.logcdf(0.5 / noise - value * noise)
            far = value + stats.norm.logcdf(-0.5 / noise - value * noise)
            return float(near + np.log1p(-np.exp(far - near))) if far < near else -math.inf

        if log_delta(0.0) < math.log(delta):
            return 0.0
        high = 1.0
        while log_delta(high) > math.log(delta):
            high *= 2
        return float(optimize.brentq(lambda e: log_delta(e) - math.log(delta), 0.0, high, xtol=1e-13))

    return epsilon


@pytest.fixture(scope="session")
def rdp_epsilon() -> Oracle:
    """Epsilon by Renyi divergences: looser than privacy-loss distributions, and computed in another way."""
    import dp_accounting as dp
    from dp_accounting.rdp import rdp_privacy_accountant

    logging.getLogger("absl").setLevel(logging.ERROR)
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024]

    def theirs(event: Event) -> tuple[dp.DpEvent, int]:
        if isinstance(event, PoissonGaussian):
            return dp.PoissonSampledDpEvent(event.rate, dp.GaussianDpEvent(event.noise_multiplier)), event.steps
        assert isinstance(event, Gaussian)
        return dp.GaussianDpEvent(event.noise_multiplier), 1

    def epsilon(events: Sequence[Event], delta: float) -> float:
        accountant = rdp_privacy_accountant.RdpAccountant(orders, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        for event in events:
            accountant.compose(*theirs(event))
        return float(accountant.get_epsilon(delta))

    return epsilon


@pytest.fixture(scope="session")
def tilted_delta() -> Oracle:
    """Delta of `steps` steps at `epsilon`, with an error that is small beside delta however small delta is.

    The loss of one step is reweighted by exp(theta * loss) so that losses near epsilon are the likely ones after all
    steps; the weights are taken back at the end. Rounding errors are then measured by the tail, not by the whole.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    def one_direction(pmf: object, steps: int, epsilon: float) -> float:
        dense = pmf.to_dense_pmf()  # type: ignore[attr-defined]
        grid, places = dense._discretization, np.arange(dense.size)
        losses = (places + dense._lower_loss) * grid
        with np.errstate(divide="ignore"):
            logs = np.log(dense._probs)
        thetas = np.exp(np.linspace(math.log(1e-3), math.log(3e4), 300))
        theta = min(thetas, key=lambda t: steps * special.logsumexp(logs + t * losses) - t * epsilon)
        mass = special.logsumexp(logs + theta * losses)
        weights = np.exp(logs + theta * losses - mass)
        mean = weights @ places
        half = max(dense.size, int(14 * math.sqrt(steps * (weights @ (places - mean) ** 2)) + 0.3 * dense.size + 50))
        size, start = fft.next_fast_len(2 * half + 1), int(mean * steps) - half
        composed = fft.irfft(np.exp(steps * np.log(fft.rfft(weights, size) + 0j)), size)
        composed = np.roll(composed, -(start % size))
        sums = (np.arange(size) + start + dense._lower_loss * steps) * grid
        over = sums > epsilon
        back = np.exp(steps * mass - theta * sums[over])
        finite = float((-np.expm1(epsilon - sums[over]) * back) @ composed[over])
        return finite - math.expm1(steps * math.log1p(-dense._infinity_mass))

    def delta(rate: float, noise: float, steps: int, epsilon: float, grid: float) -> float:
        single = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=grid)
        return max(one_direction(pmf, steps, epsilon) for pmf in (single._pmf_remove, single._pmf_add))

    return delta
