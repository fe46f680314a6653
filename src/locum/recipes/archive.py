"""A release on its way: packed into one file to send, and received from a file or folder that may be hostile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from locum.errors import ConfigError
from locum.io import check_output_file, write_bytes
from locum.recipes.verify import verify_release
from locum.release import Verification, pack_release, put_release, read_archive, release_files


def pack_to_file(release: Path, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write a release to one .zip file, after every check of `verify_release`; the same release gives the same bytes.

    The files lie in one folder of the .zip that has the name of the release's folder.

    Parameters
    ----------
    release
        Folder of the release.
    out
        The .zip file.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    dict
        `file` and `release`, the two paths, `bytes` (the size of the file), `fingerprint` and `verification`, as
        `Verification.to_dict` gives it.

    Raises
    ------
    ConfigError
        If the file cannot be written, or the release is too large for a .zip.
    ReleaseError
        If the folder is not an intact release.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, pack_to_file
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-pack"), no_dp=True).release
    >>> pack_to_file(release, Path("tumors.zip"))["file"]
    'tumors.zip'
    """
    check_output_file(out, overwrite=overwrite, suffixes=(".zip",), release=release)
    found = verify_release(release)
    raw = pack_release(release)
    # Made to be shared, like the folder.
    write_bytes(out, raw, mode=0o644)
    return {"file": str(out), "release": str(release), "bytes": len(raw), **_told(found)}


def receive_release(source: Path, into: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Take in a release, from a .zip or a folder, as a folder inside `into`; it is there once every check passed.

    The checks are those of `verify_release` without a key: compare the fingerprint with the sender's. The folder is
    called like the one in the .zip, or like the file if there is none, or like the folder that is copied.

    Parameters
    ----------
    source
        A .zip file or a folder of a release.
    into
        The folder to put it in; it is made if it is not there.
    overwrite
        Replace a release of the same name.

    Returns
    -------
    dict
        `path`, the new folder, `fingerprint` and `verification`, as `Verification.to_dict` gives it.

    Raises
    ------
    ReleaseError
        If it must not be used; nothing is left behind.
    PrivacyError
        If its events cost more than is claimed.
    ConfigError
        If there is a folder of its name already, or it cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, pack_to_file, receive_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-receive"), no_dp=True).release
    >>> packed = pack_to_file(release, Path("sent.zip"))
    >>> received = receive_release(Path("sent.zip"), Path("inbox"))
    >>> Path(received["path"]).name, received["fingerprint"] == packed["fingerprint"]
    ('release-to-receive', True)
    """
    if source.is_dir():
        name, contents = source.resolve().name, release_files(source)
    else:
        archive = read_archive(source)
        name, contents = archive.name or source.stem, dict(archive.contents)
    if not name.strip(". "):
        raise ConfigError(f"{str(source)!r} gives the release no name: rename it first.")
    found: list[Verification] = []
    path = put_release(
        contents, into / name, overwrite=overwrite, check=lambda folder: found.append(verify_release(folder))
    )
    return {"path": str(path), **_told(replace(found[0], path=str(path)))}


def _told(found: Verification) -> dict[str, Any]:
    return {"fingerprint": found.fingerprint, "verification": found.to_dict()}
