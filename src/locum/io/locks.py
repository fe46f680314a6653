"""One writer at a time for a folder, also among processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from locum.errors import ConfigError
from locum.io.paths import make_folders

# What this thread holds: it may ask again.
_mine = threading.local()


@contextmanager
def hold_folder(path: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Let no other process write a folder meanwhile: take it before paying for what goes into it.

    The lock is a hidden file beside the folder, gone afterwards. If a process is killed, its lock ends with it. Where
    the system has no such locks, nothing is held.

    Parameters
    ----------
    path
        The folder; it need not exist.
    wait
        How many seconds to wait for another process.

    Yields
    ------
    None
        Use it in a `with` statement. The same thread may hold the same folder twice.

    Raises
    ------
    ConfigError
        If another process still holds the folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import hold_folder, write_folder_atomically
    >>> with hold_folder(Path("held")):
    ...     write_folder_atomically(Path("held"), [("manifest.json", b"{}")], overwrite=False)
    """
    place = Path(os.path.realpath(path))
    held: set[Path] = _mine.__dict__.setdefault("folders", set())
    if os.name != "posix" or place in held:
        yield
        return
    # In one place, whatever exists: two processes that look for it at different times must find the same lock.
    missing = [folder for folder in place.parents if not folder.exists()]
    file = place.parent / f".{place.name}.lock"
    try:
        descriptor = _taken(file, path, time.monotonic() + wait)
        held.add(place)
        try:
            yield
        finally:
            held.discard(place)
            if descriptor is not None:
                _end(file, descriptor)
    finally:
        # Folders that were made for the lock, if nothing was written into them.
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()


def _taken(file: Path, path: Path, end: float) -> int | None:
    """The descriptor of the locked file; None where there are no locks."""
    import fcntl

    while True:
        try:
            make_folders(file.parent)
            # Others may read it, so that a colleague's lock can be waited for.
            descriptor = os.open(file, os.O_RDONLY | os.O_CREAT, 0o644)
        except FileNotFoundError:
            # Another process has just removed the folder again.
            if time.monotonic() >= end + 1:
                raise ConfigError(f"Cannot write next to {str(path)!r}: choose another folder.") from None
            continue
        except OSError as error:
            raise ConfigError(
                f"Cannot write next to {str(path)!r}: {error.strerror}. Choose another folder."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() >= end:
                raise ConfigError(
                    f"Another process is writing {str(path)!r}: wait until it has ended, or choose another folder."
                ) from None
            time.sleep(0.01)
            continue
        except OSError:
            # Some network disks have no locks.
            os.close(descriptor)
            file.unlink(missing_ok=True)
            return None
        # Whoever held it before may have deleted it after we opened it.
        try:
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
        except OSError:
            pass
        os.close(descriptor)


def _end(file: Path, descriptor: int) -> None:
    import fcntl

    file.unlink(missing_ok=True)
    # Closing is not enough: a process that was forked meanwhile would still hold the lock.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
