"""`data fetch`: download a public original from an address in a settings file; a stopped download resumes."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from locum._version import __version__
from locum.errors import ConfigError, DataError
from locum.io import hold_folder, read_toml, sync_folder, write_bytes
from locum.recipes.data_sets import file_digest, is_inside
from locum.types import Progress

_KEYS = ("url", "file", "sha256", "md5", "bytes")
_LENGTHS = {"sha256": 64, "md5": 32}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_CHUNK = 1 << 18
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FetchSummary:
    """What `fetch_data` brought.

    Attributes
    ----------
    name
        The original, as the settings file calls it.
    file
        Where it is now.
    bytes, sha256
        Its size and hash.
    verified
        The hash of the settings file that it agrees with, "sha256" or "md5"; empty if none was given.
    resumed
        How many bytes an earlier run had left.
    already
        Whether it was there already, so that nothing was downloaded.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import fetch_data
    >>> fetch_data("breastmnist", Path("sources.toml"), Path("originals")).verified  # doctest: +SKIP
    'md5'
    """

    name: str
    file: str
    bytes: int
    sha256: str
    verified: str
    resumed: int
    already: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def fetch_data(
    name: str,
    settings: Path,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> FetchSummary:
    r"""Download one public original into a folder.

    The file appears in the folder when it is complete and agrees with its hash. Until then it is a hidden file there,
    from which the next run resumes if the server still has the same file.

    Parameters
    ----------
    name
        A table of the settings file.
    settings
        A TOML file with one table per original: `url` (https or file; http on this machine alone), and optionally
        `file` (its name in the folder), `sha256` or `md5`, and `bytes`.
    out
        The folder; it is made if it does not exist.
    overwrite
        Replace a file that is there and does not agree with the hash.
    progress
        Called with the bytes done and to do.

    Returns
    -------
    FetchSummary
        The file, and whether its hash was compared.

    Raises
    ------
    ConfigError
        If the settings cannot be used, or a file is in the way.
    DataError
        If the address does not answer, or what it gives does not agree with the settings.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import fetch_data
    >>> _ = Path("table.csv").write_text("age\n30\n")
    >>> _ = Path("sources.toml").write_text(f'[table]\nurl = "{Path("table.csv").resolve().as_uri()}"\n')
    >>> fetch_data("table", Path("sources.toml"), Path("originals")).bytes
    7
    """
    entry = _entry(name, settings)
    given = next((kind for kind in _LENGTHS if kind in entry), "")
    target = out / entry["file"]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"{str(out)!r} is a file: give a folder.") from None
    with hold_folder(target):
        if target.is_dir():
            raise ConfigError(f"{str(target)!r} is a folder, and a file is to be written there: choose another one.")
        if target.exists() and given and file_digest(target, given) == entry[given]:
            size = target.stat().st_size
            return FetchSummary(name, str(target), size, file_digest(target), given, resumed=0, already=True)
        if target.exists() and not overwrite:
            differs = f"has another {given} than the settings say" if given else "is there, and no hash is given"
            raise ConfigError(f"{str(target)!r} {differs}: remove it, or overwrite it with --force.")
        part = target.with_name(f".{target.name}.part")
        if given and part.is_file() and file_digest(part, given) == entry[given]:
            # A run was killed when all was there.
            resumed = part.stat().st_size
        else:
            resumed = _download(entry, part, progress)
        _check(part, entry, given)
        size, digest = part.stat().st_size, file_digest(part)
        os.replace(part, target)
        _facts(part).unlink(missing_ok=True)
        sync_folder(target.absolute().parent)
    return FetchSummary(name, str(target), size, digest, given, resumed=resumed, already=False)


def _entry(name: str, settings: Path) -> dict[str, Any]:
    """The checked table of one original."""
    found = read_toml(settings, "settings file")
    entry = found.get(name)
    if not isinstance(entry, dict):
        raise ConfigError(f"{str(settings)!r} has no table [{name}]; it has {', '.join(found) or 'none'}.")
    if unknown := [key for key in entry if key not in _KEYS]:
        raise ConfigError(f"[{name}] in {str(settings)!r} sets {unknown[0]!r}; known are {', '.join(_KEYS)}.")
    if not isinstance(entry.get("url"), str):
        raise ConfigError(f"[{name}] in {str(settings)!r} must have `url`, the address to download.")
    _check_address(entry["url"])
    entry = {"file": unquote(urlsplit(entry["url"]).path.rpartition("/")[2]), **entry}
    if not is_inside(entry["file"]) or entry["file"].startswith("."):
        raise ConfigError(
            f"[{name}] in {str(settings)!r} must set `file`, a name in the folder; got {entry['file']!r}."
        )
    for kind, length in _LENGTHS.items():
        value = entry.get(kind)
        if value is not None and (
            not isinstance(value, str) or len(value) != length or set(value.lower()) - set("0123456789abcdef")
        ):
            raise ConfigError(f"`{kind}` of [{name}] must be {length} hexadecimal digits; got {value!r}.")
        if value is not None:
            entry[kind] = value.lower()
    size = entry.get("bytes")
    if size is not None and (type(size) is not int or size < 1):
        raise ConfigError(f"`bytes` of [{name}] must be a whole number above 0; got {size!r}.")
    return entry


def _check_address(url: str) -> None:
    """Refuse addresses that anybody on the way could change."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if not (url.isascii() and url.isprintable() and " " not in url):
            raise ValueError("not an address")
    except ValueError:
        raise ConfigError(f"The address {url!r} is not valid: correct it in the settings file.") from None
    if parts.username or parts.password:
        raise ConfigError("An address with a password in it is not used: leave it out of the settings file.")
    good = (
        (parts.scheme == "https" and host)
        or (parts.scheme == "http" and host in _LOOPBACK)
        or (parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"))
    )
    if not good:
        raise ConfigError(f"An address must begin with https:// or file:///; got {url!r}.")


def _download(entry: Mapping[str, Any], part: Path, progress: Progress | None) -> int:
    """Fill `part`, from where an earlier run stopped if that is possible; the bytes that were there."""
    url = entry["url"]
    try:
        if url.startswith("file:"):
            place = Path(urllib.request.url2pathname(urlsplit(url).path))
            if not place.is_file():
                raise DataError(f"There is no file at {url}: correct the address in the settings file.")
            _check_size(place.stat().st_size, entry)
            with place.open("rb") as stream:
                _copy(stream, part, 0, place.stat().st_size, entry, progress)
            return 0
        return _download_web(entry, part, progress)
    except urllib.error.HTTPError as error:
        reason = http.client.responses.get(error.code, "no reason")
        raise DataError(f"{url} answered {error.code} ({reason}): correct the address, or try again later.") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        why = getattr(error, "reason", None) or error
        raise DataError(
            f"The download from {url} stopped: {why}. Check the network, and run the same command again to resume."
        ) from None


def _download_web(entry: Mapping[str, Any], part: Path, progress: Progress | None, again: bool = True) -> int:
    url = entry["url"]
    start, version = _left(part, entry)
    headers = {"User-Agent": f"locum/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if version:
            # A server whose file has changed sends all of the new one.
            headers["If-Range"] = version
    request = urllib.request.Request(url, headers=headers)
    try:
        answer = urllib.request.build_opener(_SafeRedirects).open(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not start or not again:
            raise
        error.close()
        # Nothing comes after what is there: it may be complete, or of another file.
        part.unlink()
        return _download_web(entry, part, progress, again=False)
    with answer:
        begun = answer.status == 206 and str(answer.headers["Content-Range"]).startswith(f"bytes {start}-")
        if answer.status == 206 and not begun:
            raise DataError(f"{url} sent a different part of the file than the one asked for: try again later.")
        start = start if begun else 0
        length = answer.headers["Content-Length"]
        total = start + int(length) if length and length.isdecimal() else None
        _check_size(total, entry)
        version = answer.headers["ETag"] or answer.headers["Last-Modified"] or ""
        # Before the first byte: a part whose origin is not known is not resumed.
        write_bytes(_facts(part), json.dumps({"url": url, "version": version}).encode(), mode=0o644)
        _copy(answer, part, start, total, entry, progress)
    return start


def _check_size(total: int | None, entry: Mapping[str, Any]) -> None:
    """Refuse a file of another size before the first byte comes."""
    if total is not None and entry.get("bytes") not in (None, total):
        raise DataError(
            f"{entry['url']} offers {total} bytes where the settings say {entry['bytes']}: check the settings."
        )


def _copy(
    stream: IO[bytes],
    part: Path,
    start: int,
    total: int | None,
    entry: Mapping[str, Any],
    progress: Progress | None,
) -> None:
    """Append a stream to the first `start` bytes of `part`; what came stays there if the stream ends early."""
    done, most = start, entry.get("bytes")
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        while chunk := stream.read(_CHUNK):
            file.write(chunk)
            done += len(chunk)
            if most is not None and done > most:
                raise DataError(
                    f"{entry['url']} gives more than the {most} bytes of the settings: check the settings."
                )
            if progress is not None:
                progress(done, total or most or done + 1, f"{done / 1e6:.1f} MB")
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done != total:
        raise ConnectionError(f"only {done} of {total} bytes arrived")
    if progress is not None:
        progress(done, done, f"{done / 1e6:.1f} MB")


def _left(part: Path, entry: Mapping[str, Any]) -> tuple[int, str]:
    """What an earlier run left of this file: bytes, and the version by which the server knows it."""
    try:
        facts = json.loads(_facts(part).read_bytes())
        size = part.stat().st_size
        known, version = facts["url"] == entry["url"], str(facts["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""
    # Without a version or a hash nothing would show that two files were joined.
    if not known or not (version or any(kind in entry for kind in _LENGTHS)):
        return 0, ""
    # A weak version does not promise the same bytes.
    return (0, "") if version.startswith("W/") else (size, version)


def _facts(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _check(part: Path, entry: Mapping[str, Any], given: str) -> None:
    """Compare a complete download with the settings; what does not agree is removed."""
    size, wrong = part.stat().st_size, ""
    if entry.get("bytes") not in (None, size):
        wrong = f"{size} bytes where the settings say {entry['bytes']}"
    elif given and (found := file_digest(part, given)) != entry[given]:
        wrong = f"the {given} {found} where the settings say {entry[given]}"
    if wrong:
        part.unlink()
        _facts(part).unlink(missing_ok=True)
        raise DataError(
            f"{entry['url']} gave a file with {wrong}; it was removed. Check the settings and the address."
        )


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to addresses that the settings could name."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The next request, or an error of one sentence."""
        # Only this machine may send us to this machine.
        local = req.full_url.startswith("http:") and newurl.startswith("http:")
        if not local and not newurl.startswith("https:"):
            raise DataError(f"{req.full_url} redirects to {newurl!r}, which is not followed: use https.")
        try:
            _check_address(newurl)
        except ConfigError:
            raise DataError(f"{req.full_url} redirects to {newurl!r}, which is not followed: use https.") from None
        return super().redirect_request(req, fp, code, msg, headers, newurl)
