"""`load`: one function for a release in a folder, in a .zip, or on the Hugging Face hub."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from locum.errors import ConfigError
from locum.io import is_remote
from locum.release.archive import put_release, read_archive
from locum.release.hub import hub_files, hub_place
from locum.release.release import Release

# `Path` makes one slash of two.
_PATH_OF_ADDRESS = re.compile(r"^(hf):/(?=[^/])", re.IGNORECASE)


def load(path: str | os.PathLike[str]) -> Release:
    """Open a release after checking its hashes, schema and numbers.

    This shows that the release is intact, not who made it: for that, check the signature with `verify`. What comes
    from a .zip or from the hub is treated as hostile: only files that a release has are read, each with a limit, and
    nothing is kept on the disk but the hub client's own cache.

    Parameters
    ----------
    path
        A folder, a .zip file, or an address on the Hugging Face hub: `hf://OWNER/NAME`, `hf://datasets/OWNER/NAME`,
        with `@REVISION` behind the name for a branch, a tag or a commit, and with a folder in the repository behind
        that. Other files there are not read.

    Returns
    -------
    Release
        Ready to be sampled.

    Raises
    ------
    ReleaseError
        If it is not an intact release.
    DataError
        If the hub cannot be reached, refuses, or has nothing there.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import load, pack_release
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("load")
    >>> load(path).classes.tolist()
    [0, 1]
    >>> size = Path("load.zip").write_bytes(pack_release(path))
    >>> load("load.zip").fingerprint == load(path).fingerprint
    True
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"A release is loaded from a folder, a .zip file or hf://OWNER/NAME; got {path!r}.")
    text = _PATH_OF_ADDRESS.sub(r"\1://", os.fspath(path))
    if is_remote(text):
        if not text.lower().startswith("hf://"):
            raise ConfigError(
                f"A release is loaded from a folder, a .zip file or hf://OWNER/NAME; got {text!r}. Download it first."
            )
        return _from_contents(hub_files(hub_place(text)))
    if Path(text).is_file():
        return _from_contents(read_archive(Path(text)).contents)
    return Release.open(text)


def _from_contents(contents: Mapping[str, bytes]) -> Release:
    """The release that these files are, checked as a folder is."""
    found: list[Release] = []
    with tempfile.TemporaryDirectory(prefix="locum-") as temporary:
        put_release(contents, Path(temporary) / "release", check=lambda folder: found.append(Release.open(folder)))
    return found[0]
