"""What images become at each setting of the knobs: the seed's Fig. 8."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.obfuscate import ImageObfuscator

__all__ = ["ImageGrid", "image_grid"]

Array = npt.NDArray[Any]
# Images in each cell, in rows of two.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """Cells for `obfuscation_report`, and one PNG with a row for each lambda. Both show real images."""

    report: dict[str, Any]
    picture: bytes


def image_grid(
    model: ImageObfuscator,
    images: Array,
    labels: Mapping[str, Array],
    noises: Sequence[float],
    lambdas: Sequence[float],
    *,
    true_label: bool = True,
    seed: int = 0,
) -> ImageGrid:
    """A few test images at every setting, with the same coins, as the seed's Fig. 8."""
    rows = np.random.default_rng(seed).permutation(len(images))[:_SHOWN]
    some, known = images[rows], {name: values[rows] for name, values in labels.items()}
    made = [
        [
            model.transform(some, known, noise=n, lambda_=v, use_true_label=true_label, random_state=seed)
            for n in noises
        ]
        for v in lambdas
    ]
    tiles = [[_tile(some), *map(_tile, row)] for row in made]
    report = {
        "noises": [f"{n:g}" for n in noises],
        "lambdas": [f"{v:g}" for v in lambdas],
        "originals": _png(_tile(some)),
        "cells": [[_png(tile) for tile in row[1:]] for row in tiles],
    }
    return ImageGrid(report, _png(np.concatenate([np.concatenate(row, axis=1) for row in tiles])))


def _tile(images: Array) -> Array:
    """Images in rows of two, with a light line around."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
    if len(framed) % 2:
        framed = np.concatenate([framed, np.full_like(framed[:1], 255)])
    return np.concatenate([np.concatenate([a, b], axis=1) for a, b in zip(framed[::2], framed[1::2], strict=True)])


def _png(image: Array) -> bytes:
    from PIL import Image

    raw = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(raw, format="PNG")
    return raw.getvalue()
