"""Who may talk to the studio: the one browser that was let in, from the studio's own pages, and nobody else.

The page and its files need a cookie that a link from the terminal sets, once. What reads or changes anything (`/api`)
also needs a key, which the same answer hands to the page: browsers send cookies to every port of a machine, so a
cookie alone could end up with a server of another user.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

KEY_HEADER = "x-locum-key"
ENTER, LINK = "/enter", "/link"
# What to do, after what is wrong.
NEW_LINK = (
    "Run `locum studio` again in the same folder, in another terminal if it still runs in one, and open the link "
    "that it prints."
)
# A request for a new link comes from the same user's terminal, which can read the secret in a private file.
SECRET_HEADER = "x-locum-secret"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
_TOKENS = 20
# A page sends small JSON; only files that are dropped on it are large.
DROPS = "/api/drops/"
_MOST_BYTES = 2**20


class Access:
    """Links that work once, and the cookie and key that they bring. Nothing of it is written to a file.

    Parameters
    ----------
    port
        The port that the studio listens on.
    """

    def __init__(self, port: int) -> None:
        self.hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.cookie = f"locum-studio-{port}"
        self.key = secrets.token_urlsafe(32)
        self.secret = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._tokens: list[str] = []
        self._lock = threading.Lock()

    def new_token(self) -> str:
        """A token for one use; of many unused ones the oldest are forgotten."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens = [*self._tokens, token][-_TOKENS:]
        return token

    def use_token(self, token: str) -> bool:
        """Whether a token is good; it is not good again."""
        with self._lock:
            found = [one for one in self._tokens if _same(one, token)]
            self._tokens = [one for one in self._tokens if one not in found]
        return bool(found)

    def set_cookie(self) -> str:
        """The header that lets a browser in until it is closed."""
        return f"{self.cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"

    def refuses(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence for a request that is not let in; None if it is."""
        headers = _headers(scope)
        host = headers.get("host")
        if host is None or len(host) != 1 or host[0] not in self.hosts:
            return 421, f"This server answers only at its own address. {NEW_LINK}"
        path = scope["path"]
        if path == LINK:
            good = _same(self.secret, _one(headers, SECRET_HEADER))
            return None if good and "origin" not in headers else (403, "Only the program may use this.")
        if "origin" in headers and headers["origin"] != [f"http://{host[0]}"]:
            return 403, "This request comes from another page, and was refused."
        entering = path == ENTER and scope["method"] == "GET"
        site = headers.get("sec-fetch-site", ["same-origin"])
        # The link is opened from a terminal or a local file, which is another site; its token is its proof.
        if not entering and site not in (["same-origin"], ["none"]):
            return 403, "This request comes from another page, and was refused."
        if entering:
            return None
        if not any(_same(self._session, value) for value in self._sent_cookies(headers)):
            return 401, f"This browser has not been let in. {NEW_LINK}"
        if path.startswith("/api/") and not _same(self.key, _one(headers, KEY_HEADER)):
            return 403, f"This page was opened with the link of an earlier studio. {NEW_LINK}"
        return None

    def _sent_cookies(self, headers: dict[str, list[str]]) -> list[str]:
        """All values of our cookie: other servers on this machine set cookies too, of any form and of any name."""
        pairs = (pair.partition("=") for line in headers.get("cookie", []) for pair in line.split(";"))
        return [value.strip() for name, _, value in pairs if name.strip() == self.cookie]


class Guard:
    """Pure ASGI: refuse what is not let in before any other code sees it, and put the same headers on every answer.

    Whatever goes wrong inside ends here in one sentence; `tell` gets the exception.
    """

    def __init__(self, app: App, access: Access, tell: Callable[[BaseException], None]) -> None:
        self._app, self._access, self._tell = app, access, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                own = [(name.encode(), value.encode()) for name, value in HEADERS]
                names = {name for name, _ in own}
                given = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
                message = {**message, "headers": [*given, *own]}
            await send(message)

        page = not scope["path"].startswith("/api/")
        refused = self._access.refuses(scope)
        if refused is not None:
            await answer_in_words(sending, *refused, page=page)
            return
        gone = False

        async def receiving() -> Message:
            nonlocal gone
            message = await receive()
            gone = message["type"] == "http.disconnect"
            return message

        get: Receive = receiving
        if not (scope["method"] == "PUT" and scope["path"].startswith(DROPS)):
            # Read here: what reads it inside turns every exception into one of its own.
            body = await _read(receiving)
            if body is None:
                await answer_in_words(
                    sending, 413, "That is more than a page may send: drop the files on it instead.", page=page
                )
                return
            get = _after({"type": "http.request", "body": body, "more_body": False}, receiving)
        try:
            await self._app(scope, get, sending)
        except Exception as error:
            # Somebody who leaves in the middle of a file is no fault of ours.
            if not gone:
                self._tell(error)
            if not began:
                await answer_in_words(
                    sending, 500, "Something went wrong in the studio, and was written to its log.", page=page
                )


async def _read(receive: Receive) -> bytes | None:
    """The body of a request; None if it is longer than any that a page sends."""
    body, more = b"", True
    while more and len(body) <= _MOST_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return None if len(body) > _MOST_BYTES else body


def _after(first: Message, receive: Receive) -> Receive:
    waiting = [first]

    async def get() -> Message:
        return waiting.pop() if waiting else await receive()

    return get


async def answer_in_words(send: Send, status: int, words: str, *, page: bool = False) -> None:
    """A whole answer of one sentence: JSON for the page's code, text for a person."""
    import json

    body = f"{words}\n".encode() if page else json.dumps({"error": words}).encode()
    kind = b"text/plain; charset=utf-8" if page else b"application/json"
    # Closed: the rest of a body that nobody wants could take forever to arrive.
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
    for name, value in pairs:
        out.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return out


def _one(headers: dict[str, list[str]], name: str) -> str:
    """The value of a header that must be there once; "" otherwise."""
    found = headers.get(name, [])
    return found[0] if len(found) == 1 else ""


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))
