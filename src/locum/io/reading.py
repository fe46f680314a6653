"""Reading files that may be damaged or hostile: one clear sentence, never a library's traceback."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from locum.errors import ConfigError, DataError, FormatError

_MAX_TOML = 2**20
_MAX_DOTS = 8000


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
        raise DataError(f"{path} cannot be read by this user: change its permissions.") from None
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


def regular_bytes(file: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """The bytes of a regular file, also through a link; a pipe or a device is never read.

    Parameters
    ----------
    file
        The file.
    limit
        The longest file that is read, in bytes; None: any.

    Returns
    -------
    bytes
        Its content.

    Raises
    ------
    OSError
        If it is not there, may not be read, is not a regular file, or is longer than `limit`.

    Examples
    --------
    >>> from locum.io import regular_bytes, write_bytes
    >>> write_bytes("scan.pgm", b"P5")
    >>> regular_bytes("scan.pgm")
    b'P5'
    """

    def only_regular(path: str, flags: int) -> int:
        # Opening a pipe would block until something writes to it.
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "Not a regular file", path)
        return handle

    with open(file, "rb", opener=only_regular) as stream:
        if limit is not None and os.fstat(stream.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"It has more than {limit} bytes", os.fspath(file))
        return stream.read()


def read_toml(file: str | os.PathLike[str], thing: str) -> dict[str, Any]:
    """What a TOML file says; the file may be hostile.

    Parameters
    ----------
    file
        The file, of up to a megabyte.
    thing
        What the file should be, as errors name it: "policy".

    Returns
    -------
    dict
        Its tables and values.

    Raises
    ------
    ConfigError
        In one sentence, if it cannot be read, is not TOML, or is nested too deeply.

    Examples
    --------
    >>> from locum.io import read_toml, write_bytes
    >>> write_bytes("terms.toml", b"rounds = 5")
    >>> read_toml("terms.toml", "terms file")
    {'rounds': 5}
    """
    import tomllib

    name = repr(os.fspath(file))
    try:
        raw = regular_bytes(file, limit=_MAX_TOML)
    except FileNotFoundError:
        raise ConfigError(f"There is no {thing} {name}, so it cannot be read: check the name.") from None
    except OSError as error:
        raise ConfigError(f"The {thing} {name} cannot be read: {error.strerror}.") from None
    # The time for a key grows with the square of its parts.
    if raw.count(b".") > _MAX_DOTS:
        raise ConfigError(f"The {thing} {name} holds more than {_MAX_DOTS} dots, so it is not read.")
    try:
        return tomllib.loads(raw.decode())
    except RecursionError:
        raise ConfigError(f"The {thing} {name} is nested too deeply to be read.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The {thing} {name} is not valid TOML: {str(error)[:200]}.") from None


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
        return regular_bytes(file)
    except OSError as error:
        raise FormatError(f"{file.name} cannot be read: {error.strerror}.") from error
