"""Files that a person drops on the page: copied one by one, and put below the root when all have arrived."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from locum.errors import ConfigError, DataError
from locum.io import private_folder
from locum.studio.places import NotBelowRootError, Root

_MOST_FILES, _MOST_BYTES = 200_000, 64 * 2**30
_ID = re.compile(r"[0-9a-f]{32}")


class Drops:
    """What is being copied, each in a private folder of its own.

    Parameters
    ----------
    root
        The root of the studio.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folder = private_folder(root.state / "drops")
        self._sizes: dict[str, list[int]] = {}

    def begin(self) -> str:
        """The id of a new, empty drop."""
        drop = secrets.token_hex(16)
        private_folder(self._folder / drop)
        self._sizes[drop] = [0, 0]
        return drop

    async def add(self, drop: str, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Copy one file; `path` is relative, as the browser names it."""
        folder, sizes = self._place(drop), self._sizes[drop]
        parts = path.split("/")
        if not 1 <= len(parts) <= 20 or not all(map(_good, parts)):
            raise ConfigError(f"{path[:100]!r} is not a name that a dropped file can have: rename it.")
        file = folder.joinpath(*parts)
        sizes[0] += 1
        try:
            for above in reversed([p for p in file.parents if folder in p.parents]):
                private_folder(above)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise DataError(f"{path[:100]!r} cannot be copied: {error.strerror}.") from None
        try:
            with os.fdopen(descriptor, "wb") as stream:
                async for chunk in chunks:
                    sizes[1] += len(chunk)
                    if sizes[0] > _MOST_FILES or sizes[1] > _MOST_BYTES:
                        raise DataError(
                            "That is too much to drop on a page: copy it into the studio's folder instead."
                        )
                    stream.write(chunk)
        except BaseException:
            # Half a file must never be kept as if it were whole.
            file.unlink(missing_ok=True)
            raise

    def keep(self, drop: str) -> str:
        """Put a dropped file or folder into the root, under its own name; what is there is never replaced."""
        dropped = self.only(drop)
        target = self._root.new(dropped.name)
        try:
            if os.path.lexists(self._root.folder / dropped.name):
                raise FileExistsError
            # Unlike a rename, a link never replaces a file; a folder never replaces one that holds anything.
            os.rename(dropped, target) if dropped.is_dir() else os.link(dropped, target)
        except FileExistsError:
            raise ConfigError(
                f"{dropped.name!r} is in this folder already: rename what you drop, or remove that first."
            ) from None
        self.forget(drop)
        return self._root.name(target)

    def only(self, drop: str) -> Path:
        """The one file or folder that was dropped."""
        found = sorted(self._place(drop).iterdir())
        if len(found) != 1:
            raise ConfigError(f"Drop one file or one folder at a time; got {len(found)}.")
        return found[0]

    def forget(self, drop: str) -> None:
        """Remove what was copied."""
        shutil.rmtree(self._place(drop), ignore_errors=True)
        self._sizes.pop(drop, None)

    def clear(self) -> None:
        """Remove what an earlier server left half copied."""
        shutil.rmtree(self._folder, ignore_errors=True)
        private_folder(self._folder)

    def _place(self, drop: str) -> Path:
        place = self._folder / drop
        if not _ID.fullmatch(drop) or drop not in self._sizes or not place.is_dir():
            raise NotBelowRootError("There is no such drop: drop the files again.")
        return place


def _good(part: str) -> bool:
    """Whether a file or folder may have this name: not hidden, no way up, and nothing a terminal would obey."""
    return 0 < len(part.encode()) <= 255 and part.isprintable() and part[0] != "." and "\\" not in part
