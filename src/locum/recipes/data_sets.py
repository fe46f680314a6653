"""`data list` and `data check`: which files studies need, and whether the right ones are there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from locum.errors import ConfigError, DataError
from locum.io import read_toml
from locum.types import Progress

MANIFEST_NAME = "data.toml"
_TEXTS = ("what", "license", "source", "made")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set, as the manifest describes it.

    Attributes
    ----------
    path
        Relative to the folder of the data.
    bytes, sha256
        Its size and hash; None if the file was never at hand.
    contents
        The hash of what it holds, however it is packed (`contents_sha256`); None if it is not packed.

    Examples
    --------
    >>> from locum.recipes import DataFile
    >>> DataFile("heart4.csv", 39362, None, None).path
    'heart4.csv'
    """

    path: str
    bytes: int | None
    sha256: str | None
    contents: str | None


@dataclass(frozen=True, slots=True)
class DataSet:
    """Data that studies read, as the manifest describes them.

    Attributes
    ----------
    name
        What the set is called.
    what
        What its records are.
    files
        Its files.
    studies
        Names of the studies that read it.
    license, source, made
        Under which terms it may be used, where it comes from, and how its files were made.
    originals
        What to download to make it: names in a settings file of `fetch_data`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import read_data_sets
    >>> sets = read_data_sets(Path("studies"))  # doctest: +SKIP
    >>> sets["heart4"].studies  # doctest: +SKIP
    ('federated-results',)
    """

    name: str
    what: str
    files: tuple[DataFile, ...]
    studies: tuple[str, ...]
    license: str
    source: str
    made: str
    originals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """One file of a data set, compared with the manifest.

    Attributes
    ----------
    name
        The set.
    path
        The file, relative to the folder of the data.
    state
        "agrees", "differs", "missing", or "no hash known".
    sentence
        The same in words, with what differs.

    Examples
    --------
    >>> from locum.recipes import CheckedFile
    >>> CheckedFile("heart4", "heart4.csv", "missing", "heart4.csv is not there.").right
    False
    """

    name: str
    path: str
    state: str
    sentence: str

    @property
    def right(self) -> bool:
        """Whether nothing speaks against the file."""
        return self.state in ("agrees", "no hash known")

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def read_data_sets(studies: Path) -> dict[str, DataSet]:
    r"""What the manifest of the studies' data says.

    Parameters
    ----------
    studies
        The folder of the studies, with `data.toml` in it.

    Returns
    -------
    dict of str to DataSet
        The sets by name.

    Raises
    ------
    ConfigError
        If there is no manifest, or it is not well formed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import read_data_sets
    >>> Path("mine").mkdir()
    >>> lines = ["[pets]", *(f'{key} = "-"' for key in ("what", "license", "source", "made"))]
    >>> lines += ["studies = []", "originals = []", "[[pets.files]]", 'path = "pets.npz"']
    >>> _ = Path("mine/data.toml").write_text("\n".join(lines))
    >>> read_data_sets(Path("mine"))["pets"].files[0].path
    'pets.npz'
    """
    file = studies / MANIFEST_NAME
    if not file.is_file():
        raise ConfigError(
            f"There is no {str(file)!r}: the manifest is in the source tree. Run from there, or use --studies."
        )
    return {name: _data_set(name, entry, file) for name, entry in read_toml(file, "data manifest").items()}


def list_data(studies: Path, folder: Path | None = None) -> list[dict[str, Any]]:
    """Every data set of the studies, and whether its files are in a folder.

    Parameters
    ----------
    studies
        The folder of the studies.
    folder
        The folder of the data; None: what `LOCUM_DATA` names, if anything.

    Returns
    -------
    list of dict
        One per set: what the manifest says, with `present` ("yes", "in part" or "no") and, for each file, whether it
        is `there`. No file is opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import list_data
    >>> [row["name"] for row in list_data(Path("studies")) if row["present"] == "yes"]  # doctest: +SKIP
    """
    place = _folder(folder, needed=False)
    rows = []
    for found in read_data_sets(studies).values():
        there = [place is not None and (place / file.path).is_file() for file in found.files]
        present = "yes" if all(there) else "in part" if any(there) else "no"
        files = [{**asdict(file), "there": is_there} for file, is_there in zip(found.files, there, strict=True)]
        rows.append({**asdict(found), "files": files, "present": present})
    return rows


def check_data(
    names: Sequence[str], studies: Path, folder: Path | None = None, *, progress: Progress | None = None
) -> list[CheckedFile]:
    """Compare files with the hashes in the manifest.

    A packed file (.npz or .gz) that was packed by another program agrees if it holds the same.

    Parameters
    ----------
    names
        Sets to check. Empty: all those of which a file is there.
    studies
        The folder of the studies.
    folder
        The folder of the data; None: what `LOCUM_DATA` names.
    progress
        Called after each file.

    Returns
    -------
    list of CheckedFile
        One per file.

    Raises
    ------
    ConfigError
        If a name is not in the manifest, or there is no folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import check_data
    >>> all(file.right for file in check_data([], Path("studies")))  # doctest: +SKIP
    True
    """
    sets = read_data_sets(studies)
    if unknown := [name for name in names if name not in sets]:
        raise ConfigError(f"There is no data set {unknown[0]!r}; there are {', '.join(sets)}.")
    place = _folder(folder, needed=True)
    assert place is not None
    chosen = names or [n for n, found in sets.items() if any((place / file.path).is_file() for file in found.files)]
    files = [(name, file) for name in dict.fromkeys(chosen) for file in sets[name].files]
    checked = []
    for done, (name, file) in enumerate(files, start=1):
        state, sentence = _compared(place / file.path, file)
        checked.append(CheckedFile(name, file.path, state, f"{file.path} {sentence}."))
        if progress is not None:
            progress(done, len(files), file.path)
    return checked


def contents_sha256(path: Path) -> str | None:
    """The hash of what a packed file holds, which does not depend on how it was packed.

    Parameters
    ----------
    path
        An .npz or a .gz file.

    Returns
    -------
    str or None
        SHA-256 in hexadecimal: of an .npz, for each array, sorted by name, the line `NAME DTYPE SHAPE` and then its
        bytes; of a .gz, the file inside. None for any other file.

    Raises
    ------
    DataError
        If the file is damaged.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from locum.recipes import contents_sha256
    >>> np.savez("plain.npz", a=np.arange(3))
    >>> np.savez_compressed("packed.npz", a=np.arange(3))
    >>> contents_sha256(Path("plain.npz")) == contents_sha256(Path("packed.npz"))
    True
    """
    if path.suffix not in (".npz", ".gz"):
        return None
    from locum.io import reading_file

    digest = hashlib.sha256()
    with reading_file(str(path), f"an {path.suffix} file" if path.suffix == ".npz" else "a .gz file"):
        if path.suffix == ".gz":
            import gzip

            with gzip.open(path) as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
        else:
            import numpy as np

            with np.load(path, allow_pickle=False) as arrays:
                for name in sorted(arrays.files):
                    array = np.ascontiguousarray(arrays[name])
                    digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
                    digest.update(array.tobytes())
    return digest.hexdigest()


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The hash of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def _folder(given: Path | None, *, needed: bool) -> Path | None:
    if given is None and os.environ.get("LOCUM_DATA"):
        given = Path(os.environ["LOCUM_DATA"])
    if given is None and not needed:
        return None
    if given is None or not given.is_dir():
        said = "none was given" if given is None else f"there is no folder {str(given)!r}"
        raise ConfigError(f"The folder of the data is needed, and {said}: set LOCUM_DATA, or use --folder.")
    return given


def _compared(place: Path, file: DataFile) -> tuple[str, str]:
    """State, and the end of a sentence."""
    if not place.is_file():
        return "missing", "is not there"
    if file.sha256 is None:
        return "no hash known", "is there, and no hash is known to compare it with"
    size, found = place.stat().st_size, file_digest(place)
    if found == file.sha256:
        return "agrees", "agrees"
    if file.contents is not None:
        try:
            if contents_sha256(place) == file.contents:
                return "agrees", "agrees: it was packed differently, but holds the same"
        except DataError:
            return "differs", f"has {size} bytes where {file.bytes} are expected, and is damaged"
    if size != file.bytes:
        return "differs", f"has {size} bytes where {file.bytes} are expected, and other contents"
    return "differs", f"has the SHA-256 {found[:16]}... where {file.sha256[:16]}... is expected"


def _data_set(name: str, entry: Any, file: Path) -> DataSet:
    keys = {*_TEXTS, "files", "studies", "originals"}
    good = (
        isinstance(entry, dict)
        and set(entry) == keys
        and all(isinstance(entry[key], str) for key in _TEXTS)
        and all(_texts(entry[key]) for key in ("studies", "originals"))
        and isinstance(entry["files"], list)
        and all(_is_file(one) for one in entry["files"])
    )
    if not good:
        raise ConfigError(
            f"{str(file)!r} must give {', '.join(sorted(keys))} of {name!r}, and of each file its path in the "
            "folder and optionally bytes, sha256 and contents."
        )
    files = (DataFile(f["path"], f.get("bytes"), f.get("sha256"), f.get("contents")) for f in entry["files"])
    texts = {key: entry[key] for key in _TEXTS}
    return DataSet(
        name=name,
        files=tuple(files),
        studies=tuple(entry["studies"]),
        originals=tuple(entry["originals"]),
        **texts,
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_file(entry: Any) -> bool:
    if not isinstance(entry, dict) or not set(entry) <= {"path", "bytes", "sha256", "contents"}:
        return False
    kinds: Iterable[tuple[str, type]] = (("path", str), ("bytes", int), ("sha256", str), ("contents", str))
    return is_inside(entry.get("path")) and all(isinstance(entry.get(k, t()), t) for k, t in kinds)


def is_inside(name: Any) -> bool:
    """Whether a name stays in the folder that it is relative to."""
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.name != ""
