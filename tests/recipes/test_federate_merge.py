"""Three sites, three ledgers, three folders, one result: what `federate merge` does, all of it real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locum
from locum.errors import ConfigError, PrivacyError, ReleaseError
from locum.generate import ClassGaussian
from locum.recipes import merge_to_folder, sample_to_file, verify_release
from locum.recipes.federate import MergeSummary
from locum.types import DP

BUDGET = DP(epsilon=2.0, delta=1e-4, n_public=100)


@pytest.fixture
def folders(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> list[Path]:
    X, y = blobs
    out = []
    for i in range(3):
        rows = np.arange(len(y)) % 3 == i
        site = tmp_path / f"site{i}"
        site.mkdir()
        settings = {"mechanism": "means", "ledger": site / "ledger.sqlite", "random_state": i}
        fit = ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], **settings)
        release = fit.fit(X[rows], y[rows]).release(class_names=["ant", "bee", "cat"])
        out.append(release.save(site / "release"))
    return out


@pytest.mark.parametrize(("weights", "how"), [("counts", "sums"), ("equal", "mixture")])
def test_merge_save_sample_verify(folders: list[Path], tmp_path: Path, weights: Any, how: str) -> None:
    summary = merge_to_folder(folders, tmp_path / "global", weights=weights)
    assert isinstance(summary, MergeSummary)
    assert summary.how == how
    assert summary.fingerprint == locum.load(tmp_path / "global").fingerprint
    verified = verify_release(tmp_path / "global")
    assert "the claimed epsilon covers what its events cost" in verified.checks
    told = json.loads(json.dumps(summary.to_dict()))
    assert told["claim"]["kind"] == "dp"
    assert told["max_sites_per_subject"] == 3
    assert [site["epsilon"] <= 2.0 for site in told["sites"]] == [True] * 3
    drawn = sample_to_file(tmp_path / "global", tmp_path / "drawn.npz", n=50, seed=0)
    assert (drawn["rows"], drawn["classes"]) == (50, ["ant", "bee", "cat"])
    left = (tmp_path / "global" / "manifest.json").read_text() + (tmp_path / "global" / "README.md").read_text()
    assert "site0" not in left
    assert str(tmp_path) not in left


def test_subjects_at_one_site_only_get_that_sites_epsilon(folders: list[Path], tmp_path: Path) -> None:
    one = merge_to_folder(folders, tmp_path / "one", max_sites_per_subject=1)
    every = merge_to_folder(folders, tmp_path / "every")
    assert one.claim.dp is not None
    assert every.claim.dp is not None
    assert one.claim.dp.epsilon == pytest.approx(max(site["epsilon"] for site in one.sites))
    assert one.claim.dp.epsilon < every.claim.dp.epsilon
    assert "more than 1 of the 3 sites" in " ".join(one.claim.not_covered)
    verify_release(tmp_path / "one")


def test_a_site_that_claims_too_little_is_refused(folders: list[Path], tmp_path: Path) -> None:
    file = folders[1] / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["claim"]["dp"]["epsilon"] = 0.1
    file.write_text(json.dumps(manifest))
    with pytest.raises(PrivacyError, match=r"claims epsilon 0\.1"):
        merge_to_folder(folders, tmp_path / "global")
    assert not (tmp_path / "global").exists()


def test_nothing_is_lost(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of the releases to merge"):
        merge_to_folder(folders, folders[0], overwrite=True)
    merge_to_folder(folders, tmp_path / "global")
    with pytest.raises(ConfigError, match="already exists"):
        merge_to_folder(folders, tmp_path / "global")
    merge_to_folder(folders[:2], tmp_path / "global", overwrite=True)
    assert len(locum.load(tmp_path / "global").manifest.settings["sites"]) == 2


def test_damaged_missing_or_repeated_folders(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        merge_to_folder([folders[0], folders[1], folders[0]], tmp_path / "global")
    with pytest.raises(ReleaseError, match="not a folder"):
        merge_to_folder([folders[0], tmp_path / "nowhere"], tmp_path / "global")
    (folders[2] / "decoder.safetensors").write_bytes(b"")
    with pytest.raises(ReleaseError):
        merge_to_folder(folders, tmp_path / "global")
    with pytest.raises(ConfigError, match="two or more sites"):
        merge_to_folder(folders[:1], tmp_path / "global")
    assert not (tmp_path / "global").exists()
