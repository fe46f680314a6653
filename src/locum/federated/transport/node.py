"""A site's end over a network: it takes messages from the coordinator, and no code.

Flower's own SuperNode fetches an app from the SuperLink with each new run and executes it. This one never asks for an
app: the code that replies is the installed package, whatever the coordinator offers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.address import parse_address
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from locum.errors import ConfigError, LocumError
from locum.federated.certificates import check_host
from locum.federated.protocol import Request
from locum.federated.site_file import SiteFile
from locum.federated.site_keys import read_site_key
from locum.federated.transport.flower import next_pause, reply_to

# A third of what Flower allows between two signs of life, which is 60 s.
_BEAT = 20.0


def join(
    site_file: str | Path,
    coordinator: str,
    *,
    authority: str | Path,
    key: str | Path,
    pause: float = 1.0,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Take part in a federation as one site, until the result arrives.

    The site runs the installed package only. It connects to the coordinator, nothing connects to it, and it takes no
    code: from outside come requests of the protocol, which the site checks against the terms that it agreed to. If
    the connection is lost, or the coordinator restarts, it connects again.

    Parameters
    ----------
    site_file
        The site's `site.toml`.
    coordinator
        The coordinator's HOST:PORT.
    authority
        The coordinator's `ca.crt`.
    key
        The site's private key; the coordinator has the public one. It also signs the site's receipt.
    pause
        The most seconds between two polls; right after a request they are shorter.
    on_event
        Called with one plain dict per event: connected, lost, and each request with its step and round.

    Examples
    --------
    >>> from locum.federated import join
    >>> join("site.toml", "fed.example.org:8010", authority="ca.crt", key="site-a.key")  # doctest: +SKIP
    """
    SiteFile.read(site_file)
    private, emit = read_site_key(key), on_event or (lambda event: None)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with connection(coordinator, Path(authority), private) as client:
        connected = True
        while True:
            try:
                node = activate(client, private, coordinator)
                emit({"event": "connected", "to": coordinator})
                connected = True
                if serve(client, node, lambda message: reply_to(message, site_file, private), pause, emit):
                    return
            except LocumError:
                raise
            except Exception as error:  # whoever is at the other end chose every byte
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise ConfigError(
                        f"{coordinator} has no certificate from the authority in {str(authority)!r}: ask the "
                        "coordinator for its ca.crt over another channel."
                    ) from None
                if connected:
                    emit({"event": "lost", "to": coordinator, "reason": type(error).__name__})
                connected = False
            time.sleep(pause)


def serve(
    client: FleetHttpClient,
    node: Node,
    reply_of: Callable[[Message], tuple[Message, Request | None]],
    pause: float,
    emit: Callable[[dict[str, Any]], None],
) -> bool:
    """Reply to requests until the result has arrived."""
    end = threading.Event()
    threading.Thread(target=_beat, args=(client, node, end), daemon=True).start()
    happened = time.monotonic()
    try:
        while True:
            pulled = client.PullMessages(PullMessagesRequest(node=node))
            if not pulled.messages_list:
                time.sleep(next_pause(happened, pause))
                continue
            run, tree = pulled.messages_list[0].metadata.run_id, pulled.message_object_trees[0]
            try:
                message = _fetch(client, node, run, tree)
                reply, request = reply_of(message)
                if request is not None:
                    event = {"event": "request", "step": request.step, "round": request.round}
                    emit({**event, "failed": reply.has_error()})
                _send(client, node, reply)
            except (ObjectPullError, ObjectPushError):
                # The coordinator waited for it no longer, and took it back.
                continue
            finally:
                happened = time.monotonic()
            if request is not None and request.step == "finish" and not reply.has_error():
                return True
    except BaseException:
        # Not at the end: Flower drops the last reply of a site that has left. The coordinator can be gone.
        with suppress(httpx.HTTPError):
            client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
        raise
    finally:
        end.set()


def _fetch(client: FleetHttpClient, node: Node, run: int, tree: ObjectTree) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, run, node.node_id
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, run),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run),
        return_type=Message,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _send(client: FleetHttpClient, node: Node, reply: Message) -> None:
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        tree, pieces = get_object_tree(reply), get_all_nested_objects(reply)
        sent = client.PushMessages(
            PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[tree],
            )
        )
        push = make_push_object_fn_protobuf(client.PushObject, node, reply.metadata.run_id, sent.session_id)
        push_objects(pieces, push, object_ids_to_push=set(sent.objects_to_push))


def _beat(client: FleetHttpClient, node: Node, end: threading.Event) -> None:
    """Signs of life, also while the site trains."""
    while not end.wait(_BEAT):
        # If it fails, the next poll notices it too.
        with suppress(Exception):
            client.SendNodeHeartbeat(
                SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
            )


def activate(client: FleetHttpClient, private: EllipticCurvePrivateKey, coordinator: str) -> Node:
    public = public_key_to_bytes(private.public_key())
    asked = ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
    try:
        return Node(node_id=client.ActivateNode(asked).node_id)
    except httpx.HTTPStatusError as error:
        # Imported late: it brings a web server.
        from flwr.supercore.error import ApiErrorCode, FlowerError

        told = FlowerError.from_json(error.response.text)
        if told is not None and told.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            raise ConfigError(
                f"{coordinator} does not know the key of this site: send the coordinator the public one (NAME.pub)."
            ) from None
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            raise ConfigError(
                f"{coordinator} refused the signature of this site: check the clocks of both."
            ) from None
        if error.response.status_code == httpx.codes.NOT_FOUND:
            raise ConfigError(f"{coordinator} is not the coordinator of a federation: check host and port.") from None
        raise


def connection(coordinator: str, authority: Path, private: EllipticCurvePrivateKey) -> FleetHttpClient:
    address = parse_address(coordinator)
    if address is None:
        raise ConfigError(f"`coordinator` must be HOST:PORT; got {coordinator[:80]!r}.")
    check_host(address[0])
    signed = NodeAuthHttpInterceptor(private, private.public_key())
    try:
        client = FleetHttpClient.from_server_address(coordinator, False, authority.read_bytes(), [signed])
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it holds no certificate"
        raise ConfigError(f"The authority {str(authority)!r} cannot be used: {reason}.") from None
    # A coordinator must not send the site's requests elsewhere, such as into the site's own network.
    client._client.follow_redirects = False
    return client
