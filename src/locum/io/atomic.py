"""Every writer of files and folders: what it writes is complete or not there at all.

A kill that cannot be caught (SIGKILL, a power cut) leaves a temporary file or folder beside the target, private too;
its name begins with a dot. The next writer of the same folder clears such a folder.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from locum.errors import ConfigError, DataError
from locum.io.locks import hold_folder
from locum.io.paths import check_output_folder, make_folders

PRIVATE = 0o600
# What is in the way of a new folder, where the two cannot be exchanged.
_OLD = "-old"
# For another process that writes the same folder.
_WAIT_SECONDS = 60.0


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
    path: Path,
    contents: Iterable[tuple[str, bytes]],
    *,
    overwrite: bool,
    mode: int = 0o755,
    check: Callable[[Path], object] | None = None,
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
    check
        Called with the complete folder before it takes its place. An exception from it leaves everything as it was.

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
    place = Path(os.path.realpath(path))
    try:
        make_folders(place.parent)
    except OSError as error:
        raise ConfigError(f"Cannot write next to {str(path)!r}: {error.strerror}. Choose another folder.") from error
    with _stage(place, path) as temporary:
        for name, raw in contents:
            _write_synced(temporary / name, raw, mode & 0o666, path / name)
        # mkdtemp gives 0700; most of these are made to be shared.
        temporary.chmod(mode)
        if check is not None:
            check(temporary)
        # Another process may have been quicker.
        check_output_folder(path, overwrite=overwrite)
        _put(temporary, place)


def replace_in_folder(folder: Path, contents: Mapping[str, bytes], *, remove: Collection[str] = ()) -> None:
    """Put files into an existing folder and take others out; the rest is not touched.

    A complete new folder is made beside it and takes its place in one step: a kill leaves the old or the new.

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
    place = Path(os.path.realpath(folder))
    try:
        with _stage(place, folder) as temporary:
            # Files that stay are the same files, under a second name.
            shutil.copytree(place, temporary, symlinks=True, copy_function=_link, dirs_exist_ok=True)
            for name in {*contents, *remove}:
                (temporary / name).unlink(missing_ok=True)
            for name, raw in contents.items():
                _write_synced(temporary / name, raw, place.stat().st_mode & 0o666, folder / name)
            _put(temporary, place)
    except OSError as error:
        hint = " Change its permissions." if isinstance(error, PermissionError) else ""
        raise ConfigError(f"Cannot write in {str(folder)!r}: {error.strerror}.{hint}") from error


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
        with _naming(target), os.fdopen(handle, "wb") as stream:
            if mode != PRIVATE:
                os.chmod(temporary, mode)
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        # An interrupt too must leave no private half-file behind.
        Path(temporary).unlink(missing_ok=True)


def _write_synced(file: Path, raw: bytes, mode: int, target: Path) -> None:
    with _naming(target), file.open("wb") as stream:
        # Whatever the umask is: others may not write.
        os.fchmod(stream.fileno(), mode) if hasattr(os, "fchmod") else file.chmod(mode)
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """A full disk is reported without a name: add the one that was being written."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error


@contextmanager
def _stage(place: Path, shown: Path) -> Iterator[Path]:
    """A new private folder beside `place`, gone afterwards; nobody else writes `place` meanwhile.

    What an earlier writer left that was killed is cleared first: nobody else can be using it.
    """
    prefix = f".{place.name}.locum-"
    # What `mkdtemp` makes, and nothing else that begins alike.
    ours = re.compile(re.escape(prefix) + rf"[a-z0-9_]{{8}}({_OLD})?")
    with hold_folder(place, wait=_WAIT_SECONDS):
        for left in [entry for entry in place.parent.iterdir() if ours.fullmatch(entry.name)]:
            if left.name.endswith(_OLD) and not place.exists():
                # Killed between two renames, where the system cannot exchange two folders.
                left.rename(place)
            else:
                shutil.rmtree(left, ignore_errors=True)
        try:
            temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
        except OSError as error:
            raise ConfigError(
                f"Cannot write next to {str(shown)!r}: {error.strerror}. Choose another folder."
            ) from error
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _put(temporary: Path, place: Path) -> None:
    """Put a complete folder in its place; `temporary` then holds what was there, if anything."""
    sync_folder(temporary)
    if not place.exists():
        temporary.rename(place)
    elif not _exchange(temporary, place):
        old = temporary.with_name(temporary.name + _OLD)
        place.rename(old)
        temporary.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    sync_folder(place.parent)


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two folders in one step; False where the system or the disk cannot."""
    import ctypes

    library: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    names = os.fsencode(one), os.fsencode(two)
    if hasattr(library, "renameat2"):
        here, exchange = -100, 2
        failed = library.renameat2(here, names[0], here, names[1], exchange)
    elif hasattr(library, "renamex_np"):
        swap = 2
        failed = library.renamex_np(*names, swap)
    else:
        return False
    if failed and ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(two))
    return not failed


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
