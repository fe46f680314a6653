"""Vectors of images as a folder of Parquet files, on this machine or in a store.

Each file (shard) holds the images of a range of rows. It is written whole, and a private note beside the files lists
the finished ones with their hashes: a run that was stopped goes on, and files that were changed are made again.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from locum._version import __version__
from locum.data import ALL, EMBEDDED, write_parquet_stream
from locum.embed.backbone import Backbone
from locum.embed.embedding import StrictError, fill_subjects, run_images
from locum.embed.listing import may_name_subjects
from locum.embed.sources import ArraySource, FileSource, ImageItem, ImageSource, RemoteSource
from locum.errors import ConfigError, DataError
from locum.io import (
    check_output_folder,
    file_system,
    hold_folder,
    is_remote,
    regular_bytes,
    remote_errors,
    write_bytes,
)
from locum.types import EmbeddingInfo, EmbeddingSet, Progress

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

ROWS_PER_FILE = 10_000
# The attribute that says which image a row is: its place in the sorted list of all images, readable or not.
ROW = "row"
# Readers that go through a file piece by piece hold so many rows.
_ROW_GROUP = 2000
# The note grows with the number of files: writing it may take at most a twentieth of the time.
_NOTE_SECONDS, _NOTE_SHARE = 1.0, 20.0
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Shard:
    """The images of one file: consecutive rows of one split."""

    number: int
    start: int
    split: str
    items: tuple[ImageItem, ...]

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of one shard: how many rows it has, the hash of its file (None without a row), unreadable rows."""

    name: str
    rows: int
    sha256: str | None
    skipped: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ShardWork:
    """What all shards have in common; it holds nothing that cannot travel to another process."""

    source: ImageSource
    info: EmbeddingInfo
    has_subjects: bool
    folder: str
    strict: bool


class EmbeddingEngine(Protocol):
    """Who embeds the shards."""

    def started(self) -> AbstractContextManager[object]:
        """Get ready, or refuse before any work is done; everything is released at the end."""
        ...

    def run(
        self, work: ShardWork, backbone: Backbone, shards: Sequence[Shard], on_images: Callable[[int], None]
    ) -> Iterator[Finished]:
        """Write the shards, in any order, and yield what became of each; `on_images` is told of images done."""
        ...


@dataclass(frozen=True, slots=True)
class LocalEmbedding:
    """Embed in the threads of this process, one shard after the other.

    Parameters
    ----------
    workers
        Number of threads. None: one per core; four per core for images in a store.

    Examples
    --------
    >>> from locum.embed import LocalEmbedding
    >>> LocalEmbedding(workers=2).workers
    2
    """

    workers: int | None = None

    def started(self) -> AbstractContextManager[object]:
        """Nothing to start."""
        return nullcontext()

    def run(
        self, work: ShardWork, backbone: Backbone, shards: Sequence[Shard], on_images: Callable[[int], None]
    ) -> Iterator[Finished]:
        """One shard after the other."""
        for shard in shards:
            yield write_shard(shard, work, backbone, self.workers, on_images)


class ShardFolder:
    """A folder of shards: a place on this machine, or an address. A file in it is complete or not there."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.local = None if is_remote(place) else Path(place)

    @cached_property
    def _store(self) -> tuple[FileSystem, str]:
        return file_system(self.place)

    def check(self) -> None:
        """Refuse a place that holds something else, before any work is done."""
        if self.local is not None:
            check_output_folder(self.local, overwrite=False, resumes=EMBEDDED)
            return
        from pyarrow import fs

        with remote_errors(self.place):
            system, path = self._store
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        if found and not any(info.base_name == EMBEDDED for info in found):
            raise ConfigError(f"{self.place!r} holds something else: it is left alone. Choose another folder.")

    def hold(self) -> AbstractContextManager[None]:
        """Let no other run write the folder meanwhile. A store has no locks: two runs would write the same twice."""
        return nullcontext() if self.local is None else hold_folder(self.local)

    def make(self) -> None:
        """Make the folder, and clear what a killed run left in it."""
        if self.local is None:
            return
        self.local.mkdir(parents=True, exist_ok=True)
        for left in self.local.glob(".locum-*.part"):
            left.unlink(missing_ok=True)

    def write(self, name: str, raw: bytes) -> None:
        """Write a file at once; one that was there is replaced."""
        if self.local is not None:
            write_bytes(self.local / name, raw)
            return
        with remote_errors(self.place):
            system, path = self._store
            # The object appears when the stream is closed; parts of one that was not are invisible.
            with system.open_output_stream(f"{path}/{name}", compression=None) as stream:
                stream.write(raw)

    def remove(self, name: str) -> None:
        """Delete a file, if there is one."""
        with remote_errors(self.place), suppress(FileNotFoundError):
            system, path = self._store
            system.delete_file(f"{path}/{name}")

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        if self.local is not None:
            try:
                return regular_bytes(self.local / name)
            except FileNotFoundError:
                return None
        with remote_errors(self.place):
            system, path = self._store
            try:
                with system.open_input_stream(f"{path}/{name}", compression=None) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def digest(self, name: str) -> str | None:
        """The hash of a file's content; None if there is no such file."""
        with remote_errors(self.place):
            system, path = self._store
            found = hashlib.sha256()
            try:
                with system.open_input_stream(f"{path}/{name}", compression=None) as stream:
                    while block := stream.read(_CHUNK):
                        found.update(block)
            except FileNotFoundError:
                return None
        return found.hexdigest()


@dataclass(frozen=True, slots=True)
class ShardedVectors:
    """What `embed_to_shards` wrote. It includes counts of images: do not share it.

    Attributes
    ----------
    files
        How many files the folder has.
    resumed
        How many of them were there already.
    images
        How many images have a vector, in all files.
    computed
        How many vectors were computed now.
    splits
        Images with a vector, per split.
    skipped
        Row and problem of each image that could not be read.

    Examples
    --------
    >>> from locum.embed import ShardedVectors
    >>> ShardedVectors(files=2, resumed=1, images=15, computed=5, splits={"all": 15}, skipped=()).files
    2
    """

    files: int
    resumed: int
    images: int
    computed: int
    splits: dict[str, int]
    skipped: tuple[tuple[int, str], ...]


def embed_to_shards(
    source: ImageSource,
    backbone: Backbone,
    out: str,
    *,
    info: EmbeddingInfo,
    engine: EmbeddingEngine | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    strict: bool = False,
    progress: Progress | None = None,
) -> ShardedVectors:
    """Embed images into a folder of Parquet files, or continue where an earlier call with the same settings stopped.

    Each row has the attribute `row`: the place of its image in `source.items`. Sorted by it, the rows are those of
    `embed_images`, whatever the engine. Nothing is kept in memory but the list of images and the shards in work.

    Parameters
    ----------
    source
        The images; they must have classes.
    backbone
        The model.
    out
        The folder, or an address such as `s3://bucket/vectors`: new, empty, or from an earlier call.
    info
        What each file says about its vectors.
    engine
        Who embeds; None: threads of this process. It must be started.
    rows_per_file
        How many images go into one file.
    strict
        Stop at the first image that cannot be read.
    progress
        Called with the images done and the number of images.

    Returns
    -------
    ShardedVectors
        What was written.

    Raises
    ------
    ConfigError
        If the folder holds something else, or vectors of other images or with other settings.
    DataError
        If no image can be read.
    StrictError
        With `strict`, if an image cannot be read.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import numpy as np
    >>> from locum.data import read_embeddings
    >>> from locum.embed import Backbone, Preprocessing, embed_to_shards, open_images
    >>> np.savez("tiles.npz", train_images=np.zeros((5, 8, 8), np.uint8), train_labels=[0, 1, 1, 0, 1])
    >>> tiles = open_images("tiles.npz")
    >>> color = Backbone("mean color", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)
    >>> info = replace(color.info, class_names=tiles.class_names)
    >>> embed_to_shards(tiles, color, "tile-vectors", info=info, rows_per_file=2).files
    3
    >>> read_embeddings("tile-vectors").attributes["row"].tolist()
    [0, 1, 2, 3, 4]
    """
    if isinstance(rows_per_file, bool) or not isinstance(rows_per_file, int) or rows_per_file < 1:
        raise ConfigError(f"`rows_per_file` must be a whole number, 1 or more; got {rows_per_file!r}.")
    if ROW in source.attribute_names:
        raise ConfigError(f"The images have an attribute `{ROW}`, which a folder of vectors needs: rename it.")
    folder = ShardFolder(out)
    folder.check()
    shards = _shards(source, rows_per_file)
    settings = {
        "images": len(source.items),
        "rows_per_file": rows_per_file,
        "list_of_images": _listing(source),
        # Vectors of another kind of device differ in their last bits.
        "device": backbone.device,
        # Its `images` is a place; the entry of that name above is a count.
        **{name: value for name, value in asdict(info).items() if name != "images"},
        "class_names": list(info.class_names),
    }
    # Other processes have another current folder.
    here = replace(source, place=source.place.absolute()) if isinstance(source, FileSource) else source
    work = ShardWork(
        source=replace(here, items=()),
        info=info,
        has_subjects=may_name_subjects(source),
        folder=out if folder.local is None else str(folder.local.absolute()),
        strict=strict,
    )
    by_name = {shard.name: shard for shard in shards}
    with folder.hold():
        finished = _finished(folder, settings, by_name)
        if strict:
            # An earlier run may have left images out.
            finished = {name: one for name, one in finished.items() if not one.skipped}
        todo = [shard for shard in shards if shard.name not in finished]
        resumed = len(finished)
        folder.make()
        note = _Note(folder, settings, len(shards), finished)
        note.write()
        done = sum(len(by_name[name].items) for name in finished)
        started, before = time.monotonic(), done

        def on_images(n: int) -> None:
            nonlocal done
            done += n
            if progress is not None:
                rate = (done - before) / max(time.monotonic() - started, 1e-9)
                progress(min(done, len(source.items)), len(source.items), f"{rate:.0f} images/s")

        try:
            for one in (engine or LocalEmbedding()).run(work, backbone, todo, on_images):
                note.add(one)
        except BaseException:
            # A stopped run keeps what it has finished; what stopped it is what matters.
            with suppress(OSError, DataError):
                note.write()
            raise
        note.write()
    skipped = sorted(pair for one in finished.values() for pair in one.skipped)
    if len(skipped) == len(source.items):
        raise DataError(f"No image can be read, of {len(skipped)} (the first: {skipped[0][1]}): check the files.")
    splits: dict[str, int] = {}
    for shard in shards:
        splits[shard.split] = splits.get(shard.split, 0) + finished[shard.name].rows
    return ShardedVectors(
        files=len(shards),
        resumed=resumed,
        images=sum(one.rows for one in finished.values()),
        computed=sum(finished[shard.name].rows for shard in todo),
        splits=splits,
        skipped=tuple(skipped),
    )


def check_shard_folder(out: str) -> None:
    """Refuse a place where `embed_to_shards` cannot write, before any work is done.

    Parameters
    ----------
    out
        The folder, or an address.

    Raises
    ------
    ConfigError
        If something else is there.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed import check_shard_folder
    >>> Path("taken").mkdir()
    >>> Path("taken", "notes.txt").touch()
    >>> check_shard_folder("taken")
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: 'taken' is not a folder that Locum wrote: it is left alone. Choose another folder.
    """
    ShardFolder(out).check()


def write_shard(
    shard: Shard,
    work: ShardWork,
    backbone: Backbone,
    threads: int | None,
    on_images: Callable[[int], None] = lambda n: None,
) -> Finished:
    """Embed the images of one shard and write its file: the same bytes whoever does it."""
    source = replace(work.source, items=shard.items)
    rows: list[int] = []
    vectors: list[npt.NDArray[np.float32]] = []
    subjects: list[str | None] = []
    contents: list[bytes] = []
    skipped: list[tuple[int, str]] = []
    for outcomes in run_images(source, backbone, frozenset(), threads):
        for o in outcomes:
            if o.problem is not None or o.vector is None:
                if work.strict:
                    raise StrictError(shard.items[o.index].name, str(o.problem))
                skipped.append((shard.start + o.index, str(o.problem)))
                continue
            rows.append(o.index)
            vectors.append(o.vector)
            subjects.append(o.subject)
            contents.append(o.content)
        on_images(len(outcomes))
    if not rows:
        ShardFolder(work.folder).remove(shard.name)
        return Finished(shard.name, 0, None, tuple(skipped))
    if any(subjects) and not work.has_subjects:
        raise DataError(
            "Some images are DICOM files whose names end like those of other images: rename them to end in .dcm, so "
            "that it is known before the first file is written that there are patients."
        )
    codes = {name: code for code, name in enumerate(work.info.class_names)}
    items = [shard.items[i] for i in rows]
    attributes: dict[str, npt.NDArray[Any]] = {
        name: np.array([item.attributes[a] for item in items]) for a, name in enumerate(source.attribute_names)
    }
    data = EmbeddingSet(
        X=np.stack(vectors),
        y=np.array([codes[str(item.label)] for item in items], dtype=np.int64),
        subject=np.array(fill_subjects(subjects, contents)) if work.has_subjects else None,
        attributes={**attributes, ROW: np.array(rows, dtype=np.int64) + shard.start},
        info=work.info,
    )
    stream = io.BytesIO()
    pieces = (data.take(np.arange(i, min(i + _ROW_GROUP, len(data)))) for i in range(0, len(data), _ROW_GROUP))
    write_parquet_stream(stream, pieces, None if shard.split == ALL else shard.split)
    raw = stream.getvalue()
    ShardFolder(work.folder).write(shard.name, raw)
    return Finished(shard.name, len(rows), hashlib.sha256(raw).hexdigest(), tuple(skipped))


def _shards(source: ImageSource, rows_per_file: int) -> list[Shard]:
    """Ranges of rows; none crosses the border between two splits."""
    out: list[Shard] = []
    start = 0
    while start < len(source.items):
        split = source.items[start].split
        end = start + 1
        while end < len(source.items) and end - start < rows_per_file and source.items[end].split == split:
            end += 1
        out.append(Shard(len(out), start, split, tuple(source.items[start:end])))
        start = end
    return out


def _listing(source: ImageSource) -> str:
    """A hash of where the images are and of what is known about each; names themselves are not noted."""
    if isinstance(source, RemoteSource):
        place = source.address.split("?")[0].rstrip("/")
    elif isinstance(source, FileSource):
        place = str(source.place.resolve())
    else:
        place = str(source.home)
    found = hashlib.sha256(json.dumps([place, source.attribute_names]).encode())
    if isinstance(source, ArraySource):
        # Their names are row numbers, as in any other file.
        for split, array in source.arrays.items():
            found.update(f"{split} {array.shape} {array.dtype.str}\n".encode())
            found.update(np.ascontiguousarray(array).data)
    for item in source.items:
        line = json.dumps([item.name, item.split, item.label, item.subject, item.attributes])
        found.update(line.encode() + b"\n")
    return found.hexdigest()


def _finished(folder: ShardFolder, settings: dict[str, Any], shards: dict[str, Shard]) -> dict[str, Finished]:
    """The shards that an earlier run finished and whose files are still as it left them."""
    raw = folder.read(EMBEDDED)
    if raw is None:
        return {}
    try:
        note = json.loads(raw)
        known = note["settings"]
        entries = [
            Finished(name, int(e["rows"]), e["sha256"], tuple((int(row), str(why)) for row, why in e["skipped"]))
            for name, e in note["shards"].items()
        ]
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"{EMBEDDED!r} in {folder.place!r} is damaged: remove the folder, or choose another."
        ) from None
    if known != settings:
        raise ConfigError(
            f"{folder.place!r} holds vectors of other images or with other settings: choose another folder."
        )

    def intact(one: Finished) -> bool:
        return one.name in shards and (one.rows == 0 or folder.digest(one.name) == one.sha256)

    with ThreadPoolExecutor(8, thread_name_prefix="locum-check") as pool:
        return {one.name: one for one, good in zip(entries, pool.map(intact, entries), strict=True) if good}


class _Note:
    """The private file beside the shards that says what is finished; written now and then, and at the end."""

    def __init__(
        self, folder: ShardFolder, settings: dict[str, Any], files: int, finished: dict[str, Finished]
    ) -> None:
        self._folder, self._settings, self._files, self._finished = folder, settings, files, finished
        self._due = 0.0
        self._kept = -1

    def add(self, one: Finished) -> None:
        """Remember one shard."""
        self._finished[one.name] = one
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write it, if there is anything new."""
        if self._kept == len(self._finished):
            return
        started = time.monotonic()
        shards = {
            one.name: {"rows": one.rows, "sha256": one.sha256, "skipped": one.skipped}
            for one in sorted(self._finished.values(), key=lambda one: one.name)
        }
        note = {
            "written_by": f"locum {__version__}",
            "settings": self._settings,
            "files": self._files,
            "shards": shards,
        }
        self._folder.write(EMBEDDED, json.dumps(note, indent=1, sort_keys=True).encode())
        self._kept = len(self._finished)
        took = time.monotonic() - started
        self._due = time.monotonic() + max(_NOTE_SECONDS, _NOTE_SHARE * took)
