"""What anyone can check about a private table, and what its holder can check against the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from locum.errors import ConfigError, PrivacyError
from locum.generate.table import SavedTable, TableLearner, TableModel, open_table
from locum.release import Verification, transcript_hash
from locum.types import DPClaim, PrivacyClaim

if TYPE_CHECKING:
    from locum.accounting import Charge, Ledger

# Another processor may round the last digits of the inference differently.
_CLOSE = 1e-4
_ALTERED = "The model does not follow from the noisy counts next to it: the folder was altered. Do not use it."


def verify_table(
    path: Path,
    ledger: Path | None,
    paid: Callable[[PrivacyClaim, DPClaim, Path], tuple[Ledger, Charge]],
) -> Verification:
    """Check a private table: its folder, its claim and its model; with a ledger, that it was paid for.

    `paid` finds the charge that a claim names, or raises.
    """
    saved = open_table(path)
    checks = [
        "manifest.json follows schema 1",
        "files have the sizes and hashes that it lists, and there is no other",
    ]
    _check_model(saved)
    checks.append("the model follows from the noisy counts next to it")
    not_checked, dp = [], saved.claim.dp
    if dp is not None:
        checks.append("the claimed epsilon covers what its events cost")
        if ledger is None:
            not_checked.append("whether it was made and paid for as it says: its holder can tell, with --ledger")
    if ledger is not None:
        if dp is None:
            raise ConfigError(
                f"{str(path)!r} has no claim of differential privacy, so it has no charge: leave out --ledger."
            )
        book, charge = paid(saved.claim, dp, ledger)
        if saved.fingerprint not in book.releases(charge):
            raise PrivacyError(
                f"The ledger {str(book.file)!r} has the charge that this table names, but does not know this table: "
                "it was altered, or made by somebody else. Do not use it."
            )
        if transcript_hash(saved.transcript) not in book.results(charge).values():
            raise PrivacyError("The table holds other noisy counts than the ledger knows: it was altered.")
        checks += ["the ledger has the charge of this table, and knows it by its fingerprint",
                   "the noisy counts are the ones that the ledger knows"]  # fmt: skip
        not_checked.append(
            "that noise was drawn as the charge says: no ledger can show it; `locum audit --canaries` tests the code"
        )
    return Verification(
        str(path),
        saved.fingerprint,
        "PrivateTable",
        saved.claim,
        tuple(checks),
        not_checked=tuple(not_checked),
        audit="no audit: a private table has no passport",
        decision="no decision is recorded",
    )


def _check_model(saved: SavedTable) -> None:
    """Compute the model again from the noisy counts."""
    settings, rest = saved.manifest.settings, saved.transcript.astype(np.float64)
    learner = TableLearner(saved.model.domain, saved.model.utility, settings.noise_multiplier)
    while not learner.done:
        size = learner.query.size
        if len(rest) < size:
            raise PrivacyError(_ALTERED)
        learner.take(rest[:size])
        rest = rest[size:]
    found = learner.model(settings.rows_per_subject if settings.unit == "subject" else 1)
    if len(rest) or not _same(found, saved.model):
        raise PrivacyError(_ALTERED)


def _same(found: TableModel, given: TableModel) -> bool:
    # The manifest holds the count with one digit after the point, within what can be sampled.
    if found.parents != given.parents or abs(max(found.count, 0.0) - given.count) > 0.1 + _CLOSE * given.count:
        return False
    if not all(np.array_equal(a, b) for a, b in zip(found.groups, given.groups, strict=True)):
        return False
    pairs = zip(
        (found.label, *found.conditionals, *found.within),
        (given.label, *given.conditionals, *given.within),
        strict=True,
    )
    return all(a.shape == b.shape and bool(np.abs(a - b).max() <= _CLOSE) for a, b in pairs)
