"""Read and write `EmbeddingSet` files; the suffix chooses the format."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from locum.data.batches import gather, open_batches, opens_in_pieces
from locum.data.formats.assemble import ALL, SPLITS
from locum.errors import DataError
from locum.io import file_system, is_remote, listed, printable, remote_errors, split_path, write_atomically
from locum.types import EmbeddingSet, SetBatches

SUFFIXES = (".csv", ".npz", ".parquet", ".safetensors")
_SINGLE = (*SUFFIXES, ".csv.gz")
# Read as a whole: quicker, and more kinds of content.
_WHOLE = (".csv", ".csv.gz", ".npz", ".safetensors")
_IMAGES = {".bmp", ".dcm", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
_LONGEST = 1000
# A split and a number of records to draw.
_DRAWN = re.compile(r"(train|val|test|all)?\[(\d{1,12})\]")
_READABLE = f"readable are {', '.join(SUFFIXES[:-1])}, {SUFFIXES[-1]} and .csv.gz"


def read_embeddings(path: str | os.PathLike[str], split: str | None = None) -> EmbeddingSet:
    """One set from a file of embeddings or measurements; `FILE#train` picks a split.

    If the file holds several splits, one must be named: fitting on the test split by accident would
    invalidate every later measurement. Class codes agree between the splits of a file.

    Parameters
    ----------
    path
        A .npz, .parquet, .safetensors, .csv or .csv.gz file, a folder of Parquet or .npy files, or an address such as
        `s3://bucket/vectors`; alone or followed by `#train`, `#val` or `#test`. `FILE#train[1000]` and `FILE#[1000]`
        draw so many records at random, always the same ones.
    split
        The same choice as an argument. None: as `path` says, or the only one there is.

    Returns
    -------
    EmbeddingSet
        The vectors, with labels and everything else that the file says about them. As private as the records.

    Raises
    ------
    DataError
        In one sentence. It names the path as given, and no other file.

    Examples
    --------
    >>> from locum.data import load_sample, read_embeddings, write_embeddings
    >>> write_embeddings("digits.npz", load_sample("digits"))
    >>> read_embeddings("digits.npz").X.shape
    (1797, 64)
    """
    file, asked = split_path(os.fspath(path))
    asked, rows = _part(asked)
    if asked is not None and split is not None and asked != split:
        raise DataError(f"{os.fspath(path)} asks for one split and `split={split!r}` for another: give one of them.")
    asked = split if asked is None else asked
    if asked is not None and asked not in (*SPLITS, ALL):
        raise DataError(f"{asked!r} is not a split: use {file}#train, #val or #test.")
    sets = _read(file, rows)
    held = ", ".join(sets)
    if asked is None:
        if len(sets) > 1:
            raise DataError(f"{file} holds the splits {held}: say which, for example {file}#{next(iter(sets))}.")
        return next(iter(sets.values()))
    if asked not in sets:
        if ALL in sets:
            raise DataError(f"{file} has no splits, so no {asked!r}: use it without #{asked}.")
        raise DataError(f"{file} has no split {asked!r}: it holds {held}.")
    return sets[asked]


def read_splits(path: str | os.PathLike[str]) -> dict[str, EmbeddingSet]:
    """All splits of a file: "train", "val" and "test", or "all" if it has none.

    Class names are the union over all splits, so that codes agree between them.

    Parameters
    ----------
    path
        As in `read_embeddings`; `FILE#split` gives only that split.

    Returns
    -------
    dict of str to EmbeddingSet
        The sets by split.

    Raises
    ------
    DataError
        In one sentence. It names the path as given, and no other file.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import read_splits
    >>> np.savez("splits.npz", train_x=np.eye(2), train_y=[0, 1], test_x=np.eye(2), test_y=[0, 2])
    >>> {name: part.info.class_names for name, part in read_splits("splits.npz").items()}
    {'train': ('0', '1', '2'), 'test': ('0', '1', '2')}
    """
    file, part = split_path(os.fspath(path))
    split, rows = _part(part)
    if split is not None:
        return {split: read_embeddings(path)}
    return _read(file, rows)


def _part(asked: str | None) -> tuple[str | None, int | None]:
    """Split and number of records of `train[1000]`."""
    found = None if asked is None else _DRAWN.fullmatch(asked)
    if found is None:
        return asked, None
    if int(found.group(2)) < 1:
        raise DataError("A random part needs one record or more: write the number in the brackets.")
    return found.group(1) or None, int(found.group(2))


def is_drawn(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a random part of some data, such as `FILE#train[1000]`.

    Parameters
    ----------
    path
        A path or an address.

    Returns
    -------
    bool
        True if it ends in a number of records to draw.

    Examples
    --------
    >>> from locum.data import is_drawn
    >>> is_drawn("scans.npz#train[1000]"), is_drawn("scans.npz#train")
    (True, False)
    """
    return _part(split_path(path)[1])[1] is not None


def _read(name: str, rows: int | None = None) -> dict[str, EmbeddingSet]:
    """All splits of a file, a folder or an address; `rows` of each if it is given."""
    suffix = _suffix(name)
    if is_remote(name):
        if not opens_in_pieces(name):
            if suffix not in _SINGLE:
                raise DataError(f"{name} is a folder without Parquet files at its top level: {_READABLE}.")
            return _fetched(name, suffix, rows)
    else:
        _check_there(name, suffix)
    # A part of a large file need not be read as a whole; an .npz has no other way.
    if suffix not in _WHOLE or (rows is not None and suffix != ".npz"):
        return _checked(lambda path: {k: gather(v, path, rows) for k, v in open_batches(path).items()}, name)
    return {k: _drawn(v, rows) for k, v in _checked(_reader(suffix), name).items()}


def _suffix(name: str) -> str:
    """What the name ends in, .csv.gz as one; an address may go on after a question mark."""
    plain = name.partition("?")[0].lower() if is_remote(name) else name.lower()
    return ".csv.gz" if plain.endswith(".csv.gz") else Path(plain).suffix


def _check_there(name: str, suffix: str) -> None:
    file = Path(name)
    if file.is_dir():
        if not opens_in_pieces(name):
            raise DataError(_about_folder(name))
        return
    if not file.exists():
        raise DataError(f"There is no file {name}: check the spelling; {_READABLE}.")
    if suffix in _IMAGES:
        raise DataError(f"{name} is a single image: put it into a folder, and give the folder.")
    if suffix not in _SINGLE or not file.is_file():
        raise DataError(f"{name} is not a kind of file that can be read: {_READABLE}.")
    if file.stat().st_size == 0:
        raise DataError(f"{name} is empty: export it again; {_READABLE}.")


def _drawn(data: EmbeddingSet, rows: int | None) -> EmbeddingSet:
    return data if rows is None else gather(SetBatches(data), "", rows)


def _fetched(address: str, suffix: str, rows: int | None) -> dict[str, EmbeddingSet]:
    """Read a single file from elsewhere through a private copy that is gone afterward."""
    system, place = file_system(address)
    with tempfile.NamedTemporaryFile(suffix=suffix) as copy:
        with remote_errors(address), system.open_input_stream(place, compression=None) as stream:
            # Arrow takes compression from the name; the copy has the file's own bytes.
            shutil.copyfileobj(stream, copy)
        copy.flush()
        try:
            return {k: _drawn(v, rows) for k, v in _checked(_reader(suffix), copy.name).items()}
        except DataError as error:
            raise DataError(str(error).replace(copy.name, address)) from None


def _checked(read: Callable[[str], dict[str, EmbeddingSet]], name: str) -> dict[str, EmbeddingSet]:
    try:
        return read(name)
    except DataError as error:
        raise DataError(_safe(str(error))) from None


def write_embeddings(path: str | os.PathLike[str], data: EmbeddingSet) -> None:
    """Write `data` so that `read_embeddings` gives it back.

    The write is atomic, and only the owner may read the file. .npz, .parquet and .safetensors keep
    everything. A .csv loses `info`, the order of the classes and classes without records, and text
    that looks like whole numbers comes back as numbers.

    Parameters
    ----------
    path
        The file; its suffix chooses the format. It is replaced if it exists.
    data
        What to write.

    Raises
    ------
    DataError
        If the suffix is not known, or the file cannot be written.

    Examples
    --------
    >>> from locum.data import load_sample, read_embeddings, write_embeddings
    >>> write_embeddings("tumors.parquet", load_sample("breast-cancer"))
    >>> read_embeddings("tumors.parquet").info.class_names
    ('malignant', 'benign')
    """
    name = os.fspath(path)
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{name} has no suffix that can be written: use {listed(SUFFIXES)}.")
    writer = _writer(suffix)
    write_atomically(name, lambda stream: writer(stream, data))


def _reader(suffix: str) -> Callable[[str], dict[str, EmbeddingSet]]:
    """The function for a suffix; its module is imported now, since tables bring pyarrow, which takes its time."""
    if suffix in (".csv", ".csv.gz"):
        from locum.data.formats.csv import read_csv as reader
    elif suffix == ".safetensors":
        from locum.data.formats.safetensors import read_safetensors as reader
    else:
        from locum.data.formats.npz import read_npz as reader
    return reader


def _writer(suffix: str) -> Callable[[BinaryIO, EmbeddingSet], None]:
    if suffix == ".csv":
        from locum.data.formats.csv import write_csv as writer
    elif suffix == ".parquet":
        from locum.data.formats.parquet import write_parquet as writer
    elif suffix == ".safetensors":
        from locum.data.formats.safetensors import write_safetensors as writer
    else:
        from locum.data.formats.npz import write_npz as writer
    return writer


def _safe(text: str) -> str:
    """The message without control characters: names in it come from a file that may be hostile."""
    plain = printable(text)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]} ..."


def _about_folder(name: str) -> str:
    """The error for a folder. It repeats no file name: those can be patients' names."""
    empty = True
    for _, _, files in os.walk(name):
        for file in files:
            empty = False
            if Path(file).suffix.lower() in _IMAGES:
                return f"{name} is a folder of images: embed it first (locum embed), or give vectors; {_READABLE}."
    if empty:
        return f"{name} is an empty folder: give a file of embeddings; {_READABLE}."
    return f"{name} is a folder: give one file of embeddings; {_READABLE}."
