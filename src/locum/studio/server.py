"""Start the studio: a server for one user on one machine, and a link that works once."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import traceback
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path

from locum.errors import ConfigError
from locum.io import write_bytes
from locum.studio.access import ENTER, LINK, SECRET_HEADER, Access, Guard
from locum.studio.jobs import Jobs
from locum.studio.places import Root

ADDRESS = "127.0.0.1"
# Known to the owner alone: how to ask a running studio for another link.
_STATE, _LINK, _LOG = "studio.json", "open.html", "studio.log"


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
    import uvicorn

    from locum.studio.app import make_app

    root = _root(folder)
    if (link := _running(root)) is not None:
        announce(f"The studio runs here already. Open it with this link, which works once:\n\n  {link}\n")
        _open(root, link, browser)
        return
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
        # Whoever opens the link at once waits until the server takes over.
        listening.listen()
    except (OSError, OverflowError) as error:
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
        http="h11",
        timeout_graceful_shutdown=1,
    )
    state = {"port": port, "secret": access.secret, "process": os.getpid()}
    write_bytes(root.state / _STATE, json.dumps(state).encode())
    link = f"http://{ADDRESS}:{port}{ENTER}?token={access.new_token()}"
    announce(f"The studio of {str(root.folder)!r} is open. This link works once:\n\n  {link}\n")
    announce("Ctrl-C closes it; jobs that are running go on. Run the same command again for another link.")
    _open(root, link, browser)
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    finally:
        for name in (_STATE, _LINK):
            (root.state / name).unlink(missing_ok=True)
    if left := jobs.running():
        announce(
            f"{left} job{'s go' if left > 1 else ' goes'} on; `locum studio` shows {'them' if left > 1 else 'it'}."
        )


def _root(folder: Path) -> Root:
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {str(folder)!r}: name the folder that holds your data and releases.")
    root = Root(folder)
    try:
        place = root.state
    except OSError as error:
        raise ConfigError(f"The studio cannot write in {str(folder)!r}: {error.strerror}.") from None
    if os.name == "posix" and place.stat().st_mode & 0o077:
        place.chmod(0o700)
    return root


def _running(root: Root) -> str | None:
    """A new link of the studio that runs on this root; None if there is none."""
    try:
        state = json.loads((root.state / _STATE).read_bytes())
        port, secret = int(state["port"]), str(state["secret"])
        connection = http.client.HTTPConnection(ADDRESS, port, timeout=2)
        connection.request("POST", LINK, headers={SECRET_HEADER: secret, "content-length": "0"})
        answer = connection.getresponse()
        token = json.loads(answer.read())["token"] if answer.status == 200 else None
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    return None if token is None else f"http://{ADDRESS}:{port}{ENTER}?token={token}"


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
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a") as stream:
            stream.write(text)

    return tell
