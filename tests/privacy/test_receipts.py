"""A joint claim is checked against what every site signed; nobody can rewrite it, drop a site or add one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import joint_ledger
from locum.data import write_embeddings
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.federated import Coordinator, FederationSettings, LocalChannel, make_site_key
from locum.federated.receipts import read_site_key, read_site_keys
from locum.recipes import verify_release

Forge = Callable[..., None]
NAMES = ("site-a", "site-b", "site-c")


def run(folder: Path, *, signers: dict[str, str] | None = None, **more: Any) -> Path:
    """A paid federation of three sites with keys; `signers` swaps keys."""
    settings = FederationSettings(("ant", "bee"), dim=4, mode="sums", **more)
    folder.mkdir(exist_ok=True)
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
        make_site_key(folder / "keys", name)
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


@pytest.mark.parametrize("more", [{}, {"secure": True}, {"max_sites_per_subject": 1}])
def test_an_honest_result_passes(tmp_path: Path, more: dict[str, Any]) -> None:
    release = run(tmp_path / "run", **more)
    found = verify_release(release, site_keys=tmp_path / "run" / "keys")
    assert "each of the 3 sites signed a receipt of its charge (site-a, site-b, site-c)" in found.checks
    assert "the claim follows from the receipts" in found.checks
    ledger = tmp_path / "run" / "site-b" / ".locum" / "ledger.sqlite"
    assert any(
        "knows this release by its fingerprint" in check for check in verify_release(release, ledger=ledger).checks
    )


def test_without_keys_it_says_what_was_not_checked(copy: Path) -> None:
    assert (
        "what each site paid: check the sites' signed receipts with --site-keys" in verify_release(copy).not_checked
    )


def lower_epsilon(body: dict[str, Any]) -> None:
    """The claim of the cheapest site for the whole run."""
    site = min(body["settings"]["sites"], key=lambda site: site["epsilon"])
    body["claim"]["dp"].update(epsilon=site["epsilon"], events=site["events"])


def forget_a_site(body: dict[str, Any]) -> None:
    body["settings"]["sites"].pop()
    body["claim"]["dp"]["ledger"] = joint_ledger([site["ledger"] for site in body["settings"]["sites"]])


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
    ],
)
def test_a_forged_claim_is_refused(
    forge: Forge, change: Callable[[dict[str, Any]], None], copy: Path, federation: Path, tmp_path: Path
) -> None:
    forge(copy, change)
    with pytest.raises(LocumError):
        verify_release(copy, site_keys=federation / "keys")


def test_a_site_that_is_left_out_is_named(forge: Forge, copy: Path, federation: Path) -> None:
    """Fewer sites can be an honest run too, so the reader learns who signed, and the site's own ledger objects."""
    forge(copy, forget_a_site)
    with pytest.raises(LocumError):
        verify_release(copy, ledger=federation / "site-a" / ".locum" / "ledger.sqlite", site_keys=federation / "keys")


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
