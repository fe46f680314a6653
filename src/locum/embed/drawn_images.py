"""Images drawn by program, and a backbone's public statistics from them: no photograph, no person, no license.

Leaves, waves, clouds and blobs in color and gray, large and small.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from locum.data import REFERENCES, Reference, load_reference
from locum.embed.backbone import Backbone
from locum.embed.embedding import cores
from locum.errors import ConfigError, DataError
from locum.types import Progress, no_progress

if TYPE_CHECKING:
    from PIL.Image import Image


IMAGES = 3000
# Increase when `draw_image` draws something else from the same random numbers.
DRAWING = 1
_SIDE = 96
# What a model is given at a time: other numbers could change the last bits of a vector.
_BATCH = 8


def make_drawn_reference(
    backbone: Backbone,
    images: int = IMAGES,
    seed: int = 0,
    *,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Reference:
    """Public statistics of a backbone: mean and covariance of its vectors on images that a program draws.

    Parameters
    ----------
    backbone
        The model; any will do.
    images
        How many images to draw, 2 or more.
    seed
        Seed of the drawing, 0 or more.
    tell
        Called once with a line that says how long it will take, after the first few images. None: nothing is said.
    progress
        Called with the images done and the number of images.

    Returns
    -------
    Reference
        The statistics, which name the backbone and how they were made.

    Examples
    --------
    >>> from locum.embed import Backbone, Preprocessing, make_drawn_reference
    >>> color = Backbone("mean color", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)
    >>> made = make_drawn_reference(color, images=16)
    >>> made.info.backbone, made.source
    ('mean color', '16 images drawn by Locum (drawing 1, seed 0)')
    """
    if images < 2:
        raise ConfigError(f"Public statistics need 2 or more images; got {images}.")
    if seed < 0:
        raise ConfigError(f"`seed` must be 0 or more; got {seed!r}.")
    vectors = drawn_vectors(backbone, images, seed, tell=tell, progress=progress)
    if not np.isfinite(vectors).all():
        raise DataError("The model gives vectors that are not finite on drawn images: it has no public statistics.")
    source = f"{images:,} images drawn by Locum (drawing {DRAWING}, seed {seed})"
    made = Reference.from_vectors(vectors, source=source)
    # A window and alpha are matters of one's own images, not of drawn ones.
    info = replace(backbone.info, preprocessing=backbone.preprocessing.opaque.text)
    return replace(made, info=info, images=images, seed=seed, drawing=DRAWING)


def keep_drawn_reference(
    backbone: Backbone,
    folder: Path,
    *,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> str:
    """The name of a backbone's shipped statistics, or a file of its own in `folder`, made if it is not there.

    Parameters
    ----------
    backbone
        The model.
    folder
        Where the file is kept; it must exist.
    tell, progress
        As in `make_drawn_reference`.

    Returns
    -------
    str
        What `EmbeddingInfo.reference` records.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed import Backbone, Preprocessing, keep_drawn_reference
    >>> shipped = Backbone("efflite0", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)
    >>> keep_drawn_reference(shipped, Path())
    'efflite0'
    """
    if backbone.name in REFERENCES:
        return backbone.name
    identity = "\n".join((backbone.revision, backbone.preprocessing.opaque.text, str(DRAWING)))
    file = folder.resolve() / f"reference-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.safetensors"
    try:
        load_reference(file, backbone.dim, backbone.info)
    except DataError:
        make_drawn_reference(backbone, IMAGES, tell=tell, progress=progress).save(file)
    return str(file)


def drawn_vectors(
    backbone: Backbone,
    images: int,
    seed: int,
    *,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> npt.NDArray[np.float64]:
    """What a backbone makes of the images of a seed, in the order in which they are drawn."""
    report, rng, threads = progress or no_progress, np.random.default_rng(seed), min(cores(), 32)
    sizes = [min(_BATCH, images - start) for start in range(0, images, _BATCH)]

    def draw(size: int) -> list[Image]:
        return [draw_image(rng) for _ in range(size)]

    def run(batch: list[Image]) -> npt.NDArray[np.float32]:
        return backbone.run(np.stack([backbone.preprocessing.apply(image) for image in batch]))

    started = time.monotonic()
    parts = [run(draw(sizes[0]))]
    if tell is not None:
        seconds = (time.monotonic() - started) * len(sizes) / (threads if backbone.concurrent else 1)
        tell(f"public statistics: drawing {images:,} images once, about {max(seconds, 1):.0f} s")
    waiting: deque[Future[npt.NDArray[np.float32]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="locum-draw")
    try:
        for i, size in enumerate(sizes[1:]):
            waiting.append(pool.submit(run, draw(size)))
            if len(waiting) >= 2 * threads:
                parts.append(waiting.popleft().result())
            report(min((i + 2) * _BATCH, images), images, "drawn images")
        parts += [future.result() for future in waiting]
    finally:
        pool.shutdown(cancel_futures=True)
    return np.concatenate(parts).astype(np.float64)


def draw_image(rng: np.random.Generator) -> Image:
    """One image of four kinds, sometimes blurred, sometimes small, half of them gray."""
    from PIL import ImageFilter

    kind, gray = rng.integers(4), rng.random() < 0.5
    image = _leaves(rng) if kind == 0 else _field(rng, int(kind))
    if rng.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 3)))
    if rng.random() < 0.4:
        image = image.resize((28, 28)) if rng.random() < 0.5 else image.resize((32, 32))
    return image.convert("L") if gray else image


def _leaves(rng: np.random.Generator) -> Image:
    """Shapes that cover each other, small ones often and large ones seldom."""
    from PIL import Image, ImageDraw

    def color() -> tuple[int, ...]:
        return tuple(rng.integers(0, 256, 3).tolist())

    image = Image.new("RGB", (_SIDE, _SIDE), color())
    pen = ImageDraw.Draw(image)
    for _ in range(rng.integers(5, 120)):
        r = _SIDE * 0.5 * rng.random() ** 2 + 1
        x, y = rng.random(2) * _SIDE
        fill, shape = color(), rng.integers(3)
        if shape == 0:
            pen.ellipse((x - r, y - r * rng.uniform(0.3, 1), x + r, y + r * rng.uniform(0.3, 1)), fill=fill)
        elif shape == 1:
            pen.rectangle((x - r, y - r * 0.5, x + r, y + r * 0.5), fill=fill)
        else:
            pen.polygon([tuple(rng.random(2) * _SIDE) for _ in range(3)], fill=fill)
    return image


def _field(rng: np.random.Generator, kind: int) -> Image:
    """Clouds whose roughness varies; with waves (2), or with blobs on a slope (3)."""
    from PIL import Image

    f = np.fft.fftfreq(_SIDE)
    k = np.hypot(f[:, None], f[None])
    k[0, 0] = 1 / _SIDE
    power = rng.uniform(0.5, 3) / 2
    planes = [np.fft.ifft2(np.fft.fft2(rng.normal(size=(_SIDE, _SIDE))) / k**power).real for _ in range(3)]
    a = np.stack(planes, -1) @ rng.normal(size=(3, 3))
    if kind == 2:
        angle, waves = rng.uniform(0, np.pi), rng.uniform(2, 20)
        along = np.cos(angle) * np.arange(_SIDE)[:, None] + np.sin(angle) * np.arange(_SIDE)[None]
        wave = np.sin(2 * np.pi * waves * along / _SIDE)
        a = a / a.std() * rng.uniform(0, 1) + wave[..., None] * rng.normal(size=3)
    if kind == 3:
        y, x = np.mgrid[:_SIDE, :_SIDE] / _SIDE
        slope = (x * rng.normal() + y * rng.normal())[..., None]
        a = a / a.std() * rng.uniform(0, 0.6) + slope * rng.normal(size=3)
        for _ in range(rng.integers(1, 6)):
            cx, cy = rng.random(2)
            s = rng.uniform(0.03, 0.3)
            blob = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 2 / s**2)
            a = a + blob[..., None] * rng.normal(size=3) * 2
    low, high = np.quantile(a, [0.01, 0.99])
    return Image.fromarray((255 * np.clip((a - low) / (high - low + 1e-9), 0, 1)).astype(np.uint8))
