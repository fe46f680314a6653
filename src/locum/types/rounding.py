"""Figures of a budget in four digits, always rounded to the safe side."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def at_least(value: float) -> str:
    """Four digits, rounded up: for what is asked for or spent."""
    return _digits(value, ROUND_CEILING)


def at_most(value: float) -> str:
    """Four digits, rounded down: for what is left."""
    return _digits(value, ROUND_FLOOR)


def _digits(value: float, rounding: str) -> str:
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):g}"
