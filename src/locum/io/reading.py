"""Reading files that may be damaged or hostile: one clear sentence, never a library's traceback."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from locum.errors import DataError, FormatError


@contextmanager
def reading_file(path: str, kind: str) -> Iterator[None]:
    """Turn whatever a library raises on a bad file into one `DataError` about `path`.

    Wrap calls of the library only: a bug of ours in here would pass for a damaged file.

    Parameters
    ----------
    path
        The file, as the error names it.
    kind
        What the file should be, with an article: "an .npz file".

    Yields
    ------
    None
        Use it in a `with` statement around the calls that read.

    Raises
    ------
    DataError
        In place of any other error inside. It quotes nothing from the file.

    Examples
    --------
    >>> import json
    >>> from locum.io import reading_file
    >>> with reading_file("facts.json", "a JSON file"):
    ...     json.loads("{")
    Traceback (most recent call last):
    locum.errors.DataError: facts.json is damaged, or is not a JSON file: copy or export it again.
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


def check_regular(file: Path) -> None:
    """Refuse a link, which could point anywhere on the reader's machine, and a pipe, which could block forever.

    Parameters
    ----------
    file
        An existing file of a release.

    Raises
    ------
    FormatError
        If it is anything but a plain file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import check_regular, write_bytes
    >>> write_bytes("card.md", b"# Card")
    >>> check_regular(Path("card.md"))
    """
    if not stat.S_ISREG(file.lstat().st_mode):
        raise FormatError(f"{file.name} is a link or a device, not a plain file: do not open this release.")


def read_regular(file: Path) -> bytes:
    """The bytes of a file of a release, or an error of one sentence.

    Parameters
    ----------
    file
        A file that `check_regular` accepts.

    Returns
    -------
    bytes
        Its content.

    Raises
    ------
    FormatError
        If it cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import read_regular, write_bytes
    >>> write_bytes("card.md", b"# Card")
    >>> read_regular(Path("card.md"))
    b'# Card'
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise FormatError(f"{file.name} cannot be read: {error.strerror}.") from error
