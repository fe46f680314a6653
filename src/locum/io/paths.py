"""Rules for paths: private state beside the data, where output may go, and `FILE#split`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from locum.errors import ConfigError, DataError, FormatError, PrivacyError
from locum.io.remote import check_local, file_system, is_remote

# The file that marks a folder as a release, or as another folder that was written as one piece.
MANIFEST = "manifest.json"
STATE_FOLDER = ".locum"
LEDGER = "ledger.sqlite"


def split_path(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """File and split of `FILE#split`.

    Parameters
    ----------
    path
        A path, alone or followed by `#` and a split. If a file has a # in its own name, the whole text is its path.

    Returns
    -------
    file : str
        The path of the file.
    split : str or None
        What follows the last #; None if there is none.

    Examples
    --------
    >>> from locum.io import split_path
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

    `data` is a file or a folder; all links to it and all spellings of its path give the same place. A folder of
    Parquet files has the place that each of its files has, also if they are links: it must not have a second ledger.
    """
    if is_remote(split_path(data)[0]):
        raise PrivacyError(
            f"{split_path(data)[0]!r} is not on this machine, so there is no place next to it for a ledger or other "
            "private files: name a ledger that everybody who uses these data shares with --ledger."
        )
    place = _real(split_path(data)[0])
    homes = {_real(file).parent for file in parquet_files(place)}
    if not homes:
        # An unpacked .npz is one thing, and has the place of its .npz; so has a folder of links to its arrays.
        arrays = {_real(file).parent for file in array_files(place).values()}
        return (arrays.pop() if len(arrays) == 1 else place).parent / STATE_FOLDER
    return (homes.pop() if len(homes) == 1 else place) / STATE_FOLDER


def make_state_folder(data: str | os.PathLike[str]) -> Path:
    """The folder `.locum` beside some data, made for its owner alone if it is not there.

    Parameters
    ----------
    data
        A file (with or without `#split`) or a folder. All links to it and all spellings of its path give the same
        place.

    Returns
    -------
    Path
        The folder for what must stay with the data, with permissions 0700 if it is new.

    Raises
    ------
    OSError
        If the folder cannot be made or written.

    Examples
    --------
    >>> from locum.io import make_state_folder
    >>> make_state_folder("scans.npz#train").name
    '.locum'
    """
    return private_folder(state_folder(data))


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing; whatever the umask, others may not write there."""
    for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        missing.mkdir(mode=0o755, exist_ok=True)


def private_folder(folder: Path) -> Path:
    """A folder for its owner alone, made if it is not there.

    Permissions of an existing folder are left as they are.

    Parameters
    ----------
    folder
        Where it should be. Folders above it are made too.

    Returns
    -------
    Path
        `folder` itself.

    Raises
    ------
    OSError
        If the folder cannot be made or written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import private_folder
    >>> oct(private_folder(Path("keys")).stat().st_mode & 0o777)
    '0o700'
    """
    make_folders(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied", str(folder))
    return folder


def ledger_path(data: str | os.PathLike[str]) -> Path:
    """The place of the ledger of some data: the same for the command line, for Python and for federated sites.

    For vectors made from images use `locum.data.ledger_for`, which gives the ledger of the images.

    Parameters
    ----------
    data
        A file (with or without `#split`) or a folder; it need not exist.

    Returns
    -------
    Path
        `.locum/ledger.sqlite` beside the data.

    Examples
    --------
    >>> from locum.io import ledger_path
    >>> ledger_path("/data/scans.npz#train").as_posix()
    '/data/.locum/ledger.sqlite'
    """
    return state_folder(data) / LEDGER


def lies_in_release(path: Path) -> bool:
    """Whether a folder above `path` has a manifest: what lies there is made to leave.

    Parameters
    ----------
    path
        A file or folder; it need not exist.

    Returns
    -------
    bool
        True if a file at `path` would lie inside a release, at any depth.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import lies_in_release, write_folder_atomically
    >>> write_folder_atomically(Path("shared"), [("manifest.json", b"{}")], overwrite=False)
    >>> lies_in_release(Path("shared/audit.json")), lies_in_release(Path("audit.json"))
    (True, False)
    """
    return any((folder / MANIFEST).exists() for folder in _real(path).parents)


def beside_folder(folder: Path, ending: str) -> Path:
    """A file next to a folder, named after it: what is about a release must not lie inside it.

    Parameters
    ----------
    folder
        The folder; `.` and `..` are looked up.
    ending
        What the name of the file adds to that of the folder.

    Returns
    -------
    Path
        The file; it need not exist.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import beside_folder
    >>> beside_folder(Path("out/release"), "-report.html").as_posix()
    'out/release-report.html'
    """
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}{ending}")


def parquet_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of a data set that is a folder of Parquet files, by name.

    Parameters
    ----------
    folder
        A path; it need not exist.

    Returns
    -------
    list of Path
        Empty if it is no folder, is one that was written as a whole, or has no such files at its top. Names that
        begin with a dot or an underscore are not data.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import parquet_files
    >>> Path("parts").mkdir()
    >>> for name in ("b.parquet", "a.parquet", "_summary.parquet", "notes.txt"):
    ...     Path("parts", name).touch()
    >>> [file.name for file in parquet_files("parts")]
    ['a.parquet', 'b.parquet']
    """
    place = Path(folder)
    if not place.is_dir() or (place / MANIFEST).is_file():
        return []
    found = [p for p in place.iterdir() if p.suffix.lower() == ".parquet" and not p.name.startswith((".", "_"))]
    return sorted(p for p in found if p.is_file())


def array_files(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The arrays of a data set that is an unpacked .npz: a folder with `X.npy`, `y.npy` and so on.

    Parameters
    ----------
    folder
        A path; it need not exist.

    Returns
    -------
    dict of str to Path
        The files by the names of their arrays; empty if it is no such folder.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from locum.io import array_files
    >>> Path("unpacked").mkdir()
    >>> for name in ("X", "y"):
    ...     np.save(f"unpacked/{name}.npy", np.zeros((2, 3)))
    >>> sorted(array_files("unpacked"))
    ['X', 'y']
    """
    place = Path(folder)
    if not any((place / f"{name}.npy").is_file() for name in ("X", "train_x", "val_x", "test_x")):
        return {}
    return {p.stem: p for p in sorted(place.glob("*.npy")) if p.is_file() and not p.name.startswith((".", "_"))}


def check_input(
    path: str | os.PathLike[str], thing: str = "file or folder", hint: str = "check the spelling"
) -> None:
    """Refuse data that are not there, or are no regular file or folder, before any work is done.

    A pipe could block forever, and a device has no end; so has a link to one. Links to files and folders are fine.

    Parameters
    ----------
    path
        A file (with or without `#split`) or a folder.
    thing, hint
        What was asked for and what to do, as the error says it.

    Raises
    ------
    DataError
        If there is nothing at `path`, or something else than a regular file or a folder.

    Examples
    --------
    >>> from locum.io import check_input
    >>> check_input("scans.npz#train")
    Traceback (most recent call last):
        ...
    locum.errors.DataError: There is no file or folder 'scans.npz': check the spelling.
    """
    file, _ = split_path(path)
    if is_remote(file):
        # Whether it is there shows when it is read.
        file_system(file)
        return
    place = Path(file)
    if not place.exists():
        raise DataError(f"There is no {thing} {file!r}: {hint}.")
    if not place.is_file() and not place.is_dir():
        raise DataError(f"{file!r} is a pipe or a device, not a {thing}: copy what it gives into a file first.")


def check_manifest_folder(path: Path, thing: str = "a release") -> None:
    """Refuse a path that is not a folder with a manifest.

    Parameters
    ----------
    path
        The folder.
    thing
        What was asked for, as the error names it.

    Raises
    ------
    FormatError
        If it is not a folder, or has no manifest.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import check_manifest_folder
    >>> check_manifest_folder(Path("nowhere"))
    Traceback (most recent call last):
        ...
    locum.errors.FormatError: 'nowhere' is not a folder: a release is a folder with manifest.json in it.
    """
    if not path.is_dir():
        hint = ""
        if path.suffix.lower() == ".zip" and path.is_file():
            hint = " Unpack the archive first."
        # `Path` makes one slash of two.
        elif path.parts[:1] == ("hf:",):
            hint = " Download it first; `locum.load` reads such addresses."
        raise FormatError(f"{str(path)!r} is not a folder: {thing} is a folder with {MANIFEST} in it.{hint}")
    if not os.path.lexists(path / MANIFEST):
        raise FormatError(f"{str(path)!r} has no {MANIFEST}: it is not {thing}, or files are missing.")


def check_output_file(
    path: Path, *, overwrite: bool, suffixes: Sequence[str] = (), release: Path | None = None
) -> None:
    """Refuse a place where a file cannot be written, before any work is done.

    Parameters
    ----------
    path
        The file to be written.
    overwrite
        Whether an existing file may be replaced.
    suffixes
        Endings that the file may have, in lower case; empty for any.
    release
        A release folder: a file inside it is refused, because a release holds only what its manifest lists.

    Raises
    ------
    ConfigError
        If the file cannot be written there; the text says why.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import check_output_file
    >>> check_output_file(Path("samples.npz"), overwrite=False, suffixes=(".npz", ".parquet"))
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ConfigError(f"{str(path)!r} must end in {' or '.join(suffixes)}, because that is what is written.")
    check_local(path)
    _check_link(path, "file")
    if release is not None and _real(release) in _real(path).parents:
        raise ConfigError("A release holds only the files that its manifest lists: write next to it, not into it.")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder: give the name of a file in it.")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{str(path)!r} is a device or a pipe, not a file. Choose another name.")
    if path.exists() and not overwrite:
        raise ConfigError(f"{str(path)!r} already exists. Choose another file, or overwrite it with --force.")
    folder = _real(path).parent
    if not folder.is_dir():
        raise ConfigError(f"{str(path)!r} cannot be written: its folder does not exist. Create it first.")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{str(path)!r} cannot be written: check the permissions of its folder.")


def check_output_folder(path: Path, *, overwrite: bool, resumes: str | None = None) -> None:
    """Refuse a place where a folder cannot be written, before any work is done.

    Parameters
    ----------
    path
        The folder to be written. Folders above it need not exist.
    overwrite
        Whether an existing folder may be replaced; it must be empty or hold a manifest.
    resumes
        None for a folder that is written as one piece, such as a release. Otherwise the folder is filled file by
        file, and may exist if it is empty or holds the file of this name from an earlier run.

    Raises
    ------
    ConfigError
        If the folder cannot be written there; the text says why.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import check_output_folder
    >>> check_output_folder(Path("new-release"), overwrite=False)
    """
    check_local(path)
    _check_link(path, "folder")
    if path.exists() and not overwrite and resumes is None:
        raise ConfigError(f"{str(path)!r} already exists. Choose another folder, or overwrite it with --force.")
    own = (path / (resumes or MANIFEST)).is_file()
    if path.exists() and not own and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{str(path)!r} is not a folder that Locum wrote: it is left alone. Choose another folder.")
    in_place = resumes is not None and path.is_dir()
    parent = path if in_place else next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"Nothing can be written in {str(parent)!r}. Choose another place for {path.name!r}.")


def _real(path: str | os.PathLike[str]) -> Path:
    """The path without links; unlike `Path.resolve`, a link to itself is no error here."""
    return Path(os.path.realpath(path))


def _check_link(path: Path, thing: str) -> None:
    if path.is_symlink() and not path.exists():
        raise ConfigError(f"{str(path)!r} is a link that leads nowhere. Choose another {thing}.")
