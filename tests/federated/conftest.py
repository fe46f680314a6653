"""Small sites on disk, for tests of the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import load_sample, partition_iid, write_embeddings
from locum.federated import FederationSettings

SETTINGS: dict[str, Any] = {
    "mode": "decoder",
    "classes": tuple("0123456789"),
    "dim": 64,
    "hidden": (16,),
    "latent": 4,
    "batch": 64,
    "local_epochs": 1,
    "rounds": 3,
}


def agreed(tmp_path: Path, **told: Any) -> FederationSettings:
    """Settings, also written as the terms that the sites of a test agreed to."""
    found = FederationSettings(**told)
    (tmp_path / "federation.toml").write_text(found.to_toml())
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., FederationSettings]:
    """A small federation on digits."""
    return lambda **more: agreed(tmp_path, **{**SETTINGS, **more})


@pytest.fixture
def sites(tmp_path: Path) -> Callable[..., dict[str, Path]]:
    """`site.toml` files of several sites with digits, each with its own ledger, or with `insecure_seed`."""

    def make(count: int = 3, *, test: bool = True, folder: str = "sites", **more: Any) -> dict[str, Path]:
        files = {}
        for i, (name, data) in enumerate(
            partition_iid(load_sample("digits"), count, np.random.default_rng(0)).items()
        ):
            home = tmp_path / folder / name
            home.mkdir(parents=True)
            write_embeddings(home / "records.npz", data)
            told: dict[str, Any] = {"data": "records.npz", "epsilon": 2.0, "delta": 1e-4, "n_public": 500, **more}
            told["federation"] = str(tmp_path / "federation.toml")
            if test:
                told["insecure_seed"] = i
            text = "".join(f"{k} = {v!r}\n".replace("'", '"') for k, v in told.items() if v is not None)
            (home / "site.toml").write_text(text)
            files[name] = home / "site.toml"
        return files

    return make


LITTLE: dict[str, Any] = {
    "mode": "decoder",
    "classes": ("ant", "bee"),
    "dim": 4,
    "hidden": (3,),
    "latent": 2,
    "batch": 25,
    "local_epochs": 1,
    "rounds": 2,
}


@pytest.fixture
def little(tmp_path: Path) -> Callable[..., FederationSettings]:
    """Two classes of four features, and two rounds of two steps."""
    return lambda **more: agreed(tmp_path, **{**LITTLE, **more})


@pytest.fixture
def site_of(tmp_path: Path) -> Callable[..., Path]:
    """One `site.toml` with made-up records of the two classes; it pays, unless it gets `insecure_seed`."""

    def make(
        name: str = "site",
        n: int = 40,
        *,
        rows: slice = slice(None),
        subject: Any = None,
        kinds: int = 2,
        **more: Any,
    ) -> Path:
        rng, home = np.random.default_rng(5), tmp_path / name
        y = np.arange(n) % kinds
        X = (rng.normal(size=(n, 4)) + 3 * y[:, None]).astype(np.float32)
        who = None if subject is None else np.asarray(subject)[rows]
        data = EmbeddingSet.from_arrays(X[rows], np.array(["ant", "bee"])[y][rows], subject=who)
        home.mkdir(parents=True)
        write_embeddings(home / "records.npz", data)
        told = {"data": "records.npz", "epsilon": 2.0, "delta": 1e-4, "n_public": 50, **more}
        told["federation"] = str(tmp_path / "federation.toml")
        lines = [f"{k} = {json.dumps(v)}\n" for k, v in told.items() if v is not None]
        (home / "site.toml").write_text("".join(lines))
        return home / "site.toml"

    return make
