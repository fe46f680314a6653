"""A joint claim is checked against what every site signed; nobody can rewrite it, drop a site or add one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Ledger, joint_ledger
from locum.data import ledger_for, write_embeddings
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.federated import (
    Coordinator,
    FederationSettings,
    LocalChannel,
    Reply,
    Request,
    Site,
    make_site_key,
)
from locum.federated.claims import run_claim
from locum.federated.site_keys import read_site_key, read_site_keys
from locum.federated.terms import read_terms
from locum.generate import ClassGaussian
from locum.generate.private import LOOKED
from locum.recipes import merge_to_folder, verify_release
from locum.release import load
from locum.types import DP

pytestmark = pytest.mark.usefixtures("hardly_trained_personal_models")
Forge = Callable[..., None]
NAMES = ("site-a", "site-b", "site-c")


def run(folder: Path, *, signers: dict[str, str] | None = None, looked: str = "", **more: Any) -> Path:
    """A paid federation of three sites with keys; `signers` swaps keys; `looked` has seen a preview."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        make_site_key(folder / "keys", name)
    if more.get("secure") or more.get("mode") == "head":
        texts = {name: (folder / "keys" / f"{name}.pub").read_text().strip() for name in NAMES}
        more = {"sites": texts, "delta": 1e-5, **more}
    settings = FederationSettings(("ant", "bee"), dim=4, **{"mode": "sums", **more})
    (folder / "federation.toml").write_text(settings.to_toml())
    files, rng = {}, np.random.default_rng(0)
    for name in NAMES:
        home = folder / name
        home.mkdir()
        data = EmbeddingSet.from_arrays(rng.normal(size=(60, 4)), np.array(["ant", "bee"] * 30))
        write_embeddings(home / "records.npz", data)
        budget = f"epsilon = {1 + NAMES.index(name)}.0\ndelta = 1e-5\nn_public = 60"
        (home / "site.toml").write_text(f'data = "records.npz"\nfederation = "../federation.toml"\n{budget}\n')
        files[name] = home / "site.toml"
        if name == looked:
            Ledger(ledger_for(home / "records.npz")).note_look("default", "preview of budgets")
    keys = {name: read_site_key(folder / "keys" / f"{(signers or {}).get(name, name)}.key") for name in NAMES}
    channel = LocalChannel(files, keys)
    return Coordinator(settings, folder / "out", keys=read_site_keys(folder / "keys")).run(channel)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation")
    run(folder)
    return folder


@pytest.fixture
def copy(federation: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(federation / "out" / "release", tmp_path / "release"))


@pytest.mark.parametrize("more", [{}, {"secure": True}, {"mode": "head"}, {"max_sites_per_subject": 1}])
def test_an_honest_result_passes(tmp_path: Path, more: dict[str, Any]) -> None:
    release = run(tmp_path / "run", **more)
    found = verify_release(release, site_keys=tmp_path / "run" / "keys")
    assert "each of the 3 sites signed a receipt of its charge (site-a, site-b, site-c)" in found.checks
    assert "the claim follows from the receipts" in found.checks
    ledger = tmp_path / "run" / "site-b" / ".locum" / "ledger.sqlite"
    noted = "the ledger noted this release when the coordinator sent it as the result"
    assert noted in verify_release(release, ledger=ledger).checks


def test_a_look_at_one_site_is_in_the_claim_and_cannot_be_left_out(forge: Forge, tmp_path: Path) -> None:
    release = run(tmp_path / "run", looked="site-b")
    verify_release(release, site_keys=tmp_path / "run" / "keys")
    assert LOOKED in load(release).claim.not_covered

    def forget(body: dict[str, Any]) -> None:
        body["claim"]["not_covered"].remove(LOOKED)
        for site in body["settings"]["sites"]:
            site.pop("looked", None)

    forge(release, forget)
    with pytest.raises(PrivacyError, match="false"):
        verify_release(release, site_keys=tmp_path / "run" / "keys")


def test_without_keys_it_says_what_was_not_checked(copy: Path) -> None:
    assert (
        "what each site paid: check the sites' signed receipts with --site-keys" in verify_release(copy).not_checked
    )


def lower_epsilon(body: dict[str, Any]) -> None:
    """The claim of the cheapest site for the whole run."""
    site = min(body["settings"]["sites"], key=lambda site: site["epsilon"])
    body["claim"]["dp"].update(epsilon=site["epsilon"], events=site["events"])


def invent_a_site(body: dict[str, Any]) -> None:
    body["settings"]["sites"].append({**body["settings"]["sites"][0], "ledger": "f" * 64})
    body["claim"]["dp"]["ledger"] = joint_ledger([site["ledger"] for site in body["settings"]["sites"]])


def per_subject(body: dict[str, Any]) -> None:
    body["claim"]["unit"] = "subject"
    for site in body["settings"]["sites"]:
        site["unit"] = "subject"


def cheaper_site(body: dict[str, Any]) -> None:
    site = max(body["settings"]["sites"], key=lambda site: site["epsilon"])
    site["events"] = min(body["settings"]["sites"], key=lambda site: site["epsilon"])["events"]


def less_left_open(body: dict[str, Any]) -> None:
    body["claim"]["not_covered"] = ["nothing of importance"]


def one_site_per_subject(body: dict[str, Any]) -> None:
    """As if the sites had agreed that nobody is at two of them: the claim would follow from the receipts."""
    body["settings"]["federation"]["max_sites_per_subject"] = 1
    site = max(body["settings"]["sites"], key=lambda site: site["epsilon"])
    body["claim"]["dp"].update(epsilon=site["epsilon"], events=site["events"], delta=site["delta"])
    open_question = "a subject with records at more than 1 of the 3 sites, and two releases of one site"
    body["claim"]["not_covered"].append(open_question)


def another_run(body: dict[str, Any]) -> None:
    body["settings"]["run"] = "0" * 32


def less_noise_in_the_events(body: dict[str, Any]) -> None:
    body["claim"]["dp"]["events"] = [{"kind": "gaussian", "noise_multiplier": 1000.0}]


def a_cheaper_look(body: dict[str, Any]) -> None:
    body["settings"]["sites"][0]["epsilon"] = 0.001


def more_said_about_a_site(body: dict[str, Any]) -> None:
    body["settings"]["sites"][0]["audited"] = "yes"


def other_class_names(body: dict[str, Any]) -> None:
    body["class_names"] = ["bee", "ant"]


def no_settings(body: dict[str, Any]) -> None:
    del body["settings"]["federation"]


def odd_settings(body: dict[str, Any]) -> None:
    body["settings"]["federation"] = [1]


def unsigned(body: dict[str, Any]) -> None:
    del body["settings"]["sites"][0]["receipt"]


@pytest.mark.parametrize(
    "change",
    [
        lower_epsilon,
        invent_a_site,
        per_subject,
        cheaper_site,
        less_left_open,
        one_site_per_subject,
        another_run,
        unsigned,
        less_noise_in_the_events,
        a_cheaper_look,
        more_said_about_a_site,
        other_class_names,
        no_settings,
        odd_settings,
    ],
)
def test_a_forged_claim_is_refused(
    forge: Forge, change: Callable[[dict[str, Any]], None], copy: Path, federation: Path, tmp_path: Path
) -> None:
    forge(copy, change)
    with pytest.raises(LocumError):
        verify_release(copy, site_keys=federation / "keys")


def test_a_site_that_is_left_out_is_named(forge: Forge, copy: Path, federation: Path) -> None:
    """Fewer sites can be an honest run too: the reader learns who has not signed, and a site's own ledger objects."""

    def leave_out(body: dict[str, Any]) -> None:
        sites = body["settings"]["sites"]
        left = sites.pop(max(range(3), key=lambda i: sites[i]["epsilon"]))
        claims = [read_terms({"noise": 1.0, "size": 1, "terms": site}).claim for site in sites]
        claim = run_claim(FederationSettings.from_dict(body["settings"]["federation"]), claims)
        body["claim"] = claim.to_dict()
        gone.append(left["ledger"])

    gone: list[str] = []
    forge(copy, leave_out)
    found = verify_release(copy, site_keys=federation / "keys")
    assert "whether records of site-c were used: no receipt of theirs is listed" in found.not_checked
    assert any(line.startswith("the decoder: receipts cover payments") for line in found.not_checked)
    for site in ("site-a", "site-c"):
        with pytest.raises(PrivacyError):
            verify_release(copy, ledger=federation / site / ".locum" / "ledger.sqlite")


def test_a_site_vouches_for_one_true_result(federation: Path, tmp_path: Path) -> None:
    """A coordinator could have sent several, with any claim and decoder."""
    settings = FederationSettings.read(federation / "federation.toml")
    honest = load(federation / "out" / "release")
    before = Ledger(federation / "site-a" / ".locum" / "ledger.sqlite").export()

    def send(change: Callable[[dict[str, Any]], None], tensors: dict[str, Any]) -> Reply:
        body = json.loads(honest.manifest.dumps())
        change(body)
        run = honest.manifest.settings["run"]
        facts = {"run": run, "settings": settings.to_dict(), "manifest": json.dumps(body)}
        return Site(federation / "site-a" / "site.toml").reply(Request("finish", 0, "0" * 32, facts, tensors))

    def alone(body: dict[str, Any]) -> None:
        (own,) = [site for site in body["settings"]["sites"] if site["epsilon"] < 1.01]
        body["claim"]["dp"].update({key: own[key] for key in ("epsilon", "delta", "events", "ledger")})
        body["settings"] = {}

    other = {**honest.tensors, "means": honest.tensors["means"] + 1}
    for change, tensors in (
        (lower_epsilon, honest.tensors),
        (less_left_open, honest.tensors),
        (alone, honest.tensors),
        (lambda body: None, other),
    ):
        assert send(change, dict(tensors)).declined
    assert Ledger(federation / "site-a" / ".locum" / "ledger.sqlite").export() == before
    kept = load(federation / "site-a" / ".locum" / "federation" / "global")
    assert kept.fingerprint == honest.fingerprint


def test_merged_releases_are_known_by_their_sources(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        X, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 2
        budget = DP(1.0, 1e-5, n_public=60)
        model = ClassGaussian(privacy=budget, classes=[0, 1], ledger=tmp_path / f"{name}.sqlite")
        model.fit(X, y).release().save(tmp_path / name)
    merge_to_folder([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    found = verify_release(tmp_path / "merged", ledger=tmp_path / "a.sqlite")
    assert "the ledger knows the site's own release, which was merged" in found.checks
    assert any("the decoder was made from" in line for line in found.not_checked)


def test_keys_of_others_confirm_nothing(copy: Path, tmp_path: Path) -> None:
    make_site_key(tmp_path / "keys", "site-a")
    with pytest.raises(PrivacyError, match="no receipt signed with a key"):
        verify_release(copy, site_keys=tmp_path / "keys")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no public key"):
        verify_release(copy, site_keys=tmp_path / "empty")


def test_the_coordinator_leaves_out_a_site_that_signs_with_another_key(tmp_path: Path) -> None:
    release = run(tmp_path / "run", signers={"site-c": "site-b"})
    found = verify_release(release, site_keys=tmp_path / "run" / "keys")
    assert "each of the 2 sites signed a receipt of its charge (site-a, site-b)" in found.checks
