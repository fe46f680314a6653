"""Which generator to take where nobody asked for one: what `locum study run private-epsilon` found best."""

from __future__ import annotations

from dataclasses import dataclass

from locum.types import DP


@dataclass(frozen=True, slots=True)
class Choice:
    """A generator by its name in the program, and the reason in one sentence."""

    generator: str
    reason: str


def choose_generator(privacy: DP | None = None) -> Choice:
    """The generator for a budget, by public numbers alone; it never looks at data.

    >>> choose_generator(None).generator
    'gaussian'
    """
    if privacy is None:
        return Choice("gaussian", "without a promise it ties with the CVAE for a linear head, and is smaller")
    return Choice(
        "gaussian",
        f"at epsilon {privacy.epsilon:g} one noisy sum kept more than noisy training on every set that was tried",
    )
