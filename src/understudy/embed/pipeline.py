"""Reading, decoding and running the model, on all cores at once, in bounded memory and in order."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from understudy.embed.backbones import Backbone
from understudy.embed.decode import UnreadableImageError
from understudy.embed.sources import ImageSource

__all__ = ["Outcome", "cores", "run_images"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one image: a content with its vector (None: it is known already), or a problem."""

    index: int
    content: bytes = b""
    vector: npt.NDArray[np.float32] | None = None
    subject: str | None = None
    problem: str | None = None


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_images(
    source: ImageSource, backbone: Backbone, known: Container[bytes], workers: int | None = None
) -> Iterator[list[Outcome]]:
    """Every image of `source`, in order, a small batch at a time.

    Each thread reads, decodes and embeds its own batch: with one core a thread, decoding overlaps with inference and
    nobody waits. At most two batches a thread are under way, whatever the number of images. `known` is asked
    before an image is decoded.
    """
    threads = workers or min(cores(), 32)
    chunks = (
        range(i, min(i + backbone.batch, len(source.items))) for i in range(0, len(source.items), backbone.batch)
    )
    pending: deque[Future[list[Outcome]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="understudy-embed")
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
    """Room for a batch, one a thread: fresh memory would cost as much as decoding a small image."""
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
    """What is known of image `i`, and whether `pixels` were filled for the model to run."""
    try:
        raw = source.read(i)
        subject = source.items[i].subject or source.subject(raw)
        content = hashlib.sha256(raw).digest()
        if content in known:
            return Outcome(i, content, subject=subject), False
        backbone.preprocessing.apply(source.decode(raw, backbone.preprocessing.window), pixels)
    except UnreadableImageError as error:
        return Outcome(i, problem=str(error)), False
    except OSError as error:
        # The text of the error names the file: it stays out.
        return Outcome(i, problem="missing" if isinstance(error, FileNotFoundError) else "cannot be opened"), False
    except MemoryError:
        return Outcome(i, problem="needs more memory than there is"), False
    return Outcome(i, content, subject=subject), True
