"""What a private fit settles before it pays: its budget, its unit, its class names, and the ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from locum.accounting import Ledger
from locum.audit import ProvenLimit, proven_limit
from locum.data import LABEL_COLUMNS, feature_columns, guessed_label, read_ranges
from locum.embed import holds_images
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.generate import PRIVATE_GENERATORS
from locum.generate.private import Descent
from locum.generate.table import paid_table
from locum.io import MANIFEST, STATE_FOLDER, is_remote, listed, split_path
from locum.recipes.forecasting import Forecast, forecast
from locum.release import GaussianSpec, Release, load
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP, Batches, PrivacyClaim

# Called with class names, or values of an attribute, in the data; whether they may become public.
ConfirmClasses = Callable[[Sequence[str]], bool]

# Beyond these, what the data call classes are more likely patients, and nobody declared them.
MOST_CLASSES = 50
LEAST_UNITS = 20

REMOVED = (
    "copies of records were removed from the data before the fit: the guarantee is about the data that were left, "
    "and does not cover what a unit's copies did to the records of others"
)

# The epsilon that a forecast is also given for.
WIDER = 3.0


def names_read(*, classes: bool, attributes: Sequence[str] = ()) -> str | None:
    """The assumption that names from the data are public: of classes, of values of attributes; None: of neither."""
    what = ["class names"] * classes + [f"values of {', '.join(attributes)[:1000]}"] * bool(attributes)
    if not what:
        return None
    return (
        f"given that these {' and '.join(what)} are public: they were read from the data, at most {MOST_CLASSES} "
        f"with {LEAST_UNITS} units or more each, and the holder confirmed that they are public"
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
            f"{listed(PRIVATE_GENERATORS)}, or add --no-dp (`no_dp=True`) for a "
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


def undeclared_values(
    generator: str, settings: Mapping[str, Any], public: bool, confirm: ConfirmClasses | None
) -> tuple[str, ...]:
    """Attributes of a private fit whose values are to be read from the data; an error if nobody may confirm them."""
    wanted = settings.get("condition_on") or ()
    wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if wanted and generator != "gaussian":
        raise PrivacyError(
            "Under differential privacy only the generator 'gaussian' takes `condition_on` (--condition-on): leave "
            "it out, or take that one."
        )
    out = tuple(name for name in wanted if name not in (settings.get("condition_values") or {}))
    if out and not public and confirm is None:
        raise PrivacyError(
            f"Under differential privacy the values of {out[0]!r} are private too: declare those that can occur with "
            f"`condition_values` (--condition-values {out[0]}=A,B), or confirm that class names and values in the "
            "data are public with `classes_public` (--classes-public)."
        )
    return out


# A folder per patient is the usual cause, and whoever then types the names in publishes them.
_PATIENTS = (
    "Class names leave with the release: if these are patients, do not declare them, but give the patients as "
    "subjects and sort the records by diagnosis or another label. If they are classes, declare those that can occur "
    "with `classes` (--classes A,B)."
)


def check_two(data: Batches) -> None:
    """Refuse a single record: whatever is learned from it is that record."""
    if len(data) < 2:
        raise DataError("A fit needs two records or more; the data hold one.")


def with_unit_of(privacy: DP, data: Batches) -> DP:
    """The budget with the unit that the data ask for: the subject wherever subjects are known."""
    return replace(privacy, unit="subject" if data.has_subjects else "record")


def public_classes(
    data: Batches, unit: str, confirm: ConfirmClasses | None, *, held_out: bool = False
) -> tuple[str, ...]:
    """The class names of the data; `confirm` is asked about them (None: the holder said that they are public).

    With `held_out` the data are what was left after some records were held out, and a refusal says so.
    """
    names = data.info.class_names
    if len(names) > MOST_CLASSES:
        raise PrivacyError(
            f"The data name {len(names)} classes, and more than {MOST_CLASSES} are never taken from data. {_PATIENTS}"
        )
    few = _rare(data, unit, list(names))
    if few:
        left = " left after some were held out for the audit" if held_out else ""
        # Without their names: these may be patients.
        raise PrivacyError(
            f"{few} of the {len(names)} classes in the data have fewer than {LEAST_UNITS} {unit}s{left}, too few to "
            f"take their names from the data. {_PATIENTS}"
        )
    if confirm is not None and not confirm(names):
        raise PrivacyError(
            "Class names that are not public stay out of a release, and nothing was spent: give the classes names "
            "that may be public, and declare them with `classes` (--classes A,B)."
        )
    return names


def public_values(data: Batches, name: str, unit: str, confirm: ConfirmClasses | None) -> tuple[str, ...]:
    """The values of an attribute in the data, by the rules of `public_classes`."""
    if name not in data.attribute_names:
        known = ", ".join(sorted(data.attribute_names)) or "no attributes"
        raise ConfigError(f"`condition_on` names {name!r}, but the data have {known}.")
    held: set[str] = set()
    for facts in data.only(subject=False, attributes=[name]).facts():
        held.update(np.unique(facts.attributes[name].astype(np.str_)).tolist())
    values = sorted(held)
    way_out = f"name those that can occur with `condition_values` (--condition-values {name}=A,B)."
    if len(values) > MOST_CLASSES:
        raise PrivacyError(
            f"{name!r} has {len(values)} values in the data, and more than {MOST_CLASSES} must be declared: {way_out}"
        )
    few = _rare(data, unit, values, name)
    if few:
        raise PrivacyError(
            f"{few} of the {len(values)} values of {name!r} in the data have fewer than {LEAST_UNITS} {unit}s, too "
            f"few to take them from the data: {way_out}"
        )
    found = tuple(values)
    if confirm is not None and not confirm([f"{name}={value}" for value in found]):
        raise PrivacyError(
            f"Values of {name!r} that are not public stay out of a release, and nothing was spent: leave "
            "`condition_on` (--condition-on) out."
        )
    return found


def _rare(data: Batches, unit: str, names: Sequence[str], attribute: str | None = None) -> int:
    """How many class names, or values of an attribute, have too few units to be taken from the data."""
    counts = dict.fromkeys(names, 0)
    units: dict[str, set[str]] = {name: set() for name in names}
    by_subject = unit == "subject" and data.has_subjects
    for facts in data.only(subject=by_subject, attributes=[] if attribute is None else [attribute]).facts():
        texts = np.asarray(names)[facts.y] if attribute is None else facts.attributes[attribute].astype(np.str_)
        for name in np.unique(texts).tolist():
            mine = texts == name
            counts[name] += int(mine.sum())
            # No more than are needed: all subjects of large data would not fit.
            if facts.subject is not None and len(units[name]) < LEAST_UNITS:
                units[name].update(np.unique(facts.subject[mine].astype(np.str_)).tolist())
    return sum((len(units[name]) if by_subject else counts[name]) < LEAST_UNITS for name in names)


def check_label_named(data: str, confirm: ConfirmClasses | None) -> None:
    """Refuse to publish the values of a column that was taken for the classes because it is the last one.

    A holder who is asked sees the names; one who said beforehand that they are public does not.
    """
    column = None if confirm is not None or holds_images(split_path(data)[0]) else guessed_label(data)
    if column is not None:
        raise PrivacyError(
            f"No column of {data!r} is called {listed(LABEL_COLUMNS)}, so the last one, {column!r}, would be taken "
            "for the classes, and its values would be published: rename the column of classes, or declare its values "
            "with `classes` (--classes A,B)."
        )


def check_several_classes(names: Sequence[str]) -> None:
    """Refuse a single class before anything is paid for: most often the folder is one level off."""
    if len(names) < 2:
        raise DataError(
            f"All records belong to one class{f', {names[0]!r}' if names else ''}, and a release needs two or more: "
            "give the folder that holds one folder per class, or a column of classes."
        )


def table_columns(data: str) -> tuple[str, ...]:
    """The columns whose ranges a private fit must know; empty for images, and for vectors in one column."""
    return () if holds_images(split_path(data)[0]) else feature_columns(data)


def check_scaled(data: str, reference: str, *, chosen: bool) -> None:
    """Refuse the columns of a table without their ranges: bounds that fit no column leave nothing but noise.

    `chosen`: the holder named the statistics, so that "none" means standardized columns.
    """
    columns = table_columns(data)
    if not columns:
        return
    if reference == "none" and not chosen:
        raise ConfigError(
            f"{data!r} is a table, and a private fit must know the usual range of each column without looking at the "
            "records: write the ranges into a file (name,low,high; one line per column) and add --reference "
            "ranges.csv, or use `locum obfuscate fit`, which also takes categories. If the columns are standardized, "
            "add --reference none."
        )
    if Path(reference).suffix.lower() == ".csv":
        named, wanted = tuple(read_ranges(Path(reference))), tuple(name.strip() for name in columns)
        if named != wanted:
            at = next(i for i, pair in enumerate(zip_longest(named, wanted)) if pair[0] != pair[1])
            has = "has no more lines" if at >= len(named) else f"names {named[at][:80]!r}"
            needs = "the table has no more columns" if at >= len(wanted) else f"the table has {wanted[at][:80]!r}"
            raise ConfigError(
                f"{reference!r} must name the {len(wanted)} columns of {data!r} in their order: line {at + 2} {has}, "
                f"where {needs}."
            )


def with_assumptions(
    release: Release, *, names_public: str | None, duplicates_removed: bool, not_covered: Sequence[str] = ()
) -> Release:
    """The release with what else its claim assumes and leaves out; that names are public comes first."""
    first, last = (names_public,) if names_public else (), (REMOVED,) * duplicates_removed
    claim = replace(
        release.claim,
        assumptions=(*first, *release.claim.assumptions, *last),
        not_covered=(*release.claim.not_covered, *not_covered),
    )
    return replace(release, manifest=release.manifest.model_copy(update={"claim": claim}))


def paid_limit(claim: PrivacyClaim, ledger: Path, names_public: str | None) -> ProvenLimit:
    """The proven limit of a release, alone and with all that its ledger was charged for so far."""
    # Of all holdings: the same people can be in several.
    charges = [charge for holding in Ledger(ledger).holdings().values() for charge in holding.charges]
    # The holder has confirmed this one; nobody has accepted the others.
    return proven_limit(claim, charges, accepted=() if names_public is None else (names_public,))


def expected_use(release: Release) -> tuple[Forecast, ...]:
    """What the release is expected to keep of the usefulness of real data, and what `WIDER` would have kept.

    It goes by the noisy count in the release, which is paid for.
    """
    decoder, dp = release.manifest.decoder, release.claim.dp
    if not isinstance(decoder, GaussianSpec) or decoder.head is None or dp is None:
        return ()
    # The table of measured releases is about vectors that were whitened with public statistics.
    if release.manifest.settings.get("reference") == "none":
        return ()
    cells, d = release.manifest.cells, release.manifest.embedding.dim
    descent = Descent(decoder.head.noise, cells, d)
    descent.take(release.tensors["transcript"][: descent.size].astype(np.float64))
    epsilons = [round(dp.epsilon, 3), *([WIDER] if dp.epsilon < WIDER else [])]
    return tuple(
        forecast(DP(epsilon, dp.delta), units=descent.count, classes=len(release.manifest.classes), features=d)
        for epsilon in epsilons
    )


def check_not_lost(data: str, ledger: Path) -> None:
    """Refuse a new ledger where a release shows that there was one: what it spent would be forgotten.

    A ledger that is there must be one. One without a budget may have been made by a preview, and counts as new.
    """
    if ledger.exists() and Ledger(ledger).holdings():
        return
    # Beside the data, and beside the images that vectors were made from.
    places = set() if is_remote(data) else {Path(os.path.realpath(split_path(data)[0])).parent}
    if ledger.parent.name == STATE_FOLDER:
        places.add(ledger.absolute().parent.parent)
    # The second is where `publish` puts a release.
    patterns = (f"*/{MANIFEST}", f"*/release/{MANIFEST}")
    for manifest in sorted(found for place in places for pattern in patterns for found in place.glob(pattern)):
        try:
            paid = paid_table(manifest.parent) or load(manifest.parent).claim.dp is not None
        except LocumError:
            continue
        if paid:
            raise PrivacyError(
                f"The release {manifest.parent.name!r} beside the data was paid for, but there is no ledger "
                f"{str(ledger)!r}, or it has no budget: what was spent would be forgotten. Put it back from a backup "
                "with `locum ledger restore`; if that release was made from other data, open a ledger with `locum "
                "ledger set-budget`."
            )
