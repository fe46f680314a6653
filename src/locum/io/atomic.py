"""Every writer of files and folders: what it writes is complete or not there at all.

A kill that cannot be caught (SIGKILL, a power cut) leaves a temporary file or folder beside the target, private too;
its name begins with a dot.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from locum.errors import ConfigError, DataError
from locum.io.paths import check_output_folder

PRIVATE = 0o600


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object], *, mode: int = PRIVATE
) -> None:
    """Put what `write` writes at `path`, replacing what was there once the new file is complete and on disk.

    By default only the owner may read it: vectors are as private as the records behind them.

    Parameters
    ----------
    path
        The file; its folder must exist.
    write
        Writes the content to the binary stream that it is given.
    mode
        Permissions of the file.

    Raises
    ------
    DataError
        If the folder does not exist or cannot be written, or `path` is a folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import write_atomically
    >>> write_atomically("notes.txt", lambda stream: stream.write(b"hello"))
    >>> Path("notes.txt").read_bytes()
    b'hello'
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise DataError(f"{path} cannot be written because its folder does not exist: create the folder first.")
    if target.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file in it.")
    try:
        with _written_beside(target, write, mode) as temporary:
            os.replace(temporary, target)
    except PermissionError:
        raise DataError(f"{path} cannot be written: check the permissions of its folder.") from None


def write_bytes(path: str | os.PathLike[str], raw: bytes, *, mode: int = PRIVATE) -> None:
    """Write bytes to a file atomically (see `write_atomically`).

    Parameters
    ----------
    path
        The file; it is replaced if it exists.
    raw
        Its content.
    mode
        Permissions of the file; by default only the owner may read it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import write_bytes
    >>> write_bytes("key.bin", b"secret")
    >>> oct(Path("key.bin").stat().st_mode & 0o777)
    '0o600'
    """
    write_atomically(path, lambda stream: stream.write(raw), mode=mode)


def create_bytes(path: str | os.PathLike[str], raw: bytes, *, mode: int = PRIVATE) -> bool:
    """Write a file that must never be replaced, such as a key.

    Parameters
    ----------
    path
        The file; its folder must exist.
    raw
        Its content.
    mode
        Permissions of the file; by default only the owner may read it.

    Returns
    -------
    bool
        False if there is such a file already, which is left as it is.

    Raises
    ------
    OSError
        If the folder cannot be written.

    Examples
    --------
    >>> from locum.io import create_bytes
    >>> create_bytes("site.key", b"first"), create_bytes("site.key", b"second")
    (True, False)
    """
    target = Path(path)
    with _written_beside(target, lambda stream: stream.write(raw), mode) as temporary:
        try:
            # Unlike a rename, a link never replaces: whoever comes second finds the file of the first.
            os.link(temporary, target)
        except FileExistsError:
            return False
    sync_folder(target.absolute().parent)
    return True


def write_private_table(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a small CSV that only its owner may read; for names, which are kept out of everything else.

    Parameters
    ----------
    path
        The file; it is replaced if it exists.
    header
        Names of the columns.
    rows
        Cells of each row.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import write_private_table
    >>> write_private_table("unreadable.csv", ["image", "problem"], [["a.png", "cut off"]])
    >>> Path("unreadable.csv").read_text()
    'image,problem\\na.png,cut off\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    # Names of files may hold bytes that are not text.
    write_bytes(path, text.getvalue().encode("utf-8", "surrogateescape"))


def write_folder_atomically(
    path: Path, contents: Iterable[tuple[str, bytes]], *, overwrite: bool, mode: int = 0o755
) -> None:
    """Write a folder beside `path` and rename it at the end, so that a reader never sees half of it.

    Parameters
    ----------
    path
        The folder. Folders above it are made.
    contents
        Names and contents of the files, taken one at a time, so that many need little memory. One of them must be the
        manifest.
    overwrite
        Replace an existing folder, but only one that holds a manifest too, or is empty.
    mode
        Permissions of the folder; by default everyone may read it, because most are made to be shared.

    Raises
    ------
    ConfigError
        If something is there that may not be replaced, or the folder cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import write_folder_atomically
    >>> write_folder_atomically(Path("release"), [("manifest.json", b"{}")], overwrite=False)
    >>> [file.name for file in Path("release").iterdir()]
    ['manifest.json']
    """
    check_output_folder(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise ConfigError(f"Cannot write beside {str(path)!r}: {error.strerror}. Choose another folder.") from error
    try:
        # mkdtemp gives 0700; most of these are made to be shared.
        temporary.chmod(mode)
        for name, raw in contents:
            _write_synced(temporary / name, raw)
        if path.exists():
            old = temporary.with_name(temporary.name + "-old")
            path.rename(old)
            temporary.rename(path)
            shutil.rmtree(old)
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def replace_in_folder(folder: Path, contents: Mapping[str, bytes], *, remove: Collection[str] = ()) -> None:
    """Put files into an existing folder and take others out; the rest is not touched.

    Everything is written beside the folder first. If a step fails, what was there before is put back.

    Parameters
    ----------
    folder
        An existing folder.
    contents
        Content of each file, by name; existing files of these names are replaced.
    remove
        Names of files to delete; names that are not there are ignored.

    Raises
    ------
    ConfigError
        If the folder or its parent cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import replace_in_folder
    >>> Path("passport").mkdir()
    >>> replace_in_folder(Path("passport"), {"old.json": b"1"})
    >>> replace_in_folder(Path("passport"), {"new.json": b"2"}, remove=["old.json"])
    >>> [file.name for file in Path("passport").iterdir()]
    ['new.json']
    """
    place = folder.resolve()
    try:
        stage = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    except OSError as error:
        raise ConfigError(
            f"Cannot write beside {str(folder)!r}: {error.strerror}. Change its permissions."
        ) from error
    try:
        new, old = stage / "new", stage / "old"
        new.mkdir()
        old.mkdir()
        for name, raw in contents.items():
            _write_synced(new / name, raw)
        _swap(place, new, old, set(contents) | set(remove))
    except OSError as error:
        raise ConfigError(f"Cannot write in {str(folder)!r}: {error.strerror}. Change its permissions.") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk: only then does a new name in it survive a power cut.

    Does nothing where the system cannot do it.

    Parameters
    ----------
    folder
        An existing folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import sync_folder
    >>> sync_folder(Path())
    """
    if os.name != "posix":
        return
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _written_beside(target: Path, write: Callable[[BinaryIO], object], mode: int) -> Iterator[str]:
    """The name of a complete temporary file in the folder of `target`; gone afterwards unless it was renamed."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".locum-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            if mode != PRIVATE:
                os.chmod(temporary, mode)
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        # An interrupt too must leave no private half-file behind.
        Path(temporary).unlink(missing_ok=True)


def _write_synced(file: Path, raw: bytes) -> None:
    with file.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _swap(folder: Path, new: Path, old: Path, names: set[str]) -> None:
    placed = []
    try:
        for name in sorted(names):
            if os.path.lexists(folder / name):
                (folder / name).rename(old / name)
        for file in sorted(new.iterdir()):
            file.rename(folder / file.name)
            placed.append(folder / file.name)
    except BaseException:
        for file in placed:
            file.unlink(missing_ok=True)
        for file in old.iterdir():
            file.rename(folder / file.name)
        raise
