"""Flower carries questions and answers: as records of a message, and over its grid."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from locum.errors import FormatError
from locum.federated.protocol import NoReply, Reply, Request, pack, unpack
from locum.io import printable

_log = logging.getLogger(__name__)
_TEXT, _TENSORS = "locum", "tensors"
# The node is there again, or the message never was: nothing was computed that a second question would repeat in vain.
_ASK_AGAIN = {ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
# A process that dies without a word (killed, out of memory) gets this many questions in all.
_TRIES = 3


def to_record(message: Request | Reply) -> RecordDict:
    """A message of ours as what a message of Flower holds."""
    text, arrays = pack(message)
    tensors = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    return RecordDict({_TEXT: ConfigRecord({"message": text}), _TENSORS: tensors})


def from_record(content: RecordDict) -> Request | Reply:
    """Undo `to_record`. Nothing in it is trusted: whatever is not a message of ours is refused."""
    try:
        text = content.config_records[_TEXT]["message"]
        arrays = {str(name): array.numpy() for name, array in content.array_records[_TENSORS].items()}
        if isinstance(text, str) and len(content) == 2:
            return unpack(text, arrays)
    except FormatError:
        raise
    except Exception as error:  # whoever sent it chose every byte of it
        raise FormatError(f"A message could not be read ({type(error).__name__}).") from None
    raise FormatError("A message could not be read: it is not one of Locum's.")


def node_names(nodes: Iterable[NodeInfo]) -> dict[str, NodeInfo]:
    """Sites by name: the one they were registered under (`--name`), else the node's number.

    Flower ties both to the registered public key, so a site that starts again is the same site. Two connected nodes
    of one name are both left out: nobody could say who is who.
    """
    named: dict[str, list[NodeInfo]] = {}
    for node in nodes:
        named.setdefault(node.name or str(node.node_id), []).append(node)
    for name, bearers in named.items():
        if len(bearers) > 1:
            _log.warning("%d connected nodes are registered as %r: none of them is asked", len(bearers), name)
    return {name: bearers[0] for name, bearers in sorted(named.items()) if len(bearers) == 1}


@dataclass
class _Asked:
    """Where one site stands while it is waited for."""

    request: Request
    gone_since: float
    message: str = ""
    node: int = 0
    activated: str = ""
    crashes: int = 0


class FlowerChannel:
    """A `Channel` over Flower's grid, which outlives nodes that die and come back.

    A node that Flower lost, a minute after its last sign of life, is waited for `patience` seconds, not the whole
    timeout. One that is back is asked the same question again, with the same nonce: a site that has the answer gives
    the answer it has. A process that dies at a living node is asked twice more. Replies are read one by one, so that
    one which cannot be read harms no other.

    Parameters
    ----------
    grid
        Flower's, as a ServerApp gets it.
    patience
        Seconds that a lost node has to come back.
    pause
        Seconds between two looks at the grid.
    names
        Who is who. In a simulation nodes have neither names nor keys.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        patience: float = 300,
        pause: float = 1.0,
        names: Callable[[Iterable[NodeInfo]], dict[str, NodeInfo]] = node_names,
    ) -> None:
        self._grid = grid
        self._patience = patience
        self._pause = pause
        self._names = names

    def sites(self) -> list[str]:
        """The sites that are connected now."""
        return list(self._names(self._grid.get_nodes()))

    def ask(self, requests: Mapping[str, Request], *, timeout: float) -> dict[str, Reply | NoReply]:
        """One question to each site; an entry for each of them, in about `timeout` seconds at most."""
        start = time.monotonic()
        open_ = {site: _Asked(request, start) for site, request in requests.items()}
        replies: dict[str, Reply | NoReply] = {}
        while open_ and (left := start + timeout - time.monotonic()) > 0:
            nodes = self._names(self._grid.get_nodes())
            for site, asked in list(open_.items()):
                heard = self._look(asked, nodes.get(site), left)
                if heard is not None:
                    replies[site] = heard
                    del open_[site]
            if open_:
                time.sleep(min(self._pause, left))
        late = NoReply("no answer in time")
        return {site: replies.get(site, late) for site in requests}

    def _look(self, asked: _Asked, node: NodeInfo | None, left: float) -> Reply | NoReply | None:
        """Ask the site if it has not been, and fetch its reply if there is one."""
        if node is None:
            if time.monotonic() - asked.gone_since > self._patience:
                return NoReply("not connected")
            return None
        asked.gone_since = time.monotonic()
        if not asked.message or (asked.node, asked.activated) != (node.node_id, node.last_activated_at):
            # A node that was started again has forgotten what it was asked before.
            self._push(asked, node, left)
            return None
        return self._pull(asked)

    def _push(self, asked: _Asked, node: NodeInfo, left: float) -> None:
        message = Message(
            to_record(asked.request),
            dst_node_id=node.node_id,
            message_type="train",
            ttl=left,
            group_id=str(asked.request.round),
        )
        (asked.message,) = list(self._grid.push_messages([message])) or [""]
        asked.node, asked.activated = node.node_id, node.last_activated_at

    def _pull(self, asked: _Asked) -> Reply | NoReply | None:
        try:
            replies = list(self._grid.pull_messages([asked.message]))
        except httpx.HTTPError:
            raise  # the SuperLink is gone, or the run was stopped
        except Exception as error:  # Flower unpacks what the node sent
            return NoReply(f"an unreadable reply ({type(error).__name__})")
        mine = [r for r in replies if r.metadata.reply_to_message_id == asked.message]
        if not mine:
            return None
        message = mine[0]
        if message.has_error():
            return self._failed(asked, message.error.code, message.error.reason)
        if message.metadata.src_node_id != asked.node:
            return NoReply("a reply from somebody else")
        try:
            reply = from_record(message.content)
        except FormatError as error:
            return NoReply(str(error))
        return reply if isinstance(reply, Reply) else NoReply("a question instead of an answer")

    def _failed(self, asked: _Asked, code: int, reason: str | None) -> NoReply | None:
        if code == ErrorCode.CLIENT_APP_CRASHED:
            asked.crashes += 1
        if code in _ASK_AGAIN or (code == ErrorCode.CLIENT_APP_CRASHED and asked.crashes < _TRIES):
            asked.message = ""
            return None
        # Words that a site chose go into a log: printable, and not many.
        said = printable(reason or "", instead="")[:200]
        return NoReply(f"an error at the site: {said}" if said else "an error at the site")
