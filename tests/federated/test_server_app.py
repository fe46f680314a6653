from __future__ import annotations

import pytest

from locum.errors import PolicyError
from locum.federated import NoReply, Reply, Request

pytest.importorskip("flwr")

from locum.federated.transport.server_app import wait_for_sites


class Slowly:
    """One site more at each look."""

    def __init__(self) -> None:
        self.number = 0

    def sites(self) -> list[str]:
        self.number += 1
        return [f"site-{i}" for i in range(self.number)]

    def ask(self, requests: dict[str, Request], *, timeout: float) -> dict[str, Reply | NoReply]:
        raise AssertionError("nobody is asked before all are there")


def test_it_waits_for_the_sites() -> None:
    assert wait_for_sites(Slowly(), 3, wait=20, pause=0.01) == ["site-0", "site-1", "site-2"]


def test_but_not_for_ever() -> None:
    with pytest.raises(PolicyError, match="of 1000 sites are connected after 0 s"):
        wait_for_sites(Slowly(), 1000, wait=0, pause=0.01)
