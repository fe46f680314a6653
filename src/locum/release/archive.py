"""A release as one .zip file: packed to the same bytes everywhere, and unpacked as if its sender were hostile.

The reader is strict on purpose. The entries must fill the file without gaps or overlaps, and what the local headers
say must be what the directory at the end says: then all readers see the same files, and nothing is hidden between
them. Sizes are known, from the directory and from the manifest, before anything is decompressed.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from locum.errors import ConfigError, FormatError, IntegrityError, ReleaseError
from locum.io import MANIFEST, read_regular, regular_bytes, write_folder_atomically
from locum.release.folder import CARD, PASSPORT_FILES, checked, entry_of, tensor_file
from locum.release.manifest import MAX_MANIFEST_BYTES, FileEntry, parse_manifest
from locum.release.passport.files import present_passport_files
from locum.release.passport.schema import PASSPORT, parse_passport
from locum.release.passport.signature import SIGNATURE, parse_signature
from locum.release.verification import open_release

# Of the .zip, and of all its files together.
MAX_ARCHIVE_BYTES = 2**30
MAX_ENTRIES = 20
# Beyond the first 4 MiB. Weights hardly shrink; deflate reaches 1032 on zeros.
_MAX_RATIO = 100
RELEASE_NAMES = frozenset({MANIFEST, CARD, tensor_file("decoder"), tensor_file("data"), *PASSPORT_FILES})
_CHUNK = 2**20
_STORED, _DEFLATED = 0, 8
_END, _CENTRAL, _LOCAL = b"PK\5\6", b"PK\1\2", b"PK\3\4"
_DESCRIPTOR = b"PK\7\x08"
_END_FORM, _CENTRAL_FORM = struct.Struct("<4s4H2LH"), struct.Struct("<4s6H3L5H2L")
_LOCAL_FORM = struct.Struct("<4s5H3L2H")
# How hard deflate tried, that sizes follow the data, and that names are UTF-8. The others encrypt or patch.
_FLAGS, _SIZES_FOLLOW = 0b1000_0000_1110, 0b1000
# A 64-bit size, and a second name for the same file.
_ZIP64, _OTHER_NAME = 0x0001, 0x7075
_DOS_FOLDER = 0x10


@dataclass(frozen=True, slots=True)
class Archive:
    """The files in a .zip, before anything is known about them but names, sizes and checksums.

    Parameters
    ----------
    name
        The folder that all files are in; None if they are in none. The sender chose it.
    contents
        The bytes of each file, by name.

    Examples
    --------
    >>> from locum.release import Archive
    >>> Archive("release", {"manifest.json": b"{}"}).name
    'release'
    """

    name: str | None
    contents: Mapping[str, bytes]


def release_files(folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a release folder, all of them checked.

    Parameters
    ----------
    folder
        The folder.

    Returns
    -------
    dict of str to bytes
        The content of each file, by name, in the order of the names.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import release_files
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("to-list")
    >>> list(release_files(path))
    ['README.md', 'decoder.safetensors', 'manifest.json']
    """
    opened = open_release(folder)
    added = opened.passport_files
    out = {name: checked(folder / name, entry) for name, entry in opened.release.manifest.files.items()}
    for name in (MANIFEST, *present_passport_files(folder)):
        out[name] = added.listed[name] if name in added.listed else read_regular(folder / name)
    # Another process may have replaced the folder since it was checked.
    same = all(entry_of(out.get(name, b"")).sha256 == digest for name, digest in added.hashes.items())
    signed = parse_signature(out[SIGNATURE]) if SIGNATURE in out else None
    if not same or signed != added.signature or not added.listed.keys() <= out.keys():
        raise IntegrityError(f"{str(folder)!r} was replaced while it was read: try again.")
    return dict(sorted(out.items()))


def pack_release(folder: Path) -> bytes:
    """A release as a .zip: the same files and folder name give the same bytes, on any machine and at any time.

    The files are stored as they are, in one folder that is called like `folder`. So that name leaves with them.

    Parameters
    ----------
    folder
        Folder of a release, with or without passport and signature. It is checked first.

    Returns
    -------
    bytes
        The .zip file.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.
    ConfigError
        If it is too large for a .zip that `unpack_release` accepts.

    Examples
    --------
    >>> import io, zipfile
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import pack_release
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("packed")
    >>> zipfile.ZipFile(io.BytesIO(pack_release(path))).namelist()
    ['packed/README.md', 'packed/decoder.safetensors', 'packed/manifest.json']
    """
    contents = release_files(folder)
    size = sum(map(len, contents.values()))
    # With room for the headers.
    if size > MAX_ARCHIVE_BYTES - 2**16:
        raise ConfigError(
            f"{str(folder)!r} has {size} bytes, more than a .zip of a release may have ({MAX_ARCHIVE_BYTES}): send "
            "the folder itself."
        )
    name = Path(os.path.realpath(folder)).name
    top = name if _is_plain(name) else "release"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for file, raw in contents.items():
            # The earliest time that a .zip can hold.
            entry = zipfile.ZipInfo(f"{top}/{file}", (1980, 1, 1, 0, 0, 0))
            # By default these depend on the system that writes.
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, raw)
    return stream.getvalue()


def read_archive(source: bytes | Path) -> Archive:
    """The files of a .zip that may be hostile; nothing is written.

    Only plain files with the names that a release can have are accepted, at the top or in one folder; no link, no
    other path, no encryption, no 64-bit sizes, no gap or overlap, at most 20 entries and 1 GiB. Sizes are those that
    manifest and passport list. Whether it is an intact release is for `unpack_release` to say.

    Parameters
    ----------
    source
        The bytes of a .zip, or its path.

    Returns
    -------
    Archive
        The folder's name and the files.

    Raises
    ------
    FormatError
        If it is not such a .zip.
    IntegrityError
        If a file in it is damaged, or is not listed.

    Examples
    --------
    >>> from locum.release import read_archive
    >>> read_archive(b"not a .zip")
    Traceback (most recent call last):
        ...
    locum.errors.FormatError: This is not a .zip file, or it is cut off: ask for it again.
    """
    if isinstance(source, bytes):
        return _read(source)
    try:
        return _read(regular_bytes(source, limit=MAX_ARCHIVE_BYTES))
    except ReleaseError as error:
        raise type(error)(f"{str(source)!r} cannot be read as a release. {error}") from None
    except OSError as error:
        raise FormatError(f"The .zip {str(source)!r} cannot be read: {error.strerror}.") from None


def _read(raw: bytes) -> Archive:
    if len(raw) > MAX_ARCHIVE_BYTES:
        raise FormatError(f"The .zip has {len(raw)} bytes; that of a release has at most {MAX_ARCHIVE_BYTES}.")
    try:
        name, entries = _entries(raw)
    except (struct.error, UnicodeDecodeError):
        raise FormatError("The .zip is damaged: its directory cannot be read. Ask for it again.") from None
    if MANIFEST not in entries:
        raise FormatError(f"The .zip holds no {MANIFEST}: it is not a release, or files are missing.")
    contents: dict[str, bytes] = {}

    def small(file: str) -> bytes:
        if entries[file].size > MAX_MANIFEST_BYTES:
            raise FormatError(f"{file} has {entries[file].size} bytes; the limit is {MAX_MANIFEST_BYTES}.")
        contents[file] = _content(raw, entries[file])
        return contents[file]

    listed: dict[str, FileEntry] = dict(parse_manifest(small(MANIFEST)).files)
    if PASSPORT in entries:
        listed |= {str(file): entry for file, entry in parse_passport(small(PASSPORT)).files.items()}
    if SIGNATURE in entries:
        small(SIGNATURE)
    for file in sorted(entries.keys() - contents.keys()):
        if file not in listed:
            raise IntegrityError(f"The .zip holds {file}, which its manifest does not list: do not open it.")
        if (size := entries[file].size) != listed[file].bytes:
            raise IntegrityError(
                f"{file} has {size} bytes in the .zip, but its manifest says {listed[file].bytes}: altered."
            )
        contents[file] = _content(raw, entries[file])
    return Archive(name, dict(sorted(contents.items())))


def put_release(
    contents: Mapping[str, bytes],
    into: Path,
    *,
    overwrite: bool = False,
    check: Callable[[Path], object] = open_release,
) -> Path:
    """Write the files of a release to a folder, which takes its place only once it was checked.

    Parameters
    ----------
    contents
        The bytes of each file, by name.
    into
        Folder of the release. Folders above it are made.
    overwrite
        Replace `into` if it is a release.
    check
        Called with a complete folder; an exception from it leaves everything as it was. By default `open_release`.

    Returns
    -------
    Path
        `into`.

    Raises
    ------
    ReleaseError
        If they are not the files of an intact release; nothing is left behind.
    ConfigError
        If `into` cannot be written, or may not be replaced.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import put_release, release_files
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("to-copy")
    >>> put_release(release_files(path), Path("copied")).name
    'copied'
    """
    if unknown := sorted(set(contents) - RELEASE_NAMES):
        raise FormatError(f"A release holds no file {unknown[0][:80]!r}: do not open it.")
    write_folder_atomically(into, contents.items(), overwrite=overwrite, check=check)
    return into


def unpack_release(raw: bytes | Path, into: Path, *, overwrite: bool = False) -> Path:
    """Unpack a .zip that may be hostile into a release folder, which appears complete and checked or not at all.

    See `read_archive` for what is refused. The name of the folder inside the .zip does not matter.

    Parameters
    ----------
    raw
        The bytes of a .zip, or its path.
    into
        Folder of the release. Folders above it are made.
    overwrite
        Replace `into` if it is a release.

    Returns
    -------
    Path
        `into`.

    Raises
    ------
    ReleaseError
        If the .zip is refused, or does not hold an intact release.
    ConfigError
        If `into` cannot be written, or may not be replaced.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import load, pack_release, unpack_release
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("to-send")
    >>> received = unpack_release(pack_release(path), Path("received"))
    >>> load(received).fingerprint == load(path).fingerprint
    True
    """
    return put_release(read_archive(raw).contents, into, overwrite=overwrite)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file in a .zip: where its bytes lie, and what they must become."""

    name: str
    method: int
    start: int
    packed: int
    size: int
    crc: int


def _entries(raw: bytes) -> tuple[str | None, dict[str, _Entry]]:
    """The common folder, and the files by name."""
    end = len(raw) - _END_FORM.size
    # At the very end: a comment after it could hold another directory.
    if end < 0 or raw[end : end + 4] != _END:
        raise FormatError("This is not a .zip file, or it is cut off: ask for it again.")
    _, disk, first_disk, here, count, length, at, comment = _END_FORM.unpack_from(raw, end)
    if disk or first_disk or here != count or comment:
        raise FormatError("The .zip has several parts or a comment: a release has neither. Pack it again.")
    if count > MAX_ENTRIES:
        raise FormatError(f"The .zip has {count} entries; a release has at most {MAX_ENTRIES}.")
    if at + length != end:
        raise FormatError("The .zip is damaged, or has 64-bit sizes, which no release needs: pack it again.")
    # The place of each entry, and where it ends.
    spans: list[tuple[int, int]] = []
    folders: set[str] = set()
    files: dict[str, _Entry] = {}
    names: list[str] = []
    for _ in range(count):
        at, name, span, entry = _entry(raw, at, end)
        spans.append(span)
        names.append(name)
        top, slash, file = name.rpartition("/")
        if slash and not _is_plain(top):
            raise FormatError("The .zip holds a path that leads out of its folder, or below it: do not open it.")
        folders.add(top)
        if not file and slash:
            # Some programs deflate nothing, which takes two bytes.
            if entry.size or entry.packed > 2:
                raise FormatError("The .zip holds a folder that has content: do not open it.")
            continue
        if file not in RELEASE_NAMES:
            raise FormatError(f"The .zip holds {file[:80]!r}, which no release has: do not open it.")
        files[file] = entry
    if at != end:
        raise FormatError("The .zip is damaged: its directory has a different length than it says. Ask for it again.")
    if len(set(names)) != len(names) or len(folders) > 1:
        raise FormatError("The .zip holds a file twice, or files in different folders: do not open it.")
    _check_spans(spans, end - length)
    if sum(entry.size for entry in files.values()) > MAX_ARCHIVE_BYTES:
        raise FormatError(f"The .zip holds more than {MAX_ARCHIVE_BYTES} bytes: no release may be so large.")
    return next(iter(folders), "") or None, files


def _entry(raw: bytes, at: int, end: int) -> tuple[int, str, tuple[int, int], _Entry]:
    """One line of the directory, checked against the entry's own header: the next line's place, name, span, entry."""
    found = _CENTRAL_FORM.unpack_from(raw, at)
    _, _, _, flags, method, _, _, crc, packed, size, n_name, n_extra, n_comment, disk, _, rights, offset = found
    if found[0] != _CENTRAL or disk or n_comment:
        raise FormatError("The .zip is damaged: its directory is not one of a release. Ask for it again.")
    if flags & ~_FLAGS:
        raise FormatError("The .zip is encrypted or patched: ask for one without a password.")
    at += _CENTRAL_FORM.size
    name = raw[at : at + n_name].decode("utf-8")
    _check_extra(raw[at + n_name : at + n_name + n_extra])
    at += n_name + n_extra
    kind = stat.S_IFMT(rights >> 16)
    is_folder = name.endswith("/")
    if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG) or (rights & _DOS_FOLDER and not is_folder):
        raise FormatError("The .zip holds a link or a device, not only plain files: do not open it.")
    if method not in (_STORED, _DEFLATED) or (method == _STORED and packed != size):
        raise FormatError("The .zip is compressed in a way that is not accepted: pack it again with deflate.")
    if size > MAX_MANIFEST_BYTES and size > _MAX_RATIO * packed:
        raise FormatError(f"The .zip holds {size} bytes in {packed}: it would fill the memory. Do not open it.")
    mine = _LOCAL_FORM.unpack_from(raw, offset)
    follow = bool(flags & _SIZES_FOLLOW)
    numbers, begin = mine[6:9], offset + _LOCAL_FORM.size
    if (
        mine[0] != _LOCAL
        or mine[2:4] != (flags, method)
        or (numbers != (crc, packed, size) and not (follow and numbers == (0, 0, 0)))
        or raw[begin : begin + mine[9]] != name.encode("utf-8")
    ):
        raise FormatError("The .zip contradicts itself about a file: it is damaged or hostile. Do not open it.")
    start = begin + mine[9] + mine[10]
    _check_extra(raw[start - mine[10] : start])
    stop = start + packed
    if follow:
        stop = _after_descriptor(raw, stop, struct.pack("<3L", crc, packed, size))
    if at > end or stop > end:
        raise FormatError("The .zip is cut off: ask for it again.")
    return at, name, (offset, stop), _Entry(name, method, start, packed, size, crc)


def _after_descriptor(raw: bytes, at: int, numbers: bytes) -> int:
    """Where the sizes end that follow the data of an entry."""
    for form in (_DESCRIPTOR + numbers, numbers):
        if raw[at : at + len(form)] == form:
            return at + len(form)
    raise FormatError("The .zip contradicts itself about a file: it is damaged or hostile. Do not open it.")


def _check_spans(spans: list[tuple[int, int]], end: int) -> None:
    """Entries follow each other up to the directory: no byte belongs to two of them, or to none."""
    at = 0
    for start, stop in sorted(spans):
        if start != at:
            raise FormatError("The .zip has entries that overlap, or bytes between them: do not open it.")
        at = stop
    if at != end:
        raise FormatError("The .zip has bytes that belong to no file: do not open it.")


def _check_extra(extra: bytes) -> None:
    """Refuse a further field that changes what the directory says; times and owners are ignored."""
    at = 0
    while at < len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind in (_ZIP64, _OTHER_NAME):
            raise FormatError("The .zip has 64-bit sizes or second names, which no release needs: do not open it.")
        at += 4 + length
    if at != len(extra):
        raise FormatError("The .zip is damaged: a field is cut off. Ask for it again.")


def _content(raw: bytes, entry: _Entry) -> bytes:
    """The bytes of a file, never more than its size says."""
    file = entry.name.rpartition("/")[2]
    packed = memoryview(raw)[entry.start : entry.start + entry.packed]
    out = bytes(packed) if entry.method == _STORED else _inflated(packed, entry.size, file)
    if len(out) != entry.size or zlib.crc32(out) != entry.crc:
        raise IntegrityError(f"{file} in the .zip has the wrong checksum or size: it is damaged. Ask for it again.")
    return out


def _inflated(packed: memoryview, size: int, file: str) -> bytes:
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    out = bytearray()
    rest: bytes | memoryview = packed
    try:
        while not engine.eof:
            chunk = engine.decompress(rest, _CHUNK)
            rest = engine.unconsumed_tail
            out += chunk
            if len(out) > size or (not chunk and not rest):
                break
    except zlib.error:
        raise IntegrityError(f"{file} in the .zip is damaged: ask for it again.") from None
    if not engine.eof or engine.unused_data or len(out) != size:
        raise IntegrityError(f"{file} in the .zip has a different size than the .zip says: do not open it.")
    return bytes(out)


def _is_plain(name: str) -> bool:
    """Whether a folder can have this name on any system, and stays where it is put."""
    return (
        0 < len(name) <= 100
        and name.isprintable()
        and not set(name) & set('/\\:<>"|?*')
        and name[0] not in ".~- "
        and name[-1] not in ". "
    )
