"""Code of others that ships with the studio: each file is listed, with its origin, license and hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import locum.studio

VENDOR = Path(locum.studio.__file__).parent / "static" / "vendor"
LISTED = json.loads((VENDOR / "VENDORED.json").read_bytes())


def test_every_file_is_the_one_that_was_listed() -> None:
    found = {p.relative_to(VENDOR).as_posix(): p for p in VENDOR.rglob("*") if p.name != "VENDORED.json"}
    hashes = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in found.items()}
    assert hashes == LISTED["sha256"]


def test_every_file_belongs_to_a_package_with_a_license() -> None:
    packages = LISTED["packages"]
    assert {name for package in packages for name in package["files"]} == set(LISTED["sha256"])
    for package in packages:
        assert package["version"]
        assert package["package"].startswith("npm:")
        (text,) = [name for name in package["files"] if name.startswith("LICENSE.")]
        known = {"MIT": "Permission is hereby granted", "Apache-2.0": "Apache License"}[package["license"]]
        assert known in (VENDOR / text).read_text()
