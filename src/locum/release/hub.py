"""Releases on the Hugging Face hub: only files that a release has are read, and only checked ones are pushed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locum.errors import ConfigError, DataError, FormatError, LocumError, missing_extra
from locum.io import MANIFEST, one_line, remote_errors
from locum.release.archive import MAX_ARCHIVE_BYTES, RELEASE_NAMES
from locum.release.manifest import MAX_MANIFEST_BYTES

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_ADDRESS = re.compile(
    rf"^hf://(?:(?P<kind>datasets|models)/)?(?P<repo>{_PART}/{_PART})(?:@(?P<revision>[^/\s]{{1,200}}))?"
    r"(?P<folder>(?:/[^/\s]{1,200}){0,8})/?$",
    re.IGNORECASE,
)
_REPO = re.compile(rf"{_PART}/{_PART}")
# Whose files are no part of a release: the hub writes it by itself.
_HUB_FILES = frozenset({".gitattributes"})


@dataclass(frozen=True, slots=True)
class HubPlace:
    """Where a release is on the hub.

    Parameters
    ----------
    repo
        OWNER/NAME.
    kind
        "model" or "dataset".
    revision
        A branch, a tag or a commit; None: the newest.
    folder
        A folder in the repository; empty: its top.

    Examples
    --------
    >>> from locum.release import HubPlace
    >>> HubPlace("clinic/scans", "dataset").address
    'hf://datasets/clinic/scans'
    """

    repo: str
    kind: str = "model"
    revision: str | None = None
    folder: str = ""

    @property
    def address(self) -> str:
        """The address that `load` takes."""
        kind = "datasets/" if self.kind == "dataset" else ""
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"hf://{kind}{self.repo}{revision}{self.folder and '/'}{self.folder}"


def hub_place(address: str) -> HubPlace:
    """The parts of an hf address.

    Parameters
    ----------
    address
        `hf://OWNER/NAME` or `hf://datasets/OWNER/NAME`, with `@REVISION` and a folder behind it if need be.

    Returns
    -------
    HubPlace
        Its parts.

    Raises
    ------
    ConfigError
        If it is no such address.

    Examples
    --------
    >>> from locum.release import hub_place
    >>> hub_place("hf://clinic/scans@v1/release")
    HubPlace(repo='clinic/scans', kind='model', revision='v1', folder='release')
    """
    found = _ADDRESS.match(address)
    if found is None or ".." in (found["folder"] or "").split("/"):
        raise ConfigError(
            f"A release on the hub is hf://OWNER/NAME or hf://datasets/OWNER/NAME, with @REVISION if need be; got "
            f"{one_line(address)[:200]!r}."
        )
    kind = "dataset" if (found["kind"] or "").lower() == "datasets" else "model"
    return HubPlace(found["repo"], kind, found["revision"], found["folder"].strip("/"))


def hub_files(place: HubPlace) -> dict[str, bytes]:
    """The files of a release on the hub, all from one commit; files that no release has are not downloaded.

    Sizes are checked before anything is downloaded. Whether the files are an intact release is for `put_release` to
    say. A private repository needs a login (`hf auth login`, or HF_TOKEN).

    Parameters
    ----------
    place
        Where they are.

    Returns
    -------
    dict of str to bytes
        The content of each file, by name.

    Raises
    ------
    DataError
        If the hub cannot be reached, refuses, or has nothing there.
    FormatError
        If there is no release, or it is too large.

    Examples
    --------
    >>> from locum.release import HubPlace, hub_files
    >>> sorted(hub_files(HubPlace("clinic/scans")))  # doctest: +SKIP
    ['README.md', 'decoder.safetensors', 'manifest.json']
    """
    api = _client()
    with _hub_errors(place.address):
        info = api.repo_info(place.repo, repo_type=place.kind, revision=place.revision, files_metadata=True)
    prefix = f"{place.folder}/" if place.folder else ""
    sizes = {
        file.rfilename.removeprefix(prefix): file.size
        for file in info.siblings or ()
        if file.rfilename.startswith(prefix) and file.rfilename.removeprefix(prefix) in RELEASE_NAMES
    }
    if MANIFEST not in sizes:
        raise FormatError(f"There is no {MANIFEST} at {place.address!r}: it is not a release, or lies in a folder.")
    large = f"The files at {place.address!r} are larger than those of a release may be."
    small = (sizes[MANIFEST] or 0) <= MAX_MANIFEST_BYTES
    if not small or sum(size or 0 for size in sizes.values()) > MAX_ARCHIVE_BYTES:
        raise FormatError(large)
    out: dict[str, bytes] = {}
    for name in sorted(sizes):
        with _hub_errors(place.address):
            # By commit: a push between two files must not mix two releases.
            file = api.hf_hub_download(place.repo, prefix + name, repo_type=place.kind, revision=info.sha)
            # What a mirror says about sizes need not be true.
            if Path(file).stat().st_size + sum(map(len, out.values())) > MAX_ARCHIVE_BYTES:
                raise FormatError(large)
            out[name] = Path(file).read_bytes()
    return out


def push_files(contents: Mapping[str, bytes], place: HubPlace, *, public: bool, message: str) -> str:
    """Push the files of a release to the hub in one commit, and nothing else; other files of a release go.

    The repository is made if it is not there, private unless `public` says otherwise. One that is there must have the
    visibility that was asked for: nothing here changes who can see a repository, and nothing is pushed to one that
    holds other things than a release.

    Parameters
    ----------
    contents
        The bytes of each file, as `release_files` gives them.
    place
        Where to; without a revision or a folder.
    public
        Whether everybody may see it.
    message
        The first line of the commit.

    Returns
    -------
    str
        The commit's hash.

    Raises
    ------
    ConfigError
        If a repository of that name is there that has another visibility or holds other files, or there is no login.
    DataError
        If the hub cannot be reached, or refuses.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release import HubPlace, push_files, release_files
    >>> files = release_files(Path("release"))  # doctest: +SKIP
    >>> push_files(files, HubPlace("clinic/scans"), public=False, message="First release")  # doctest: +SKIP
    """
    if not _REPO.fullmatch(place.repo) or place.revision is not None or place.folder:
        raise ConfigError(f"A release is pushed to a repository OWNER/NAME; got {place.address!r}.")
    if unknown := sorted(set(contents) - RELEASE_NAMES):
        raise ConfigError(f"A release holds no file {unknown[0][:80]!r}: nothing was pushed.")
    api = _client()
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from huggingface_hub.errors import RepositoryNotFoundError

    with _hub_errors(place.address):
        try:
            info = api.repo_info(place.repo, repo_type=place.kind)
        except RepositoryNotFoundError:
            info = None
    if info is None:
        with _hub_errors(place.address):
            api.create_repo(place.repo, repo_type=place.kind, private=not public, exist_ok=False)
            # Whoever owns the name may have defaults of their own: what counts is what the hub then says.
            info = api.repo_info(place.repo, repo_type=place.kind)
    if bool(info.private) == public:
        seen, wanted = ("public", "private") if public is False else ("private", "public")
        raise ConfigError(
            f"{place.repo} is {seen} and you asked for a {wanted} one: nothing was pushed. Choose another name, or "
            "change who can see it on the hub first."
        )
    there = {file.rfilename for file in info.siblings or ()} - _HUB_FILES
    if strange := sorted(there - RELEASE_NAMES):
        raise ConfigError(
            f"{place.repo} holds {one_line(strange[0])[:80]!r}, which no release has: nothing was pushed. Give a "
            "repository that is new or holds only a release."
        )
    steps: list[Any] = [CommitOperationAdd(name, raw) for name, raw in sorted(contents.items())]
    steps += [CommitOperationDelete(name) for name in sorted(there - set(contents))]
    with _hub_errors(place.address):
        done = api.create_commit(
            place.repo, steps, commit_message=message, repo_type=place.kind, parent_commit=info.sha
        )
    return str(done.oid)


def _client() -> Any:
    try:
        from huggingface_hub import HfApi
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    # Read here, not when the library was imported.
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="locum")


@contextmanager
def _hub_errors(address: str) -> Iterator[None]:
    """Turn what the hub answers into one sentence."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        with remote_errors(address):
            try:
                yield
            except (RepositoryNotFoundError, EntryNotFoundError, RevisionNotFoundError):
                raise DataError(
                    f"The hub has nothing at {address!r}, or does not show it to you: check the spelling, or log in "
                    "with `hf auth login`."
                ) from None
            except LocalTokenNotFoundError:
                raise ConfigError(
                    "The hub does not know you: log in with `hf auth login`, or set HF_TOKEN."
                ) from None
            except HfHubHTTPError as error:
                if error.response is not None and error.response.status_code in (401, 403):
                    raise ConfigError(
                        f"The hub does not let you use {address!r}: log in with `hf auth login`, or set HF_TOKEN, "
                        "with the right to do this."
                    ) from None
                raise
            except ValueError as error:
                # What the hub, or its client, says about a name or about the card's metadata.
                raise DataError(f"{address!r} is refused: {one_line(str(error))[:300]}.") from None
    except LocumError:
        raise
    except Exception as error:
        # The hub's client raises errors of several libraries.
        if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "requests", "huggingface_hub"):
            raise
        raise DataError(
            f"{address!r} cannot be used: {one_line(str(error))[:300] or type(error).__name__}. Check the address "
            "and the network, then try again."
        ) from None
