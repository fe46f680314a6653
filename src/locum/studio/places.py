"""What lies below the studio's root: data sets, releases, ledgers, keys. Nothing outside it is ever read or named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from locum.errors import DataError
from locum.io import LEDGER, MANIFEST, STATE_FOLDER, private_folder

# How far the desk looks, so that a home folder does not take minutes.
_DEPTH, _ENTRIES = 4, 20_000
_DATA = frozenset({".npz", ".parquet", ".csv", ".safetensors"})
_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".dcm"})
# What our own verbs write beside data and releases: results, not data.
_HEAD = "-head.safetensors"
_OURS = re.compile(r"(-(predictions|risk)\.csv|-samples\.(npz|parquet|csv))$")
_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})
_ABSOLUTE = re.compile(r"(?<![\w.])/(?:[^\s'\"/]+/)*[^\s'\"/,;:]+")


class NotBelowRootError(DataError):
    """A path that is not there, or not below the root: the two look the same from outside."""


class Root:
    """The folder that the studio was opened on.

    Parameters
    ----------
    folder
        An existing folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    @property
    def state(self) -> Path:
        """Where the studio keeps its jobs: private, and beside the data."""
        return private_folder(private_folder(self.folder / STATE_FOLDER) / "studio")

    def path(self, text: str, *, missing: bool = False) -> Path:
        """The path below the root that a page names, without `#split`; `missing` allows one that is not there yet.

        A link that leads out, `..`, an absolute path and a file that is not there get the same answer.
        """
        pure = PurePosixPath(text)
        if text and len(text) < 1000 and "\0" not in text and not pure.is_absolute() and ".." not in pure.parts:
            try:
                found = (self.folder / pure).resolve()
                if found.is_relative_to(self.folder) and found != self.folder and (missing or found.exists()):
                    return found
            except (OSError, RuntimeError):
                pass
        raise NotBelowRootError(f"There is no {text[:100]!r} below the folder that the studio was opened on.")

    def new(self, text: str) -> Path:
        """A place below the root for something new; its folder must be there, and hidden places are ours."""
        found = self.path(text, missing=True)
        if any(part.startswith(".") for part in found.relative_to(self.folder).parts) or not found.parent.is_dir():
            raise NotBelowRootError(f"Nothing can be written at {text[:100]!r}: choose a name below the root.")
        return found

    def name(self, path: Path) -> str:
        """A path below the root as pages name it."""
        return path.resolve().relative_to(self.folder).as_posix()

    def hide(self, text: str) -> str:
        """A sentence without the root, and without any path outside it."""
        text = text.replace(f"{self.folder}{os.sep}", "").replace(str(self.folder), "the root")
        return _ABSOLUTE.sub("a file elsewhere", text)

    def listing(self) -> dict[str, Any]:
        """Names of what is there, quickly: nothing is opened."""
        found: dict[str, set[str]] = {
            name: set() for name in ("data", "releases", "ledgers", "keys", "publics", "heads")
        }
        seen = 0
        for folder, files in self._walk():
            names = {entry.name for entry in files}
            seen += len(names)
            ledger = folder / STATE_FOLDER / LEDGER
            if ledger.is_file() and not ledger.is_symlink():
                found["ledgers"].add(self.name(ledger))
            if MANIFEST in names:
                if names & {"decoder.safetensors", "rows.safetensors"}:
                    found["releases"].add(self.name(folder))
                continue
            for name in names:
                suffix, place = Path(name).suffix.lower(), self.name(folder / name)
                if suffix == ".pub":
                    found["publics"].add(place)
                    if name.removesuffix(".pub") in names:
                        found["keys"].add(place.removesuffix(".pub"))
                elif name.endswith(_HEAD):
                    found["heads"].add(place)
                elif suffix in _DATA and not _OURS.search(name):
                    found["data"].add(place)
            if any(Path(name).suffix.lower() in _IMAGES for name in names):
                found["data"] |= {self.name(place) for place in [_set_of(folder)] if place != self.folder}
            if seen > _ENTRIES:
                break
        return {kind: sorted(places) for kind, places in found.items()} | {
            "root": self.folder.name or "/",
            "complete": seen <= _ENTRIES,
        }

    def _walk(self) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
        """Folders with their files, hidden ones left out, from the top down."""
        waiting = [(self.folder, 0)]
        while waiting:
            folder, depth = waiting.pop(0)
            try:
                entries = sorted(os.scandir(folder), key=lambda e: e.name)
            except OSError:
                continue
            files = [e for e in entries if not e.name.startswith(".") and e.is_file(follow_symlinks=False)]
            yield folder, files
            if depth < _DEPTH and not any(e.name == MANIFEST for e in files):
                waiting += [
                    (folder / e.name, depth + 1)
                    for e in entries
                    if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
                ]


def _set_of(folder: Path) -> Path:
    """The data set that a folder of images belongs to: above the class, and above the split if there is one."""
    return folder.parent.parent if folder.parent.name in _SPLITS else folder.parent
