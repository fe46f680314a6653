"""Generators by their names on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from locum.generate import BaseGenerator

# A class is imported when it is used: the first needs no torch.
GENERATORS = {"gaussian": "ClassGaussian", "cvae": "CVAEGenerator", "cgan": "CGANGenerator", "ksame": "KSame"}


def generator_class(name: str) -> type[BaseGenerator]:
    """The class of a generator in `GENERATORS`."""
    from locum import generate

    found: type[BaseGenerator] = getattr(generate, GENERATORS[name])
    return found
