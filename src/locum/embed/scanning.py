"""A look at images before any model runs: which can be read, how large they are, whose they are, which are copies."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from locum.embed.decode import image_size
from locum.embed.embedding import UNREADABLE, complete_subjects, cores, why_unreadable
from locum.embed.sources import FileSource, ImageItem, ImageSource, RemoteSource
from locum.types import Progress

_BATCH = 16


@dataclass(frozen=True, eq=False)
class ScannedImages:
    """What `scan_images` found. As private as the images, and names can be patients' names.

    Attributes
    ----------
    items
        The images that can be read, in order.
    contents
        A hash per image, of its pixels where they were decoded, else of its file: copies have the same.
    subjects
        Subject of each of them; None if no image names one.
    sizes
        How many images have a width and height.
    problems
        Names of the images that cannot be read, with reasons.
    unchecked
        How many images were not decoded, for lack of time: some of them may be damaged.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import open_images, scan_images
    >>> np.savez("scanned.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    >>> found = scan_images(open_images("scanned.npz"))
    >>> dict(found.sizes), found.contents[0] == found.contents[1]
    ({(8, 8): 2}, True)
    """

    items: tuple[ImageItem, ...]
    contents: tuple[bytes, ...]
    subjects: tuple[str, ...] | None
    sizes: Mapping[tuple[int, int], int]
    problems: tuple[tuple[str, str], ...]
    unchecked: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """One image: hash of its file, hash by which copies are found, size, subject, whether it was decoded."""

    file: bytes = b""
    content: bytes = b""
    size: tuple[int, int] | None = None
    subject: str | None = None
    decoded: bool = False
    problem: str | None = None


def scan_images(source: ImageSource, *, seconds: float = 12.0, progress: Progress | None = None) -> ScannedImages:
    """Read every image once, without a model, and say what is known about it.

    Images are decoded as `embed_images` decodes them, so what cannot be read here cannot be embedded. After `seconds`
    only headers are looked at.

    Parameters
    ----------
    source
        The images.
    seconds
        How long images are decoded.
    progress
        Called with the images done, the number of images and the speed. None: nothing is shown.

    Returns
    -------
    ScannedImages
        The images that can be read, and those that cannot.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed import open_images, scan_images
    >>> Path("looked/cat").mkdir(parents=True)
    >>> _ = Path("looked/cat/1.pgm").write_bytes(b"P2 1 1 255 9")
    >>> _ = Path("looked/cat/2.pgm").write_bytes(b"")
    >>> scan_images(open_images("looked")).problems
    (('cat/2.pgm', 'empty file'),)
    """
    started = time.monotonic()
    total = len(source.items)
    batches = [range(i, min(i + _BATCH, total)) for i in range(0, total, _BATCH)]
    seen: list[_Seen] = []
    with ThreadPoolExecutor(min(cores(), 32), thread_name_prefix="locum-scan") as pool:
        try:
            for done in pool.map(lambda batch: [_look(source, i, started + seconds) for i in batch], batches):
                seen += done
                if progress is not None:
                    rate = len(seen) / max(time.monotonic() - started, 1e-9)
                    progress(len(seen), total, f"{rate:.0f} images/s")
        finally:
            pool.shutdown(cancel_futures=True)
    return _collected(source.items, seen)


def _look(source: ImageSource, i: int, deadline: float) -> _Seen:
    try:
        raw = source.read(i)
        subject = source.items[i].subject or source.subject(raw)
        file = hashlib.sha256(raw).digest()
        if time.monotonic() < deadline:
            image = source.decode(raw, None)
            pixels = hashlib.blake2b(f"{image.mode} {image.size}".encode(), digest_size=32)
            pixels.update(image.tobytes())
            return _Seen(file, pixels.digest(), image.size, subject, decoded=True)
        size = image_size(raw) if isinstance(source, FileSource | RemoteSource) else None
        return _Seen(file, file, size, subject)
    except UNREADABLE as error:
        return _Seen(problem=why_unreadable(error))


def _collected(items: Sequence[ImageItem], seen: Sequence[_Seen]) -> ScannedImages:
    good = [(item, one) for item, one in zip(items, seen, strict=True) if one.problem is None]
    # A file that was decoded only the first time is still the same.
    contents: dict[bytes, bytes] = {}
    for _, one in good:
        if one.decoded:
            contents.setdefault(one.file, one.content)
    keys = tuple(contents.get(one.file, one.content) for _, one in good)
    return ScannedImages(
        items=tuple(item for item, _ in good),
        contents=keys,
        subjects=complete_subjects([one.subject for _, one in good], [one.file for _, one in good]),
        sizes=dict(Counter(one.size for _, one in good if one.size is not None).most_common()),
        problems=tuple((item.name, one.problem) for item, one in zip(items, seen, strict=True) if one.problem),
        unchecked=sum(one.file not in contents for _, one in good),
    )
