"""Flower as the transport: messages as Flower's records, a channel over its grid, and what both ends do with them.

`reply_to` replies to one message at a site, and nothing else leaves. `run_federation` waits for the sites and then
starts the coordinator. `link` and `node` connect the two over a network, `ray` in a simulation.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from safetensors.numpy import load, save

from locum.errors import FormatError, LocumError, PolicyError
from locum.federated.protocol import Channel, NoReply, Reply, Request, pack, unpack
from locum.federated.settings import FederationSettings
from locum.io import printable

_log = logging.getLogger(__name__)
_TEXT, _TENSORS = "locum", "tensors"
# Up to this many bytes of arrays travel inside the record of the text: Flower needs two calls for each part of a
# message, and two parts for each array.
_SMALL = 1024**2
# The node is back, or the message never arrived: nothing was computed yet, so the request is sent again.
_SEND_AGAIN = {ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
# Seconds between two polls right after something happened.
_SHORT = 0.05
# A process that dies without an error (killed, out of memory) gets the request this many times in all.
_TRIES = 3


def to_record(message: Request | Reply) -> RecordDict:
    """A message as the content of one of Flower's messages."""
    text, arrays = pack(message)
    if sum(array.nbytes for array in arrays.values()) <= _SMALL:
        return RecordDict({_TEXT: ConfigRecord({"message": text, _TENSORS: save(arrays)})})
    tensors = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    return RecordDict({_TEXT: ConfigRecord({"message": text}), _TENSORS: tensors})


def from_record(content: RecordDict) -> Request | Reply:
    """Undo `to_record`. The content is not trusted: anything else is refused."""
    try:
        record = content.config_records[_TEXT]
        text, small = record["message"], record.get(_TENSORS)
        if isinstance(text, str) and len(content) == 1 and len(record) == 2 and isinstance(small, bytes):
            return unpack(text, load(small))
        arrays = {str(name): array.numpy() for name, array in content.array_records[_TENSORS].items()}
        if isinstance(text, str) and len(content) == 2 and len(record) == 1:
            return unpack(text, arrays)
    except FormatError:
        raise
    except Exception as error:  # the sender chose every byte
        raise FormatError(f"A message could not be read ({type(error).__name__}).") from None
    raise FormatError("A message could not be read: it is not from Locum.")


def node_names(nodes: Iterable[NodeInfo]) -> dict[str, NodeInfo]:
    """Sites by the name they were registered under (`--name`), or else by the node's number.

    Flower ties both to the registered public key, so a site that restarts is the same site. If two connected nodes
    have the same name, neither is asked: they cannot be told apart.
    """
    named: dict[str, list[NodeInfo]] = {}
    for node in nodes:
        named.setdefault(node.name or str(node.node_id), []).append(node)
    for name, bearers in named.items():
        if len(bearers) > 1:
            _log.warning("%d connected nodes are registered as %r: none of them is asked", len(bearers), name)
    return {name: bearers[0] for name, bearers in sorted(named.items()) if len(bearers) == 1}


@dataclass
class _Pending:
    """A request that one site has not replied to yet."""

    request: Request
    gone_since: float
    message: str = ""
    node: int = 0
    activated: str = ""
    crashes: int = 0


class FlowerChannel:
    """A `Channel` over Flower's grid that survives nodes which die and come back.

    Flower counts a node as lost a minute after its last sign of life; it then has `patience` seconds to come back,
    not the whole timeout. A node that is back gets the same request again, with the same nonce; a site that has
    replied to it before sends that reply. If the process at a live node dies, the request is sent twice more. Replies
    are read one by one, so that an unreadable one does not affect the others.

    Parameters
    ----------
    grid
        Flower's grid, as a ServerApp gets it.
    patience
        Seconds that a lost node has to come back.
    pause
        The most seconds between two polls of the grid.
    names
        Gives the nodes their names. In Flower's simulation nodes have neither names nor keys.
    withdraw
        Takes back messages by their identities, so that no site gets a request that nobody waits for any more. None:
        they stay until they expire.
    on_event
        Called with one plain dict after each reply: step, round, site, and how many of how many have replied.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        patience: float = 300,
        pause: float = 1.0,
        names: Callable[[Iterable[NodeInfo]], dict[str, NodeInfo]] = node_names,
        withdraw: Callable[[Iterable[str]], None] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._grid = grid
        self._emit = on_event or (lambda event: None)
        self._withdraw = withdraw or (lambda messages: None)
        self._patience = patience
        self._pause = pause
        self._names = names

    def sites(self) -> list[str]:
        """The sites that are connected now."""
        return list(self._names(self._grid.get_nodes()))

    def ask(
        self, requests: Mapping[str, Request], *, timeout: float, enough: int | None = None, grace: float = 10.0
    ) -> dict[str, Reply | NoReply]:
        """Send each site its request; one entry per site, after about `timeout` seconds at most.

        Once `enough` sites have sent a reply that does not decline, the others have `grace` seconds more. What is
        still on its way then is taken back, and a reply to it is dropped.
        """
        start = happened = time.monotonic()
        end = start + timeout
        pending = {site: _Pending(request, start) for site, request in requests.items()}
        replies: dict[str, Reply | NoReply] = {}
        while pending and (left := end - time.monotonic()) > 0:
            nodes = self._names(self._grid.get_nodes())
            for site, one in list(pending.items()):
                message = one.message
                reply = self._poll(one, nodes.get(site), left)
                if reply is not None:
                    replies[site] = reply
                    del pending[site]
                    event = {"event": "reply", "step": one.request.step, "round": one.request.round, "site": site}
                    self._emit({**event, "reply": len(replies), "of": len(requests)})
                if reply is not None or one.message != message:
                    happened = time.monotonic()
            if enough is not None and sum(_takes_part(reply) for reply in replies.values()) >= enough:
                end, enough = min(end, time.monotonic() + grace), None
            if pending:
                time.sleep(max(0.0, min(next_pause(happened, self._pause), end - time.monotonic())))
        self._withdraw([one.message for one in pending.values() if one.message])
        late = NoReply("no reply in time")
        return {site: replies.get(site, late) for site in requests}

    def _poll(self, pending: _Pending, node: NodeInfo | None, left: float) -> Reply | NoReply | None:
        """Send the request if that has not been done, and fetch the reply if there is one."""
        if node is None:
            if time.monotonic() - pending.gone_since > self._patience:
                return NoReply("not connected")
            return None
        pending.gone_since = time.monotonic()
        if not pending.message or (pending.node, pending.activated) != (node.node_id, node.last_activated_at):
            # A node that was restarted has lost earlier requests.
            self._push(pending, node, left)
            return None
        return self._pull(pending)

    def _push(self, pending: _Pending, node: NodeInfo, left: float) -> None:
        if pending.message:
            # Or the node would get the same request twice.
            self._withdraw([pending.message])
        message = Message(
            to_record(pending.request),
            dst_node_id=node.node_id,
            message_type="train",
            ttl=left,
            group_id=str(pending.request.round),
        )
        (pending.message,) = list(self._grid.push_messages([message])) or [""]
        pending.node, pending.activated = node.node_id, node.last_activated_at

    def _pull(self, pending: _Pending) -> Reply | NoReply | None:
        try:
            replies = list(self._grid.pull_messages([pending.message]))
        except Exception as error:  # Flower unpacks what the node sent
            return NoReply(f"an unreadable reply ({type(error).__name__})")
        mine = [r for r in replies if r.metadata.reply_to_message_id == pending.message]
        if not mine:
            return None
        message = mine[0]
        if message.has_error():
            return self._failed(pending, message.error.code, message.error.reason)
        if message.metadata.src_node_id != pending.node:
            return NoReply("a reply from another node")
        try:
            reply = from_record(message.content)
        except FormatError as error:
            return NoReply(str(error))
        return reply if isinstance(reply, Reply) else NoReply("a request instead of a reply")

    def _failed(self, pending: _Pending, code: int, reason: str | None) -> NoReply | None:
        if code == ErrorCode.CLIENT_APP_CRASHED:
            pending.crashes += 1
        if code in _SEND_AGAIN or (code == ErrorCode.CLIENT_APP_CRASHED and pending.crashes < _TRIES):
            pending.message = ""
            return None
        # The site chose this text, and it goes into a log: keep it printable and short.
        text = printable(reason or "", instead="")[:200]
        return NoReply(f"an error at the site: {text}" if text else "an error at the site")


def _takes_part(reply: Reply | NoReply) -> bool:
    return isinstance(reply, Reply) and not reply.declined


def next_pause(happened: float, most: float) -> float:
    """Seconds until the next poll: short right after something happened, then a quarter of the time since.

    So a reply is noticed late by at most a quarter of what it took, and whoever waits long polls rarely.
    """
    return min(most, max(_SHORT, (time.monotonic() - happened) / 4))


def reply_to(
    message: Message, site_file: str | Path, key: EllipticCurvePrivateKey | None = None
) -> tuple[Message, Request | None]:
    """A site's reply to a message, and the request that it held; None if it held none.

    If the site fails, the coordinator learns only the class of the error, because its text can hold anything. The
    text goes to the standard error of this process, which stays at the site.
    """
    request = None
    try:
        found = from_record(message.content)
        if not isinstance(found, Request):
            raise FormatError("A site takes requests only; got a reply.")
        request = found
        # Imported late: it takes seconds, and a message that is refused need not wait for it.
        from locum.federated.site import Site

        return Message(to_record(Site(site_file, key).reply(request)), reply_to=message), request
    except Exception as error:  # Flower would send its text to the coordinator
        if isinstance(error, LocumError):
            print(f"locum: {error}", file=sys.stderr, flush=True)
        else:
            traceback.print_exc()
        failure = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=type(error).__name__)
        return Message(failure, reply_to=message), request


def make_client_app(site_file: Callable[[Context], str | Path]) -> ClientApp:
    """A ClientApp for simulations: it passes requests to the site whose settings file `site_file` finds."""
    app = ClientApp()

    @app.train()
    def reply(message: Message, context: Context) -> Message:
        return reply_to(message, site_file(context))[0]

    return app


def run_federation(
    channel: Channel,
    settings: FederationSettings,
    out: Path,
    *,
    sites: int,
    wait: float = 600,
    timeout: float = 3600,
    keys: Mapping[str, EllipticCurvePublicKey] | None = None,
    reference: str | Path | None = None,
    on_event: Callable[[dict[str, Any]], None],
) -> Path:
    """Wait for `sites`, run the coordinator over `channel`, and return the folder of the release.

    A run that stopped resumes when it is started again with the same `out`.
    """
    # Imported late: it takes seconds, and wrong settings need not wait for it.
    from locum.federated.coordinator import Coordinator

    wait_for_sites(channel, max(sites, settings.least_sites), wait=wait)
    coordinator = Coordinator(settings, out, timeout=timeout, keys=keys, reference=reference, on_event=on_event)
    return coordinator.run(channel)


def wait_for_sites(channel: Channel, number: int, *, wait: float, pause: float = 1.0) -> list[str]:
    """The connected sites, as soon as there are `number` of them; an error after `wait` seconds."""
    end = time.monotonic() + wait
    while len(found := channel.sites()) < number:
        if time.monotonic() > end:
            raise PolicyError(
                f"{len(found)} of {number} sites are connected after {wait:g} s: the run does not start."
            )
        time.sleep(pause)
    return found
