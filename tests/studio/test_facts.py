"""What lies beside a release may be damaged, edited or hostile: one sentence, never a fault of the studio."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from locum.recipes import fit_release
from locum.release import load

READ = ("release?path=", "risk?release=", "zip?release=")


@pytest.fixture(scope="module")
def fingerprint(studio: Any) -> str:
    fit_release(f"{studio.root / 'data.npz'}#train", studio.root / "release", no_dp=True, privacy=None)
    return load(studio.root / "release").fingerprint


def read_all(studio: Any, name: str) -> None:
    for target in READ:
        answer = studio.ask("GET", f"/api/{target}{name}")
        assert answer.status in (200, 400, 404, 409), (target, answer.body)
        assert str(studio.root) not in answer.body.decode()
        if answer.status != 200:
            assert "\n" not in answer.error
    for target in ("measured", "desk"):
        assert studio.ask("GET", f"/api/{target}").status == 200
    assert studio.log == ""


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"results": 1},
        {"results": [1]},
        {"results": [{"measure": "auc"}], "rows": [{}]},
        {"results": [{"measure": "auc", "name": 1, "attack": {"value": "x"}}], "rows": 5},
        {"verdict": [], "may_leave": {}, "rows": [{"scores": 1}], "results": {}},
    ],
    ids=str,
)
def test_edited_results_are_one_sentence(studio: Any, fingerprint: str, body: dict[str, Any]) -> None:
    for ending in ("audit.json", "evaluation.json"):
        (studio.root / f"release-{ending}").write_text(json.dumps({"fingerprint": fingerprint, **body}))
    read_all(studio, "release")


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"[" * 10**5, b"null", b"a,b\n1\n", b'"', b"exposed\nno\n", b"\0"]
)
def test_damaged_results_are_one_sentence(studio: Any, fingerprint: str, raw: bytes) -> None:
    for ending in ("audit.json", "evaluation.json", "risk.csv"):
        (studio.root / f"release-{ending}").write_bytes(raw)
    read_all(studio, "release")


def test_links_and_pipes_beside_a_release_are_not_read(studio: Any, fingerprint: str, tmp_path: Any) -> None:
    (tmp_path / "secret.csv").write_text("record,exposed\nsecret,yes\n")
    for ending in ("audit.json", "evaluation.json", "risk.csv"):
        place = studio.root / f"release-{ending}"
        for make in (lambda p: p.symlink_to(tmp_path / "secret.csv"), os.mkfifo):
            place.unlink(missing_ok=True)
            make(place)
            read_all(studio, "release")
        place.unlink()
    assert studio.ask("GET", "/api/risk?release=release").status == 400


def test_what_is_no_release_is_one_sentence(studio: Any) -> None:
    folder = studio.root / "odd"
    folder.mkdir()
    for name, raw in (("manifest.json", b""), ("manifest.json", b"[" * 10**5), ("decoder.safetensors", b"x")):
        (folder / name).write_bytes(raw)
        read_all(studio, "odd")
    read_all(studio, "data.npz")
    os.mkfifo(studio.root / "pipe.npz")
    for target in ("data?path=", "ledger?path=", "verify?key=data.npz&release="):
        assert studio.ask("GET", f"/api/{target}pipe.npz").status in (200, 400)
    assert studio.log == ""
