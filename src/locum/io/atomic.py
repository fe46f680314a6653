"""Opening and replacing files so that the user meets one clear sentence, or a whole file."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from locum.errors import DataError

SUFFIXES = (".csv", ".npz", ".parquet", ".safetensors")


@contextmanager
def reading(path: str, kind: str) -> Iterator[None]:
    """Turn whatever a library raises on a bad file into one `DataError` about `path`.

    Wrap calls of the library only: a bug of ours in here would pass for a damaged file.
    """
    try:
        yield
    except DataError:
        raise
    except MemoryError:
        raise DataError(f"{path} does not fit in memory: split it into smaller files.") from None
    except PermissionError:
        raise DataError(f"{path} may not be read by this user: change its permissions.") from None
    except Exception:
        # A damaged file can fail anywhere inside a library, and the library's own text may quote
        # records, so neither the text nor the chain of causes is passed on.
        raise DataError(f"{path} is damaged, or is not {kind}: copy or export it again.") from None


def write_atomically(path: str, write: Callable[[BinaryIO], None]) -> None:
    """Put what `write` writes at `path`, whole or not at all.

    The file is readable by its owner only, because vectors are as private as the records behind
    them. A file that was there before stays untouched until the new one is complete. A kill that cannot be caught
    (SIGKILL, a power cut) leaves the temporary file behind, private too: `.locum-*.part` beside the target.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise DataError(f"{path} cannot be written because its folder does not exist: create the folder first.")
    if target.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file in it.")
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".locum-", suffix=".part")
    except OSError:
        raise DataError(f"{path} cannot be written: check the permissions of its folder.") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        # An interrupt too must leave no private half-file behind.
        Path(temporary).unlink(missing_ok=True)
        raise


def write_bytes(path: str, raw: bytes) -> None:
    """`write_atomically` for what is at hand already."""

    def write(stream: BinaryIO) -> None:
        stream.write(raw)

    write_atomically(path, write)


def write_private_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A small CSV for its owner alone; for names, which are kept out of everything else."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    # Names of files may hold bytes that are no text.
    raw = text.getvalue().encode("utf-8", "surrogateescape")
    write_bytes(str(path), raw)
