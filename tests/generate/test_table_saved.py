"""Folders of private tables: what was saved comes back; what was altered or made up is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import copy
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from locum.errors import ConfigError, IntegrityError, NotFittedError, ReleaseError
from locum.generate.table import PrivateTable, TableDomain, is_table, open_table, save_table
from locum.generate.table.saved import TENSORS
from locum.release import entry_of
from locum.types import DP

COLUMNS = {
    "age": {"low": 0, "high": 99, "whole": True},
    "job": {"values": ["cook", "nurse"], "other": "rest", "missing": True},
    "smokes": {"values": ["no", "yes"]},
    "<b>": {"low": 0.0, "high": 1.0, "special": [0.0]},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> PrivateTable:
    rng, n = np.random.default_rng(0), 500
    frame = pd.DataFrame({"age": rng.integers(0, 99, n), "job": rng.choice(["cook", "nurse", "x"], n)})
    frame["smokes"], frame["<b>"] = rng.choice(["no", "yes"], n), rng.random(n)
    domain = TableDomain.from_dict({"columns": COLUMNS})
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    return PrivateTable(domain, "smokes", DP(1.0, 1e-6), ledger=ledger).fit(frame)


@pytest.fixture(scope="module")
def original(table: PrivateTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "table"
    save_table(table, folder, assumptions=("a first line",))
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(copytree(original, tmp_path / "table"))


def forge(
    folder: Path, change: Callable[[dict[str, Any]], None] | None = None, tensors: dict[str, Any] | None = None
) -> None:
    """Rewrite a folder so that all hashes inside fit."""
    body = json.loads((folder / "manifest.json").read_text())
    if tensors is not None:
        held = load_file(folder / TENSORS) | tensors
        save_file({name: value for name, value in held.items() if value is not None}, folder / TENSORS)
    body["files"] = {name: entry_of((folder / name).read_bytes()).model_dump() for name in (TENSORS, "README.md")}
    if change is not None:
        change(body)
    (folder / "manifest.json").write_text(json.dumps(body))


def test_a_folder_comes_back_as_it_was(table: PrivateTable, folder: Path) -> None:
    saved = open_table(folder)
    assert saved.model.sample(200, random_state=1).equals(table.sample(200, random_state=1))
    assert saved.claim.assumptions == ("a first line",)
    assert saved.claim.title == table.claim_.title
    assert np.array_equal(saved.transcript, table.transcript_)
    assert saved.model.domain.names == tuple(COLUMNS)
    assert is_table(folder)
    assert not is_table(folder.parent)
    card = (folder / "README.md").read_text()
    assert "<b>" not in card
    assert "a first line" in card


def test_an_existing_folder_is_not_overwritten_unasked(table: PrivateTable, folder: Path) -> None:
    with pytest.raises(ConfigError):
        save_table(table, folder)
    save_table(table, folder, overwrite=True)
    assert open_table(folder).model.count == pytest.approx(table.model_.count, abs=0.1)


def test_what_is_not_fitted_is_not_saved(table: PrivateTable, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save_table(PrivateTable(table.domain, "smokes", DP(1.0, 1e-6)), tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_what_was_paid_for_is_saved_whatever_the_settings_say_now(table: PrivateTable, tmp_path: Path) -> None:
    changed = copy(table)
    changed.privacy, changed.rows_per_subject = DP(0.1, 1e-9), 7
    saved = save_table(changed, tmp_path / "table").manifest.settings
    assert (saved.epsilon, saved.delta, saved.rows_per_subject) == (1.0, 1e-6, 1)


def test_altered_files_are_refused(folder: Path) -> None:
    raw = bytearray((folder / TENSORS).read_bytes())
    raw[-1] ^= 1
    (folder / TENSORS).write_bytes(raw)
    with pytest.raises(IntegrityError):
        open_table(folder)


def test_extra_files_links_and_missing_files_are_refused(folder: Path) -> None:
    (folder / "more.txt").write_text("x")
    with pytest.raises(IntegrityError):
        open_table(folder)
    (folder / "more.txt").unlink()
    card = (folder / "README.md").read_bytes()
    (folder / "README.md").unlink()
    with pytest.raises(IntegrityError):
        open_table(folder)
    (folder.parent / "card").write_bytes(card)
    os.symlink(folder.parent / "card", folder / "README.md")
    with pytest.raises(ReleaseError):
        open_table(folder)


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        *where, last = path
        for key in where:
            body = body[key]
        body[last] = value

    return change


CHANGES = {
    "another format": _set("format", value="locum-release"),
    "a newer schema": _set("schema_version", value=2),
    "more fields": _set("more", value=1),
    "a smaller epsilon in the settings": _set("settings", "epsilon", value=0.1),
    "another unit": _set("settings", "unit", value="subject"),
    "a claim without a test": _set("claim", "dp", value=None),
    "no claim": _set("claim", value=None),
    "k-anonymity": _set("claim", "kind", value="k-anonymity"),
    "a cycle": _set("parents", value=[1, 0, -1]),
    "two roots": _set("parents", value=[-1, -1, 0]),
    "a parent that is not there": _set("parents", value=[-1, 0, 7]),
    "a tree of another size": _set("parents", value=[-1, 0]),
    "no tree": _set("parents", value=[]),
    "another label": _set("utility", value="age"),
    "no label": _set("utility", value="nothing"),
    "no domain": _set("domain", value={}),
    "a longer domain": _set("domain", "columns", "more", value={"values": [1, 2]}),
    "other edges": _set("domain", "columns", "age", value={"edges": [0, 1]}),
    "a huge count": _set("count", value=1e300),
    "a count that is no number": _set("count", value="many"),
    "files outside": _set("files", "../x", value={"sha256": "0" * 64, "bytes": 1}),
    "no files": _set("files", value={}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_made_up_manifest_is_refused(change: Callable[[dict[str, Any]], None], folder: Path) -> None:
    forge(folder, change)
    with pytest.raises(ReleaseError) as caught:
        open_table(folder)
    assert "\n" not in str(caught.value)


def _made_up(original: dict[str, Any]) -> dict[str, dict[str, Any]]:
    label, odds = original["label"], original["conditionals.1"]
    group, within = original["groups.0"], original["within.0"]
    nan = within.copy()
    nan[0] = np.nan
    return {
        "label below 0": {"label": np.array([-1.0, 2.0])},
        "label too short": {"label": label[:1]},
        "label of another type": {"label": label.astype(np.float32)},
        "odds above 1": {"conditionals.1": odds * 2},
        "odds of another shape": {"conditionals.1": odds[:, :, :1]},
        "infinite odds": {"conditionals.1": np.full_like(odds, np.inf)},
        "groups with gaps": {"groups.0": group * 2},
        "groups below 0": {"groups.0": group - 1},
        "huge groups": {"groups.0": np.where(group == 0, 2**62, group)},
        "groups of fractions": {"groups.0": group.astype(np.float64)},
        "within that is no number": {"within.0": nan},
        "within that does not sum": {"within.0": within * 0.5},
        "a missing tensor": {"within.0": None},
        "one more tensor": {"more": np.zeros(3)},
        "a transcript that is no number": {"transcript": np.full(3, np.nan, np.float32)},
    }


NAMES = list(_made_up({"label": np.ones(2), "conditionals.1": np.ones((2, 2, 2)), "groups.0": np.arange(2),
                       "within.0": np.ones(2)}))  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_made_up_tensors_are_refused(name: str, folder: Path) -> None:
    forge(folder, tensors=_made_up(load_file(folder / TENSORS))[name])
    with pytest.raises(ReleaseError) as caught:
        open_table(folder)
    assert "\n" not in str(caught.value)


def test_a_forged_folder_that_says_nothing_wrong_opens(folder: Path) -> None:
    """So the refusals above are not about the forging."""
    forge(folder)
    assert len(open_table(folder).model.sample(5)) == 5
