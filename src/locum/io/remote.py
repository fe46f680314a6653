"""Files elsewhere: object stores through Arrow (s3, gs, abfs), other addresses through fsspec (hf, https)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from locum.errors import ConfigError, DataError, LocumError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ARROW = ("s3", "gs", "gcs", "abfs", "abfss")
_FSSPEC = ("hf", "https", "http")
# `Path` makes one slash of two.
_AS_PATH = re.compile(r"^[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_REMOTE = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# A store that answers 500 or slowly is asked again so often, each time after a longer wait.
_ATTEMPTS = 8


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address such as `s3://bucket/vectors`, not a place on this machine.

    Parameters
    ----------
    path
        A path or an address.

    Returns
    -------
    bool
        True for an address.

    Examples
    --------
    >>> from locum.io import is_remote
    >>> is_remote("s3://bucket/vectors"), is_remote("vectors.npz")
    (True, False)
    """
    return _REMOTE.match(os.fspath(path)) is not None


def check_local(path: str | os.PathLike[str]) -> None:
    """Refuse to write to an address: as a path it would be a folder `s3:` wherever the program was started.

    Parameters
    ----------
    path
        A file or folder to be written.

    Raises
    ------
    ConfigError
        If it is an address.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import check_local
    >>> check_local(Path("s3://bucket/release"))
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: 's3:/bucket/release' is an address, and nothing is written there: give a path on a disk.
    """
    if _AS_PATH.match(os.fspath(path)):
        raise ConfigError(f"{os.fspath(path)!r} is an address, and nothing is written there: give a path on a disk.")


def file_system(path: str | os.PathLike[str]) -> tuple[FileSystem, str]:
    """The file system of a path or an address, and the place in it.

    Credentials come from the environment, as the provider's own tools read them. An s3 address may end in
    `?endpoint_override=HOST:PORT&scheme=http&region=NAME`; otherwise AWS_ENDPOINT_URL and AWS_REGION count.

    Parameters
    ----------
    path
        A local path, or an address that begins with s3, gs, abfs, hf or https.

    Returns
    -------
    system : pyarrow.fs.FileSystem
        Reads and writes files; requests that fail for a moment are repeated.
    place : str
        The path within it.

    Raises
    ------
    ConfigError
        If the address is of another kind, or what it needs is not installed.

    Examples
    --------
    >>> from locum.io import file_system
    >>> system, place = file_system("vectors.parquet")
    >>> system.type_name
    'local'
    """
    from pyarrow import fs

    text = os.fspath(path)
    found = _REMOTE.match(text)
    if found is None:
        return fs.LocalFileSystem(), os.path.abspath(text)
    scheme = found.group(1).lower()
    if scheme == "s3":
        return _s3(text)
    if scheme in _ARROW:
        with remote_errors(text):
            system, place = fs.FileSystem.from_uri(text)
            return system, place
    if scheme in _FSSPEC:
        return _fsspec(text)
    raise ConfigError(
        f"{text!r} is an address of a kind that cannot be read: give a path, or one that begins with s3://, gs://, "
        "abfs://, hf:// or https://."
    )


def _s3(address: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    parts = urlsplit(address)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    place = f"{parts.netloc}{parts.path}".rstrip("/")
    settings: dict[str, Any] = {
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        "connect_timeout": 10.0,
        "request_timeout": 60.0,
    }
    endpoint = options.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        settings |= {"endpoint_override": host, "scheme": options.get("scheme") or scheme or "https"}
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        settings["region"] = region or "us-east-1"
    with remote_errors(address):
        if "region" not in settings:
            settings["region"] = fs.resolve_s3_region(parts.netloc)
        return fs.S3FileSystem(**settings), place


def _fsspec(address: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    try:
        import fsspec

        with remote_errors(address):
            system, place = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise ConfigError(
            f"Reading {address.split(':')[0]}:// needs {error.name or 'fsspec'}, which is not installed: pip install "
            "'locum[remote]'."
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), str(place)


@contextmanager
def remote_errors(address: str) -> Iterator[None]:
    """Turn what a store answers into one sentence that names the address.

    Parameters
    ----------
    address
        The address as it was given.

    Returns
    -------
    context manager
        For the statements that talk to the store.

    Raises
    ------
    DataError
        If the store cannot be reached, refuses, or has nothing there.

    Examples
    --------
    >>> from locum.io import remote_errors
    >>> with remote_errors("s3://bucket/vectors"):
    ...     raise FileNotFoundError("Path does not exist 'bucket/vectors'")
    Traceback (most recent call last):
        ...
    locum.errors.DataError: There is nothing at 's3://bucket/vectors': check the spelling.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"There is nothing at {address!r}: check the spelling.") from error
    except LocumError:
        raise
    except ValueError:
        # A library's text about a damaged file may quote records.
        raise DataError(f"{address!r} is not a valid address, or what is there is damaged: check both.") from None
    except OSError as error:
        text = " ".join(str(error).split())
        reason = text if len(text) <= 300 else f"{text[:300]} ..."
        raise DataError(
            f"{address!r} cannot be used: {reason or type(error).__name__}. Check the address, the network and the "
            "credentials, then run the same command again."
        ) from error
