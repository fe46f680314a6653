"""Sites and a coordinator as separate processes, over loopback; and Flower's own client, which must not get in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Ledger
from locum.data import load_sample, partition_iid, write_embeddings
from locum.federated import (
    FederationSettings,
    make_certificates,
    make_site_key,
    pin_keys,
    plan_site,
    write_federation,
)
from locum.recipes import verify_release
from locum.release import load
from locum.types import DP

pytest.importorskip("flwr")

BUDGET = DP(0.5, 1e-4)
SETTINGS = FederationSettings(classes=tuple(range(10)), dim=64, epsilon=0.5, delta=1e-4, absent=1)


class Network:
    """A coordinator and sites in one folder, started as the README says, and ended by `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keys, self.study, self.out = folder, folder / "keys", folder / "study", folder / "out"
        self.bin = Path(sys.executable).parent
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {
            **os.environ,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, name: str, *command: object) -> None:
        # Its own process group, so that its children can be stopped too.
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(c) for c in command],
                env=self.env,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def coordinator(self) -> None:
        terms = ("--keys", self.keys, "--port", self.port, "-o", self.out)
        self.start(
            "coordinator", self.bin / "locum", "federate", "coordinate", self.study / "federation.toml", *terms
        )

    def node(self, name: str, *, key: Path, authority: Path, port: int = 0) -> None:
        site = self.folder / "sites" / name / "site.toml"
        address = ("--coordinator", f"127.0.0.1:{port or self.port}", "--ca", authority, "--key", key)
        self.start(name, self.bin / "locum", "federate", "join", site, *address)

    def site(self, name: str, **options: int) -> None:
        self.node(name, key=self.keys / f"{name}.key", authority=self.keys / "ca.crt", **options)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def events(self) -> list[dict[str, Any]]:
        file = self.out / "log.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def until(self, fine: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not fine():
            if time.monotonic() > end:
                tails = {name: self.log(name)[-3000:] for name in self.processes}
                raise AssertionError(f"not in {seconds} s; events {self.events()}; logs {tails}")
            time.sleep(0.2)

    def stop(self) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes.values():
                try:
                    os.killpg(process.pid, sign)
                except ProcessLookupError:
                    continue
            end = time.monotonic() + 5
            while time.monotonic() < end and any(p.poll() is None for p in self.processes.values()):
                time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def replies(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def write_site(folder: Path, data: Any) -> Path:
    folder.mkdir(parents=True)
    write_embeddings(folder / "embeddings.npz", data)
    budget = f"epsilon = {BUDGET.epsilon}\ndelta = {BUDGET.delta}\n"
    (folder / "site.toml").write_text(f'data = "embeddings.npz"\n{budget}')
    return folder / "site.toml"


def start(network: Network, settings: FederationSettings, names: list[str]) -> None:
    """Files and keys, as the README says."""
    parts = partition_iid(load_sample("digits"), len(names), np.random.default_rng(0))
    for name, part in zip(names, parts.values(), strict=True):
        write_site(network.folder / "sites" / name, part)
    make_certificates(network.keys, ["127.0.0.1"], names)
    write_federation(network.study, settings, sites=names, host="127.0.0.1", port=network.port)
    pin_keys(network.study / "federation.toml", network.keys)
    for name in names:
        shutil.copy(network.study / "federation.toml", network.folder / "sites" / name)


def check(network: Network, names: list[str], gone: str) -> None:
    """The release is valid, and each ledger was charged once, with the events of the plan."""
    settings = FederationSettings.read(network.study / "federation.toml")
    plan, release = plan_site(settings, BUDGET), network.out / "release"
    assert "the claimed epsilon covers what its events cost" in verify_release(release).checks
    X, _ = load(release).sample(50, random_state=0)
    assert X.shape == (50, 64)
    assert np.isfinite(X).all()
    (told,) = [event["epsilon"] for event in network.events() if event["event"] == "joined"]
    for name in names:
        ledger = Ledger(network.folder / "sites" / name / ".locum" / "ledger.sqlite")
        (charge,) = ledger.holding("default").charges
        assert charge.events == plan.events
        assert 0 < charge.epsilon <= BUDGET.epsilon
        assert told[name] == pytest.approx(charge.epsilon)
        if name == gone:
            continue
        # One hash per sum: none was answered twice.
        assert sum(part.startswith("steps") for part in ledger.results(charge)) == sums(network)[-1]
        checks = verify_release(release, ledger=ledger.file, site_keys=network.keys).checks
        assert f"each of the {len(names)} sites signed a receipt of its charge ({', '.join(sorted(names))})" in checks
        assert "the ledger noted this release when the coordinator sent it as the result" in checks


def sums(network: Network) -> list[int]:
    return [event["sum"] for event in network.events() if event["event"] == "sum"]


def finished(network: Network) -> bool:
    return any(event["event"] == "done" for event in network.events())


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    network = Network(tmp_path)
    try:
        yield network
    finally:
        network.stop()


def test_a_killed_coordinator_and_a_killed_site_come_back_and_others_cannot_connect(
    network: Network, tmp_path: Path
) -> None:
    """One run for all of it, also with a site that never comes back."""
    names = [f"site-{i}" for i in range(4)]
    start(network, SETTINGS, names)
    others = tmp_path / "others"
    make_certificates(others, ["127.0.0.1"], ["intruder"])
    for name in ("unknown", "misled"):
        shutil.copytree(network.folder / "sites" / "site-0", network.folder / "sites" / name)
    network.coordinator()
    for name in names:
        network.site(name)
    network.until(lambda: len(sums(network)) > 0, 120)
    network.node("unknown", key=others / "intruder.key", authority=network.keys / "ca.crt")
    network.node("misled", key=network.keys / "site-0.key", authority=others / "ca.crt")
    network.kill("coordinator")
    network.kill("site-3")
    network.coordinator()
    network.until(lambda: len(sums(network)) > 1, 120)
    network.kill("site-1")
    network.site("site-1")
    network.until(lambda: finished(network), 180)
    assert sums(network) == list(range(1, len(sums(network)) + 1))
    present = [set(e["sites"]) for e in network.events() if e["event"] == "sum"]
    assert all(len(some) >= 3 for some in present)
    assert "site-3" not in present[-1]
    living = [name for name in network.processes if name != "site-3"]
    network.until(lambda: all(network.ended(name) for name in living), 60)
    ended = {name: network.processes[name].returncode for name in living}
    assert ended == {"coordinator": 0, **dict.fromkeys(names[:3], 0), "unknown": 2, "misled": 2}
    assert "does not know the key" in network.log("unknown")
    assert "no certificate from the authority" in network.log("misled")
    assert not any("Traceback" in network.log(name) for name in ended)
    check(network, names, "site-3")


ROGUE = """
import pathlib
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.train()
def steal(message, context):
    text = pathlib.Path(context.node_config["site"]).read_text()
    pathlib.Path(context.run_config["loot"], f"node-{context.node_id}").write_text(text)
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid, context):
    loot = pathlib.Path(context.run_config["loot"])
    (loot / "coordinator").write_text("here")
    nodes = list(grid.get_node_ids())
    replies = grid.send_and_receive([Message(RecordDict(), node, "train") for node in nodes], timeout=60)
    (loot / "replies").write_text("\\n".join(r.error.reason if r.has_error() else "done" for r in replies))
"""

ROGUE_APP = """
[project]
name = "innocent"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr"]
[tool.flwr.app]
publisher = "nobody"
fab-include = ["rogue.py"]
[tool.flwr.app.components]
serverapp = "rogue:server"
clientapp = "rogue:client"
[tool.flwr.app.config]
loot = {loot}
"""


class Stranger:
    """A fresh Flower client that holds the coordinator's `ca.crt` and an app that reads the `site.toml` of sites."""

    def __init__(self, network: Network, port: int) -> None:
        self.network, self.home, self.loot = network, network.folder / "stranger", network.folder / "loot"
        (self.home / "app").mkdir(parents=True)
        self.loot.mkdir()
        (self.home / "app" / "pyproject.toml").write_text(ROGUE_APP.format(loot=json.dumps(str(self.loot))))
        (self.home / "app" / "rogue.py").write_text(ROGUE)
        authority = json.dumps(str(network.keys / "ca.crt"))
        connection = f'[superlink.here]\naddress = "127.0.0.1:{port}"\nroot-certificates = {authority}\n'
        (self.home / "config.toml").write_text(connection)

    def flwr(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = [str(self.network.bin / "flwr"), *(str(w) for w in words)]
        env = {**self.network.env, "FLWR_HOME": str(self.home)}
        return subprocess.run(command, env=env, cwd=self.home, capture_output=True, text=True, timeout=120)

    def run(self) -> subprocess.CompletedProcess[str]:
        return self.flwr("run", self.home / "app", "here")

    def found(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.loot.iterdir()}


@pytest.mark.slow
def test_a_stranger_who_reaches_the_port_starts_no_run_and_registers_no_site(network: Network) -> None:
    start(network, SETTINGS, ["site-0", "site-1", "site-2", "site-3"])
    network.coordinator()
    network.until(lambda: replies(network.port), 60)
    stranger = Stranger(network, network.port)
    make_site_key(stranger.home / "keys", "stranger")
    for ran in (
        stranger.run(),
        stranger.flwr("supernode", "register", stranger.home / "keys" / "stranger.pub", "here"),
        stranger.flwr("supernode", "list", "here"),
    ):
        assert ran.returncode != 0
        assert "Not Found" in ran.stdout + ran.stderr
    network.until(lambda: "listening" in network.log("coordinator"), 10)
    assert not network.ended("coordinator")
    assert stranger.found() == {}


@pytest.mark.slow
def test_a_site_runs_no_code_whatever_the_coordinator_sends(network: Network) -> None:
    """A hostile coordinator with Flower's own SuperLink: Flower's own node runs its app, and a site does not."""
    start(network, SETTINGS, ["site-0", "victim", "site-2", "site-3"])
    keys, port = network.keys, free_port()
    certificates = ("--ssl-certfile", keys / "server.crt", "--ssl-keyfile", keys / "server.key")
    network.start(
        "superlink",
        *(network.bin / "flower-superlink", "--port", port, "--ssl-ca-certfile", keys / "ca.crt", *certificates),
        *("--disable-runtime-dependency-installation", "--enable-supernode-auth"),
    )
    network.until(lambda: replies(port), 60)
    hostile = Stranger(network, port)
    for name in ("site-0", "victim"):
        assert hostile.flwr("supernode", "register", keys / f"{name}.pub", "here").returncode == 0
    network.start(
        "victim",
        *(network.bin / "flower-supernode", "--superlink", f"127.0.0.1:{port}", "--port", free_port()),
        *("--root-certificates", keys / "ca.crt", "--auth-supernode-private-key", keys / "victim.key"),
        *("--node-config", f'site="{network.folder / "sites" / "victim" / "site.toml"}"'),
    )
    network.site("site-0", port=port)
    network.until(lambda: "connected" in network.log("site-0") and "SuperNode ID" in network.log("victim"), 60)
    ran = hostile.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    network.until(lambda: "replies" in hostile.found(), 90)
    found = hostile.found()
    # The app works: Flower's own node ran it. The site refused the message, and ran nothing.
    assert sorted(found.pop("replies").split()) == ["FormatError", "done"]
    assert found.pop("coordinator") == "here"
    assert list(found.values()) == [(network.folder / "sites" / "victim" / "site.toml").read_text()]
