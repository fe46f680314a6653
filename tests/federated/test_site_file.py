"""`site.toml`: read, or refused in one sentence, before any record is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.federated import FederationSettings, SiteFile
from locum.types import DP, EmbeddingInfo

Make = Callable[..., Path]
Terms = Callable[..., FederationSettings]


def test_a_site_is_what_its_file_says(site_of: Make, little: Terms) -> None:
    file = SiteFile.read(site_of(unit="record", holding="scans"))
    assert file.privacy() == DP(2.0, 1e-4, "record", 50)
    records = file.records(little())
    assert (len(records.train), records.validation) == (40, None)
    # Codes follow the federation's order, not the file's.
    turned = file.records(little(classes=("bee", "cow", "ant"))).train
    np.testing.assert_array_equal(turned.y, np.where(records.train.y == 0, 2, 0))


def test_paths_are_relative_to_the_file(site_of: Make, little: Terms, tmp_path: Path, monkeypatch: Any) -> None:
    path = site_of(validation="records.npz")
    assert SiteFile.read(path).ledger_file == path.parent / ".locum" / "ledger.sqlite"
    monkeypatch.chdir(path.parent)
    found = SiteFile.read("site.toml")
    assert found.records(little()).validation is not None
    named = SiteFile.read(site_of("named", ledger="../books/ledger.sqlite"))
    assert named.ledger_file.resolve() == tmp_path / "books" / "ledger.sqlite"
    part = SiteFile.read(site_of("part", data="all.npz#train"))
    assert part.ledger_file == tmp_path / "part" / ".locum" / "ledger.sqlite"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"epsilon": None}, PrivacyError),
        ({"delta": None}, PrivacyError),
        ({"delta": 0.1}, PrivacyError),
        ({"epsilon": "much"}, ConfigError),
        ({"epsilon": 0.0}, ConfigError),
        ({"unit": "house"}, ConfigError),
        ({"relation": 3}, ConfigError),
        ({"data": None}, ConfigError),
        ({"data": 5}, ConfigError),
        ({"ledger": 5}, ConfigError),
        ({"validation": 5}, ConfigError),
        ({"holding": 5}, ConfigError),
        ({"insecure_seed": True}, ConfigError),
        ({"insecure_seed": False}, ConfigError),
        ({"insecure_seed": "1"}, ConfigError),
        ({"insecure_seed": -1}, ConfigError),
        ({"epsilom": 1.0}, ConfigError),
        ({"folder": "elsewhere"}, ConfigError),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(more: dict[str, Any], error: type[Exception], site_of: Make) -> None:
    path = site_of(**more)
    with pytest.raises(error) as told:
        SiteFile.read(path)
    assert "\n" not in str(told.value)
    assert not (path.parent / ".locum").exists()


def test_only_a_simulation_may_be_without_a_budget(site_of: Make) -> None:
    assert SiteFile.read(site_of(epsilon=None, insecure_seed=0)).privacy() is None


@pytest.mark.parametrize("text", [b"data = ", b"\xff\xfe", None], ids=["half", "no text", "none"])
def test_what_is_not_toml_is_refused(text: bytes | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "site.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=r"site\.toml"):
        SiteFile.read(tmp_path / "site.toml")


def test_vectors_of_another_kind_are_refused(site_of: Make, little: Terms) -> None:
    file = SiteFile.read(path := site_of())
    with pytest.raises(DataError, match="5 features"):
        file.records(little(dim=5))
    with pytest.raises(DataError):
        file.records(little(classes=("ant", "cow")))
    X = np.zeros((4, 4), dtype=np.float32)
    data = EmbeddingSet.from_arrays(X, np.array(["ant", "bee"] * 2), info=EmbeddingInfo(backbone="efflite1"))
    write_embeddings(path.parent / "records.npz", data)
    file.records(little(backbone="efflite1"))
    file.records(little())
    with pytest.raises(DataError, match="efflite0"):
        file.records(little(backbone="efflite0"))
    with pytest.raises(DataError, match="subject"):
        SiteFile.read(site_of("subjects", unit="subject")).records(little())


def test_a_guarantee_refuses_a_random_part(site_of: Make) -> None:
    for name, data in (("one", "records.npz#[20]"), ("two", "records.npz#train[20]")):
        with pytest.raises(PrivacyError, match="random part"):
            SiteFile.read(site_of(name, data=data))
