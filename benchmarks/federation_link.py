"""A federation over a real link, with three sites as processes: TLS, signatures, ledgers.

First the link alone: each exchange sends 100 kB to every site and gets 100 kB back; sites compute nothing. A run in
mode "head" makes about a hundred of them. Then two whole runs under a guarantee, from the first process to the
release, with 1000 made-up records of 1280 features per site: mode "decoder", three rounds of the federated paper's
network, and mode "head".

    OMP_NUM_THREADS=1 python benchmarks/federation_link.py [--quick]
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np
from flwr.app import Message

from locum.federated import (
    FederationSettings,
    Reply,
    Request,
    coordinate,
    make_certificates,
    pin_keys,
    write_federation,
)
from locum.federated.transport.flower import FlowerChannel, from_record, to_record, wait_for_sites
from locum.federated.transport.link import Link, read_site_keys
from locum.federated.transport.node import activate, connection, read_site_key, serve

SITES = ("site-a", "site-b", "site-c")
NUMBERS = 12_500  # of 8 bytes


def echo(message: Message) -> tuple[Message, Request | None]:
    """The reply of a site that sends back what it got."""
    request = from_record(message.content)
    assert isinstance(request, Request)
    reply = Reply(request.step, request.round, request.nonce, "", {}, request.tensors)
    return Message(to_record(reply), reply_to=message), request


def site(address: str, keys: Path, name: str) -> None:
    private = read_site_key(keys / f"{name}.key")
    with connection(address, keys / "ca.crt", private) as client:
        serve(client, activate(client, private, address), echo, 1.0, lambda event: None)


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def time_exchanges(folder: Path, rounds: int, idle: float) -> None:
    keys, port = folder / "keys", free_port()
    make_certificates(keys, ["127.0.0.1"], SITES)
    with Link(read_site_keys(keys), keys, listen="127.0.0.1", port=port) as link:
        command = [sys.executable, __file__, "--site", f"127.0.0.1:{port}", str(keys)]
        started = time.perf_counter()
        processes = [subprocess.Popen([*command, name]) for name in SITES]
        channel = FlowerChannel(link.grid, withdraw=link.grid.withdraw)
        wait_for_sites(channel, len(SITES), wait=60, pause=0.05)
        print(f"{len(SITES)} sites connected after {time.perf_counter() - started:.1f} s", flush=True)
        took = []
        for i in range(rounds):
            began = time.perf_counter()
            tensors = {"sums": np.random.default_rng(i).normal(size=NUMBERS)}
            asked = {name: Request("train", i, f"{i}-{name}", {"run": "x"}, tensors) for name in SITES}
            replies = channel.ask(asked, timeout=60)
            assert all(isinstance(reply, Reply) for reply in replies.values()), replies
            took.append(time.perf_counter() - began)
        middle, worst = float(np.median(took)), max(took)
        print(
            f"{rounds} exchanges with {len(SITES)} sites, 100 kB each way: {np.mean(took):.3f} s each (median "
            f"{middle:.3f}, worst {worst:.3f})",
            flush=True,
        )
        time.sleep(5)
        before = [cpu_seconds(process.pid) for process in processes]
        time.sleep(idle)
        used = [cpu_seconds(process.pid) - b for process, b in zip(processes, before, strict=True)]
        print(f"an idle site uses {max(used) / idle:.1%} of one processor", flush=True)
        channel.ask({name: Request("finish", 0, name, {"run": "x"}) for name in SITES}, timeout=60)
        for process in processes:
            process.wait(20)


def time_run(folder: Path, mode: Literal["head", "decoder"]) -> None:
    """A whole run, in mode "decoder" of three rounds, from the start of the first process to the release."""
    folder.mkdir()
    settings = FederationSettings(tuple(map(str, range(10))), dim=1280, mode=mode, rounds=3, delta=1e-5)
    write_federation(folder / "terms", settings, sites=SITES, host="127.0.0.1", port=8010)
    make_certificates(folder / "run-keys", ["127.0.0.1"], SITES)
    if mode == "head":
        pin_keys(folder / "terms" / "federation.toml", folder / "run-keys")
    rng, port = np.random.default_rng(0), free_port()
    centers = 0.2 * rng.normal(size=(10, 1280))
    for name in SITES:
        (folder / name).mkdir()
        y = rng.integers(10, size=1000)
        X = (rng.normal(size=(1000, 1280)) + centers[y]).astype(np.float32)
        np.savez(folder / name / "train.npz", X=X, y=y)
        (folder / name / "site.toml").write_text(
            f'data = "train.npz"\nfederation = "{folder}/terms/federation.toml"\n'
            "epsilon = 1.0\ndelta = 1e-5\nn_public = 1000\n"
        )
    keys = folder / "run-keys"
    locum = [sys.executable, "-m", "locum", "federate"]
    to = ["--coordinator", f"127.0.0.1:{port}", "--ca", str(keys / "ca.crt")]
    work, own = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    before = work.ru_utime + work.ru_stime
    started = time.perf_counter()
    processes = [
        subprocess.Popen(
            [*locum, "join", f"{folder / name}/site.toml", *to, "--key", f"{keys / name}.key"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in SITES
    ]
    marks: list[tuple[str, float]] = []

    def on_event(event: dict[str, object]) -> None:
        marks.append((f"{event['event']} {event.get('round', '')}".strip(), time.perf_counter() - started))

    terms = FederationSettings.read(folder / "terms" / "federation.toml")
    coordinate(terms, keys, folder / "out", port=port, on_event=on_event)
    done = time.perf_counter() - started
    for process in processes:
        process.wait(60)
    all_done = time.perf_counter() - started
    shown = [mark for mark in marks if mark[0] != "sum"] + [mark for mark in marks if mark[0] == "sum"][-1:]
    print("; ".join(f"{what} {at:.1f} s" for what, at in shown), flush=True)
    work = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = work.ru_utime + work.ru_stime - before + time.process_time() - own
    print(
        f"mode {mode}: 3 sites, {len(marks) - 3} sums or rounds under a guarantee: release after {done:.1f} s, all "
        f"sites done after {all_done:.1f} s; "
        f"{busy:.0f} s of processor time in all processes",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10 exchanges, and a short idle time")
    parser.add_argument("--site", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.site:
        site(options.site[0], Path(options.site[1]), options.site[2])
        return
    rounds, idle = (10, 10.0) if options.quick else (60, 30.0)
    with tempfile.TemporaryDirectory() as folder:
        time_exchanges(Path(folder), rounds, idle)
        for mode in ("decoder", "head"):
            time_run(Path(folder) / mode, mode)


if __name__ == "__main__":
    main()
