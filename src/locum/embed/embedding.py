"""Runs a backbone over images: `embed_images` gives vectors that are kept on disk, so a killed run resumes.

Threads read, decode and embed one small batch each; results come back in the order of the images.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from locum.data import ALL, REFERENCES, SPLITS, StreamedSplit
from locum.embed.backbone import Backbone
from locum.embed.cache import VectorStore
from locum.embed.listing import open_images
from locum.embed.pixels import UnreadableImageError
from locum.embed.registry import DEFAULT_BACKBONE, load_backbone
from locum.embed.sources import NO_CLASSES, ImageItem, ImageSource, RemoteSource
from locum.errors import DataError
from locum.io import LEDGER, STATE_FOLDER, private_folder
from locum.types import EmbeddingInfo, EmbeddingSet, Progress


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one image: its content with a vector (None if it is in the cache), or a problem."""

    index: int
    content: bytes = b""
    vector: npt.NDArray[np.float32] | None = None
    subject: str | None = None
    problem: str | None = None


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(source: ImageSource, available: int) -> int:
    """One thread per core; more for images in a store, because each then waits for an answer most of the time."""
    return min((4 if isinstance(source, RemoteSource) else 1) * available, 32)


def run_images(
    source: ImageSource, backbone: Backbone, known: Container[bytes], workers: int | None = None
) -> Iterator[list[Outcome]]:
    """Every image of `source`, in order, one small batch at a time.

    Each thread reads, decodes and embeds its own batch: with one core per thread, decoding overlaps with inference.
    At most two batches per thread are in flight, whatever the number of images. An image whose content is in `known`
    is not decoded.
    """
    threads = workers or default_threads(source, cores())
    chunks = (
        range(i, min(i + backbone.batch, len(source.items))) for i in range(0, len(source.items), backbone.batch)
    )
    pending: deque[Future[list[Outcome]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="locum-embed")
    try:
        for chunk in chunks:
            pending.append(pool.submit(_batch, source, backbone, known, chunk))
            if len(pending) >= 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _batch(source: ImageSource, backbone: Backbone, known: Container[bytes], chunk: range) -> list[Outcome]:
    pixels = _buffer((backbone.batch, *backbone.preprocessing.shape))
    outcomes: list[Outcome] = []
    fresh: list[int] = []
    for i in chunk:
        outcome, is_fresh = _prepare(source, backbone, known, i, pixels[len(fresh)])
        if is_fresh:
            fresh.append(len(outcomes))
        outcomes.append(outcome)
    if fresh:
        vectors = backbone.run(pixels[: len(fresh)])
        for place, vector in zip(fresh, vectors, strict=True):
            old = outcomes[place]
            if np.isfinite(vector).all():
                outcomes[place] = Outcome(old.index, old.content, vector, old.subject)
            else:
                outcomes[place] = Outcome(old.index, problem="the model gives no finite vector")
    return outcomes


_local = threading.local()


def _buffer(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """A reused buffer per thread: allocating a new one would cost as much as decoding a small image."""
    if getattr(_local, "pixels", None) is None or _local.pixels.shape != shape:
        _local.pixels = np.empty(shape, dtype=np.float32)
    out: npt.NDArray[np.float32] = _local.pixels
    return out


def _prepare(
    source: ImageSource,
    backbone: Backbone,
    known: Container[bytes],
    i: int,
    pixels: npt.NDArray[np.float32],
) -> tuple[Outcome, bool]:
    """The outcome so far for image `i`, and whether `pixels` were filled for the model to run."""
    try:
        raw = source.read(i)
        subject = source.items[i].subject or source.subject(raw)
        contract = backbone.preprocessing
        content = hashlib.sha256(raw)
        # A cache of before has vectors of what lies under the transparent parts: those are not found any more.
        if contract.alpha != "dropped" and source.may_have_alpha(raw):
            content.update(f"\nalpha={contract.alpha}".encode())
        if content.digest() in known:
            return Outcome(i, content.digest(), subject=subject), False
        contract.apply(source.decode(raw, contract.window, contract.alpha), pixels)
    except UNREADABLE as error:
        return Outcome(i, problem=why_unreadable(error)), False
    return Outcome(i, content.digest(), subject=subject), True


# What reading one image can raise without stopping the others.
UNREADABLE = (UnreadableImageError, OSError, MemoryError)


def why_unreadable(error: BaseException) -> str:
    """Why an image cannot be read, in a few words that never name it."""
    if isinstance(error, UnreadableImageError):
        return str(error)
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    # The error's own text names the file, so it is left out.
    return "missing" if isinstance(error, FileNotFoundError) else "cannot be opened"


_BLOCK = 1024
# Seconds between writes to disk, and so the work that a killed run can lose.
_KEEP_EVERY = 0.5


class StrictError(DataError):
    """An image cannot be read, and `strict` is on; the image's name is an attribute, not part of the message."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(
            f"An image cannot be read ({problem}), and `strict` is on: repair or remove the image, or turn it off."
        )


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embedded images, as `embed_images` returns them; their vectors stay on disk until they are needed.

    Close it, or use it in a `with` statement, to release the cache. Everything in here is as private as the images,
    and names can be patients' names.

    Attributes
    ----------
    info
        Where the vectors come from, with the class names, the ledger of the images, and the name of the backbone's
        public statistics if they ship with Locum.
    items
        The images that could be read, in order.
    contents
        Hash of each of them, by which the cache finds its vector.
    subjects
        Subject of each of them; None if no image names one.
    attribute_names
        Names of the attributes of each item.
    problems
        Names of the images that could not be read, with reasons.
    computed
        How many vectors were computed; the others were in the cache.
    ignored
        How many files among the images are not images.
    store
        The cache.
    source_items
        All images, readable or not.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import Backbone, Preprocessing, embed_images
    >>> np.savez("gray.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    >>> color = Backbone("mean color", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)
    >>> with embed_images("gray.npz", color, cache=False) as embedded:
    ...     embedded.vectors().shape, list(embedded.sets())
    ((2, 3), ['train'])
    """

    info: EmbeddingInfo
    items: tuple[ImageItem, ...]
    contents: tuple[bytes, ...]
    subjects: tuple[str, ...] | None
    attribute_names: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]
    computed: int
    ignored: int
    store: VectorStore
    source_items: Sequence[ImageItem]

    @property
    def labeled(self) -> bool:
        """Whether the images have classes."""
        return bool(self.info.class_names)

    def vectors(self) -> npt.NDArray[np.float32]:
        """All vectors, in the order of `items`, in memory."""
        return self.store.get(self.contents)

    def splits(self) -> dict[str, StreamedSplit]:
        """The records by split, with vectors that come in blocks."""
        if not self.labeled:
            raise DataError(NO_CLASSES)
        out = {}
        for split in (*SPLITS, ALL):
            rows = [i for i, item in enumerate(self.items) if item.split == split]
            if rows:
                out[split] = self._split(rows)
        return out

    def sets(self) -> dict[str, EmbeddingSet]:
        """The records by split, in memory."""
        return {
            split: EmbeddingSet(np.concatenate(list(part.blocks)), part.y, part.subject, part.attributes, self.info)
            for split, part in self.splits().items()
        }

    def _split(self, rows: Sequence[int]) -> StreamedSplit:
        codes = {name: code for code, name in enumerate(self.info.class_names)}
        columns = {
            name: np.array([self.items[i].attributes[a] for i in rows]) for a, name in enumerate(self.attribute_names)
        }
        return StreamedSplit(
            shape=(len(rows), self.store.dim),
            blocks=self._blocks(rows),
            y=np.array([codes[str(self.items[i].label)] for i in rows], dtype=np.int64),
            subject=None if self.subjects is None else np.array([self.subjects[i] for i in rows]),
            attributes=columns,
        )

    def _blocks(self, rows: Sequence[int]) -> Iterator[npt.NDArray[np.float32]]:
        for start in range(0, len(rows), _BLOCK):
            yield self.store.get([self.contents[i] for i in rows[start : start + _BLOCK]])

    def close(self) -> None:
        """Release the cache; one without a file is deleted."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def embed_images(
    images: str | os.PathLike[str] | ImageSource,
    backbone: str | Backbone = DEFAULT_BACKBONE,
    *,
    window: tuple[float, float] | None = None,
    cache: Path | bool = True,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """Run a backbone over a folder of images (also in a store), a .csv with a column `path`, or an .npz of images.

    A killed run resumes where it stopped, because vectors are written to disk twice a second; the result is the same
    as that of an uninterrupted run, bit for bit on one machine. An image that cannot be read is left out and listed
    in `problems`.

    Parameters
    ----------
    images
        What to embed, or an `ImageSource`.
    backbone
        A name (see `load_backbone`) or a loaded backbone.
    window
        Values of 16-bit and DICOM images that become black and white. None: each image has its own. Not used with a
        loaded backbone, which has a window of its own.
    cache
        The file to keep vectors in; True for `.locum/vectors.sqlite` beside the images; False for none, so that an
        interrupted run starts over. Images in a store have none unless a file is given.
    strict
        Stop at the first image that cannot be read.
    workers
        Number of threads. None: one per core, up to 32.
    progress
        Called with the images done, the number of images and the speed. None: nothing is shown.

    Returns
    -------
    Embedded
        The vectors and what belongs to them; close it after use.

    Raises
    ------
    DataError
        If there is no image that can be read, or the cache cannot be used.
    StrictError
        With `strict`, if an image cannot be read.

    Examples
    --------
    >>> from locum.embed import embed_images
    >>> with embed_images("scans/") as embedded:  # doctest: +SKIP
    ...     train = embedded.sets()["all"]
    """
    source = open_images(images) if isinstance(images, (str, os.PathLike)) else images
    model = load_backbone(backbone, window=window) if isinstance(backbone, str) else backbone
    store = VectorStore(_cache_file(source, cache), model)
    try:
        return _collect(source, model, store, strict, workers, progress)
    except BaseException:
        store.close()
        raise


def _collect(
    source: ImageSource,
    model: Backbone,
    store: VectorStore,
    strict: bool,
    workers: int | None,
    progress: Progress | None,
) -> Embedded:
    known = store.known()
    total, computed = len(source.items), 0
    kept: list[int] = []
    contents: list[bytes] = []
    subjects: list[str | None] = []
    problems: list[tuple[str, str]] = []
    started = kept_at = time.monotonic()
    fresh: list[tuple[bytes, npt.NDArray[np.float32]]] = []
    try:
        for outcomes in run_images(source, model, known, workers):
            new = [(o.content, o.vector) for o in outcomes if o.vector is not None]
            known.update(content for content, _ in new)
            fresh += new
            computed += len(new)
            # A synced write costs as much as several images, so writes are batched.
            if fresh and (time.monotonic() - kept_at > _KEEP_EVERY or len(fresh) >= _BLOCK):
                batch, fresh = fresh, []
                store.put(batch)
                kept_at = time.monotonic()
            for o in outcomes:
                if o.problem is not None:
                    problems.append((source.items[o.index].name, o.problem))
                    if strict:
                        raise StrictError(source.items[o.index].name, o.problem)
                    continue
                kept.append(o.index)
                contents.append(o.content)
                subjects.append(o.subject)
            if progress is not None:
                done = outcomes[-1].index + 1
                progress(done, total, f"{done / max(time.monotonic() - started, 1e-9):.0f} images/s")
    finally:
        # A stopped run keeps what it has computed.
        if fresh:
            store.put(fresh)
    if not kept:
        raise DataError(f"No image can be read, of {total} (the first: {problems[0][1]}): check the files.")
    return Embedded(
        info=replace(
            model.info,
            class_names=source.class_names,
            ledger=ledger_of(source),
            reference=model.name if model.name in REFERENCES else "",
        ),
        items=tuple(source.items[i] for i in kept),
        contents=tuple(contents),
        subjects=complete_subjects(subjects, contents),
        attribute_names=source.attribute_names,
        problems=tuple(problems),
        computed=computed,
        ignored=source.ignored,
        store=store,
        source_items=source.items,
    )


def ledger_of(source: ImageSource) -> str:
    """The ledger of images on this machine; empty if they are in a store, where nothing lies beside them.

    Parameters
    ----------
    source
        The images.

    Returns
    -------
    str
        What `EmbeddingInfo.ledger` records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import ledger_of, open_images
    >>> np.savez("paid.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    >>> ledger_of(open_images("paid.npz")).endswith(".locum/ledger.sqlite")
    True
    """
    return "" if source.home is None else str(source.home / STATE_FOLDER / LEDGER)


def complete_subjects(subjects: Sequence[str | None], contents: Sequence[bytes]) -> tuple[str, ...] | None:
    """The subject of each image, if any image names one; an image that names none is its own subject."""
    if not any(subjects):
        return None
    return fill_subjects(subjects, contents)


def fill_subjects(subjects: Sequence[str | None], contents: Sequence[bytes]) -> tuple[str, ...]:
    """The same, whether or not one of these images names a subject: others may."""
    return tuple(s or f"unnamed-{content.hex()[:16]}" for s, content in zip(subjects, contents, strict=True))


def _cache_file(source: ImageSource, cache: Path | bool) -> Path | None:
    if isinstance(cache, Path):
        return cache
    # Images in a store have nothing beside them.
    if not cache or source.home is None:
        return None
    try:
        return private_folder(source.home / STATE_FOLDER) / "vectors.sqlite"
    except OSError:
        raise DataError(
            "The cache cannot be kept next to the images: make their parent folder writable, name a file with "
            "--cache FILE, or use --no-cache."
        ) from None
