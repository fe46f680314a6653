"""The two ends over a real TLS connection: what the coordinator's port offers, and to whom."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.errors import ConfigError, LocumError
from locum.federated import (
    FederationSettings,
    NoReply,
    Reply,
    Request,
    coordinate,
    join,
    make_certificates,
    make_site_key,
)

pytest.importorskip("flwr")

import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient

from locum.federated.site_keys import read_site_key, read_site_keys
from locum.federated.transport import link as link_module
from locum.federated.transport.flower import FlowerChannel, from_record, to_record
from locum.federated.transport.link import Link
from locum.federated.transport.node import _fetch, _send, connection

SETTINGS = FederationSettings(classes=("ant", "bee"), dim=4, mode="sums")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Ends:
    """A link that admits `a` and `b`, and their clients."""

    def __init__(self, keys: Path) -> None:
        self.keys, self.port = keys, free_port()
        self.link = Link(read_site_keys(keys), keys, listen="127.0.0.1", port=self.port)
        self.run = TaskIdentity.run_id, TaskIdentity.task_id
        self.clients: list[FleetHttpClient] = []

    def client(self, key: Path) -> FleetHttpClient:
        self.clients.append(connection(f"127.0.0.1:{self.port}", self.keys / "ca.crt", read_site_key(key)))
        return self.clients[-1]

    def site(self, name: str) -> tuple[FleetHttpClient, Node]:
        client = self.client(self.keys / f"{name}.key")
        return client, Node(node_id=client.ActivateNode(self.activation(self.keys / f"{name}.key")).node_id)

    @staticmethod
    def activation(key: Path) -> ActivateNodeRequest:
        public = public_key_to_bytes(read_site_key(key).public_key())
        return ActivateNodeRequest(public_key=public, heartbeat_interval=30)

    def ask(self, node: Node, request: Request) -> Message:
        """A message to a site, as the coordinator sends it."""
        self.act_as(SUPERLINK_NODE_ID)
        message = Message(to_record(request), dst_node_id=node.node_id, message_type="train", ttl=60)
        assert self.link.grid.push_messages([message]) == [message.metadata.message_id]
        return message

    def act_as(self, node: int) -> None:
        # Flower keeps one identity per process; here are several ends in one.
        (TaskIdentity.run_id, TaskIdentity.task_id), TaskIdentity.node_id = self.run, node


def fetch(client: FleetHttpClient, node: Node) -> Message | None:
    pulled = client.PullMessages(PullMessagesRequest(node=node))
    if not pulled.messages_list:
        return None
    return _fetch(client, node, pulled.messages_list[0].metadata.run_id, pulled.message_object_trees[0])


def push(client: FleetHttpClient, node: Node, message: Message) -> Any:
    """Announce a message as a node, whatever it says about its origin, without sending its pieces."""
    message.metadata.__dict__["_message_id"] = message.object_id
    bare = message_to_proto(remove_content_from_message(message))
    return client.PushMessages(
        PushMessagesRequest(node=node, messages_list=[bare], message_object_trees=[get_object_tree(message)])
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_certificates(folder, ["127.0.0.1"], ["a", "b"])
    return folder


@pytest.fixture
def ends(keys: Path) -> Iterator[Ends]:
    found = Ends(keys)
    with found.link:
        yield found
        for client in found.clients:
            client.close()


def request(nonce: str = "n") -> Request:
    return Request("train", 1, nonce, {"x": 1}, {"w": np.arange(6, dtype=np.float32), "v": np.ones(3, np.float32)})


def test_only_the_interface_for_sites_exists(ends: Ends) -> None:
    verify = ssl.create_default_context(cafile=str(ends.keys / "ca.crt"))
    told: dict[str, int] = {}
    with httpx.Client(base_url=f"https://127.0.0.1:{ends.port}", verify=verify) as client:
        for method, path in [
            *PROTOBUF_REQUEST_TYPES,
            ("POST", "/docs"),
            ("POST", "/openapi.json"),
            ("POST", "/health"),
        ]:
            headers = {"content-type": PROTOBUF_MEDIA_TYPE}
            told[path] = client.request(method, path, content=b"", headers=headers).status_code
    control = [path for path in told if path.startswith(("/v1/control/", "/v1/runtime/"))]
    assert "/v1/control/start-run" in control
    assert "/v1/control/register-node" in control
    fleet = {path for path in told if path.startswith("/v1/fleet/")}
    assert len(fleet) > 9
    assert {told[path] for path in told.keys() - fleet} == {404}
    # Without a signature of an admitted site, these are refused too.
    assert {told[path] for path in fleet} == {401}


def test_a_key_that_was_not_admitted_can_neither_connect_nor_register_itself(ends: Ends, tmp_path: Path) -> None:
    stranger = make_site_key(tmp_path / "own", "stranger")["stranger.key"]
    client, asked = ends.client(stranger), Ends.activation(stranger)
    for call in (
        lambda: client.ActivateNode(asked),
        lambda: client.RegisterNode(RegisterNodeFleetRequest(public_key=asked.public_key)),
        lambda: client.ActivateNode(Ends.activation(ends.keys / "a.key")),  # another site's key, signed by this one
        lambda: client.PullMessages(PullMessagesRequest(node=Node(node_id=1))),
    ):
        with pytest.raises(httpx.HTTPStatusError):
            call()
    assert FlowerChannel(ends.link.grid).sites() == []


def test_a_request_arrives_and_so_does_the_reply(ends: Ends) -> None:
    client, node = ends.site("a")
    asked = ends.ask(node, request())
    message = fetch(client, node)
    assert message is not None
    found = from_record(message.content)
    assert isinstance(found, Request)
    np.testing.assert_array_equal(found.tensors["w"], np.arange(6))
    reply = Reply("train", 1, "n", "", {}, {"w": 2 * found.tensors["w"]})
    _send(client, node, Message(to_record(reply), reply_to=message))
    (back,) = ends.link.grid.pull_messages([asked.metadata.message_id])
    assert back.metadata.src_node_id == node.node_id
    np.testing.assert_array_equal(from_record(back.content).tensors["w"], 2 * np.arange(6))


def test_no_site_can_send_requests_to_another(ends: Ends) -> None:
    client, node = ends.site("a")
    other, victim = ends.site("b")
    for origin in (SUPERLINK_NODE_ID, node.node_id):
        ends.act_as(origin)
        forged = Message(to_record(request()), dst_node_id=victim.node_id, message_type="train", ttl=60)
        with pytest.raises(httpx.HTTPStatusError, match="403"):
            push(client, node, forged)
    assert fetch(other, victim) is None


def test_no_site_can_reply_for_another(ends: Ends) -> None:
    client, node = ends.site("a")
    other, victim = ends.site("b")
    asked = ends.ask(victim, request())
    message = fetch(other, victim)
    assert message is not None
    forged = Message(to_record(Reply("train", 1, "n")), reply_to=message)
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        push(client, node, forged)
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        push(client, victim, forged)
    assert ends.link.grid.pull_messages([asked.metadata.message_id]) == []


def test_a_reply_whose_pieces_are_missing_keeps_nobody_waiting(ends: Ends) -> None:
    client, node = ends.site("a")
    asked = ends.ask(node, request())
    message = fetch(client, node)
    assert message is not None
    push(client, node, Message(to_record(Reply("train", 1, "n")), reply_to=message))
    began = time.monotonic()
    assert ends.link.grid.pull_messages([asked.metadata.message_id]) == []
    assert ends.link.grid.pull_messages([asked.metadata.message_id]) == []
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("stage", ["sent", "fetched", "announced", "replied", "noticed"])
def test_of_a_request_that_was_taken_back_nothing_is_left(ends: Ends, stage: str) -> None:
    client, node = ends.site("a")
    asked, grid = ends.ask(node, request()), ends.link.grid
    identity, reply = asked.metadata.message_id, to_record(Reply("train", 1, "n", "", {}, {"w": np.ones(9)}))
    if stage != "sent":
        message = fetch(client, node)
        assert message is not None
        late = Message(reply, reply_to=message)
        if stage in ("announced", "noticed"):
            push(client, node, late)
        if stage == "replied":
            _send(client, node, late)
        if stage == "noticed":
            assert grid.pull_messages([identity]) == []
    grid.withdraw([identity])
    if stage == "sent":
        assert fetch(client, node) is None
    else:
        # It comes too late, which is no error at the site.
        _send(client, node, late)
    assert (grid.state.num_message_ins(), grid.state.num_message_res()) == (0, 0)
    assert grid.state.object_store.store == {}
    assert grid._announced == {}
    # The next request finds its way.
    asked = ends.ask(node, request("next"))
    message = fetch(client, node)
    assert message is not None
    _send(client, node, Message(to_record(Reply("train", 1, "next")), reply_to=message))
    (back,) = grid.pull_messages([asked.metadata.message_id])
    assert from_record(back.content).nonce == "next"


def test_a_channel_takes_back_what_it_no_longer_waits_for(ends: Ends) -> None:
    ends.site("a")
    ends.act_as(SUPERLINK_NODE_ID)
    channel = FlowerChannel(ends.link.grid, withdraw=ends.link.grid.withdraw)
    assert channel.ask({"a": request()}, timeout=0.3) == {"a": NoReply("no reply in time")}
    assert ends.link.grid.state.num_message_ins() == 0
    assert ends.link.grid.state.object_store.store == {}


def test_a_killed_site_connects_again_at_once(ends: Ends) -> None:
    assert ends.site("a")[1] == ends.site("a")[1]
    assert FlowerChannel(ends.link.grid).sites() == ["a"]


@pytest.mark.parametrize("headers", [{"Content-Length": str(10**9)}, {"Transfer-Encoding": "chunked"}])
def test_long_requests_are_refused_unread(ends: Ends, headers: dict[str, str]) -> None:
    context = ssl.create_default_context(cafile=str(ends.keys / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", ends.port, context=context, timeout=10)
    connection.putrequest("POST", "/v1/fleet/push-object")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_it_listens_on_this_machine_only_unless_told(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Any, ...]] = []

    def refuse(listen: str, port: int) -> socket.socket:
        opened.append((listen, port))
        raise ConfigError("stop here")

    monkeypatch.setattr(link_module, "_bound", refuse)
    with pytest.raises(ConfigError, match="stop here"):
        coordinate(SETTINGS, keys, tmp_path / "out")
    assert opened == [("127.0.0.1", 8010)]


def spoiled_key(folder: Path) -> None:
    (folder / "a.pub").write_text("ssh-ed25519 AAAA")


def twice(folder: Path) -> None:
    (folder / "b.pub").write_bytes((folder / "a.pub").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "options", "word"),
    [
        (lambda f: (f / "b.pub").unlink(), {}, "1 have a key"),
        (lambda f: None, {"sites": 3}, "2 have a key"),
        (lambda f: None, {"port": 0}, "port"),
        (lambda f: None, {"listen": "fed.example.org"}, "address of this machine"),
        (lambda f: None, {"listen": "192.0.2.1"}, "Nothing can listen"),
        (lambda f: None, {"wait": -1}, "wait"),
        (lambda f: (f / "server.key").unlink(), {}, "server.key"),
        (lambda f: (f / "server.key").chmod(0o640), {}, "chmod 600"),
        (lambda f: (f / "server.crt").write_text("no"), {}, "cannot be used"),
        (spoiled_key, {}, "not the public key"),
        (twice, {}, "same public key"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, spoil: Callable[[Path], object], options: dict[str, Any], word: str
) -> None:
    folder = tmp_path / "keys"
    make_certificates(folder, ["127.0.0.1"], ["a", "b"])
    spoil(folder)
    with pytest.raises(ConfigError, match=word):
        coordinate(SETTINGS, folder, tmp_path / "out", **{"port": free_port(), **options})
    assert not (tmp_path / "out").exists()


def test_a_coordinator_without_sites_gives_up(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(LocumError, match="0 of 2 sites are connected"):
        coordinate(SETTINGS, keys, tmp_path / "out", port=free_port(), wait=0)


@pytest.mark.parametrize(
    ("spoil", "options", "word"),
    [
        (lambda f: None, {"coordinator": "fed.example.org"}, "HOST:PORT"),
        (lambda f: None, {"coordinator": "https://fed.example.org:1"}, "HOST:PORT"),
        (lambda f: None, {"coordinator": "a/b:1"}, "host"),
        (lambda f: (f / "ca.crt").write_text("no"), {}, "authority"),
        (lambda f: (f / "ca.crt").unlink(), {}, "authority"),
        (lambda f: (f / "a.key").chmod(0o644), {}, "chmod 600"),
        (lambda f: (f / "a.key").write_text("no"), {}, "not the private key"),
        (lambda f: (f / "a.key").unlink(), {}, "cannot be read"),
        (lambda f: (f.parent / "site.toml").write_text("data = 3"), {}, "where the records are"),
    ],
)
def test_a_site_refuses_what_makes_no_sense(
    tmp_path: Path, spoil: Callable[[Path], object], options: dict[str, Any], word: str
) -> None:
    folder = tmp_path / "keys"
    make_certificates(folder, sites=["a"])
    (tmp_path / "site.toml").write_text('data = "x.npz"\nepsilon = 1.0\ndelta = 1e-5\nn_public = 100\n')
    spoil(folder)
    told = {"coordinator": f"127.0.0.1:{free_port()}", "authority": folder / "ca.crt", "key": folder / "a.key"}
    with pytest.raises(ConfigError, match=word):
        join(tmp_path / "site.toml", **{**told, **options})
