"""Vectors of one set of images by one backbone: read from a folder, or made there by the ordinary `embed`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum.data import REFERENCES, read_splits
from locum.embed import load_backbone, make_drawn_reference
from locum.errors import ConfigError, DataError
from locum.io import write_bytes
from locum.recipes import embed_to_file
from locum.recipes.study import data_folder
from locum.recipes.study_sets import backbone_label
from locum.types import EmbeddingSet

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Place:
    """A set, or a part of one, and the backbone that embeds it."""

    folder: Path
    backbone: str
    name: str
    sizes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, config: Mapping[str, Any], backbone: str, name: str) -> Place:
        sizes = config["sets"][name]
        # In one order, whatever that of the settings is: files are named by it.
        return cls(Path(config["vectors"]), backbone, name, tuple((s, sizes[s]) for s in SPLITS if s in sizes))

    @property
    def part(self) -> str:
        """The name of the part: parts of other sizes are other files."""
        return "-".join([self.name, *(f"{split}{size}" for split, size in self.sizes)])

    @property
    def file(self) -> Path:
        return self.folder / f"{self.part}-{backbone_label(self.backbone)}.npz"


def vectors(place: Place) -> dict[str, EmbeddingSet]:
    """The splits of a set as vectors; they are made if the folder of vectors lacks them."""
    if not place.file.is_file():
        if place.backbone.startswith("onnx:") and not Path(place.backbone.removeprefix("onnx:")).is_file():
            raise DataError(
                f"There is neither {str(place.file)!r} nor the model {place.backbone!r} to make it with: see "
                "studies/backbones/README.md for the ResNet-50, or choose others with --set 'backbones=[...]'."
            )
        # `reference` makes public statistics, from as many drawn images as the settings say.
        embed_to_file(str(part_of_images(place)), place.file, backbone=place.backbone, workers=1, reference=False)
    return read_splits(place.file)


def reference(place: Place, images: int) -> str:
    """Public statistics for private fits: those that ship with the backbone, or a file made from drawn images."""
    if place.backbone in REFERENCES:
        return place.backbone
    file = place.folder / f"drawn{images}-{backbone_label(place.backbone)}.safetensors"
    if not file.is_file():
        make_drawn_reference(load_backbone(place.backbone), images).save(file)
    return str(file)


def part_of_images(place: Place) -> Path:
    """A file with so many images of each split, drawn within classes; a split without a size is taken whole."""
    file = place.folder / "images" / f"{place.part}.npz"
    if file.is_file():
        return file
    arrays: dict[str, np.ndarray] = {}
    sizes = dict(place.sizes)
    with np.load(data_folder() / f"{place.name}.npz", allow_pickle=False) as given:
        for split in (split for split in SPLITS if f"{split}_images" in given.files):
            labels = given[f"{split}_labels"].reshape(-1)
            rows = drawn(labels, sizes[split]) if split in sizes else np.arange(len(labels))
            arrays |= {f"{split}_images": given[f"{split}_images"][rows], f"{split}_labels": labels[rows]}
    file.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
    write_bytes(file, packed.getvalue(), mode=0o600)
    return file


def drawn(labels: np.ndarray, size: int) -> np.ndarray:
    """So many rows, with about each class's share, in their order; fewer are some of more."""
    if not 0 < size <= len(labels):
        raise ConfigError(f"A part has 1 to {len(labels)} images of this split; got {size}.")
    # Sorted by their relative place within the class: every start of that order has the classes' shares.
    order = np.random.default_rng(0).permutation(len(labels))
    place = np.empty(len(labels))
    for c in np.unique(labels):
        rows = order[labels[order] == c]
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.sort(order[np.argsort(place[order], kind="stable")[:size]])
