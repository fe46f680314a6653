"""Over Flower's own link state, in this process: nodes are threads that really fetch and really reply."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.errors import FormatError, PolicyError
from locum.federated import NoReply, Reply, Request

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid
from safetensors.numpy import save

from locum.federated.transport.flower import (
    FlowerChannel,
    from_record,
    next_pause,
    node_names,
    reply_to,
    to_record,
    wait_for_sites,
)

Sent = RecordDict | Error | None


class Fleet:
    """Nodes that are asked over Flower's state. One without a reply is dead and sends no sign of life either."""

    def __init__(self) -> None:
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
        self.state: Any = factory.state()
        run = Run.create_empty(run_id=7)
        run.primary_task_id, run.federation_id = 8, NOOP_FEDERATION_ID
        self.state.run_ids[7] = RunRecord(run=run)
        self.state.task_store[8] = Task(task_id=8, run_id=7)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, SUPERLINK_NODE_ID
        self.grid = InMemoryGrid(factory)
        self.grid.set_run(run)
        self.ids: dict[str, int] = {}
        self.heard: dict[str, list[Request]] = {}
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, name: str, reply: Callable[[Request], Sent], *, registered: str | None = None) -> None:
        key = uuid.uuid4().bytes
        node = self.state.create_node("", "", key, 1e6, name=name if registered is None else registered)
        self.ids[name], self.heard[name] = node, []
        self.activate(name)
        self._threads.append(threading.Thread(target=self._serve, args=(name, node, reply)))
        self._threads[-1].start()

    def activate(self, name: str, seconds: float = 1e6) -> None:
        assert self.state.activate_node(self.ids[name], seconds / 2)

    def lose(self, name: str) -> None:
        assert self.state.deactivate_node(self.ids[name])

    def _serve(self, name: str, node: int, reply: Callable[[Request], Sent]) -> None:
        while not self._end.wait(0.02):
            for message in self.state.get_message_ins(node_id=node, limit=1):
                request = from_record(message.content)
                assert isinstance(request, Request)
                self.heard[name].append(request)
                content = reply(request)
                if content is not None:
                    out = Message(content, reply_to=message)
                    out.metadata.__dict__["_message_id"] = str(uuid.uuid4())
                    self.state.store_message_res(out)

    def channel(self, **options: Any) -> FlowerChannel:
        return FlowerChannel(self.grid, **{"pause": 0.02, **options})

    def close(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.close()


def request(nonce: str = "n") -> Request:
    return Request("train", 3, nonce, {"a": [1, "x"]}, {"w": np.arange(6, dtype=np.float32).reshape(2, 3)})


def doubled(asked: Request) -> RecordDict:
    tensors = {name: 2 * value for name, value in asked.tensors.items()}
    return to_record(Reply(asked.step, asked.round, asked.nonce, "", {}, tensors))


@given(
    facts=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.lists(st.booleans())),
    shape=st.lists(st.integers(0, 3), max_size=3),
    dtype=st.sampled_from([np.float32, np.float64, np.uint64]),
    declined=st.none() | st.text(max_size=9),
    large=st.booleans(),
)
def test_what_is_sent_arrives(
    facts: dict[str, Any], shape: list[int], dtype: Any, declined: str | None, large: bool
) -> None:
    tensors = {"decoder/0.weight": np.random.default_rng(0).normal(size=shape).astype(dtype)}
    if large:
        tensors["more"] = np.zeros(2**18 + 1, np.float32)
    message = (
        Request("join", 1, "n", facts, tensors)
        if declined is None
        else Reply("join", 1, "n", declined, facts, tensors)
    )
    back = from_record(to_record(message))
    assert type(back) is type(message)
    assert (back.step, back.round, back.nonce, back.facts) == ("join", 1, "n", facts)
    assert back.tensors["decoder/0.weight"].dtype == dtype
    assert back.tensors.keys() == tensors.keys()
    np.testing.assert_array_equal(back.tensors["decoder/0.weight"], tensors["decoder/0.weight"])


def pickled() -> Array:
    raw = BytesIO()
    np.save(raw, np.array([{}], dtype=object), allow_pickle=True)
    return Array("object", (1,), "numpy.ndarray", raw.getvalue())


def short() -> Array:
    whole = Array(np.zeros(1000, np.float32))
    return Array(whole.dtype, whole.shape, whole.stype, whole.data[:200])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c.pop("tensors"),
        lambda c: c["locum"].update(tensors=b""),
        lambda c: c.pop("locum"),
        lambda c: c.update(more=ConfigRecord({"loss": 1.0})),
        lambda c: c.update(locum=ConfigRecord({"message": 3})),
        lambda c: c.update(locum=ConfigRecord({"message": "{"})),
        lambda c: c.update(locum=ConfigRecord({"message": "[" * 100_000})),
        lambda c: c.update(tensors=ArrayRecord({"w": Array(np.arange(3))})),
        lambda c: c.update(tensors=ArrayRecord({"w": pickled()})),
        lambda c: c.update(tensors=ArrayRecord({"w": short()})),
        lambda c: c.update(tensors=ArrayRecord({"w": Array("float32", (1,), "torch", b"x")})),
    ],
)
def test_what_is_no_message_is_refused(spoil: Callable[[RecordDict], object]) -> None:
    tensors = {"w": np.zeros(2**18 + 1, np.float32)}
    content = to_record(Request("train", 3, "n", {}, tensors))
    spoil(content)
    with pytest.raises(FormatError, match="could not be read"):
        from_record(content)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c["locum"].pop("tensors"),
        lambda c: c["locum"].pop("message"),
        lambda c: c["locum"].update(more=1),
        lambda c: c["locum"].update(message=3),
        lambda c: c["locum"].update(tensors="text"),
        lambda c: c["locum"].update(tensors=b"x" * 100),
        lambda c: c["locum"].update(tensors=c["locum"]["tensors"][:-1]),
        lambda c: c["locum"].update(tensors=save({"w": np.arange(3)})),
        lambda c: c.update(tensors=ArrayRecord({"w": Array(np.zeros(3))})),
    ],
)
def test_what_is_no_small_message_is_refused(spoil: Callable[[RecordDict], object]) -> None:
    content = to_record(request())
    spoil(content)
    with pytest.raises(FormatError, match="could not be read"):
        from_record(content)


def test_every_site_replies(fleet: Fleet) -> None:
    for name in ("b", "a"):
        fleet.add(name, doubled)
    channel = fleet.channel()
    assert channel.sites() == ["a", "b"]
    replies = channel.ask({name: request(name) for name in ("a", "b")}, timeout=20)
    for name, reply in replies.items():
        assert isinstance(reply, Reply)
        assert reply.nonce == name
        np.testing.assert_array_equal(reply.tensors["w"], 2 * request().tensors["w"])


def test_a_node_without_a_name_is_known_by_its_number(fleet: Fleet) -> None:
    fleet.add("a", doubled, registered="")
    assert fleet.channel().sites() == [str(fleet.ids["a"])]


def test_two_nodes_with_one_name_are_both_left_out(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [NodeInfo(node_id=i, name=name) for i, name in enumerate(["a", "b", "a"], start=1)]
    assert {name: node.node_id for name, node in node_names(nodes).items()} == {"b": 2}
    assert "registered as 'a'" in caplog.text


def test_a_node_that_died_and_came_back_is_asked_the_same_again(fleet: Fleet) -> None:
    lives: list[RecordDict | None] = []

    def second_life(asked: Request) -> Sent:
        lives.append(doubled(asked) if lives else None)
        return lives[-1]

    fleet.add("a", second_life)
    fleet.add("b", doubled)

    def restart() -> None:
        while not lives:
            time.sleep(0.02)
        fleet.lose("a")
        fleet.activate("a")

    other = threading.Thread(target=restart)
    other.start()
    replies = fleet.channel().ask({"a": request("one"), "b": request("two")}, timeout=20)
    other.join()
    assert isinstance(replies["a"], Reply)
    assert [asked.nonce for asked in fleet.heard["a"]] == ["one", "one"]
    assert [asked.nonce for asked in fleet.heard["b"]] == ["two"]


def test_a_node_that_flower_lost_is_asked_when_it_is_back(fleet: Fleet) -> None:
    fleet.add("a", doubled)
    fleet.lose("a")
    fleet.activate("a", seconds=0.2)  # it dies before it is asked
    time.sleep(0.3)
    threading.Timer(0.5, fleet.activate, ["a"]).start()
    replies = fleet.channel().ask({"a": request()}, timeout=20)
    assert isinstance(replies["a"], Reply)


def test_a_node_that_is_lost_between_two_polls_is_asked_again(fleet: Fleet) -> None:
    fleet.add("a", lambda asked: doubled(asked) if len(fleet.heard["a"]) > 1 else None)
    pull, pulls = fleet.grid.pull_messages, []

    def losing(ids: Any) -> Any:
        pulls.append(ids)
        if len(pulls) == 1:
            # Only after it has the request, or the second one would be its first.
            while not fleet.heard["a"]:
                time.sleep(0.01)
            fleet.lose("a")
            threading.Timer(0.2, fleet.activate, ["a"]).start()
        return pull(ids)

    fleet.grid.pull_messages = losing  # type: ignore[method-assign]
    replies = fleet.channel().ask({"a": request()}, timeout=20)
    assert isinstance(replies["a"], Reply)


def test_a_node_that_stays_away_does_not_hold_up_the_others(fleet: Fleet) -> None:
    fleet.add("a", lambda asked: None)
    fleet.add("b", doubled)
    fleet.lose("a")
    start = time.monotonic()
    replies = fleet.channel(patience=0.3).ask({"a": request(), "b": request(), "z": request()}, timeout=60)
    assert time.monotonic() - start < 10
    assert replies["a"] == replies["z"] == NoReply("not connected")
    assert isinstance(replies["b"], Reply)


def test_time_is_up(fleet: Fleet) -> None:
    fleet.add("a", lambda asked: None)
    replies = fleet.channel().ask({"a": request()}, timeout=0.3)
    assert replies == {"a": NoReply("no reply in time")}


def declining(asked: Request) -> RecordDict:
    return to_record(Reply(asked.step, asked.round, asked.nonce, "not today"))


def test_when_enough_sites_replied_the_others_have_the_grace_only(fleet: Fleet) -> None:
    fleet.add("a", doubled)
    fleet.add("b", doubled)
    fleet.add("slow", lambda asked: doubled(asked) if not time.sleep(0.3) else None)
    fleet.add("silent", lambda asked: None)
    start = time.monotonic()
    asked = {name: request() for name in ("a", "b", "slow", "silent")}
    replies = fleet.channel().ask(asked, timeout=60, enough=2, grace=1.5)
    assert 1.5 <= time.monotonic() - start < 10
    assert {name for name, reply in replies.items() if isinstance(reply, Reply)} == {"a", "b", "slow"}
    assert replies["silent"] == NoReply("no reply in time")


@pytest.mark.parametrize("other", [declining, lambda asked: Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "x")])
def test_who_declines_or_fails_does_not_count_as_enough(fleet: Fleet, other: Callable[[Request], Sent]) -> None:
    fleet.add("a", other)
    fleet.add("b", lambda asked: doubled(asked) if not time.sleep(0.6) else None)
    replies = fleet.channel().ask({"a": request(), "b": request()}, timeout=20, enough=1, grace=0.1)
    assert isinstance(replies["b"], Reply)


def test_the_grace_never_exceeds_the_timeout(fleet: Fleet) -> None:
    fleet.add("a", doubled)
    fleet.add("b", lambda asked: None)
    start = time.monotonic()
    fleet.channel().ask({"a": request(), "b": request()}, timeout=0.5, enough=1, grace=60)
    assert time.monotonic() - start < 5


def test_a_late_reply_is_not_taken_for_one_to_the_next_request(fleet: Fleet) -> None:
    fleet.add("a", doubled)
    fleet.add("late", lambda asked: doubled(asked) if not time.sleep(0.5) else None)
    channel = fleet.channel()
    first = channel.ask({name: request(f"1{name}") for name in ("a", "late")}, timeout=20, enough=1, grace=0.1)
    assert first["late"] == NoReply("no reply in time")
    second = channel.ask({name: request(f"2{name}") for name in ("a", "late")}, timeout=20)
    assert {name: reply.nonce for name, reply in second.items() if isinstance(reply, Reply)} == {
        "a": "2a",
        "late": "2late",
    }


def test_who_waits_long_polls_rarely() -> None:
    now = time.monotonic()
    assert next_pause(now, 1.0) == pytest.approx(0.05)
    assert next_pause(now - 2, 1.0) == pytest.approx(0.5, abs=0.01)
    assert next_pause(now - 1000, 1.0) == 1.0
    assert next_pause(now, 0.01) == 0.01


def test_an_error_at_the_site_is_no_reply_with_one_short_line(fleet: Fleet) -> None:
    fleet.add("a", lambda asked: Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "PrivacyError\n" + "x" * 999))
    (reply,) = fleet.channel().ask({"a": request()}, timeout=20).values()
    assert isinstance(reply, NoReply)
    assert reply.reason.startswith("an error at the site: PrivacyErrorxx")
    assert len(reply.reason) < 250
    assert len(fleet.heard["a"]) == 1


def test_a_process_that_crashes_is_asked_three_times(fleet: Fleet) -> None:
    fleet.add("a", lambda asked: Error(ErrorCode.CLIENT_APP_CRASHED, ""))
    (reply,) = fleet.channel().ask({"a": request()}, timeout=20).values()
    assert reply == NoReply("an error at the site")
    assert len(fleet.heard["a"]) == 3


def test_what_cannot_be_read_is_no_reply(fleet: Fleet) -> None:
    fleet.add("a", lambda asked: RecordDict({"x": ConfigRecord({"y": 1})}))
    fleet.add("b", doubled)
    fleet.add("c", to_record)
    replies = fleet.channel().ask({name: request() for name in "abc"}, timeout=20)
    assert isinstance(replies["a"], NoReply)
    assert "could not be read" in replies["a"].reason
    assert isinstance(replies["b"], Reply)
    assert replies["c"] == NoReply("a request instead of a reply")


def test_no_node_can_reply_for_another(fleet: Fleet) -> None:
    fleet.add("a", doubled)
    fleet.add("b", doubled)
    pull = fleet.grid.pull_messages

    def forged(ids: Any) -> list[Message]:
        found = list(pull(ids))
        for message in found:
            message.metadata.__dict__["_src_node_id"] = fleet.ids["b"]
        return found

    fleet.grid.pull_messages = forged  # type: ignore[method-assign]
    replies = fleet.channel().ask({"a": request()}, timeout=20)
    assert replies == {"a": NoReply("a reply from another node")}
    assert fleet.heard["b"] == []


def test_a_reply_that_breaks_flower_does_not_affect_others(fleet: Fleet) -> None:
    fleet.add("a", doubled)
    fleet.add("b", doubled)
    pull, asked = fleet.grid.pull_messages, []

    def breaking(ids: Any) -> Any:
        asked.append(list(ids))
        found = list(pull(asked[-1]))
        if found and found[0].metadata.src_node_id == fleet.ids["a"]:
            raise ValueError("object of unknown type")
        return found

    fleet.grid.pull_messages = breaking  # type: ignore[method-assign]
    replies = fleet.channel().ask({"a": request(), "b": request()}, timeout=20)
    assert replies["a"] == NoReply("an unreadable reply (ValueError)")
    assert isinstance(replies["b"], Reply)
    assert all(len(ids) == 1 for ids in asked)


def ask(content: RecordDict, site_file: str | Path) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1
    message = Message(content, dst_node_id=5, message_type="train", ttl=60, group_id="1")
    return reply_to(message, site_file)[0]


def test_the_coordinator_learns_only_the_class_of_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reply = ask(to_record(Request("join", 0, "n")), tmp_path / "mrs-smith.toml")
    assert reply.has_error()
    assert reply.error.reason == "ConfigError"
    assert "smith" in capfd.readouterr().err  # the site's own log has the whole text


def test_the_same_holds_for_a_bug(capfd: pytest.CaptureFixture[str]) -> None:
    reply = ask(to_record(Request("join", 0, "n")), "mrs-smith\0.toml")
    assert reply.error.reason == "ValueError"
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("content", [RecordDict(), to_record(Reply("join", 0, "n"))])
def test_what_is_not_a_request_is_refused(content: RecordDict, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(content, "x").error.reason == "FormatError"


@pytest.mark.parametrize("end", ["link", "node"])
def test_neither_end_imports_torch_before_it_is_needed(end: str) -> None:
    code = f"import sys, locum.federated.transport.{end} as c; assert 'torch' not in sys.modules, c"
    subprocess.run([sys.executable, "-c", code], check=True)


class Slowly:
    """One more site at each call."""

    def __init__(self) -> None:
        self.number = 0

    def sites(self) -> list[str]:
        self.number += 1
        return [f"site-{i}" for i in range(self.number)]

    def ask(
        self, requests: Mapping[str, Request], *, timeout: float, enough: int | None = None, grace: float = 10.0
    ) -> dict[str, Reply | NoReply]:
        raise AssertionError("no site may be asked before all are connected")


def test_it_waits_for_the_sites() -> None:
    assert wait_for_sites(Slowly(), 3, wait=20, pause=0.01) == ["site-0", "site-1", "site-2"]


def test_it_stops_waiting() -> None:
    with pytest.raises(PolicyError, match="of 1000 sites are connected after 0 s"):
        wait_for_sites(Slowly(), 1000, wait=0, pause=0.01)
