"""The hub's real client against a server on this machine: what is read, what is pushed, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.release.hub_server import Hub, Repo, running_hub

import locum
from locum.errors import ConfigError, DataError, FormatError, IntegrityError, PolicyError
from locum.generate import ClassGaussian, KSame
from locum.recipes import push_to_hub
from locum.release import hub_place, pack_release, release_files
from locum.types import DP

pytest.importorskip("huggingface_hub", reason="needs the extra hub")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    from huggingface_hub import constants

    with running_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("HF_TOKEN", "hf_only_for_tests")
        yield server


def agree(_: str) -> None: ...


def test_a_pushed_release_is_loaded_again(folder: Path, hub: Hub) -> None:
    (folder.parent / "report.html").write_text("internal")
    said: list[str] = []
    made = push_to_hub(folder, "clinic/scans", confirm=said.append)
    repo = hub.repos["models/clinic/scans"]
    assert repo.private
    assert repo.files == release_files(folder)
    assert "those you give access to" in said[0]
    assert hub.cards[0]["content"].encode() == repo.files["README.md"]
    repo.files |= {".gitattributes": b"x", "notes.txt": b"not part of it"}
    found = locum.load(made["address"])
    assert found.fingerprint == made["fingerprint"]
    assert locum.load(Path("hf://clinic/scans@main")).fingerprint == made["fingerprint"]
    assert not any("notes.txt" in call for call in hub.calls)


def test_a_table_is_a_dataset_and_public_is_said(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path, hub: Hub
) -> None:
    table = KSame(k=5, random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "table")
    said: list[str] = []
    made = push_to_hub(table, "clinic/rows", public=True, confirm=said.append)
    assert not hub.repos["datasets/clinic/rows"].private
    assert "everybody" in said[0]
    assert locum.load(made["address"]).manifest.kind == "data"


def test_nothing_is_sent_before_the_confirmation(folder: Path, hub: Hub) -> None:
    def refuse(_: str) -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        push_to_hub(folder, "clinic/scans", confirm=refuse)
    assert not hub.calls


def test_another_visibility_is_refused(folder: Path, hub: Hub) -> None:
    hub.repos["models/clinic/open"] = Repo(private=False)
    with pytest.raises(ConfigError, match="is public and you asked for a private one"):
        push_to_hub(folder, "clinic/open", confirm=agree)
    assert not hub.repos["models/clinic/open"].files
    hub.always_public = True
    with pytest.raises(ConfigError, match="is public"):
        push_to_hub(folder, "clinic/new", confirm=agree)
    assert not hub.repos["models/clinic/new"].files


def test_a_repository_with_other_things_is_refused(folder: Path, hub: Hub) -> None:
    hub.repos["models/clinic/mixed"] = Repo(True, {"train.py": b"x"})
    with pytest.raises(ConfigError, match=r"train\.py"):
        push_to_hub(folder, "clinic/mixed", confirm=agree)
    assert list(hub.repos["models/clinic/mixed"].files) == ["train.py"]


def test_what_is_not_an_intact_release_is_never_pushed(folder: Path, hub: Hub) -> None:
    (folder / "report.html").write_text("internal figures")
    with pytest.raises(IntegrityError, match=r"report\.html"):
        push_to_hub(folder, "clinic/scans", confirm=agree)
    (folder / "report.html").unlink()
    raw = bytearray((folder / "decoder.safetensors").read_bytes())
    raw[-1] ^= 1
    (folder / "decoder.safetensors").write_bytes(bytes(raw))
    with pytest.raises(IntegrityError):
        push_to_hub(folder, "clinic/scans", confirm=agree)
    assert not hub.calls


def test_a_release_whose_policy_is_not_met_stays(folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from locum.recipes import export, verify_release

    found = replace(verify_release(folder), refused=True, audit="a leak was found.")
    monkeypatch.setattr(export, "verify_release", lambda _: found)
    with pytest.raises(PolicyError, match="must not leave"):
        push_to_hub(folder, "clinic/scans", confirm=agree)
    assert not hub.calls


def test_a_new_release_replaces_all_files_of_the_old(folder: Path, hub: Hub) -> None:
    hub.repos["models/clinic/scans"] = Repo(True, {"passport.json": b"old", ".gitattributes": b"x"})
    push_to_hub(folder, "clinic/scans", confirm=agree)
    assert set(hub.repos["models/clinic/scans"].files) == {*release_files(folder), ".gitattributes"}


@pytest.mark.parametrize("address", ["hf://x", "hf://a/b/../c", "hf://a b/c", "hf://", "hf://a/b@"])
def test_a_wrong_address_is_one_sentence(address: str) -> None:
    with pytest.raises(ConfigError, match="OWNER/NAME"):
        hub_place(address)


def test_what_the_hub_does_not_have(hub: Hub) -> None:
    with pytest.raises(DataError, match="has nothing at"):
        locum.load("hf://clinic/nothing")
    hub.repos["models/clinic/other"] = Repo(True, {"model.bin": b"x"})
    with pytest.raises(FormatError, match=r"no manifest\.json"):
        locum.load("hf://clinic/other")


def test_an_altered_file_on_the_hub_is_refused(folder: Path, hub: Hub) -> None:
    files = release_files(folder)
    hub.repos["models/clinic/evil"] = Repo(False, {**files, "README.md": files["README.md"] + b"x"})
    with pytest.raises(IntegrityError, match=r"README\.md"):
        locum.load("hf://clinic/evil")


def test_no_hub_at_all(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="Check the address"):
        locum.load("hf://clinic/scans")


def test_load_reads_a_zip_and_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "sent.zip"
    packed.write_bytes(pack_release(folder))
    before = sorted(tmp_path.iterdir())
    assert locum.load(packed).fingerprint == locum.load(folder).fingerprint
    assert sorted(tmp_path.iterdir()) == before
    packed.write_bytes(packed.read_bytes()[:-5])
    with pytest.raises(FormatError):
        locum.load(packed)
    with pytest.raises(ConfigError, match="Download it first"):
        locum.load("https://example.org/release.zip")


def test_the_card_s_metadata_are_what_the_hub_knows(folder: Path) -> None:
    from huggingface_hub import DatasetCard, ModelCard

    text = (folder / "README.md").read_text()
    for card in (ModelCard(text, ignore_metadata_errors=False), DatasetCard(text, ignore_metadata_errors=False)):
        data = card.data.to_dict()
        assert data["license"] == "unknown"
        assert "locum" in data["tags"]
        assert data["library_name"] == "locum"


def test_a_test_release_is_not_pushed(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path, hub: Hub) -> None:
    """Its noise can be drawn again by anyone: it is as good as the exact sums."""
    made = ClassGaussian(privacy=DP(1.0, 1e-6), classes=sorted(set(blobs[1].tolist())), insecure_seed=1).fit(*blobs)
    folder = made.release().save(tmp_path / "test")
    with pytest.raises(PolicyError, match="insecure seed"):
        push_to_hub(folder, "clinic/scans", confirm=agree)
    assert not hub.calls


def test_a_release_that_was_replaced_after_its_checks_is_not_pushed(
    blobs: tuple[np.ndarray, np.ndarray], folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from locum.recipes import export, verify_release

    def late(path: Path) -> object:
        found = verify_release(path)
        KSame(k=5, random_state=0).fit(*blobs).release(no_dp=True).save(path, overwrite=True)
        return found

    monkeypatch.setattr(export, "verify_release", late)
    with pytest.raises(IntegrityError, match="was replaced"):
        push_to_hub(folder, "clinic/scans", confirm=agree)
    assert not hub.calls


def test_a_hub_that_lies_about_sizes_is_not_read_into_memory(
    folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from locum.release import hub as reading

    hub.repos["models/clinic/large"] = Repo(False, {**release_files(folder), "passport.md": b"x" * 4096})
    told = reading._client

    class Lying:
        def repo_info(self, *words: object, **options: object) -> object:
            info = told().repo_info(*words, **options)
            for file in info.siblings:
                file.size = None
            return info

        def hf_hub_download(self, *words: object, **options: object) -> object:
            return told().hf_hub_download(*words, **options)

    monkeypatch.setattr(reading, "_client", Lying)
    monkeypatch.setattr(reading, "MAX_ARCHIVE_BYTES", 4000)
    with pytest.raises(FormatError, match="larger than"):
        locum.load("hf://clinic/large")
