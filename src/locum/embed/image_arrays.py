"""Images in arrays: an .npz file in MedMNIST's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data import RawSplit, assemble, read_image_arrays
from locum.embed.sources import ImageItem, ImageSource
from locum.errors import DataError
from locum.types import EmbeddingInfo

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, kw_only=True)
class ArraySource(ImageSource):
    """Images in arrays, one a split; an image's name is its split and its row."""

    arrays: dict[str, npt.NDArray[Any]]

    def read(self, i: int) -> bytes:
        """Shape, type and pixels of image `i`: equal pixels of another shape are another content."""
        split, _, row = self.items[i].name.partition("/")
        image = np.ascontiguousarray(self.arrays[split][int(row)])
        return f"{'x'.join(map(str, image.shape))} {image.dtype.str}\n".encode() + image.tobytes()

    def decode(self, content: bytes, window: tuple[float, float] | None) -> Image:
        """Back to an image; numbers above 8 bits are mapped as those of files are."""
        from locum.embed.decode import image_from_array

        head, _, pixels = content.partition(b"\n")
        shape, dtype = head.decode().split(" ")
        array = np.frombuffer(pixels, dtype=dtype).reshape([int(s) for s in shape.split("x")])
        return image_from_array(array, window=window)

    def subject(self, content: bytes) -> str | None:
        """Arrays of pixels do not say."""
        return None


def open_npz(place: Path) -> ArraySource:
    """Images of an .npz file; the arrays are held in memory. Labels mean what they mean beside vectors."""
    try:
        raw, names = read_image_arrays(str(place))
        hollow = {k: RawSplit(np.zeros((len(r.X), 1)), r.labels, r.subject, r.attributes) for k, r in raw.items()}
        sets = assemble(hollow, str(place), EmbeddingInfo(), names)
        columns = {
            split: {key: part.attributes[key].astype(np.str_).tolist() for key in sorted(part.attributes)}
            for split, part in sets.items()
        }
        subjects = {k: None if s.subject is None else s.subject.astype(np.str_).tolist() for k, s in sets.items()}
    except UnicodeDecodeError:
        raise DataError(
            f"{str(place)!r} holds bytes that are no plain text among its labels or other columns: save them as text."
        ) from None
    attributes = sorted({key for part in columns.values() for key in part})
    items: list[ImageItem] = []
    for split, part in sets.items():
        if any(key not in columns[split] for key in attributes):
            raise DataError(f"{str(place)!r} lacks an attribute in {split!r} that another split has: add it.")
        who = subjects[split]
        for i, label in enumerate(part.labels.tolist()):
            items.append(
                ImageItem(
                    name=f"{split}/{i}",
                    split=split,
                    label=label,
                    subject=None if who is None else who[i],
                    attributes=tuple(columns[split][key][i] for key in attributes),
                )
            )
    return ArraySource(
        home=place.resolve().parent,
        items=items,
        class_names=next(iter(sets.values())).info.class_names,
        attribute_names=tuple(attributes),
        arrays={split: part.X for split, part in raw.items()},
    )
