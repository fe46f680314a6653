"""`federate coordinate` and `join`: a federation over a network.

Apart from the other verbs, and with late imports: a site starts in a second, without torch or scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def coordinate_federation(
    terms: Path,
    keys: Path,
    out: Path,
    *,
    listen: str = "127.0.0.1",
    port: int = 8010,
    sites: int | None = None,
    wait: float = 600,
    timeout: float = 3600,
    patience: float = 300,
    reference: Path | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Run a federation as its coordinator; see `coordinate`.

    Parameters
    ----------
    terms
        The public terms, `federation.toml`.
    keys
        Folder with the coordinator's certificate and key, and the public key of every site.
    out
        Folder for release, log and state; a run that stopped resumes there.
    listen, port
        Where sites connect. The default address is for sites on this machine only.
    sites
        How many must be connected before the run starts; None: all that have a key.
    wait, timeout, patience
        Seconds that sites have to connect, to reply, and to come back.
    reference
        File of public statistics, if the terms name one by its hash.
    on_event
        Called with each entry of the log.

    Returns
    -------
    Path
        The folder of the release.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import coordinate_federation
    >>> coordinate_federation(Path("federation.toml"), Path("keys"), Path("out"))  # doctest: +SKIP
    PosixPath('out/release')
    """
    from locum.federated import FederationSettings, coordinate

    return coordinate(
        FederationSettings.read(terms),
        keys,
        out,
        listen=listen,
        port=port,
        sites=sites,
        wait=wait,
        timeout=timeout,
        patience=patience,
        reference=reference,
        on_event=on_event,
    )


def join_federation(
    site: Path,
    coordinator: str,
    *,
    authority: Path,
    key: Path,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Take part in a federation as one site, until the result has arrived; see `join`.

    Parameters
    ----------
    site
        The site's `site.toml`.
    coordinator
        The coordinator's HOST:PORT.
    authority
        The coordinator's `ca.crt`.
    key
        The site's private key.
    on_event
        Called with one plain dict per event.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import join_federation
    >>> keys = {"authority": Path("ca.crt"), "key": Path("site-a.key")}
    >>> join_federation(Path("site.toml"), "fed.example.org:8010", **keys)  # doctest: +SKIP
    """
    from locum.federated import join

    join(site, coordinator, authority=authority, key=key, on_event=on_event)
