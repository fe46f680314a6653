"""Figures of a budget and limits of attacks, always rounded to the safe side; and what rounding itself may cost."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

# Epsilon that is charged for each sum with normal noise because the noise is drawn on a grid: mechanisms must choose
# a grid that costs no more (docs/explain/proofs.md).
GRID_GAP = 1e-9


def at_least(value: float) -> str:
    """Four digits, rounded up: for what is asked for or spent.

    Parameters
    ----------
    value
        An epsilon or a delta.

    Returns
    -------
    str
        A number that is never below `value`.

    Examples
    --------
    >>> from locum.types import at_least
    >>> at_least(0.123412)
    '0.1235'
    """
    return _digits(value, ROUND_CEILING)


def at_most(value: float) -> str:
    """Four digits, rounded down: for what is left.

    Parameters
    ----------
    value
        An epsilon or a delta.

    Returns
    -------
    str
        A number that is never above `value`.

    Examples
    --------
    >>> from locum.types import at_most
    >>> at_most(0.123498)
    '0.1234'
    """
    return _digits(value, ROUND_FLOOR)


def limit_figure(limit: float) -> str:
    """Three digits, rounded up: for a proven limit, which must not look lower than it is.

    Parameters
    ----------
    limit
        An AUC or a share that no attack exceeds on average.

    Returns
    -------
    str
        A number that is never below `limit`.

    Examples
    --------
    >>> from locum.types import limit_figure
    >>> limit_figure(0.56623)
    '0.567'
    """
    return f"{math.ceil(limit * 1000 - 1e-9) / 1000:.3f}"


def _digits(value: float, rounding: str) -> str:
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):g}"
