"""What lies below the studio's root: data sets, releases, ledgers, keys. Nothing outside it is ever read or named."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from locum.errors import DataError
from locum.io import LEDGER, MANIFEST, STATE_FOLDER, parquet_files, private_folder

# How far the desk looks, so that a home folder does not take minutes.
_DEPTH, _ENTRIES = 4, 20_000
_LONGEST = 200
_DATA = frozenset({".npz", ".parquet", ".csv", ".safetensors"})
_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".dcm"})
# What our own verbs write beside data and releases: results, not data.
_HEAD = "-head.safetensors"
_OURS = re.compile(r"(-(predictions|risk)\.csv|-samples\.(npz|parquet|csv))$")
_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})
# In quotes a path may hold spaces.
_ABSOLUTE = re.compile(r"""'/[^']*'|"/[^"]*"|(?<![\w.-])/(?:[^\s'"/]+/)*[^\s'"/,;:]+""")


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

    @cached_property
    def state(self) -> Path:
        """Where the studio keeps its jobs: private, and beside the data.

        Where others may write in the root, what lies there already could be theirs, or a link to it.
        """
        for place in (self.folder / STATE_FOLDER, self.folder / STATE_FOLDER / "studio"):
            found = private_folder(place).lstat()
            if stat.S_ISLNK(found.st_mode):
                raise PermissionError(errno.EPERM, f"{place.name} is a link", str(place))
            if found.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, f"{place.name} belongs to another user", str(place))
            # Whoever may write in a folder can put another one in the place of what it holds.
            place.chmod(found.st_mode & (0o755 if place.name == STATE_FOLDER else 0o700))
        return place

    def path(self, text: str, *, missing: bool = False) -> Path:
        """The path below the root that a page names; `missing` allows one that is not there yet.

        A link that leads out, `..`, an absolute path, what is hidden and what is not there get the same answer.
        """
        pure = PurePosixPath(text)
        if text and len(text) < 1000 and "\0" not in text and not pure.is_absolute() and ".." not in pure.parts:
            with suppress(OSError, RuntimeError, ValueError):
                found = (self.folder / pure).resolve()
                parts = found.relative_to(self.folder).parts
                # Of what is hidden only ledgers are for pages.
                open_parts = parts[:-2] if parts[-2:] == (STATE_FOLDER, LEDGER) else parts
                shown = parts and not any(part.startswith(".") for part in open_parts)
                if shown and (missing or found.exists()):
                    return found
        raise NotBelowRootError(f"There is no {text[:100]!r} in the folder that the studio was opened on.")

    def records(self, text: str) -> Path:
        """The file or folder in `FILE#split`, as a job in the root reads it: a name that is there is not split."""
        file, mark, split = text.rpartition("#")
        whole = not mark or not file or os.path.lexists(self.folder / text)
        return self.path(text if whole or ".." in PurePosixPath(split).parts else file)

    def new(self, text: str) -> Path:
        """A place below the root for something new; its folder must be there."""
        found = self.path(text, missing=True)
        # What is kept beside a release has its name and more.
        long = len(os.fsencode(found.name)) > _LONGEST
        if long or found.name == LEDGER or not text.isprintable() or not found.parent.is_dir():
            raise NotBelowRootError(f"Nothing can be written at {text[:100]!r}: choose another name in this folder.")
        return found

    def name(self, path: Path) -> str:
        """A path below the root as pages name it."""
        return path.resolve().relative_to(self.folder).as_posix()

    def hide(self, text: str) -> str:
        """A sentence without the root, and without any path outside it."""
        if self.folder.name:
            own = rf"(?<![\w.-]){re.escape(str(self.folder))}"
            text = re.sub(rf"{own}(?![^\s'\",;:.)])", "the root", re.sub(rf"{own}/", "", text))
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
            whole = folder if folder != self.folder and len(parquet_files(folder)) > 1 else None
            if whole is not None:
                found["data"].add(self.name(whole))
            for name in names:
                suffix, place = Path(name).suffix.lower(), self.name(folder / name)
                if suffix == ".pub":
                    found["publics"].add(place)
                    if name.removesuffix(".pub") in names:
                        found["keys"].add(place.removesuffix(".pub"))
                elif name.endswith(_HEAD):
                    found["heads"].add(place)
                elif suffix in _DATA and not _OURS.search(name) and (whole is None or suffix != ".parquet"):
                    found["data"].add(place)
            if any(Path(name).suffix.lower() in _IMAGES for name in names):
                # Images in the root itself are no data set below it.
                found["data"] |= {self.name(place) for place in [_set_of(folder)] if self.folder in place.parents}
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
                # A name that is not text cannot be told to a page.
                entries = sorted((e for e in os.scandir(folder) if _is_text(e.name)), key=lambda e: e.name)
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


def _is_text(name: str) -> bool:
    """Whether a file's name is text, not bytes of some other kind."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
