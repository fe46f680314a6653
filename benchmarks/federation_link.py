"""How long one exchange takes on a real link, and what an idle site costs: three sites as processes, TLS, signatures.

Each exchange sends 100 kB to every site and gets 100 kB back; sites compute nothing. A run of the mode "head" makes
about a hundred of them.

    OMP_NUM_THREADS=1 python benchmarks/federation_link.py [--quick]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import Message

from locum.federated import Reply, Request, make_certificates
from locum.federated.receipts import read_site_key, read_site_keys
from locum.federated.transport.flower import FlowerChannel, from_record, to_record, wait_for_sites
from locum.federated.transport.link import Link
from locum.federated.transport.node import activate, connection, serve

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
        keys = Path(folder) / "keys"
        make_certificates(keys, ["127.0.0.1"], SITES)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
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
                asked = {name: Request("sums", i, f"{i}-{name}", {"run": "x"}, tensors) for name in SITES}
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


if __name__ == "__main__":
    main()
