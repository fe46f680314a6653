"""Where obfuscated records go: a table, an .npz or a folder of images, each with its claim, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from understudy.data import write_frame
from understudy.data.files import write_atomically, write_bytes
from understudy.errors import ConfigError
from understudy.recipes.common import check_new_file
from understudy.release import check_target
from understudy.release.whole import MANIFEST, entry_of, write_whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ATTRIBUTES", "check_place", "claim_path", "write_images", "write_table"]

Array = npt.NDArray[Any]
ATTRIBUTES = "attributes.csv"
_TABLES = (".csv", ".parquet")


def claim_path(out: Path) -> Path:
    """Where the claim of a file lies: beside it.

    >>> claim_path(Path("out/people.csv")).as_posix()
    'out/people.claim.json'
    """
    return out.with_name(f"{out.stem}.claim.json")


def check_place(out: Path, kind: str, *, overwrite: bool) -> None:
    """Complain about a place that cannot be written before any work; `kind` is "table" or "image"."""
    suffix = out.suffix.lower()
    if kind == "table" and suffix not in _TABLES:
        raise ConfigError(f"An obfuscated table ends in .csv or .parquet; got {str(out)!r}.")
    if kind == "image" and suffix not in ("", ".npz"):
        raise ConfigError(f"Obfuscated images go to an .npz file or to a folder; got {str(out)!r}.")
    if kind == "image" and not suffix:
        check_target(out, overwrite=overwrite)
        return
    for path in (out, claim_path(out)):
        check_new_file(path, overwrite=overwrite)


def write_table(out: Path, frame: pd.DataFrame, about: Mapping[str, Any]) -> Path:
    """The table and its claim; where the claim may lie."""
    write_frame(frame, out)
    return _claimed(out, about)


def write_images(
    out: Path, images: Array, labels: Mapping[str, Array], about: Mapping[str, Any], *, overwrite: bool
) -> Path:
    """Images (n, h, w, colours) with their labels and their claim; where the claim lies.

    An .npz has MedMNIST's layout: the first utility attribute is its label. A folder has PNGs that are named by
    numbers, the labels in `attributes.csv`, and the claim in its manifest.
    """
    if out.suffix.lower() == ".npz":
        first, *_ = labels.values()
        named = {f"train_attr_{name}": values for name, values in labels.items() if name != "label"}
        # Typed loosely because NumPy lists its own options among the names of arrays.
        arrays: dict[str, Any] = {"train_images": _squeezed(images), "train_labels": first, **named}

        def write(stream: BinaryIO) -> None:
            np.savez_compressed(stream, **arrays)

        write_atomically(str(out), write)
        return _claimed(out, about)
    # Owned by its maker until sent.
    write_whole(out, _folder(images, labels, about), overwrite=overwrite, mode=0o700)
    return out / MANIFEST


def _folder(images: Array, labels: Mapping[str, Array], about: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    import pandas as pd
    from PIL import Image

    files, entries = [], {}
    for i, image in enumerate(_squeezed(images), start=1):
        # Names of files can be patients' names: here they are numbers.
        name, raw = f"{i:06d}.png", io.BytesIO()
        Image.fromarray(image).save(raw, format="PNG")
        files.append(name)
        entries[name] = entry_of(raw.getvalue()).model_dump()
        yield name, raw.getvalue()
    table = pd.DataFrame({"file": files, **labels}).to_csv(index=False, lineterminator="\n").encode()
    entries[ATTRIBUTES] = entry_of(table).model_dump()
    yield ATTRIBUTES, table
    yield MANIFEST, _dumped({**about, "files": entries})


def _squeezed(images: Array) -> Array:
    return images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images


def _claimed(out: Path, about: Mapping[str, Any]) -> Path:
    place = claim_path(out)
    try:
        with out.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        write_bytes(str(place), _dumped({**about, "sha256": digest}))
    except BaseException:
        # Records without their claim must not lie about.
        out.unlink(missing_ok=True)
        raise
    return place


def _dumped(about: Mapping[str, Any]) -> bytes:
    return (json.dumps(about, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
