"""Start the studio: a server for one user on one machine, and a link that works once."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import logging
import os
import socket
import time
import traceback
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from locum.errors import ConfigError
from locum.io import write_bytes
from locum.studio.access import ENTER, HEADERS, LINK, SECRET_HEADER, Access, Guard
from locum.studio.jobs import Jobs
from locum.studio.places import Root

ADDRESS = "127.0.0.1"
# Known to the owner alone: how to ask a running studio for another link.
_STATE, _LINK, _LOG, _LOCK = "studio.json", "open.html", "studio.log", "studio.lock"
# Anybody on the machine can connect: how many may, and how long the head of a request may take, in seconds.
_MOST_CONNECTIONS, _PATIENCE = 200, 10.0


def serve_studio(
    folder: Path, *, port: int = 0, browser: bool = True, announce: Callable[[str], None] = print
) -> None:
    """Serve the studio for a folder until it is stopped; if one runs there already, open that again.

    It listens on 127.0.0.1 only. A link with a token that works once lets one browser in; on a machine with several
    users nobody else gets in. Everything it keeps is in `.locum/studio` below the folder, for its owner alone.

    Parameters
    ----------
    folder
        The root: nothing outside of it is read or shown.
    port
        Port to listen on; 0: any that is free.
    browser
        Open the link in a browser.
    announce
        Called with the link, and with sentences for the person at the terminal.

    Raises
    ------
    ConfigError
        If the folder cannot be used, or the port is taken.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.studio import serve_studio
    >>> serve_studio(Path("scans-and-releases"))  # doctest: +SKIP
    """
    root = _root(folder)
    with _only_one(root) as first:
        if first:
            _serve(root, port, browser, announce)
            return
    link = _running(root)
    announce(f"The studio is already running here. Open it with this link, which works once:\n\n  {link}\n")
    _open(root, link, browser)


def _serve(root: Root, port: int, browser: bool, announce: Callable[[str], None]) -> None:
    from locum.studio.app import make_app

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
        # From now on: a browser may be quicker than what follows.
        listening.listen(_MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"The studio cannot listen on port {port}: {reason}. Leave --port out.") from None
    port = listening.getsockname()[1]
    access, jobs = Access(port), Jobs(root.state / "jobs", root.folder)
    app = Guard(make_app(root, access, jobs), access, _log_to(root.state / _LOG))
    # Its lines would hold addresses, and one of these holds the token.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    settings = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http=_Protocol,
        timeout_graceful_shutdown=1,
    )
    state = {"port": port, "secret": access.secret, "process": os.getpid()}
    write_bytes(root.state / _STATE, json.dumps(state).encode())
    link = f"http://{ADDRESS}:{port}{ENTER}?token={access.new_token()}"
    announce(f"The studio of {str(root.folder)!r} is open. This link works once:\n\n  {link}\n")
    announce("Ctrl-C closes it; running jobs continue. Run the same command again for another link.")
    _open(root, link, browser)
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    finally:
        # Here: uvicorn ends by the signal that it was sent.
        for name in (_STATE, _LINK):
            (root.state / name).unlink(missing_ok=True)
        if left := jobs.running():
            go, them = ("s continue", "them") if left > 1 else (" continues", "it")
            announce(f"{left} job{go}; `locum studio` shows {them}.")


class _Protocol(H11Protocol):
    """HTTP for anyone on the machine: a broken request gets our headers too, and a slow one loses its connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            # Otherwise there would be no files left to open.
            transport.abort()
            return
        self._expect_a_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def _expect_a_head(self) -> None:
        """Wait for the rest of a request's head, but not longer if it comes in small pieces."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(_PATIENCE, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def send_400_response(self, msg: str) -> None:
        own = [*HEADERS, ("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        head = h11.Response(status_code=400, headers=own, reason=b"Bad Request")
        # In the middle of another answer there is no place for this one.
        with suppress(h11.LocalProtocolError):
            for event in (head, h11.Data(data=b"This is not a request that a browser sends.\n"), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _root(folder: Path) -> Root:
    try:
        if not folder.is_dir():
            raise ConfigError(
                f"There is no folder {str(folder)!r}: name the folder that holds your data and releases."
            )
        root = Root(folder)
        _ = root.state
    except OSError as error:
        raise ConfigError(
            f"The studio cannot keep its files in {str(folder)!r}: {error.strerror}. Choose a folder of your own."
        ) from None
    return root


@contextmanager
def _only_one(root: Root) -> Iterator[bool]:
    """Whether no other studio runs on this root; none can be started meanwhile.

    A lock ends with the process that holds it. The port of a studio that was killed may be somebody else's by now.
    """
    with open(os.open(root.state / _LOCK, os.O_RDWR | os.O_CREAT, 0o600), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        (root.state / _STATE).unlink(missing_ok=True)
        yield True


def _running(root: Root) -> str:
    """A new link of the studio that runs on this root."""
    for _ in range(20):
        try:
            state = json.loads((root.state / _STATE).read_bytes())
            port, secret = int(state["port"]), str(state["secret"])
            connection = http.client.HTTPConnection(ADDRESS, port, timeout=5)
            connection.request("POST", LINK, headers={SECRET_HEADER: secret, "content-length": "0"})
            answer = connection.getresponse()
            if answer.status == 200:
                return f"http://{ADDRESS}:{port}{ENTER}?token={json.loads(answer.read())['token']}"
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, http.client.HTTPException):
            pass
        # It may be starting.
        time.sleep(0.1)
    raise ConfigError("The studio is already running here, but does not answer: stop it, and run this again.")


def _open(root: Root, link: str, browser: bool) -> None:
    """Open the link through a private file: other users can see the arguments of a process."""
    if not browser:
        return
    page = (
        f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(link)}"><a href="{escape(link)}">Open</a>'
    )
    file = root.state / _LINK
    write_bytes(file, page.encode())
    webbrowser.open(file.as_uri())


def _log_to(file: Path) -> Callable[[BaseException], None]:
    def tell(error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        # A full disk must not keep the page from its answer.
        with suppress(OSError), open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as stream:
            stream.write(text)

    return tell
