"""The data sets of studies: one place that turns a name into data, and checks them before anything is computed.

A name is described in `studies/sets.toml`, or is a file in the folder `LOCUM_DATA`, or was given for one run with
`--set NAME=PATH`. What a given set is stands in the settings of its run, under `given`, and so in its results.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import (
    ALL,
    SUFFIXES,
    StreamedSplit,
    copies_of,
    find_duplicates,
    ledger_for,
    long_tail_counts,
    read_splits,
    reference_for,
    stratified_split,
    subject_split,
    write_npz_stream,
)
from locum.embed import BACKBONES, holds_images
from locum.errors import ConfigError, DataError
from locum.io import did_you_mean, is_remote, private_folder, read_toml, split_path, write_atomically
from locum.recipes.data_sets import file_digest
from locum.recipes.inputs import read_sets, state_place
from locum.types import EmbeddingSet, Progress, Unit

SETS_NAME = "sets.toml"
GIVEN = "given"
SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}
# Attributes that say where a record was taken.
SITE_COLUMNS = ("site", "hospital", "center")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")


def data_folder() -> Path:
    """The folder that `LOCUM_DATA` names; studies on real data need it."""
    value = os.environ.get("LOCUM_DATA")
    if not value or not Path(value).is_dir():
        raise DataError(f"This study needs real data: set LOCUM_DATA to their folder (it is {value!r} now).")
    return Path(value)


def backbone_label(backbone: str) -> str:
    """What tables and files call a backbone: its name, or the last part of its place."""
    if backbone in BACKBONES:
        return backbone
    name = Path(backbone.partition(":")[2]).name.partition("@")[0]
    if not name:
        raise ConfigError(
            f"There is no backbone {backbone!r}: use a name of `embed --backbones`, hf:... or onnx:FILE."
        )
    return name.removesuffix(".onnx")


@dataclass(frozen=True, slots=True)
class StudySet:
    """A data set under the name that studies use for it.

    Parameters
    ----------
    name
        Its name in settings and cells.
    file
        Its vectors: a file in the folder `LOCUM_DATA`, or an absolute path.
    title
        How pages call it.
    reference
        Public statistics for whitening; None: as its vectors say.
    unit
        What a guarantee protects: "record" or "subject".
    records
        How many units are trained on; None: not written down.
    thin
        How many training records of each class are kept, drawn with a fixed seed; empty: all.
    images
        Its images in the folder `LOCUM_DATA`, if a study needs them, or if its vectors can be made of them.
    backbone
        What its vectors are made with.
    published
        What a paper calls it whose figures stand beside ours; empty: none does.
    given
        Whether it was given for one run.
    more
        What single studies need to know, such as the number of sites.

    Examples
    --------
    >>> from locum.recipes import StudySet
    >>> StudySet("pets", "pets.npz", "Pets").label
    'Pets'
    """

    name: str
    file: str
    title: str
    reference: str | None = None
    unit: Unit = "record"
    records: int | None = None
    thin: tuple[int, ...] = ()
    images: str = ""
    backbone: str = ""
    published: str = ""
    given: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The title, with the number of units where it is written down."""
        return self.title if self.records is None else f"{self.title} ({self.records:,})"

    @property
    def path(self) -> Path:
        """Where its vectors are; an error if they are not there."""
        place = Path(self.file) if Path(self.file).is_absolute() else data_folder() / self.file
        if not place.exists():
            where = "" if Path(self.file).is_absolute() else " in LOCUM_DATA"
            hint = "" if self.name in _known else did_you_mean(self.name, _known)
            raise DataError(
                f"The set {self.name!r} needs a file, and there is no file {place.name!r}{where}: `locum data list` "
                f"says where data come from, and `--set {self.name}=PATH` gives others. {hint}".strip()
            )
        return place

    def reference_of(self, data: EmbeddingSet) -> str:
        """The public statistics that whiten its vectors."""
        return reference_for(data.info) if self.reference is None else self.reference


_known: dict[str, StudySet] = {}
_given: ContextVar[Mapping[str, StudySet]] = ContextVar("given sets", default={})  # noqa: B039


def know_sets(studies: Path) -> None:
    """Read `sets.toml` in the folder of the studies, if there is one."""
    file = studies / SETS_NAME
    if file.is_file():
        _known.update({name: _described(name, facts, str(file)) for name, facts in read_toml(file, "sets").items()})


@contextmanager
def using_sets(config: Mapping[str, Any]) -> Iterator[None]:
    """Let the names of given sets mean what the settings of a run say."""
    sets = {name: _described(name, facts, "the settings") for name, facts in config.get(GIVEN, {}).items()}
    token = _given.set({name: replace(found, given=True) for name, found in sets.items()})
    try:
        yield
    finally:
        _given.reset(token)


def study_set(name: str) -> StudySet:
    """What is known of a set by its name; a name without a description is a file in the folder `LOCUM_DATA`.

    Parameters
    ----------
    name
        A given set, a name of `studies/sets.toml`, or a file with or without `.npz`.

    Returns
    -------
    StudySet
        Its description; no file is opened.

    Examples
    --------
    >>> from locum.recipes import study_set
    >>> study_set("my-scans").file
    'my-scans.npz'
    """
    found = _given.get().get(name) or _known.get(name)
    if found is not None:
        return found
    return StudySet(name, name if name.endswith(SUFFIXES) else f"{name}.npz", name.removesuffix(".npz"))


def on_own_sets(config: Mapping[str, Any]) -> bool:
    """Whether a run is on given sets alone that `sets.toml` does not name, so that no paper has figures on them."""
    given = config.get(GIVEN, {})
    return bool(given) and not any(name in _known for name in given)


def study_splits(name: str) -> dict[str, EmbeddingSet]:
    """The splits of a set, by the name that studies use for it.

    Parameters
    ----------
    name
        As in `study_set`.

    Returns
    -------
    dict of str to EmbeddingSet
        Its splits. They are kept in memory: do not change them.

    Raises
    ------
    DataError
        If its file is not there, or cannot be read.

    Examples
    --------
    >>> from locum.recipes import study_splits
    >>> study_splits("breastmnist")["train"].X.shape  # doctest: +SKIP
    (546, 1280)
    """
    found = study_set(name)
    return _splits(*set_key(name), found.thin, float(found.more.get("ratio", 0)))


def set_key(name: str) -> tuple[str, int]:
    """What a cache of a study should go by: a name can mean another file in another run."""
    place = study_set(name).path
    return str(place), place.stat().st_mtime_ns


@lru_cache(maxsize=8)
def _splits(path: str, changed: int, thin: tuple[int, ...], ratio: float) -> dict[str, EmbeddingSet]:
    splits = read_splits(path)
    if ratio:
        counts = splits["train"].counts
        thin = tuple(long_tail_counts(int(counts.min()), len(counts), ratio))
    if thin:
        train, rng = splits["train"], np.random.default_rng(0)
        if len(thin) != len(train.info.class_names):
            raise DataError(f"`thin` gives {len(thin)} sizes, and there are {len(train.info.class_names)} classes.")
        keep = [rng.permutation(np.flatnonzero(train.y == c))[:n] for c, n in enumerate(thin)]
        splits = splits | {"train": train.take(np.sort(np.concatenate(keep)))}
    return splits


def _described(name: str, facts: Any, where: str) -> StudySet:
    plain = {f.name for f in fields(StudySet)} - {"name", "given", "more"}
    if not isinstance(facts, Mapping) or not isinstance(facts.get("file"), str):
        raise ConfigError(f"{where!r} must give the `file` of {name!r}.")
    known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items() if k in plain}
    rest = {k: v for k, v in facts.items() if k not in plain}
    known.setdefault("title", name)
    return StudySet(name=name, more=rest, **known)


@dataclass(frozen=True, slots=True)
class SetNeeds:
    """Which sets a study runs on, and what they must have; checked before anything is computed.

    Parameters
    ----------
    key
        The setting that names the sets: a list, a single name, or a table with a name per set.
    parts
        Splits that each set needs.
    per_class
        Takes the settings and returns how many training records the smallest class needs; None: two.
    settings
        Settings that name one set each, such as the files of a paper.
    choose
        Takes the settings and the names of given sets, and returns the settings for them. None: they replace the
        value of `key`.
    names
        Takes the settings and returns the names of the sets that are read. None: the value of `key`.
    made
        Names under `key` that are made up by the study, and read no file.

    Examples
    --------
    >>> from locum.recipes import SetNeeds
    >>> SetNeeds("sets").chosen({"sets": ["a", "b"], "seeds": [0]}, ["mine"])
    {'sets': ['mine'], 'seeds': [0]}
    """

    key: str
    parts: tuple[str, ...] = ("train", "test")
    per_class: Callable[[Mapping[str, Any]], int] | None = None
    settings: tuple[str, ...] = ()
    choose: Callable[[Mapping[str, Any], Sequence[str]], Mapping[str, Any]] | None = None
    names: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    made: tuple[str, ...] = ()

    def chosen(self, config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """The settings with these sets in place of all others."""
        if self.choose is not None:
            return {**config, **self.choose(config, names)}
        if isinstance(config[self.key], list):
            return {**config, self.key: list(names)}
        if len(names) > 1:
            raise ConfigError(f"This study runs on one set at a time; got {', '.join(names)}.")
        return {**config, self.key: names[0]}

    def named(self, config: Mapping[str, Any]) -> list[str]:
        """The sets that these settings read."""
        value = config[self.key] if self.names is None else self.names(config)
        names = [value] if isinstance(value, str) else list(value)
        return [name for name in dict.fromkeys(names) if name not in self.made]

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise `DataError` or `ConfigError`, in one sentence, unless all sets are there and have what is needed."""
        names = self.named(config)
        if not names and not self.made:
            raise ConfigError(f"The setting {self.key!r} names no set.")
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(f"The setting {self.key!r} holds names of sets; got {name!r}.")
            if study_set(name).more.get("table"):
                # Read by the study itself; here it only has to be there.
                _ = study_set(name).path
            else:
                self._check_one(name, study_splits(name), config)

    def _check_one(self, name: str, splits: Mapping[str, EmbeddingSet], config: Mapping[str, Any]) -> None:
        if missing := [part for part in self.parts if part not in splits]:
            raise DataError(
                f"The set {name!r} has no split {missing[0]!r}, which this study needs: it holds {', '.join(splits)}."
            )
        if "train" not in splits:
            return
        train = splits["train"]
        least = max(2, 2 if self.per_class is None else self.per_class(config))
        present = np.flatnonzero(train.counts)
        if len(present) < 2:
            raise DataError(f"The set {name!r} has one class in its training split; this study needs two or more.")
        smallest = present[np.argmin(train.counts[present])]
        if train.counts[smallest] < least:
            raise DataError(
                f"Class {train.info.class_names[smallest]!r} of the set {name!r} has {train.counts[smallest]} "
                f"training records, and this study needs {least} with these settings: add records, leave the class "
                "out, or lower the setting that asks for so many."
            )
        for part in [p for p in self.parts if p != "train"]:
            if len(lost := np.setdiff1d(present, np.unique(splits[part].y))):
                raise DataError(
                    f"Class {train.info.class_names[lost[0]]!r} of the set {name!r} has no record in its split "
                    f"{part!r}: figures per class need some. Add records, or leave the class out."
                )


def data_hashes(names: Sequence[str]) -> dict[str, str]:
    """SHA-256 of the file of each set, by file name; given sets by the name of the set."""
    out = {}
    for name in names:
        found = study_set(name)
        out[name if found.given else found.file] = _hashed(str(found.path), found.path.stat().st_mtime_ns)
    return out


def file_hashes(folder: Path, files: Sequence[str]) -> dict[str, str]:
    """SHA-256 of those files that are in a folder, by name."""
    found = {file: folder / file for file in files if (folder / file).is_file()}
    return {file: _hashed(str(path), path.stat().st_mtime_ns) for file, path in found.items()}


@lru_cache(maxsize=64)
def _hashed(path: str, changed: int) -> str:
    place = Path(path)
    if place.is_file():
        return file_digest(place)
    files = sorted(p for p in place.rglob("*") if p.is_file())
    text = json.dumps([[str(p.relative_to(place)), file_digest(p)] for p in files])
    return hashlib.sha256(text.encode()).hexdigest()


def is_data(path: str) -> bool:
    """Whether a text is the path or the address of something that exists."""
    return is_remote(path) or (bool(path) and Path(split_path(path)[0]).exists())


def prepare_set(
    name: str, path: str, *, place: Path, backbone: str | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Read a set that was given for one run, embed it if it is images, split it if it is not, and keep the vectors.

    Splits that the data come with are kept. Without them, 70 % are for training, 10 % for validation and 20 % for
    tests: by subject where subjects are known, per class otherwise, and equal vectors are always in one part. Vectors
    are kept in a private folder beside the data or, where that cannot be written, in `place`.

    Parameters
    ----------
    name
        What to call it.
    path
        A file of vectors, a folder of images with one folder per class, or an .npz of images.
    place
        Folder to keep vectors in that cannot be kept beside the data.
    backbone
        What to embed images with; None: the default. Vectors ignore it.
    progress
        Called as images are embedded.

    Returns
    -------
    dict
        What `given` says of it in the settings of a run. It holds paths and exact counts: private.

    Raises
    ------
    ConfigError
        If the name cannot be one.
    DataError
        If the data cannot be read or split.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import prepare_set
    >>> write_embeddings("digits.npz", load_sample("digits"))
    >>> prepare_set("mine", "digits.npz", place=Path("out"))["parts"]
    {'train': 1258, 'val': 180, 'test': 359}
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"The name of a set has only letters, digits, '_', '-' and '.'; got {name!r}.")
    images = holds_images(split_path(path)[0])
    splits = read_sets(path, backbone=backbone if images else None, reference=images, progress=progress)
    parts, how = _three_parts(name, splits)
    info = parts["train"].info
    folder = state_place(path) or private_folder(place)
    content = _contents(parts)
    file = folder / f"study-{name}-{content[:12]}.npz"
    if not file.exists():
        # As `embed` does: a fit of this file spends the budget of the data.
        named = info if is_remote(path) else replace(info, ledger=str(ledger_for(path, info).resolve()))
        streams = {k: StreamedSplit(v.X.shape, iter([v.X]), v.y, v.subject, v.attributes) for k, v in parts.items()}
        write_atomically(str(file), lambda stream: write_npz_stream(stream, streams, named))
    subjects = parts["train"].subject
    known = _known.get(name)
    facts: dict[str, Any] = (
        {} if known is None else {k: v for k, v in asdict(known).items() if k in ("title", "published") and v}
    )
    if known is not None:
        facts |= {k: v for k, v in known.more.items() if k != "site_names"}
    column = next((c for c in SITE_COLUMNS if c in parts["train"].attributes), None)
    if column is not None:
        facts["site_names"] = sorted({str(v) for p in parts.values() for v in p.attributes[column].tolist()})
    return {
        **facts,
        "file": str(file.resolve()),
        "contents": content,
        "source": path,
        "unit": "record" if subjects is None else "subject",
        "records": len(parts["train"]) if subjects is None else len(np.unique(subjects)),
        "backbone": info.backbone,
        "features": parts["train"].dim,
        "classes": len(info.class_names),
        "parts": {k: len(v) for k, v in parts.items()},
        "how": how,
        **({"images": str(Path(split_path(path)[0]).resolve())} if images and not is_remote(path) else {}),
    }


def _three_parts(name: str, splits: Mapping[str, EmbeddingSet]) -> tuple[dict[str, EmbeddingSet], str]:
    """Train, val and test, and how they came about."""
    parts, how = dict(splits), "splits as the data have them"
    if set(parts) in ({ALL}, {"train"}, {"test"}, {"val"}):
        (whole,) = parts.values()
        parts = _kept_together(name, whole, SHARES)
        return parts, f"split here, {'by subject' if whole.subject is not None else 'per class'}, copies on one side"
    if "train" not in parts:
        raise DataError(f"The set {name!r} has the splits {', '.join(parts)} and no 'train': add one.")
    if "test" not in parts:
        parts["test"] = parts.pop("val")
        how += ", 'val' as 'test'"
    if "val" not in parts:
        tenth = _kept_together(name, parts["train"], {"train": 0.9, "val": 0.1})
        parts, how = {**parts, **tenth}, f"{how}, a tenth of 'train' as 'val'"
    shared = int(copies_of(parts["test"], parts["train"]).sum())
    if shared:
        how += f"; {shared} test records equal training records"
    return {part: parts[part] for part in SHARES}, how


def _kept_together(name: str, data: EmbeddingSet, shares: Mapping[str, float]) -> dict[str, EmbeddingSet]:
    """Parts of the data; a subject and equal vectors are in one of them. The same data give the same parts."""
    rng, groups = np.random.default_rng(0), _groups(data)
    if groups is not None and (different := len(np.unique(groups))) < 4 * len(shares):
        what = "different vectors" if data.subject is None else "subjects with vectors of their own"
        raise DataError(
            f"The set {name!r} cannot be split: its {len(data)} records are of {different} {what}, and "
            f"{4 * len(shares)} or more are needed."
        )
    try:
        if groups is None:
            return stratified_split(data, shares, rng=rng)
        parts = subject_split(replace(data, subject=groups), shares, rng=rng)
    except DataError as error:
        raise DataError(f"The set {name!r} cannot be split: {error}") from None
    # Back to what the data say of their subjects.
    of = {g: part for part, found in parts.items() for g in np.unique(found.subject).tolist()}  # type: ignore[arg-type]
    where = np.array([of[g] for g in groups.tolist()])
    return {part: data.take(np.flatnonzero(where == part)) for part in shares}


def _groups(data: EmbeddingSet) -> npt.NDArray[np.int64] | None:
    """Records that belong together, by number; None if each stands for itself."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(data)
    firsts = find_duplicates(data.X)
    if data.subject is None and (firsts == np.arange(n)).all():
        return None
    owners = np.arange(n) if data.subject is None else np.unique(data.subject, return_inverse=True)[1]
    # A record joins its subject with its content; two subjects with one content become one group.
    graph = coo_array((np.ones(n), (owners, n + firsts)), shape=(2 * n, 2 * n))
    found: npt.NDArray[np.int64] = connected_components(graph, directed=False)[1][owners].astype(np.int64)
    return found


def _contents(parts: Mapping[str, EmbeddingSet]) -> str:
    digest = hashlib.sha256()
    for part, data in parts.items():
        digest.update(f"{part} {data.X.shape} {data.info!r}\n".encode())
        digest.update(np.ascontiguousarray(data.X).tobytes() + data.y.tobytes())
        for column in (data.subject, *data.attributes.values()):
            digest.update(b"-" if column is None else "\0".join(map(str, column.tolist())).encode())
    return digest.hexdigest()
