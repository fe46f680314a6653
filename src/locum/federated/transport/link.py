"""The coordinator's end over a network: of Flower's SuperLink only the interface for sites.

Flower's own SuperLink serves three interfaces on one port: `fleet` for sites, `control`, where runs are started and
sites registered, and `runtime` for the processes of apps. In the open edition of Flower 1.41 the last two have no
login. Here they do not exist. Who takes part is decided by the public keys that the coordinator has on disk, and the
only run is that of the process that listens.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from fastapi import FastAPI, HTTPException, Request as HttpRequest
from flwr.app import Error, Message
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    ErrorCode,
    Status,
)
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.task_pb2 import TaskStatus
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import NoObjectInStoreError, ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from locum.errors import ConfigError, FormatError
from locum.federated.settings import FederationSettings
from locum.federated.site_keys import read_site_keys
from locum.federated.transport.flower import FlowerChannel, run_federation
from locum.io import lies_in_release

# Flower sends arrays in pieces of 5 MB. More is read into memory before anyone has proven who they are.
_MAX_BODY = 16 * 1024**2
_KEYS = ("server.crt", "server.key")


def coordinate(
    settings: FederationSettings,
    keys: str | Path,
    out: str | Path,
    *,
    listen: str = "127.0.0.1",
    port: int = 8010,
    sites: int | None = None,
    wait: float = 600,
    timeout: float = 3600,
    patience: float = 300,
    reference: str | Path | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Wait for the sites, run the federation with them, and return the folder of the release.

    Only sites whose public key is in `keys` can connect. Nobody can send code, start a run or register a site over
    the network: there is no interface for it. A run that stopped resumes when it is started again with the same
    `out`.

    Parameters
    ----------
    settings
        The public terms.
    keys
        Folder with `server.crt` and `server.key`, as `make_certificates` writes it, and `NAME.pub` of every site.
    out
        Folder for release, log and state.
    listen, port
        Where sites connect. The default address is for sites on this machine only.
    sites
        How many must be connected before the run starts; None: all that have a key.
    wait, timeout, patience
        Seconds that sites have to connect, to reply, and to come back.
    reference
        File of public statistics, if the terms name one by its hash.
    on_event
        Called with each entry of the log; None: they are printed.

    Returns
    -------
    Path
        The folder of the release.

    Examples
    --------
    >>> from locum.federated import FederationSettings, coordinate
    >>> settings = FederationSettings.read("federation.toml")  # doctest: +SKIP
    >>> coordinate(settings, "keys", "out")  # doctest: +SKIP
    PosixPath('out/release')
    """
    for name, seconds in (("wait", wait), ("timeout", timeout), ("patience", patience)):
        if not seconds >= 0:
            raise ConfigError(f"`{name}` must be a number of seconds, 0 or more; got {seconds!r}.")
    folder = Path(out)
    if (folder.exists() and not folder.is_dir()) or lies_in_release(folder / "release"):
        raise ConfigError(f"`out` must be a new folder, or that of a run that stopped; got {str(out)!r}.")
    # Imported late: it brings torch, and the link itself needs none.
    from locum.federated.terms import agreed_reference

    agreed_reference(settings, reference)
    admitted = read_site_keys(keys)
    number = len(admitted) if sites is None else sites
    if not settings.least_sites <= number <= len(admitted):
        raise ConfigError(
            f"The run would wait for {number} sites; the terms need {settings.least_sites} or more, and "
            f"{len(admitted)} have a key (NAME.pub) in {str(keys)!r}."
        )
    tell = on_event or (lambda event: print(json.dumps(event, default=str), flush=True))

    def record(event: dict[str, Any]) -> None:
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **event}, default=str)
        with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        tell(event)

    with Link(admitted, Path(keys), listen=listen, port=port) as link:
        tell({"event": "listening", "address": listen, "port": port, "sites": number})
        channel = FlowerChannel(link.grid, patience=patience, withdraw=link.grid.withdraw)
        return run_federation(
            channel,
            settings,
            folder,
            sites=number,
            wait=wait,
            timeout=timeout,
            keys=admitted,
            reference=reference,
            on_event=record,
        )


class Link:
    """A server that sites with admitted keys connect to, from `with` to its end."""

    def __init__(self, admitted: Mapping[str, EllipticCurvePublicKey], keys: Path, *, listen: str, port: int) -> None:
        for file in _KEYS:
            if not (keys / file).is_file():
                raise ConfigError(
                    f"There is no {file!r} in {str(keys)!r}: make it with `locum federate certificates`."
                )
        if (keys / "server.key").stat().st_mode & 0o077:
            raise ConfigError(f"Others may read the private key {str(keys / 'server.key')!r}: run chmod 600 on it.")
        manager, stores = NoOpFederationManager(), ObjectStoreFactory()
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, manager, stores)
        factory.state_instance = state = _State(manager, stores.store())
        for name, key in admitted.items():
            public = public_key_to_bytes(key)
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public, HEARTBEAT_DEFAULT_INTERVAL, name=name)
        self.grid = _Grid(factory, state)
        _start_run(self.grid)
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, middleware=_middleware())
        app.state.linkstate_factory, app.state.enable_supernode_auth = factory, True
        app.include_router(fleet_router)
        self._socket = _bound(listen, port)
        config = uvicorn.Config(
            _Limited(app),
            ssl_certfile=keys / "server.crt",
            ssl_keyfile=str(keys / "server.key"),
            lifespan="off",
            ws="none",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
        )
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"The certificate in {str(keys)!r} cannot be used: {error}.") from None
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> Link:
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()


class _State(InMemoryLinkState):
    """Flower's state, in memory: a site that was killed connects again at once.

    Flower waits until a lost site's last sign of life is a minute old. Its key proves who it is.
    """

    def activate_node(self, node_id: int, heartbeat_interval: float) -> bool:
        with self.lock:
            self.deactivate_node(node_id)
            return bool(super().activate_node(node_id, heartbeat_interval))


class _Grid(InMemoryGrid):
    """Flower's grid over its state in this process, for sites that fetch and send messages in pieces."""

    def __init__(self, factory: LinkStateFactory, state: InMemoryLinkState) -> None:
        super().__init__(factory)
        self.state: InMemoryLinkState = state
        # Replies whose pieces have not all arrived, by the message that they reply to.
        self._announced: dict[str, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        pushed, run = [], self.run.run_id
        for message in messages:
            with no_object_id_recompute():
                message.metadata.__dict__["_message_id"] = message.object_id
                pieces, tree = get_all_nested_objects(message), get_object_tree(message)
                contents = {identity: piece.deflate() for identity, piece in pieces.items()}
                bare = remove_content_from_message(message)
                # Else a site could see the message before its pieces are there; Flower then waits for a second.
                with self.state.lock:
                    session = self.state.start_session(run)
                    stored, missing = self.state.store_message_and_object_tree(bare, tree, session)
                    for piece in missing:
                        self.state.store_object(run, session, piece, contents[piece])
            if stored:
                pushed.append(message.metadata.message_id)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = set(message_ids)
        if new := wanted - self._announced.keys():
            self._announced |= {m.metadata.reply_to_message_id: m for m in super().pull_messages(new)}
        return [
            complete
            for one in wanted & self._announced.keys()
            if (complete := self._complete(self._announced[one])) is not None
        ]

    def withdraw(self, message_ids: Iterable[str]) -> None:
        """Forget messages and what was sent in reply to them: nobody waits for it any more."""
        state = self.state
        with state.lock:
            for asked in message_ids:
                announced = self._announced.pop(asked, None)
                reply = state.message_ins_id_to_message_res_id.get(asked)
                state.delete_messages({asked})
                for root in (asked, reply, announced and announced.metadata.message_id):
                    if root:
                        state.object_store.delete(root)

    def _complete(self, reply: Message) -> Message | None:
        """The reply with its content; None while pieces are on their way, an error if they never arrive."""
        asked, store = reply.metadata.reply_to_message_id, self.state.object_store
        if reply.has_error():
            del self._announced[asked]
            return reply
        identity = reply.metadata.message_id
        try:
            pieces = [tree.object_id for tree in iterate_object_tree(store.get_object_tree(identity))]
            found = {piece: self.state.get_object(self.run.run_id, piece) for piece in pieces}
        except NoObjectInStoreError:
            found = {identity: None}
        if b"" in found.values():
            return None
        del self._announced[asked]
        contents = {piece: content for piece, content in found.items() if content is not None}
        if len(contents) < len(found):
            lost = Error(code=ErrorCode.REPLY_MESSAGE_UNAVAILABLE, reason="the reply did not arrive as a whole")
            return make_message(metadata=reply.metadata, error=lost)
        store.delete(identity)
        sent = inflate_object_from_contents(identity, contents)
        if not isinstance(sent, Message):
            raise FormatError("A site sent something that is not a message.")
        # The site chose the metadata inside; those of the announcement were checked.
        return make_message(metadata=reply.metadata, content=sent.content)


class _OwnReplies(BaseHTTPMiddleware):
    """A site sends replies, in its own name. Flower would also pass on requests that pose as the coordinator's."""

    async def dispatch(self, request: HttpRequest, call_next: RequestResponseEndpoint) -> Response:
        sent = getattr(request.state, "protobuf_request", None)
        if isinstance(sent, PushMessagesRequest):
            for message in sent.messages_list:
                about = message.metadata
                if not about.reply_to_message_id or about.src_node_id != sent.node.node_id:
                    raise HTTPException(403, "A site sends replies only, and only its own.")
        return await call_next(request)


class _Limited:
    """Refuses requests that are too long, or do not say how long they are, before they are read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = dict(scope.get("headers", ())).get(b"content-length", b"")
        if not length.isdigit() or len(length) > 20 or int(length) > _MAX_BODY:
            refusal = PlainTextResponse(
                "A request says how long it is, and is not too long.", 413, {"connection": "close"}
            )
            return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)


def _middleware() -> list[Middleware]:
    # In the order of Flower's SuperLink: each needs what the one before found.
    return [
        Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
        Middleware(ProtobufTranslationMiddleware),
        Middleware(NodeAuthMiddleware),
        Middleware(_OwnReplies),
    ]


def _start_run(grid: _Grid) -> None:
    """The only run, without an app. It is this process, so it has no token that could expire."""
    state = grid.state
    run_id = state.create_run(
        None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, primary_task_type=TaskType.SERVER_APP
    )
    (run,) = state.get_run_info(run_ids=[run_id])
    task = run.primary_task_id or 0
    state.task_store[task].status.CopyFrom(TaskStatus(status=Status.RUNNING))
    grid.set_run(run)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task, run_id, SUPERLINK_NODE_ID


def _bound(listen: str, port: int) -> socket.socket:
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ConfigError(f"`port` must be 1 to 65535; got {port!r}.")
    try:
        address = ipaddress.ip_address(listen)
    except ValueError:
        raise ConfigError(
            f"`listen` must be an address of this machine, such as 127.0.0.1; got {listen[:80]!r}."
        ) from None
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((listen, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"Nothing can listen on {listen} port {port}: {error.strerror}. Give another address or port."
        ) from None
