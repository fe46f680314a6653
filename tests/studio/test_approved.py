"""Only what somebody approved can be downloaded, and only as long as nothing new was found."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from locum.recipes import audit_data, decide_release, fit_release, make_key_pair, verify_release
from locum.release import load
from locum.release.passport import FIVE_SAFES

CHECKS = {name: {"ok": True} for name in FIVE_SAFES}


@pytest.fixture(scope="module")
def release(studio: Any) -> Path:
    made = fit_release(f"{studio.root / 'data.npz'}#train", studio.root / "given", no_dp=True).release
    make_key_pair(studio.root / "given.pem")
    return made


def zipped(studio: Any) -> Any:
    return studio.ask("GET", "/api/zip?release=given")


def test_a_release_is_downloaded_only_while_its_approval_holds(studio: Any, release: Path) -> None:
    assert zipped(studio).status == 409
    given: dict[str, Any] = {"name": "A. Officer", "reason": "a test", "key": studio.root / "given.pem"}
    decide_release(release, outcome="refused", checklist={}, **given)
    assert zipped(studio).status == 409
    decide_release(release, outcome="approved", checklist=CHECKS, overwrite=True, **given)
    answer = zipped(studio)
    assert answer.status == 200
    with zipfile.ZipFile(BytesIO(answer.body)) as archive:
        assert {Path(name).name for name in archive.namelist()} == {p.name for p in release.iterdir()}
        assert b"A. Officer" not in b"".join(archive.read(name) for name in archive.namelist())
    assert verify_release(release, key=studio.root / "given.pem.pub").signed_by
    # Attacks that were run after the decision void it.
    audit_data(
        release,
        f"{studio.root / 'data.npz'}#train",
        f"{studio.root / 'data.npz'}#test",
        attacks=["nearest distance"],
        out=studio.root / "given-audit.json",
        seed=0,
    )
    assert json.loads((studio.root / "given-audit.json").read_text())["fingerprint"] == load(release).fingerprint
    answer = zipped(studio)
    assert answer.status == 409
    assert "decide about the release again" in answer.error
