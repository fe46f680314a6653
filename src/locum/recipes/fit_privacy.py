"""What a private fit settles before it pays: its budget, its unit, its class names, and the ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from locum.accounting import Ledger
from locum.audit import ProvenLimit, proven_limit
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.generate import PRIVATE_GENERATORS
from locum.io import MANIFEST, STATE_FOLDER, split_path
from locum.release import Release, load
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP, EmbeddingSet, PrivacyClaim

# Called with the class names of the data; whether they may become public.
ConfirmClasses = Callable[[Sequence[str]], bool]

# Beyond these, what the data call classes are more likely patients, and nobody declared them.
MOST_CLASSES = 50
LEAST_UNITS = 20

CLASSES_READ = (
    "given that these class names are public: they were read from the data, "
    f"at most {MOST_CLASSES} with {LEAST_UNITS} units or more each, and the holder confirmed that they are public"
)
REMOVED = (
    "copies of records were removed from the data before the fit: the guarantee is about the data that were left, "
    "and does not cover what a unit's copies did to the records of others"
)


def asked_budget(privacy: DP | None, no_dp: bool, generator: str) -> DP | None:
    """The budget of a fit before the data are read; None if no guarantee is wanted."""
    if no_dp and privacy is not None:
        raise ConfigError("`no_dp` and `privacy` contradict each other: leave one of them out.")
    if no_dp:
        return None
    if generator not in PRIVATE_GENERATORS:
        raise PrivacyError(
            f"The generator {generator!r} does not support differential privacy: take "
            f"{', '.join(PRIVATE_GENERATORS[:-1])} or {PRIVATE_GENERATORS[-1]}, or add --no-dp (`no_dp=True`) for a "
            "release without a guarantee."
        )
    budget = privacy or DP(DEFAULT_EPSILON, DEFAULT_DELTA)
    if generator != "gaussian":
        # Noisy training of networks; the Gaussian pays for a noisy count.
        budget.size()
    return budget


def check_classes_known(classes: Sequence[str] | None, public: bool, confirm: ConfirmClasses | None) -> None:
    """Refuse a private fit, before the data are read, that nobody told which class names are public."""
    if classes is not None and public:
        raise ConfigError(
            "`classes` (--classes) declares the classes: leave out `classes_public` (--classes-public)."
        )
    if classes is None and not public and confirm is None:
        raise PrivacyError(
            "Under differential privacy the set of classes is private too: declare the classes that can occur with "
            "`classes` (--classes A,B), or confirm that the class names in the data are public with `classes_public` "
            "(--classes-public)."
        )


def with_unit_of(privacy: DP, data: EmbeddingSet) -> DP:
    """The budget with the unit that the data ask for: the subject wherever subjects are known."""
    return replace(privacy, unit="record" if data.subject is None else "subject")


def public_classes(data: EmbeddingSet, unit: str, confirm: ConfirmClasses | None) -> tuple[str, ...]:
    """The class names of the data; `confirm` is asked about them (None: the holder said that they are public)."""
    names = data.info.class_names
    if len(names) > MOST_CLASSES:
        raise PrivacyError(
            f"The data name {len(names)} classes, and more than {MOST_CLASSES} must be declared, since a folder per "
            "patient is not a set of classes: name those that can occur with `classes` (--classes A,B)."
        )
    units = np.arange(len(data)) if unit == "record" or data.subject is None else data.subject
    few = sum(len(np.unique(units[data.y == code])) < LEAST_UNITS for code in range(len(names)))
    if few:
        # Without their names: these may be patients.
        raise PrivacyError(
            f"{few} of the {len(names)} classes in the data have fewer than {LEAST_UNITS} {unit}s, too few to take "
            "their names from the data: name the classes that can occur with `classes` (--classes A,B)."
        )
    if confirm is not None and not confirm(names):
        raise PrivacyError(
            "Class names that are not public stay out of a release, and nothing was spent: give the classes names "
            "that may be public, and declare them with `classes` (--classes A,B)."
        )
    return names


def with_assumptions(release: Release, *, classes_read: bool, duplicates_removed: bool) -> Release:
    """The release with what else its claim assumes; that the class names are public comes first."""
    first, last = (CLASSES_READ,) * classes_read, (REMOVED,) * duplicates_removed
    claim = replace(release.claim, assumptions=(*first, *release.claim.assumptions, *last))
    return replace(release, manifest=release.manifest.model_copy(update={"claim": claim}))


def paid_limit(claim: PrivacyClaim, ledger: Path) -> ProvenLimit:
    """The proven limit of a release, alone and with all that its ledger was charged for so far."""
    # Of all holdings: the same people can be in several.
    charges = [charge for holding in Ledger(ledger).holdings().values() for charge in holding.charges]
    # The holder has confirmed this one; nobody has accepted the others.
    return proven_limit(claim, charges, accepted=[line for line in claim.assumptions if line == CLASSES_READ])


def check_not_lost(data: str, ledger: Path) -> None:
    """Refuse a new ledger where a release shows that there was one: what it spent would be forgotten."""
    if ledger.exists():
        return
    # Beside the data, and beside the images that vectors were made from.
    places = {Path(os.path.realpath(split_path(data)[0])).parent}
    if ledger.parent.name == STATE_FOLDER:
        places.add(ledger.absolute().parent.parent)
    for manifest in sorted(found for place in places for found in place.glob(f"*/{MANIFEST}")):
        try:
            paid = load(manifest.parent).claim.dp is not None
        except LocumError:
            continue
        if paid:
            raise PrivacyError(
                f"The release {manifest.parent.name!r} beside the data was paid for, but there is no ledger "
                f"{str(ledger)!r}: what was spent would be forgotten. Put it back from a backup with `locum ledger "
                "restore`; if that release was made from other data, open a ledger with `locum ledger set-budget`."
            )
