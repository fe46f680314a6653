"""A look at images without a model: it agrees with `embed_images`, and goes on without pixels if time is short."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum.embed import Backbone, Preprocessing, embed_images, open_images, scan_images


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    place = tmp_path / "scans" / "a"
    place.mkdir(parents=True)
    for i in range(20):
        color = Image.fromarray(rng.integers(0, 256, size=(9, 7 + i % 2, 3), dtype=np.uint8))
        color.save(place / f"{i:02}.{('png', 'jpg', 'tif', 'webp')[i % 4]}")
    shutil.copy(place / "04.png", place / "90-copy.png")
    for i, name in enumerate(("00.png", "01.jpg", "02.tif", "03.webp")):
        raw = (place / name).read_bytes()
        (place / f"broken-{i}").with_suffix(Path(name).suffix).write_bytes(raw[: len(raw) // 2])
    (place / "empty.png").write_bytes(b"")
    (place / "lost.png").symlink_to(place / "nowhere.png")
    return place.parent


def test_it_finds_unreadable_what_embed_finds_unreadable(folder: Path) -> None:
    model = Backbone("mean", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)
    with embed_images(folder, model, cache=False) as embedded:
        scanned = scan_images(open_images(folder))
        assert scanned.problems == embedded.problems
        assert len(scanned.problems) == 6
        assert scanned.items == embedded.items
    assert scanned.unchecked == 0
    assert dict(scanned.sizes) == {(7, 9): 11, (8, 9): 10}


def test_without_time_headers_and_copies_of_files_are_left(folder: Path) -> None:
    full, quick = scan_images(open_images(folder)), scan_images(open_images(folder), seconds=0)
    assert quick.unchecked == len(quick.items) >= len(full.items)
    # Whatever a header shows to be wrong is wrong; what it does not show stays in.
    assert set(quick.problems) <= set(full.problems)
    assert {"missing", "empty file"} <= {reason for _, reason in quick.problems}
    for found in (full, quick):
        names = {item.name: content for item, content in zip(found.items, found.contents, strict=True)}
        assert names["a/04.png"] == names["a/90-copy.png"]
        assert len(set(names.values())) == len(names) - 1


def test_progress_ends_with_all_images(folder: Path) -> None:
    calls: list[tuple[int, int]] = []
    scan_images(open_images(folder), progress=lambda done, total, note="": calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (27, 27)
