"""Secure randomness, exact sums, and the noise that makes them private."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.mechanisms.discrete_gaussian import check_noise as check_noise, noisy as noisy
    from locum.mechanisms.exact_sums import ExactSums as ExactSums
    from locum.mechanisms.secure_random import SecureRandom as SecureRandom

__getattr__, __dir__, __all__ = lazy_exports(__name__)
