"""Sites in this process, one after the other: for small trials and tests, with the code of a real run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from locum.errors import LocumError
from locum.federated.protocol import NoReply, Reply, Request, pack, unpack
from locum.federated.site import Site


class LocalChannel:
    """A `Channel` that calls sites in this process; messages are packed and unpacked as for a network.

    Parameters
    ----------
    files
        The `site.toml` of each site, by name.
    keys
        The private key of each site by name, which signs its receipt; None: no receipts.
    on_event
        Called with one plain dict after each reply: step, round, site, and how many of how many have replied.

    Examples
    --------
    >>> from locum.federated import LocalChannel
    >>> LocalChannel({"site-a": "a/site.toml", "site-b": "b/site.toml"}).sites()
    ['site-a', 'site-b']
    """

    def __init__(
        self,
        files: Mapping[str, str | Path],
        keys: Mapping[str, EllipticCurvePrivateKey] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._files, self._keys = dict(files), dict(keys or {})
        self._sites: dict[str, Site] = {}
        self._emit = on_event or (lambda event: None)

    def sites(self) -> list[str]:
        """All sites."""
        return list(self._files)

    def ask(
        self, requests: Mapping[str, Request], *, timeout: float, enough: int | None = None, grace: float = 10.0
    ) -> dict[str, Reply | NoReply]:
        """Ask one site after the other; nothing is waited for, so `timeout`, `enough` and `grace` are not used."""
        replies = {}
        for number, (name, request) in enumerate(requests.items(), start=1):
            replies[name] = self._ask_one(name, request)
            event = {"event": "reply", "step": request.step, "round": request.round, "site": name}
            self._emit({**event, "reply": number, "of": len(requests)})
        return replies

    def _ask_one(self, name: str, request: Request) -> Reply | NoReply:
        received = unpack(*pack(request))
        assert isinstance(received, Request)
        try:
            reply = self._site(name).reply(received)
        except LocumError as error:
            return NoReply(f"{type(error).__name__}: {error}")
        returned = unpack(*pack(reply))
        assert isinstance(returned, Reply)
        return returned

    def _site(self, name: str) -> Site:
        """The site as its file describes it now; what it has read of its records is kept while that is the same."""
        site = Site(self._files[name], self._keys.get(name))
        known = self._sites.get(name)
        if known is None or known.file != site.file:
            self._sites[name] = site
        return self._sites[name]
