"""What a coordinator sees of sites besides masked sums: it must not depend on records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import read_embeddings, write_embeddings
from locum.federated import Coordinator, FederationSettings, LocalChannel, Site
from tests.privacy.test_masked_hostile import NAMES, make_sites

FAR = float(np.finfo(np.float32).max)


def refusals(folder: Path, far: int) -> list[Any]:
    """What an honest run reports as refused, if so many records of the first site are far from all others."""
    hostile = make_sites(folder, np.full(4, FAR))
    file = folder / NAMES[0] / "records.npz"
    data = read_embeddings(file)
    X = data.X.copy()
    X[:far] = FAR
    write_embeddings(file, EmbeddingSet.from_arrays(X, np.array(["ant", "bee"] * 10)))
    seen: list[dict[str, Any]] = []
    settings = FederationSettings.read(folder / "federation.toml")
    files = {name: hostile.file(name) for name in NAMES}
    Coordinator(settings, folder / "out", on_event=seen.append).run(LocalChannel(files))
    return [event for event in seen if event["event"] == "refused"]


def test_whether_a_personal_model_can_be_fitted_is_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a second record that is far away, training the local head diverges."""
    assert refusals(tmp_path / "one", 1) == []
    assert Site(tmp_path / "one" / NAMES[0] / "site.toml").personal_folder.exists()
    assert refusals(tmp_path / "two", 2) == []
    assert not Site(tmp_path / "two" / NAMES[0] / "site.toml").personal_folder.exists()
    # The owner of the site is told, and only the owner.
    assert "personal model was not made" in capsys.readouterr().err
    assert "diverged" in (tmp_path / "two" / NAMES[0] / ".locum" / "federation" / "notes.log").read_text()
