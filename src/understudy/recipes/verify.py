"""`verify`: what anyone can check about a release, and what its holder can check against the ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from understudy.errors import ConfigError, PrivacyError
from understudy.recipes.ledger import existing_ledger
from understudy.release import Verification, verify
from understudy.types import PrivacyClaim

__all__ = ["verify_release"]


def verify_release(path: Path, *, ledger: Path | None = None) -> Verification:
    """Check a release folder; with `ledger`, also that it knows what the release paid.

    A ledger that does not know the release is another one, or an old copy that was put back: then what was spent
    since is missing from it, and no budget in it can be trusted.
    """
    found = verify(path)
    if ledger is None:
        return found
    claim = PrivacyClaim.from_dict(found.claim)
    if claim.dp is None:
        raise ConfigError(f"{str(path)!r} carries no differentially private promise: there is nothing to look up.")
    if not existing_ledger(ledger).knows(claim.dp.ledger):
        raise PrivacyError(
            f"The ledger {str(ledger)!r} does not know the charge of this release: it is another ledger, or an old "
            "copy that was put back. Find the newest one before anything else is spent."
        )
    return replace(found, checks=(*found.checks, "the ledger knows what this release paid"))
