"""Rules for paths: private state beside the data, where output may go, and `FILE#split`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from locum.errors import ConfigError

# The file that marks a folder as a release, or as another folder that was written as one piece.
MANIFEST = "manifest.json"
STATE_FOLDER = ".locum"
LEDGER = "ledger.sqlite"


def split_path(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """File and split of `FILE#split`; a file whose own name holds a # is taken as it stands.

    >>> split_path("scans.npz#train"), split_path("scans.npz")
    (('scans.npz', 'train'), ('scans.npz', None))
    """
    text = os.fspath(path)
    file, mark, split = text.rpartition("#")
    if not mark or not file or os.path.lexists(text):
        return text, None
    return file, split


def state_folder(data: str | os.PathLike[str]) -> Path:
    """The folder `.locum` for what must stay with the data: beside them, whichever way their path is written.

    `data` is a file or a folder; all links to it and all spellings of its path give the same place.
    """
    return Path(split_path(data)[0]).resolve().parent / STATE_FOLDER


def make_state_folder(data: str | os.PathLike[str]) -> Path:
    """`state_folder`, made for its owner alone if it is not there; OSError where it cannot be."""
    return private_folder(state_folder(data))


def private_folder(folder: Path) -> Path:
    """A folder for its owner alone, made if it is not there; OSError where it cannot be used."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied", str(folder))
    return folder


def ledger_path(data: str | os.PathLike[str]) -> Path:
    """The place of the ledger of some data, for the program, for Python and for the sites of a federation alike.

    >>> ledger_path("/data/scans.npz#train").as_posix()
    '/data/.locum/ledger.sqlite'
    """
    return state_folder(data) / LEDGER


def lies_in_release(path: Path) -> bool:
    """Whether a folder above `path` has a manifest: what lies there is made to leave."""
    return any((folder / MANIFEST).exists() for folder in path.resolve().parents)


def check_output_file(
    path: Path, *, overwrite: bool, suffixes: Sequence[str] = (), release: Path | None = None
) -> None:
    """Complain before any work about a place where a file cannot be written.

    `suffixes` are the endings it may have. A file inside `release` is refused: a release holds only what its manifest
    lists.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ConfigError(f"{str(path)!r} must end in {' or '.join(suffixes)}, because that is what is written.")
    if release is not None and release.resolve() in path.resolve().parents:
        raise ConfigError("A release holds only the files that its manifest lists: write beside it, not into it.")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder: give the name of a file in it.")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{str(path)!r} is a device or a pipe, not a file. Choose another name.")
    if path.exists() and not overwrite:
        raise ConfigError(f"{str(path)!r} already exists. Choose another file, or overwrite it with --force.")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ConfigError(f"{str(path)!r} cannot be written: its folder does not exist. Create it first.")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{str(path)!r} cannot be written: check the permissions of its folder.")


def check_output_folder(path: Path, *, overwrite: bool, resumes: str | None = None) -> None:
    """The same for a folder that is written as one piece, such as a release.

    With `resumes` the folder is filled file by file: it may exist if it is empty, or holds that file of an earlier
    run.
    """
    if path.exists() and not overwrite and resumes is None:
        raise ConfigError(f"{str(path)!r} already exists. Choose another folder, or overwrite it with --force.")
    own = (path / (resumes or MANIFEST)).is_file()
    if path.exists() and not own and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{str(path)!r} is not a folder that Locum wrote: it is left alone. Choose another folder.")
    in_place = resumes is not None and path.is_dir()
    parent = path if in_place else next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"Nothing can be written in {str(parent)!r}. Choose another place for {path.name!r}.")
