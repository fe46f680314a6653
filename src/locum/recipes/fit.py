"""`fit`: from a file of records to a release, attacked once before anybody can send it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum._threads import threads_for
from locum.accounting import Ledger, check_one_ledger, paying_for
from locum.audit import LEAST_NON_MEMBERS, ProvenLimit, check_membership, with_limit
from locum.data import (
    Engine,
    check_droppable,
    check_trainable,
    copies_of,
    count_copies_of,
    count_duplicates,
    drop_duplicates,
    find_duplicates,
    hold_out,
    is_drawn,
    ledger_for,
    list_copies,
    load_reference,
    place_of,
    reference_for,
    split,
)
from locum.embed import holds_images
from locum.errors import CheckpointError, ConfigError, DataError, LocumError, PolicyError, PrivacyError
from locum.generate import BaseGenerator, choose_generator
from locum.io import check_output_folder, hold_folder, split_path
from locum.recipes.fit_large import FEW_HASHES, IN_MEMORY, MOST_COMPARED, drawn, open_large, sorted_copy
from locum.recipes.fit_privacy import (
    ConfirmClasses,
    asked_budget,
    check_classes_known,
    check_label_named,
    check_not_lost,
    check_scaled,
    check_several_classes,
    check_two,
    expected_use,
    names_read,
    paid_limit,
    public_classes,
    public_values,
    undeclared_values,
    with_assumptions,
    with_unit_of,
)
from locum.recipes.forecasting import Forecast
from locum.recipes.generators import GENERATORS, generator_class
from locum.recipes.inputs import (
    check_only_real,
    check_source,
    checkpoint_path,
    choose_split,
    image_names,
    keep_private_list,
    only_real,
    pick_split,
    read_sets,
    state_place,
    table_of_copies,
)
from locum.release import load
from locum.types import DP, AttackResult, Batches, EmbeddingSet, PrivacyClaim, Progress, SetBatches

Announce = Callable[[str], None]

# Above this share of non-members that equal a member the membership check refuses to run.
_MANY = 0.05
_HOLDOUT = (
    "`holdout` must lie between 0 and 1; got {!r}. Without held-out records nobody can tell whether the release "
    "leaks: or name a file of other records with --non-members."
)


@dataclass(frozen=True, slots=True)
class FitSummary:
    """What the data holder sees after a fit. It depends on records and must not be shared.

    Attributes
    ----------
    release
        Folder of the release.
    fingerprint
        SHA-256 of its manifest.
    generator
        Name of the generator's class.
    claim
        What the release guarantees.
    limit
        With a guarantee: what no attack can exceed on average, for this release and with all of its ledger.
    holding
        With a guarantee: the name of the data holding that paid.
    forecasts
        What a classifier from the release is expected to keep of the usefulness of real data, at this epsilon and at
        3; measured on other data, so none of it depends on yours.
    left
        With a guarantee: epsilon and delta that are left of its budget.
    membership
        The membership check; None if it could not be run.
    records
        How many records were used for the fit.
    held_out
        How many records were non-members in the check.
    megabytes
        Size of the release.
    seconds
        How long fitting, checking and writing took.
    problem
        Why there is no membership check, if there is none.
    repeated
        How many records equal an earlier one of their split in vector and label.
    shared
        How many non-members have the vector of a record that was used, before any were left out.
    dropped
        How many records and non-members were left out as copies.
    kept
        How many of the repeated records were used nevertheless.
    duplicates_file
        The private file that lists all copies in the data; None if there are none, or it could not be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> summary = fit_release("tumors.npz", Path("release-summed-up"), classes_public=True)
    >>> summary.claim.kind, summary.records
    ('dp', 569)
    >>> summary.limit.words
    'within the proven limit (0.567)'
    """

    release: Path
    fingerprint: str
    generator: str
    claim: PrivacyClaim
    membership: AttackResult | None
    records: int
    held_out: int
    megabytes: float
    seconds: float
    # Why there is no membership check, where there is none.
    problem: str = ""
    repeated: int = 0
    shared: int = 0
    dropped: int = 0
    kept: int = 0
    duplicates_file: str | None = None
    limit: ProvenLimit | None = None
    holding: str | None = None
    left: tuple[float, float] | None = None
    forecasts: tuple[Forecast, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "release": str(self.release),
            "fingerprint": self.fingerprint,
            "generator": self.generator,
            "claim": self.claim.to_dict(),
            "limit": None if self.limit is None else self.limit.to_dict(),
            "holding": self.holding,
            "left": None if self.left is None else {"epsilon": self.left[0], "delta": self.left[1]},
            "forecasts": [one.to_dict() for one in self.forecasts],
            "membership": None if self.membership is None else self.membership.to_dict(),
            "problem": self.problem,
            "records": self.records,
            "held_out": self.held_out,
            "megabytes": round(self.megabytes, 3),
            "seconds": round(self.seconds, 2),
            "repeated": self.repeated,
            "shared": self.shared,
            "dropped": self.dropped,
            "kept": self.kept,
            "duplicates_file": self.duplicates_file,
        }


def fit_release(
    data: str,
    out: Path,
    *,
    generator: str = "auto",
    settings: Mapping[str, Any] | None = None,
    holdout: float = 0.1,
    non_members: str | None = None,
    backbone: str | None = None,
    privacy: DP | None = None,
    no_dp: bool = False,
    unit_from_data: bool = False,
    classes: Sequence[str] | None = None,
    classes_public: bool = False,
    confirm_classes: ConfirmClasses | None = None,
    ledger: Path | None = None,
    holding: str = "default",
    drop_duplicates: bool = False,
    duplicates_removed: bool = False,
    not_covered: Sequence[str] = (),
    refuse_leak: bool = False,
    overwrite: bool = False,
    resume: bool = True,
    must_resume: bool = False,
    engine: Engine | None = None,
    in_memory: int = IN_MEMORY,
    verbose: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> FitSummary:
    """Fit a generator on `data`, write its release to `out`, and run the membership check on it.

    Non-members for the check are, in this order: the file `non_members`, the data's own validation or test split, or
    the share `holdout` of the records. The generator never sees them; early stopping uses another tenth of the
    records. They must come from the same population as the records. The check is a first look, not an audit.

    The release has a guarantee of differential privacy unless `no_dp` is set. It is then written before the check,
    whatever the check says: what depends on records without being paid for must not decide whether there is a
    release. No records are held out then: which ones are used must not depend on other records.

    Parameters
    ----------
    data
        File or folder of records; with splits, "train" is used unless `FILE#split` says otherwise. Images are
        embedded first.
    out
        Folder of the release.
    generator
        "gaussian", "cvae", "cgan", "ksame", or "auto" for what `choose_generator` says for the budget.
    settings
        Further settings of the generator, by name.
    holdout
        With `no_dp`: share of the records to hold out, above 0 and below 1, where there are no other non-members.
    non_members
        File of records that the fit does not use.
    backbone
        Model that embeds images; None: EfficientNet-Lite 0.
    privacy
        Budget of the release; None: epsilon 1 and delta 1e-6, with the unit that the data ask for. Networks need one
        with `n_public`. Public statistics are those that `reference_for` names.
    no_dp
        Make a release without a guarantee.
    unit_from_data
        Take the unit of `privacy` from the data: "subject" where they have subjects, "record" otherwise.
    classes
        Names of all classes there can be, which become public; one may be empty. Only with a guarantee, which needs
        them unless the names in the data are public.
    classes_public
        The class names in the data are public, and so are the values of the attributes in the setting `condition_on`
        that `condition_values` does not declare. The claim says that it holds given that.
    confirm_classes
        Called with the class names, and with such values, where nothing declares them or says that they are public;
        True if they are.
    ledger
        Ledger that pays; None: that of the data.
    holding
        Name of the data holding whose budget pays.
    drop_duplicates
        Leave copies out: records that equal an earlier one (see `locum.data.drop_duplicates`; with a guarantee only
        those whose loss moves no other unit's records), and non-members that equal a record.
    duplicates_removed
        With a guarantee: copies were removed from the data before, by rules that it does not know. The claim names
        this as an assumption.
    not_covered
        With a guarantee: what else it does not cover, such as a decision that depends on records.
    refuse_leak
        With `no_dp`: write nothing if the check finds a leak.
    overwrite
        Replace `out` if it is a release.
    resume
        Continue an interrupted fit of a CVAE, or of a Gaussian with a guarantee, which then does not pay again; its
        checkpoint is kept beside the data.
    must_resume
        This fit was paid for before: go on from its checkpoint, and refuse to pay again if there is none.
    engine
        Where passes over data in pieces run, such as `RayEngine`; None: in this process.
    in_memory
        Bytes of vectors up to which data are read as a whole. Larger ones are read in pieces, in one pass per noisy
        sum, if they are Parquet, safetensors or CSV files, or folders of .npy files, and the generator is "gaussian",
        or "cvae" without a guarantee; so are data at an address, and all data with an `engine`. Copies are then
        counted, but not listed.
    verbose
        Show the progress of training.
    seed
        Seed of weights, splits and the check. Under differential privacy noise and batches do not depend on it.
    progress
        Called while images are embedded.
    announce
        Called with one line for what the holder should know before the budget is charged: copies among the records.

    Returns
    -------
    FitSummary
        The release, its claim and the check. Private.

    Raises
    ------
    PolicyError
        If `refuse_leak` is set and the check finds a leak.
    PrivacyError
        If the budget of the holding does not allow the release, or something that a guarantee needs is missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release
    >>> from locum.types import DP
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> given = {"privacy": DP(epsilon=1.0, delta=1e-5), "classes": ["malignant", "benign"], "holding": "tumors"}
    >>> summary = fit_release("tumors.npz", Path("release"), **given)
    >>> summary.claim.kind, summary.claim.dp.epsilon <= 1.0
    ('dp', True)
    """
    if generator == "auto":
        generator = choose_generator(privacy).generator
    if generator not in GENERATORS:
        raise ConfigError(f"`generator` must be auto or one of {', '.join(GENERATORS)}; got {generator!r}.")
    check_output_folder(out, overwrite=overwrite)
    settings = dict(settings or {})
    unit_from_data = unit_from_data or privacy is None
    to_read: tuple[str, ...] = ()
    confirm = None if classes_public else confirm_classes
    privacy = asked_budget(privacy, no_dp, generator)
    if privacy is not None:
        check_classes_known(classes, classes_public, confirm_classes)
        to_read = undeclared_values(generator, settings, classes_public, confirm_classes)
    elif classes is not None or classes_public or settings.get("condition_values"):
        raise ConfigError(
            "`classes`, `classes_public` and `condition_values` belong to a guarantee: leave them out, or leave out "
            "--no-dp."
        )
    if privacy is not None and refuse_leak:
        raise PrivacyError(
            "--fail-on-leak lets records decide whether a release is written, and no budget pays for that: leave it "
            "out, or add --no-dp."
        )
    if privacy is not None and is_drawn(data):
        raise PrivacyError(
            f"{data!r} is a random part of the data, and which records are in it depends on how many there are: a "
            "guarantee needs all of them, so leave the brackets out, or add --no-dp."
        )
    if privacy is None and duplicates_removed:
        raise ConfigError(
            "--duplicates-removed adds an assumption to a guarantee: leave it out, or leave out --no-dp."
        )
    if privacy is not None:
        settings |= {"privacy": privacy, "ledger": ledger, "holding": holding}
    if drop_duplicates and not unit_from_data:
        check_droppable(privacy)
    # Wrong settings are reported before data are read; those that depend on the data come after.
    _build(generator, settings, seed)
    if "device" in settings:
        from locum.train import cpu_only, pick_device  # torch

        (pick_device if privacy is None else cpu_only)(settings["device"])
    # Before anything is paid for: whoever comes second is refused at once.
    with hold_folder(out):
        if privacy is not None and holds_images(split_path(data)[0]):
            # Before they are embedded, which can take hours.
            check_one_ledger(place_of(data), ledger or ledger_for(data))
        wanted = privacy is not None and settings.get("reference", "auto") == "auto"
        opened = None
        # A private network draws its batches from all records, which must be in memory for that.
        in_pieces = generator == "gaussian" or (generator == "cvae" and privacy is None and engine is None)
        if in_pieces and not drop_duplicates:
            opened = open_large(data, backbone, in_memory=in_memory if engine is None else -1)
        splits: dict[str, EmbeddingSet] = {}
        if opened is None:
            if engine is not None:
                raise ConfigError(
                    "Only fits of the generator gaussian to Parquet, safetensors or CSV files, without "
                    "--drop-duplicates, run on another engine: leave --engine out."
                )
            splits = read_sets(data, backbone=backbone, reference=wanted, progress=progress)
        if classes is not None:
            splits = {name: part.with_classes(tuple(classes)) for name, part in splits.items()}
            opened = opened and {name: part.with_classes(tuple(classes)) for name, part in opened.items()}
        if privacy is not None:
            given: Batches
            if opened is None:
                given = SetBatches(choose_split(splits, data, "train"))
            else:
                given = choose_split(opened, data, "train")
            check_only_real(given, "given")
            check_two(given)
            privacy = with_unit_of(privacy, given) if unit_from_data else privacy
            names = tuple(classes or ())
            if classes is None:
                check_label_named(data, confirm)
                names = public_classes(given, privacy.unit, confirm)
            check_several_classes(names)
            settings |= {"privacy": privacy, "classes": list(range(len(names)))}
            if to_read:
                found_values = {name: public_values(given, name, privacy.unit, confirm) for name in to_read}
                settings["condition_values"] = {**(settings.get("condition_values") or {}), **found_values}
        if drop_duplicates:
            check_droppable(privacy)
        if opened is None:
            found = _parts(splits, data, non_members, backbone, holdout, seed, privacy, drop=drop_duplicates)
        else:
            found = _large_parts(opened, data, non_members, holdout, seed, privacy, ledger)
        train, others, place = found.train, found.others, ""
        if privacy is not None:
            settings["ledger"] = ledger or ledger_for(data, train.info)
            place = place_of(data, train.info)
            check_one_ledger(place, settings["ledger"])
            check_not_lost(data, settings["ledger"])
            check_output_folder(out, overwrite=overwrite)
        if wanted:
            settings["reference"] = reference_for(train.info)
        if privacy is not None:
            check_scaled(data, settings["reference"], chosen=not wanted)
            load_reference(settings["reference"], train.dim, train.info)
        if privacy is not None and found.kept and announce is not None:
            announce(_about_copies(found, privacy, dropping=drop_duplicates))
        model = _build(generator, settings, seed)
        started = time.monotonic()
        asked = model.get_params()
        if "verbose" in asked:
            model.set_params(verbose=verbose)
        if "checkpoint" in asked:
            chosen = {name: str(value) for name, value in asked.items() if name != "verbose"}
            if drop_duplicates:
                chosen["drop_duplicates"] = "True"
            kept_in = checkpoint_path(data, "fit", chosen, ledger=settings.get("ledger"))
            if must_resume and (kept_in is None or not kept_in.is_file()):
                raise CheckpointError("there is no checkpoint of a fit with these settings.")
            model.set_params(checkpoint=kept_in if resume else None)
        with paying_for(place):
            if isinstance(train, EmbeddingSet):
                model.fit(train.X, train.y, train.subject, attributes=train.attributes)
            else:
                by_subject = privacy is not None and privacy.unit == "subject"
                with sorted_copy(data, settings.get("ledger")) if by_subject else nullcontext() as scratch:
                    model.fit_batches(train, engine=engine, scratch=scratch)
        problem, membership, limit, left = "", None, None, None
        forecasts: tuple[Forecast, ...] = ()
        if privacy is None:
            release = model.release(train.info, no_dp=True)
        else:
            release = model.release(train.info, class_names=train.info.class_names)
            names_public = names_read(classes=classes is None, attributes=to_read)
            release = with_assumptions(
                release, names_public=names_public, duplicates_removed=duplicates_removed, not_covered=not_covered
            )
            release.save(out, overwrite=overwrite)
            model.remove_checkpoint()
            limit = paid_limit(release.claim, settings["ledger"], names_public)
            left = Ledger(settings["ledger"]).holding(holding).left
            forecasts = expected_use(release)
        try:
            if others is not None:
                # Chance decides which records are compared: the result is about all of them, only less certain.
                members, fresh = (drawn(part, data) for part in (train, others))
                with threads_for((len(members) + len(fresh)) * train.dim):
                    checked = check_membership(release, members, fresh, np.random.default_rng(seed))
                membership = with_limit(checked, limit)
            else:
                problem = "There are no other records to check the release with: name some with --non-members."
        except LocumError as error:
            if privacy is None:
                raise
            problem = str(error)
        if refuse_leak and membership is not None and membership.verdict == "leak":
            raise PolicyError(
                f"The membership check found a leak (AUC {membership.attack:.3f}), so nothing was written. "
                "Try another generator or more records, or leave --fail-on-leak out."
            )
        if privacy is None:
            release.save(out, overwrite=overwrite)
        saved = load(out)
    size = sum(entry.bytes for entry in saved.manifest.files.values())
    return FitSummary(
        release=out,
        fingerprint=saved.fingerprint or "",
        generator=saved.manifest.generator,
        claim=saved.claim,
        membership=membership,
        records=len(train),
        held_out=0 if others is None else len(others),
        megabytes=size / 1e6,
        seconds=time.monotonic() - started,
        problem=problem,
        repeated=found.repeated,
        shared=found.shared,
        dropped=found.dropped,
        kept=found.kept,
        duplicates_file=found.listing,
        limit=limit,
        holding=None if privacy is None else holding,
        left=left,
        forecasts=forecasts,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """Records and non-members of a fit, and the copies among them."""

    train: EmbeddingSet | Batches
    others: EmbeddingSet | Batches | None
    repeated: int
    shared: int
    dropped: int
    kept: int
    listing: str | None


def _parts(
    splits: Mapping[str, EmbeddingSet],
    data: str,
    non_members: str | None,
    backbone: str | None,
    holdout: float,
    seed: int,
    privacy: DP | None,
    *,
    drop: bool,
) -> _Parts:
    """Records to learn from, and records that have no part in the fit at all, not even in early stopping."""
    private = privacy is not None
    # A generated row depends on many records: no guarantee, and no check, would be true of it.
    given = only_real(choose_split(splits, data, "train"), "given")
    train = drop_duplicates(given, privacy) if drop else given
    dropped = len(given) - len(train)
    repeated = int((find_duplicates(given.X, given.y) != np.arange(len(given))).sum())
    kept = repeated - dropped
    if not private:
        check_trainable(train)
        if len(given) - repeated == len(np.unique(given.y)):
            raise DataError("Every class holds the same vector in every record: nothing can be learned from them.")
    rng = np.random.default_rng(seed)
    # A test split often comes from elsewhere; then non-members differ for reasons that are not a leak.
    spare = [splits[name] for name in ("val", "test") if name in splits and splits[name] is not given]
    compared = dict(splits)
    if non_members is not None:
        others = pick_split(non_members, "val", "test", like=train.info, backbone=backbone)
        check_source(train.info, others.info, "non-member")
        others = others.with_classes(train.info.class_names)
        compared = {name: part for name, part in splits.items() if part is given} | {"non-members": others}
    elif spare:
        others = spare[0]
    elif private:
        # All records are used: whether another split exists must not decide which records are.
        return _Parts(train, None, repeated, 0, dropped, kept, _list_copies(data, compared))
    else:
        if not 0 < holdout < 1:
            raise ConfigError(_HOLDOUT.format(holdout))
        parts = split(train, {"train": 1 - holdout, "held": holdout}, rng=rng)
        train, others = parts["train"], parts["held"]
    if others.dim != train.dim:
        raise DataError(f"Records have {train.dim} features, non-members {others.dim}: they must be of one kind.")
    listing = _list_copies(data, compared)
    copies = copies_of(others, train)
    # Non-members take no part in the fit: what is left out of them costs no guarantee anything.
    if (drop or private) and not copies.all():
        fresh = others.take(~copies)
        fresh = drop_duplicates(fresh) if drop else fresh
        others, dropped = fresh, dropped + len(others) - len(fresh)
    elif copies.sum() > _MANY * len(others) and not private:
        # Before the work: the check after it would refuse them.
        where = f" ({listing!r} lists all copies)" if listing else ""
        raise DataError(
            f"{int(copies.sum())} of {len(others)} non-members equal a member{where}: leave copies out with "
            "--drop-duplicates, or name a file of other records with --non-members."
        )
    if len(others) < LEAST_NON_MEMBERS and not private:
        raise DataError(
            f"The membership check needs {LEAST_NON_MEMBERS} records that the fit does not use; got {len(others)}. "
            "Raise --holdout, or name a file of other records with --non-members."
        )
    return _Parts(train, others, repeated, int(copies.sum()), dropped, kept, listing)


def _large_parts(
    opened: Mapping[str, Batches],
    data: str,
    non_members: str | None,
    holdout: float,
    seed: int,
    privacy: DP | None,
    ledger: Path | None,
) -> _Parts:
    """The same for data in pieces; few non-members are enough."""
    train = choose_split(opened, data, "train")
    check_only_real(train, "given")
    spare = [opened[name] for name in ("val", "test") if name in opened and opened[name] is not train]
    others: EmbeddingSet | Batches | None = None
    if non_members is not None:
        others = pick_split(non_members, "val", "test", like=train.info)
        check_source(train.info, others.info, "non-member")
        others = others.with_classes(train.info.class_names)
    elif spare:
        others = spare[0]
    elif privacy is None:
        if not 0 < holdout < 1:
            raise ConfigError(_HOLDOUT.format(holdout))
        train, others = hold_out(train, min(holdout, MOST_COMPARED / len(train)), seed)
    if others is not None and others.dim != train.dim:
        raise DataError(f"Records have {train.dim} features, non-members {others.dim}: they must be of one kind.")
    hashes: dict[str, Any] = {"scratch": state_place(data, ledger), "in_memory": FEW_HASHES}
    repeated = count_duplicates(train.only(subject=False), **hashes)
    shared = 0
    if others is not None:
        fresh = SetBatches(others) if isinstance(others, EmbeddingSet) else others
        shared = count_copies_of(fresh.only(subject=False), train.only(subject=False), **hashes)
    return _Parts(train, others, repeated, shared, 0, repeated, None)


def _about_copies(found: _Parts, privacy: DP, *, dropping: bool) -> str:
    """Copies that are used, and the way out."""
    equal = "1 record equals" if found.kept == 1 else f"{found.kept} records equal"
    where = "" if found.listing is None else f" ({found.listing!r} lists copies)"
    told = f"duplicates: {equal} another of the same class{where}, and will still be used. "
    if privacy.unit == "record":
        return told + "--drop-duplicates leaves copies out."
    out = "" if dropping else "--drop-duplicates leaves out those of one subject. "
    return (
        f"{told}{out}Copies of different subjects stay: no subject may affect what happens to the records of others. "
        "If you remove those yourself, say so with --duplicates-removed."
    )


def _list_copies(data: str, parts: Mapping[str, EmbeddingSet]) -> str | None:
    """List copies in a private file beside the data; None if there are none, or no file can be written there."""
    copies = list_copies(parts)
    return keep_private_list(data, "duplicates", *table_of_copies(copies, image_names(data) if copies else None))


def _build(name: str, settings: dict[str, Any], seed: int) -> BaseGenerator:
    kind = generator_class(name)
    known = set(kind._get_param_names())
    if unknown := sorted(set(settings) - known):
        raise ConfigError(f"The generator {name!r} has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    return kind(**settings, random_state=seed)
