"""Small folders of images, made anew for each test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum.data import read_splits
from locum.recipes import embed_to_file
from locum.types import EmbeddingSet


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


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty images in two splits with two classes each, one of them unreadable; names that must not leak."""
    rng = np.random.default_rng(7)
    root = tmp_path_factory.mktemp("scans") / "scans"
    for i in range(60):
        folder = root / ("train", "test")[i % 3 == 0] / ("benign", "malignant")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize((24, 24), Image.Resampling.BICUBIC).save(folder / f"MILLER-{i:03d}.png")
    (root / "train" / "benign" / "MILLER-bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "train" / "notes.txt").write_text("of no use")
    return root


@pytest.fixture(scope="session")
def in_one_file(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, EmbeddingSet]:
    """What `embed` writes into one file."""
    file = tmp_path_factory.mktemp("one") / "vectors.npz"
    embed_to_file(str(scans), file, cache=False)
    return read_splits(file)


def check_same(folder: Path, expected: dict[str, EmbeddingSet], *, ledger: bool = True) -> None:
    """Assert that a folder of shards, sorted by row, is bit for bit what one file holds."""
    found = read_splits(folder)
    assert list(found) == list(expected)
    before = -1
    for split, part in expected.items():
        rows = found[split].attributes["row"]
        order = np.argsort(rows)
        assert len(np.unique(rows)) == len(rows)
        assert rows.min() > before
        before = int(rows.max())
        mine = found[split].take(order)
        assert mine.X.tobytes() == part.X.tobytes()
        assert mine.labels.tolist() == part.labels.tolist()
        assert (mine.subject is None) == (part.subject is None)
        if part.subject is not None:
            assert mine.subject.tolist() == part.subject.tolist()
        assert {k: v.tolist() for k, v in mine.attributes.items() if k != "row"} == {
            k: v.tolist() for k, v in part.attributes.items()
        }
        # Nothing of where images lie is beside those in a store.
        assert mine.info == (part.info if ledger else replace(part.info, ledger="", images=""))


@pytest.fixture(scope="session")
def same():
    return check_same
