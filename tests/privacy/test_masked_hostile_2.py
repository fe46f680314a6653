"""What a coordinator sees of sites besides masked sums: it must not depend on records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.test_masked_hostile import NAMES, make_sites

from locum import EmbeddingSet
from locum.data import read_embeddings, write_embeddings
from locum.errors import LocumError
from locum.federated import Coordinator, FederationSettings, LocalChannel, Reply, Site
from locum.federated.mask_keys import sign
from locum.federated.site_keys import read_site_key

FAR = float(np.finfo(np.float32).max)


def refusals(folder: Path, far: int) -> list[Any]:
    """What an honest run reports as refused, if so many records of the first site are far from all others."""
    hostile = make_sites(folder, np.full(4, FAR))
    file = folder / NAMES[0] / "records.npz"
    data = read_embeddings(file)
    X = data.X.copy()
    X[:far] = FAR
    write_embeddings(file, EmbeddingSet.from_arrays(X, np.array(["ant", "bee"] * 10)))
    seen: list[dict[str, Any]] = []
    settings = FederationSettings.read(folder / "federation.toml")
    files = {name: hostile.file(name) for name in NAMES}
    Coordinator(settings, folder / "out", on_event=seen.append).run(LocalChannel(files))
    return [event for event in seen if event["event"] == "refused"]


def test_whether_a_personal_model_was_made_is_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a second record that is far away, training the local head diverges."""
    assert refusals(tmp_path / "one", 1) == []
    assert Site(tmp_path / "one" / NAMES[0] / "site.toml").personal_folder.exists()
    assert refusals(tmp_path / "two", 2) == []
    assert not Site(tmp_path / "two" / NAMES[0] / "site.toml").personal_folder.exists()
    # The owner of the site is told, and only the owner.
    assert "personal model was not made" in capsys.readouterr().err
    assert "diverged" in (tmp_path / "two" / NAMES[0] / ".locum" / "federation" / "notes.log").read_text()


class Malicious(LocalChannel):
    """One site whose replies to a step are changed on the way."""

    def __init__(self, files: dict[str, Path], step: str, change: Any) -> None:
        super().__init__(files)
        self._step, self._change = step, change

    def ask(self, requests: Any, **more: Any) -> Any:
        replies = super().ask(requests, **more)
        asked = requests.get(NAMES[3])
        if asked is not None and asked.step == self._step:
            replies[NAMES[3]] = self._change(replies[NAMES[3]])
        return replies


def run_with(folder: Path, step: str, change: Any) -> list[dict[str, Any]]:
    hostile = make_sites(folder, np.ones(4))
    files = {name: hostile.file(name) for name in NAMES}
    seen: list[dict[str, Any]] = []
    settings = FederationSettings.read(folder / "federation.toml")
    Coordinator(settings, folder / "out", on_event=seen.append).run(Malicious(files, step, change))
    return seen


def test_a_site_that_announces_one_key_twice_is_left_out(tmp_path: Path) -> None:
    """All other sites would refuse the list, and the run could never go on."""
    file = tmp_path / "sites" / NAMES[3] / f"{NAMES[3]}.key"

    def twice(reply: Reply) -> Reply:
        said = dict(reply.facts["keys"])
        del said["signature"]
        said["masks"] = [said["masks"][0], said["masks"][0], *said["masks"][2:]]
        said["signature"] = sign(
            read_site_key(file), json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
        )
        return replace(reply, facts={"keys": said})

    seen = run_with(tmp_path / "sites", "join", twice)
    assert [(e["site"], e["reason"]) for e in seen if e["event"] == "refused"] == [
        (NAMES[3], "a key that occurs twice")
    ]


def test_a_site_that_sends_shares_of_a_wrong_length_is_left_out(tmp_path: Path) -> None:
    def short(reply: Reply) -> Reply:
        return replace(reply, tensors={name: blob[:-1] for name, blob in reply.tensors.items()})

    seen = run_with(tmp_path / "sites", "share", short)
    assert {(e["site"], e["step"]) for e in seen if e["event"] == "refused"} == {(NAMES[3], "share")}


def test_a_site_whose_shares_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Nothing is paid, and the coordinator learns whom to leave out of the next run."""

    def garbled(reply: Reply) -> Reply:
        return replace(reply, tensors={name: blob ^ 1 for name, blob in reply.tensors.items()})

    hostile = make_sites(tmp_path / "sites", np.ones(4))
    files = {name: hostile.file(name) for name in NAMES}
    seen: list[dict[str, Any]] = []
    settings = FederationSettings.read(tmp_path / "sites" / "federation.toml")
    with pytest.raises(LocumError, match="sites began"):
        Coordinator(settings, tmp_path / "out", on_event=seen.append).run(Malicious(files, "share", garbled))
    told = {e["site"]: e["reason"] for e in seen if e["event"] == "refused"}
    assert told.keys() == set(NAMES[:3])
    assert all(f"The shares of '{NAMES[3]}'" in reason for reason in told.values())
    assert all(not hostile.charges(name) for name in NAMES[:3])


def test_an_old_state_does_not_begin_again_with_another_holding(tmp_path: Path) -> None:
    """Its keys have been used, whoever pays."""
    hostile = make_sites(tmp_path / "sites", np.ones(4))
    keys = {name: hostile.ask(name, "join").facts["keys"] for name in NAMES}
    copy = hostile.copy_state(NAMES[0], "old")
    blobs = {name: hostile.ask(name, "share", 0, {"keys": keys}).tensors for name in NAMES}
    sent = {other: blobs[other][NAMES[0]] for other in NAMES[1:]}
    assert not hostile.ask(NAMES[0], "begin", 0, {}, sent).declined
    assert not hostile.sum(NAMES[0], 0, 1.0).declined
    file = hostile.file(NAMES[0])
    file.write_text(file.read_text() + 'holding = "other"\n')
    # The state as it is knows which charge it has.
    assert hostile.sum(NAMES[0], 1, 0.001).declined
    hostile.roll_back(NAMES[0], copy)
    hostile.ask(NAMES[0], "share", 0, {"keys": keys})
    assert hostile.ask(NAMES[0], "begin", 0, {}, sent).declined
    assert hostile.sum(NAMES[0], 0, 1.0).declined
