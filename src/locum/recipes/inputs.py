"""What a receiver wants predicted: vectors, with labels where they are known."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from locum.data import ALL, Copy, read_splits
from locum.embed import (
    DEFAULT_BACKBONE,
    NO_CLASSES,
    Backbone,
    Embedded,
    ImageSource,
    backbone_for,
    can_keep,
    embed_images,
    holds_images,
    keep_drawn_reference,
    load_backbone,
    open_images,
)
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.io import is_remote, ledger_path, make_state_folder, split_path, write_private_table
from locum.metrics import accuracy, auc_macro, balanced_accuracy, calibration_interval, clopper_pearson, f1
from locum.release import Release
from locum.types import Batches, EmbeddingInfo, EmbeddingSet, Estimate, Progress, SetBatches

_log = logging.getLogger(__name__)

Part = TypeVar("Part")
# The attribute by which `rebalance` marks its rows.
GENERATED = "generated"
# Of the private list of images that cannot be read.
UNREADABLE = "unreadable"


def pick_split(
    path: str, *preferred: str, like: EmbeddingInfo | None = None, backbone: str | None = None
) -> EmbeddingSet:
    """The part of a file that a verb wants: what `FILE#split` names, else the first of `preferred` it has.

    Images are embedded as the vectors `like` were, or by the default backbone; see `read_sets`.
    """
    return choose_split(read_sets(path, like=like, backbone=backbone), path, *preferred)


def choose_split(splits: Mapping[str, Part], path: str, *preferred: str) -> Part:
    """The same for whatever has been read from a file in splits; `path` is for the error."""
    if len(splits) == 1:
        return next(iter(splits.values()))
    for name in preferred:
        if name in splits:
            return splits[name]
    raise ConfigError(f"{path!r} has the splits {', '.join(splits)}; say which with {path}#{next(iter(splits))}.")


def aligned(release: Release, data: EmbeddingSet, what: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Real vectors in the release's space, with class codes in the release's order.

    Vectors of another backbone, of another width or of classes that the release does not know are refused:
    a figure computed on them would mean nothing.
    """
    check_source(release.info, data.info, what)
    return release.transform(data.X), data.with_classes(release.info.class_names).y


def check_source(expected: EmbeddingInfo, given: EmbeddingInfo, what: str) -> None:
    """Refuse vectors that another backbone made, or another preparation of images; `what` says whose they are.

    Vectors that nobody described pass: then only their width can be checked.
    """
    if not expected.same_source(given):
        raise DataError(
            f"The {what} data hold {_source(given)}, but {_source(expected)} are needed: vectors of two models, or "
            "of images prepared in two ways, cannot be mixed. Embed them in the same way."
        )


def _source(info: EmbeddingInfo) -> str:
    revision = f"revision {info.revision!r}, " if info.revision else ""
    return f"{info.backbone!r} vectors ({revision}preprocessing {info.preprocessing or 'not given'!r})"


def scored(y: npt.NDArray[np.int64], proba: npt.NDArray[np.float64]) -> dict[str, Estimate]:
    """Accuracy, balanced accuracy, AUC, macro F1 and calibration error, with intervals over the records.

    `y` holds columns of `proba`. Accuracy has its exact interval and the calibration error its own. The others draw
    records anew within each class, which is too narrow under about 30 records a class; where no draw differs, the
    exact interval of the smallest class stands in, because a perfect score is no certainty. Records of a single class
    have an accuracy and nothing else.
    """
    n, classes, guess = len(y), np.arange(proba.shape[1]), proba.argmax(axis=1)
    right = round(accuracy(y, guess) * n)
    out = {"accuracy": clopper_pearson(right, n)}
    members = [np.flatnonzero(y == c) for c in np.unique(y)]
    if len(members) < 2:
        return out

    def scores(rows: npt.NDArray[np.int64]) -> dict[str, float]:
        return {
            "auc": auc_macro(y[rows], proba[rows], classes),
            "balanced_accuracy": balanced_accuracy(y[rows], guess[rows]),
            "f1_macro": f1(y[rows], guess[rows]),
        }

    rng = np.random.default_rng(0)
    draws = []
    # As many as a second or two allows: large sets need few.
    for _ in range(min(500, max(100, 1_000_000 // n))):
        pick = np.concatenate([rows[rng.integers(len(rows), size=len(rows))] for rows in members])
        draws.append(scores(pick))
    smallest = min(len(rows) for rows in members)
    slack = 1 - clopper_pearson(smallest, smallest).low
    for name, value in scores(np.arange(n)).items():
        low, high = np.quantile([draw[name] for draw in draws], [0.025, 0.975]).tolist()
        if low == high:
            low, high = value - slack, value + slack
        out[name] = Estimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)), n)
    out["calibration_error"] = calibration_interval(y, proba, np.random.default_rng(0), resamples=len(draws))
    return out


def checkpoint_path(data: str, kind: str, *identity: object, ledger: Path | None = None) -> Path | None:
    """A private file beside the data for one fit, named after all that makes it this fit; None if it cannot be kept.

    `identity` is plain JSON, or is turned into text. For data at an address it is beside their ledger.
    """
    folder = state_place(data, ledger)
    if folder is None:
        return None
    # An address is the same wherever the program was started.
    place = "" if is_remote(data) else str(Path(split_path(data)[0]).resolve())
    text = json.dumps([place, data, *identity], sort_keys=True, default=str)
    return folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.checkpoint"


def state_place(data: str, ledger: Path | None = None) -> Path | None:
    """The private folder beside the data, or that of their ledger; None if nothing can be kept there."""
    try:
        return make_state_folder(data) if ledger is None or not is_remote(data) else ledger.absolute().parent
    except (OSError, PrivacyError):
        return None


def keep_private_list(data: str, kind: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Keep a private table beside the data; None if it has no rows, or no file can be written there.

    Without rows an older table goes, which is no longer true.
    """
    name = f"{Path(split_path(data)[0]).resolve().name}.{kind}.csv"
    try:
        if not rows:
            ledger_path(data).with_name(name).unlink(missing_ok=True)
            return None
        file = make_state_folder(data) / name
        write_private_table(file, header, rows)
    except (OSError, LocumError):
        return None
    return str(file)


def table_of_copies(
    copies: Iterable[Copy], names: Mapping[tuple[str, int], str] | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of a private table of copies; `names` are those of the images, by split and row."""
    header: tuple[str, ...] = ("split", "row", "equals_split", "equals_row", "label", "subject")
    if names is not None:
        header = ("split", "row", "image", "equals_split", "equals_row", "equals_image", "label", "subject")
    rows: list[tuple[str, ...]] = []
    for copy in copies:
        mine, first = (copy.split, copy.row), (copy.first_split, copy.first_row)
        # Records of another file, given as non-members, have no names here.
        places = [(*map(str, place), *(() if names is None else (names.get(place, ""),))) for place in (mine, first)]
        rows.append((*places[0], *places[1], copy.label, copy.subject))
    return header, rows


def image_names(data: str) -> dict[tuple[str, int], str] | None:
    """Names of images by split and row of the records that they became, if all can be read; None for vectors.

    They can be patients' names: only for private tables.
    """
    file, split = split_path(data)
    if not holds_images(file):
        return None
    rows: dict[str, list[str]] = {}
    for item in only_split(open_images(file), file, split).items:
        rows.setdefault(item.split, []).append(item.name)
    return {(part, row): name for part, names in rows.items() for row, name in enumerate(names)}


def unreadable_sentence(file: str, unreadable: int, images: int, listing: str | None) -> str:
    """What a verb says that needs all images and cannot read some; `listing` is the private file that names them."""
    named = "" if listing is None else f" ({listing!r} names them)"
    return (
        f"{unreadable} of {images} images of {file!r} cannot be read{named}: repair or remove them, or run `locum "
        f"embed {file} -o FILE`, which leaves them out (no image is computed twice), and give FILE instead."
    )


def only_real(data: EmbeddingSet, what: str) -> EmbeddingSet:
    """`data`, if all of it is real, as far as it says; `what` says whose they are."""
    check_only_real(SetBatches(data), what)
    return data


def check_only_real(data: Batches, what: str) -> None:
    """Refuse data that say that some of their records are generated."""
    if GENERATED not in data.attribute_names:
        return
    for facts in data.only(subject=False, attributes=[GENERATED]).facts():
        if (facts.attributes[GENERATED].astype(np.str_) != "no").any():
            raise DataError(
                f'The {what} data hold generated records: their attribute `{GENERATED}` is not all "no". Give the '
                "real ones alone."
            )


def read_sets(
    path: str,
    *,
    like: EmbeddingInfo | None = None,
    backbone: str | None = None,
    reference: bool = False,
    progress: Progress | None = None,
) -> dict[str, EmbeddingSet]:
    """Every split of a file of vectors or of images; images are embedded as the vectors `like` were.

    Without `like` the backbone is `backbone` or the default; with it, `backbone` says where a model of one's own is.
    With `PATH#train` only that split is read. An image that cannot be read is an error here: only `embed` goes on
    without it, and lists it. With `reference`, public statistics of the backbone are made if none ship with Locum and
    they can be kept beside the images.
    """
    file, split = split_path(path)
    if not holds_images(file):
        if like is None:
            check_no_backbone(path, backbone)
        found = read_splits(path)
        # File names can be patients' names: they stay out of logs.
        _log.info("read %s", ", ".join(f"{len(part)} records ({name})" for name, part in found.items()))
        return found
    source = only_split(open_images(file), file, split)
    if not source.class_names:
        raise DataError(NO_CLASSES)
    model = _model(like, backbone)
    with embed_images(source, model, cache=can_keep(source.home), progress=progress) as done:
        if done.problems:
            listing = keep_private_list(path, UNREADABLE, ("image", "problem"), done.problems)
            images = len(done.problems) + len(done.items)
            raise DataError(unreadable_sentence(file, len(done.problems), images, listing))
        sets = done.sets()
        if not reference or done.store.file is None:
            return sets
        kept = keep_drawn_reference(model, done.store.file.parent, progress=progress)
        return {name: replace(part, info=replace(part.info, reference=kept)) for name, part in sets.items()}


def embedded(
    file: str,
    *,
    split: str | None = None,
    like: EmbeddingInfo | None = None,
    backbone: str | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """Images as vectors, all or one split of them; the cache is kept beside them where it can be."""
    source = only_split(open_images(file), file, split)
    return embed_images(source, _model(like, backbone), cache=can_keep(source.home), progress=progress)


def check_no_backbone(path: str, backbone: str | None) -> None:
    """Refuse a backbone for what is no image."""
    if backbone is not None:
        raise ConfigError(f"{path!r} holds vectors, not images: leave --backbone out.")


def only_split(source: ImageSource, file: str, split: str | None) -> ImageSource:
    """The images of one split, or all; an error if there is no such split."""
    if split is None:
        return source
    there = list(dict.fromkeys(item.split for item in source.items))
    if split not in there:
        raise DataError(f"{file!r} has no split {split!r}: it holds {', '.join(there)}.")
    return source.only(split)


def _model(like: EmbeddingInfo | None, backbone: str | None) -> Backbone:
    return load_backbone(backbone or DEFAULT_BACKBONE) if like is None else backbone_for(like, backbone)


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Rows to predict.

    `y` holds codes into the class names that were asked for, -1 for a label outside them, and is None where no
    label is known. `names` tell the rows apart: their numbers, or the paths of images. `problems` are the names of
    images that could not be read, each with a reason.
    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64] | None
    names: Sequence[str]
    problems: tuple[tuple[str, str], ...] = ()


def read_vectors(
    data: str, info: EmbeddingInfo, *, backbone: str | None = None, progress: Progress | None = None
) -> Vectors:
    """Vectors of the test split of `data`, else val, else all of it; images are embedded as `info` demands.

    Vectors of another backbone are refused. Images need no labels, and those that cannot be read are left out.
    """
    file, split = split_path(data)
    if holds_images(file):
        return _from_images(file, split, info, backbone, progress)
    given = pick_split(data, "test", "val")
    check_source(info, given.info, "given")
    return Vectors(given.X, _codes(given.info, info)[given.y], [str(i) for i in range(len(given))])


def _from_images(
    file: str, split: str | None, info: EmbeddingInfo, backbone: str | None, progress: Progress | None
) -> Vectors:
    with embedded(file, split=split, like=info, backbone=backbone, progress=progress) as done:
        found = [item.split for item in done.items]
        # Splits that are there, readable or not: train must never stand in for a test split that is damaged.
        there = {item.split for item in done.source_items}
        wanted = split or next(s for s in ("test", "val", "train", ALL) if s in there)
        rows = [i for i, name in enumerate(found) if name == wanted]
        if not rows:
            raise DataError(
                f"{file!r} has no image that can be read in {wanted!r}: it has some in {sorted(set(found))}."
            )
        X = done.store.get([done.contents[i] for i in rows])
        y = None
        if done.labeled:
            place = {name: code for code, name in enumerate(done.info.class_names)}
            own = np.array([place[str(done.items[i].label)] for i in rows])
            y = _codes(done.info, info)[own]
        return Vectors(X, y, [done.items[i].name for i in rows], done.problems)


def _codes(given: EmbeddingInfo, wanted: EmbeddingInfo) -> npt.NDArray[np.int64]:
    """For each class that is given, its code among those that are wanted; -1 where it has none."""
    place = {name: code for code, name in enumerate(wanted.class_names)}
    return np.array([place.get(name, -1) for name in given.class_names], dtype=np.int64)
