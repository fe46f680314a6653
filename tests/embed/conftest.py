"""Small folders of images, made anew for each test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def picture(rng: np.random.Generator):
    """A smooth random color image of the given size."""

    def make(width: int = 40, height: int = 30, mode: str = "RGB") -> Image.Image:
        small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode)

    return make


@pytest.fixture
def image_folder(tmp_path: Path, picture) -> Path:
    """Two classes, five images each, in several formats."""
    for label in ("benign", "malignant"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i, suffix in enumerate(("png", "jpg", "bmp", "gif", "tiff")):
            picture().save(tmp_path / "images" / label / f"scan{i}.{suffix}")
    return tmp_path / "images"
