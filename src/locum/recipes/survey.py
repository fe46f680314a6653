"""A look at data before a fit: what they hold, what a private fit would refuse, what a release would make public."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from locum.data import (
    SUFFIXES,
    Copy,
    StreamedSplit,
    ledger_for,
    list_copies,
    read_frame,
    read_splits,
)
from locum.embed import BACKBONES, DEFAULT_BACKBONE, NO_CLASSES, ScannedImages, holds_images, open_images, scan_images
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.generate.private import MOST_RECORDS, subjects
from locum.io import check_input, one_line, parquet_files, split_path
from locum.recipes.fit_privacy import check_not_lost, check_two, public_classes, public_values, with_unit_of
from locum.recipes.inputs import (
    UNREADABLE,
    check_no_backbone,
    choose_split,
    keep_private_list,
    only_real,
    only_split,
    table_of_copies,
    unreadable_sentence,
)
from locum.recipes.ledger import show_ledger
from locum.types import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DP,
    EmbeddingInfo,
    EmbeddingSet,
    Progress,
    SetBatches,
    no_progress,
)

Kind = Literal["images", "vectors", "table", "unknown"]
_MOST_SIZES = 10
# Names that a sentence repeats.
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class DataSurvey:
    """What `survey_data` found. It depends on records and names their classes: do not share it.

    Attributes
    ----------
    data
        The data, as given.
    kind
        "images"; "vectors" (also a table of numbers, which is read as vectors); "table" for columns that only
        `obfuscate` reads; "unknown" if they cannot be read as they are. In the last two cases `refused` says why.
    megabytes
        Size of the file, or of all files in the folder.
    records
        How many records there are, without those that cannot be read.
    features
        Length of the vectors, or of those that the backbone makes of images; number of columns of a table. None: not
        known before the backbone is loaded.
    backbone
        The model that will embed the images, or that made the vectors; None if the file does not say.
    image_sizes
        The ten most frequent, each with `width`, `height` and `images`.
    different_sizes
        How many different sizes there are.
    splits
        Records per split; "all" if there are none.
    fit_split
        The split that a fit would learn from; None if it must be named.
    classes
        Each with its `name`, `records` and `subjects` (None if not known) in all splits, and with `fit_records` and
        `fit_units` in the split that a fit would use.
    subjects
        `count`, `median` and `most` (records of one subject) and `in_several_splits`; None if not known.
    unit
        What a guarantee would be about: "record" or "subject".
    attributes
        Each with its `name`, the number of its `values`, and `refused`: why a private fit would not take its values
        from the data, or None.
    unreadable
        `count`, `reasons` (each with a count) and `file`, the private list of them (None if there is none).
    ignored
        How many files among the images are not images.
    unchecked
        How many images were not decoded, for lack of time.
    duplicates
        `within` and `between`: how many records equal an earlier one of their split, and one of an earlier split;
        `other_label`: how many of those have another label; `file`, the private list of them.
    ledger
        `file`, `exists` and `holdings`, as `show_ledger` gives them.
    refused
        Why a private fit of these data as they are, with class names read from them, would be refused, and what to
        do; empty if nothing is in the way.
    problems
        What else a holder should know.
    public
        What a private release would make public.
    private
        What it would not.
    seconds
        How long it took.

    Examples
    --------
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import survey_data
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> survey_data("tumors.npz").classes[0]["fit_records"]
    212
    """

    data: str
    kind: Kind
    megabytes: float
    records: int = 0
    features: int | None = None
    backbone: str | None = None
    image_sizes: tuple[dict[str, int], ...] = ()
    different_sizes: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    fit_split: str | None = None
    classes: tuple[dict[str, Any], ...] = ()
    subjects: dict[str, Any] | None = None
    unit: str = "record"
    attributes: tuple[dict[str, Any], ...] = ()
    unreadable: dict[str, Any] = field(default_factory=lambda: {"count": 0, "reasons": {}, "file": None})
    ignored: int = 0
    unchecked: int = 0
    duplicates: dict[str, Any] = field(
        default_factory=lambda: {"within": 0, "between": 0, "other_label": 0, "file": None}
    )
    ledger: dict[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self) | {"megabytes": round(self.megabytes, 3), "seconds": round(self.seconds, 2)}


def survey_data(data: str, *, backbone: str | None = None, progress: Progress | None = None) -> DataSurvey:
    """Look at data before a fit, without embedding anything and without paying.

    Images are read and decoded once; after some seconds only their headers are looked at. Names of copies and of
    images that cannot be read go to private files beside the data, as `fit` and `embed` write them. Odd data are no
    error: `refused` and `problems` say what is wrong with them.

    Parameters
    ----------
    data
        File or folder of records, also as `FILE#split`.
    backbone
        The model that would embed images; None: EfficientNet-Lite 0. It is not loaded.
    progress
        Called with the images done, their number and the speed; for a file of vectors after each step.

    Returns
    -------
    DataSurvey
        Counts, copies, what is left in the ledger, what would be refused, and what would become public. Private.

    Raises
    ------
    DataError
        If there are no such data, no such split, or it is no kind of file that can be read.
    ConfigError
        If a backbone is named for data that are no images.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.recipes import survey_data
    >>> np.savez("few.npz", X=np.eye(4), y=["a", "a", "b", "b"])
    >>> found = survey_data("few.npz")
    >>> found.records, found.unit, found.duplicates["within"]
    (4, 'record', 0)
    >>> print(found.refused[0][:64])
    2 of the 2 classes in the data have fewer than 20 records, too f
    """
    started = time.monotonic()
    check_input(data)
    tell = progress or no_progress
    file, split = split_path(data)
    if holds_images(file):
        found = _look_at_images(data, file, split, backbone or DEFAULT_BACKBONE, tell)
    else:
        check_no_backbone(data, backbone)
        found = _look_at_file(data, file, split, tell)
    # The sets are only needed here; what leaves this function are counts and sentences.
    survey = _with_ledger(_counted(found), found.info)
    survey = replace(survey, public=_public(survey), private=_private(survey))
    return replace(survey, seconds=time.monotonic() - started)


@dataclass(frozen=True)
class _Found:
    """What was read: the survey so far, the records by split (images without vectors), and the copies among them."""

    survey: DataSurvey
    sets: Mapping[str, EmbeddingSet] = field(default_factory=dict)
    copies: Sequence[Copy] = ()
    names: Mapping[tuple[str, int], str] | None = None
    info: EmbeddingInfo = field(default_factory=EmbeddingInfo)
    labeled: bool = True


def _look_at_images(data: str, file: str, split: str | None, backbone: str, tell: Progress) -> _Found:
    known = BACKBONES.get(backbone)
    survey = DataSurvey(
        data, "images", _megabytes(file), features=None if known is None else known.dim, backbone=backbone
    )
    try:
        source = open_images(file)
    except DataError as error:
        return _Found(replace(survey, kind="unknown", refused=(str(error),)))
    source = only_split(source, file, split)
    try:
        scanned = scan_images(source, progress=tell)
    except PrivacyError as error:
        return _Found(replace(survey, refused=(str(error),), ignored=source.ignored))
    reasons = dict(Counter(reason for _, reason in scanned.problems).most_common())
    listing = keep_private_list(data, UNREADABLE, ("image", "problem"), scanned.problems)
    common = list(scanned.sizes.items())[:_MOST_SIZES]
    survey = replace(
        survey,
        image_sizes=tuple({"width": w, "height": h, "images": n} for (w, h), n in common),
        different_sizes=len(scanned.sizes),
        unreadable={"count": len(scanned.problems), "reasons": reasons, "file": listing},
        ignored=source.ignored,
        unchecked=scanned.unchecked,
    )
    labeled = bool(source.class_names)
    sets, hashes, names = _records(scanned, source.class_names, source.attribute_names)
    return _Found(survey, sets, list_copies(hashes), names, labeled=labeled)


def _records(
    scanned: ScannedImages, class_names: tuple[str, ...], attribute_names: tuple[str, ...]
) -> tuple[dict[str, EmbeddingSet], dict[str, StreamedSplit], dict[tuple[str, int], str]]:
    """Images as records by split: with placeholders for vectors, with hashes in their place, and the names by row."""
    codes = {name: code for code, name in enumerate(class_names)}
    info = EmbeddingInfo(class_names=class_names)
    sets, hashes, names = {}, {}, {}
    for split in dict.fromkeys(item.split for item in scanned.items):
        rows = [i for i, item in enumerate(scanned.items) if item.split == split]
        items = [scanned.items[i] for i in rows]
        part = EmbeddingSet(
            X=np.zeros((len(rows), 1), dtype=np.float32),
            y=np.array([codes.get(item.label or "", 0) for item in items], dtype=np.int64),
            subject=None if scanned.subjects is None else np.array([scanned.subjects[i] for i in rows]),
            attributes={name: np.array([it.attributes[a] for it in items]) for a, name in enumerate(attribute_names)},
            info=info,
        )
        # Each byte is a number of its own: copies are found as those of vectors are.
        content = np.array([list(scanned.contents[i]) for i in rows], dtype=np.float32)
        sets[split] = part
        hashes[split] = StreamedSplit(content.shape, [content], part.y, part.subject)
        names.update({(split, row): item.name for row, item in enumerate(items)})
    return sets, hashes, names


def _look_at_file(data: str, file: str, split: str | None, tell: Progress) -> _Found:
    if not parquet_files(file) and (Path(file).is_dir() or Path(file).suffix.lower() not in SUFFIXES):
        # Not a kind of data that can be read: as everywhere else, an error.
        read_splits(file)
    survey = DataSurvey(data, "vectors", _megabytes(file))
    try:
        sets = read_splits(file)
    except DataError as error:
        found = _look_at_table(replace(survey, refused=(str(error),)), file)
        tell(1, 1, "read")
        return found
    tell(1, 2, "read")
    if split is not None:
        if split not in sets:
            raise DataError(f"{file!r} has no split {split!r}: it holds {', '.join(sets)}.")
        sets = {split: sets[split]}
    first = next(iter(sets.values()))
    named = None if first.info.backbone == "unknown" else first.info.backbone
    copies = list_copies(sets)
    tell(2, 2, "looked for copies")
    return _Found(replace(survey, features=first.dim, backbone=named), sets, copies, info=first.info)


def _look_at_table(survey: DataSurvey, file: str) -> _Found:
    """A file that is no table of numbers: as `obfuscate` would read it, if it can."""
    if Path(file).suffix.lower() not in (".csv", ".parquet"):
        return _Found(replace(survey, kind="unknown"))
    try:
        # As text: cells of a Parquet file can be lists.
        frame = read_frame(file).astype(str)
    except DataError:
        return _Found(replace(survey, kind="unknown"))
    repeated = int(frame.duplicated().sum())
    return _Found(
        replace(
            survey,
            kind="table",
            records=len(frame),
            features=len(frame.columns),
            splits={"all": len(frame)},
            attributes=tuple(
                {"name": str(name), "values": int(frame[name].nunique()), "refused": None} for name in frame.columns
            ),
            duplicates=survey.duplicates | {"within": repeated},
            problems=("`locum obfuscate` takes tables of mixed columns; `locum fit` does not.",),
        )
    )


def _megabytes(file: str) -> float:
    """Size on disk; of a folder, of all files in it."""
    if not Path(file).is_dir():
        return Path(file).stat().st_size / 1e6
    total = 0
    for folder, _, names in os.walk(file):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total / 1e6


def _counted(found: _Found) -> DataSurvey:
    """The survey with everything that follows from the records."""
    survey, sets = found.survey, found.sets
    unreadable = survey.unreadable["count"]
    images = unreadable + sum(map(len, sets.values()))
    refused, problems = list(survey.refused), list(survey.problems)
    if unreadable:
        refused.append(unreadable_sentence(split_path(survey.data)[0], unreadable, images, survey.unreadable["file"]))
    if survey.ignored:
        problems.append(
            f"{_many(survey.ignored, 'file that is not an image is', 'files that are not images are')} ignored."
        )
    if survey.unchecked:
        problems.append(
            f"{_many(survey.unchecked, 'image was', 'images were')} not decoded, for lack of time: `locum embed` "
            "will say if one is damaged."
        )
    if not sets:
        return replace(survey, refused=tuple(refused), problems=tuple(problems))
    if not found.labeled:
        refused.append(NO_CLASSES)
    given: EmbeddingSet | None = None
    try:
        given = choose_split(sets, survey.data, "train")
    except ConfigError as error:
        refused.append(str(error))
    unit = "record"
    if given is not None:
        privacy = with_unit_of(DP(DEFAULT_EPSILON, DEFAULT_DELTA), SetBatches(given))
        unit = privacy.unit
        refused += _refusals(given, privacy, labeled=found.labeled)
    listing = keep_private_list(survey.data, "duplicates", *table_of_copies(found.copies, found.names))
    duplicates = {
        "within": sum(not copy.is_shared for copy in found.copies),
        "between": sum(copy.is_shared for copy in found.copies),
        "other_label": sum(copy.label == "other" for copy in found.copies),
        "file": listing,
    }
    survey = replace(
        survey,
        records=sum(map(len, sets.values())),
        splits={name: len(part) for name, part in sets.items()},
        fit_split=next((name for name, part in sets.items() if part is given), None),
        classes=_classes(sets, given) if found.labeled else (),
        subjects=_subjects(sets),
        unit=unit,
        attributes=_attributes(sets, given, unit),
        duplicates=duplicates,
    )
    problems += _advice(survey)
    return replace(survey, refused=tuple(refused), problems=tuple(problems))


def _refusals(given: EmbeddingSet, privacy: DP, *, labeled: bool) -> list[str]:
    """What a private fit with the usual budget says against the records it would learn from."""
    units = len(given) if given.subject is None else len(np.unique(given.subject))
    checks: list[Callable[[], object]] = [
        lambda: only_real(given, "given"),
        lambda: check_two(SetBatches(given)),
        lambda: None if given.subject is None else subjects(given.subject),
    ]
    if labeled:
        checks.append(lambda: public_classes(SetBatches(given), privacy.unit, None))
    out = [said for check in checks if (said := _said(check)) is not None]
    if _said(lambda: replace(privacy, n_public=units)) is not None:
        out.append(
            f"A delta of {privacy.delta:g}, the usual one, is too large for so many {privacy.unit}s: give a smaller "
            "one (--delta)."
        )
    return out


def _said(check: Callable[[], object]) -> str | None:
    """The error of a check in its own words; None if it passes."""
    try:
        check()
    except LocumError as error:
        return str(error)
    return None


def _classes(sets: Mapping[str, EmbeddingSet], given: EmbeddingSet | None) -> tuple[dict[str, Any], ...]:
    names = next(iter(sets.values())).info.class_names
    known = all(part.subject is not None for part in sets.values())
    out = []
    for code, name in enumerate(names):
        rows = {split: part.y == code for split, part in sets.items()}
        fit = None if given is None else given.y == code
        units = None
        if given is not None and fit is not None:
            units = fit.sum() if given.subject is None else len(np.unique(given.subject[fit]))
        out.append(
            {
                "name": name,
                "records": int(sum(mask.sum() for mask in rows.values())),
                "subjects": len(_people(sets, rows)) if known else None,
                "fit_records": None if fit is None else int(fit.sum()),
                "fit_units": None if units is None else int(units),
            }
        )
    return tuple(out)


def _people(sets: Mapping[str, EmbeddingSet], rows: Mapping[str, Any]) -> Counter[str]:
    """How many of these records each subject has; subjects with the same text are the same."""
    out: Counter[str] = Counter()
    for split, part in sets.items():
        if part.subject is not None:
            out.update(part.subject[rows[split]].astype(np.str_).tolist())
    return out


def _subjects(sets: Mapping[str, EmbeddingSet]) -> dict[str, Any] | None:
    if any(part.subject is None for part in sets.values()):
        return None
    each = {split: _people({split: part}, {split: slice(None)}) for split, part in sets.items()}
    together: Counter[str] = sum(each.values(), Counter())
    places = Counter(who for people in each.values() for who in people)
    return {
        "count": len(together),
        "median": float(np.median(list(together.values()))),
        "most": max(together.values()),
        "in_several_splits": sum(n > 1 for n in places.values()),
    }


def _attributes(
    sets: Mapping[str, EmbeddingSet], given: EmbeddingSet | None, unit: str
) -> tuple[dict[str, Any], ...]:
    out = []
    for name in sorted({name for part in sets.values() for name in part.attributes}):
        held = [part.attributes[name].astype(np.str_) for part in sets.values() if name in part.attributes]
        refused = None
        if given is not None:
            refused = _said(lambda name=name: public_values(SetBatches(given), name, unit, None))  # type: ignore[misc]
        out.append({"name": name, "values": len(np.unique(np.concatenate(held))), "refused": refused})
    return tuple(out)


def _advice(survey: DataSurvey) -> list[str]:
    """What is not in the way of a fit, and should still be known before it."""
    out = []
    copies = survey.duplicates
    where = f" ({copies['file']!r} lists them)" if copies["file"] else ""
    if copies["within"]:
        out.append(
            f"{_many(copies['within'], 'record equals', 'records equal')} an earlier one of the same split{where}: "
            "leave copies out with --drop-duplicates if they are a mistake."
        )
    if copies["between"]:
        out.append(
            f"{_many(copies['between'], 'record equals', 'records equal')} one of another split{where}: what is "
            "measured on that split looks better than it is."
        )
    if copies["other_label"]:
        out.append(f"{_many(copies['other_label'], 'copy has', 'copies have')} another label than the original.")
    if survey.unit == "record":
        out.append(
            "The data do not say which records belong to the same subject, so a guarantee is about one record at a "
            "time, and a subject with several records is protected less. If there are such subjects, add a column "
            "`subject`."
        )
    if survey.subjects is None:
        return out
    if survey.subjects["in_several_splits"]:
        out.append(
            f"{_many(survey.subjects['in_several_splits'], 'subject has', 'subjects have')} records in several "
            "splits: what is measured on one of them looks better than it is. Give each subject to one split."
        )
    if survey.subjects["most"] > MOST_RECORDS:
        out.append(
            f"A subject has {survey.subjects['most']} records: a private fit of the usual kind reads the first "
            f"{MOST_RECORDS} of each subject."
        )
    return out


def _with_ledger(survey: DataSurvey, info: EmbeddingInfo) -> DataSurvey:
    """The survey with the ledger that would pay, and what is left in it."""
    file = ledger_for(survey.data, info)
    holdings: list[dict[str, Any]] = []
    problems, refused = list(survey.problems), list(survey.refused)
    try:
        check_not_lost(survey.data, file)
        if file.exists():
            holdings = show_ledger(file)["holdings"]
    except LocumError as error:
        refused.append(str(error))
    for held in holdings:
        # What rounding leaves buys nothing.
        if held["left"]["epsilon"] < 1e-3 * held["budget"]["epsilon"] or held["left"]["delta"] <= 0:
            problems.append(f"Nothing is left of the budget of {held['name']!r} in the ledger.")
    told = {"file": str(file), "exists": file.exists(), "holdings": holdings}
    return replace(survey, ledger=told, problems=tuple(problems), refused=tuple(refused))


def _public(survey: DataSurvey) -> tuple[str, ...]:
    """What a private release holds, as the manifest has it: declared, chosen, or learned with noise and paid for."""
    if survey.kind in ("table", "unknown"):
        return ()
    names = [one_line(entry["name"]) for entry in survey.classes]
    shown = ", ".join(names[:_MOST_NAMES]) + (" and others" if len(names) > _MOST_NAMES else "")
    out = []
    if names:
        out += [
            f"The names of the classes, as you declare or confirm them: {shown}.",
            f"The number of classes: {len(names)}.",
        ]
    if survey.features is not None:
        out.append(f"The number of features of a vector: {survey.features}.")
    elif survey.kind == "images":
        out.append("The number of features of a vector, which the backbone decides.")
    if survey.kind == "images":
        out.append(f"The backbone, {survey.backbone}, a hash of its weights, and how images are prepared for it.")
    elif survey.backbone is not None:
        out.append(
            f"What the file says about its vectors: {one_line(survey.backbone)}, and, if it names them, a hash of "
            "the model's weights and how images were prepared."
        )
    out += [
        f"What the guarantee is about, one {survey.unit} each; its epsilon and delta, what was paid for, what it "
        "assumes, and what it does not cover.",
        "The settings of the fit: the generator and its numbers, and the name and source of the public statistics.",
        "Numbers that were learned with noise, which epsilon and delta pay for: class means and spreads, or a "
        f"decoder; with them about how many {survey.unit}s there are, and about what share each class has.",
        f"That the data passed the checks of a fit: two records or more, finite numbers, no label but those of the "
        f"classes, and no more {survey.unit}s than 1 / (10 delta).",
        "A hash of an entry of your ledger, which says nothing to others, and the version of Locum.",
    ]
    if survey.attributes:
        listed = ", ".join(one_line(entry["name"]) for entry in survey.attributes[:_MOST_NAMES])
        out.append(
            f"If you condition on an attribute ({listed}): its name and its values, and with noise how often they "
            "occur. Otherwise nothing about it."
        )
    out.append(
        "If you add a passport: the date, and, if you run an audit for it, its verdicts and whether a policy is met; "
        "no guarantee covers those. If you sign: the id of your key. If you pack a .zip: the name of the release's "
        "folder."
    )
    return tuple(out)


def _private(survey: DataSurvey) -> tuple[str, ...]:
    """What stays with the holder; what is learned about it with noise is named under `public`."""
    out = []
    if survey.records:
        parts = "" if len(survey.splits) < 2 else f" ({', '.join(f'{k} {n}' for k, n in survey.splits.items())})"
        out.append(f"The exact number of records: {survey.records:,}{parts}.")
    if survey.classes:
        out.append("How many records of each class there are, exactly.")
    if survey.subjects is not None:
        out.append(
            f"Who the subjects are, how many there are ({survey.subjects['count']}), and how many records each has."
        )
    if survey.kind == "images":
        out += [
            "The images, and the vectors that are made from them.",
            "The names of files and folders, except folders or labels that name a class.",
        ]
    else:
        out += ["The values in the records.", "The name of the file and where it is."]
    if survey.attributes and survey.kind != "table":
        out.append("Attributes of the records that you do not condition on: names and values.")
    out += [
        "Which records are copies or cannot be read.",
        "The ledger: what else was paid for, and what is left.",
        "This survey, and everything that a fit prints.",
    ]
    return tuple(out)


def _many(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
