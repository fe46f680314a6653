"""Public statistics of a federation: named by hash, read from each one's own copy, refused if they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.site_keys import pinned

from locum.data import Reference, load_reference, read_embeddings, write_embeddings
from locum.errors import ConfigError, DataError, LocumError
from locum.federated import Coordinator, FederationSettings, LocalChannel, Request, Site, SiteFile
from locum.federated.terms import agreed_reference
from locum.generate.private import reference_hash
from locum.recipes import simulate_federation, start_federation
from locum.release import load
from locum.types import EmbeddingInfo

Terms = Callable[..., FederationSettings]
Sites = Callable[..., dict[str, Path]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Reference.from_ranges(np.zeros(64), np.full(64, 16), source="the scale").save(tmp_path / "r.safetensors")


def own(file: Path) -> dict[str, str]:
    return {"reference": "own", "reference_sha256": reference_hash(load_reference(file, 64))}


def test_the_terms_name_a_hash(file: Path, settings: Terms, tmp_path: Path) -> None:
    terms = settings(**own(file))
    assert agreed_reference(terms, file).source == "the scale"
    with pytest.raises(ConfigError, match="name your copy"):
        agreed_reference(terms)
    other = Reference.from_ranges(np.zeros(64), np.full(64, 17), source="other").save(tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="not those of the terms"):
        agreed_reference(terms, other)
    # Shipped ones are checked too, and no file replaces them.
    shipped = replace(settings(), dim=1280, reference="efflite0")
    agreed_reference(shipped, other)
    with pytest.raises(DataError, match="not those of the terms"):
        agreed_reference(replace(shipped, reference_sha256="0" * 64))
    with pytest.raises(DataError, match="vectors come from"):
        agreed_reference(shipped, None, EmbeddingInfo("efflite1"))


@pytest.mark.parametrize("secure", [False, True])
def test_a_run_with_a_file(
    secure: bool, file: Path, settings: Terms, sites: Sites, tmp_path: Path, hardly_trained_personal_models: None
) -> None:
    files = sites(3, reference=str(file))
    terms = settings(mode="sums", secure=secure, **own(file), sites=pinned(files) if secure else {})
    # One site has it from `embed`.
    first = next(iter(files.values()))
    records = read_embeddings(first.parent / "records.npz")
    write_embeddings(first.parent / "records.npz", replace(records, info=replace(records.info, reference=str(file))))
    first.write_text("".join(line for line in first.open() if not line.startswith("reference")))
    assert SiteFile.read(first).reference is None
    with pytest.raises(ConfigError, match="name your copy"):
        Coordinator(terms, tmp_path / "without").run(LocalChannel(files))
    release = load(Coordinator(terms, tmp_path / "out", reference=file).run(LocalChannel(files)))
    assert release.manifest.settings["reference_source"] == "the scale"
    assert str(file) not in release.manifest.dumps()


def test_a_site_with_another_file_pays_nothing(file: Path, settings: Terms, sites: Sites, tmp_path: Path) -> None:
    other = Reference.from_ranges(np.zeros(64), np.full(64, 17), source="other").save(tmp_path / "other.safetensors")
    for secure in (False, True):
        for name, given in (("lacks", None), ("other", str(other))):
            files = sites(3, test=False, folder=f"{name}-{secure}", reference=given)
            terms = settings(mode="sums", secure=secure, **own(file), delta=1e-4, sites=pinned(files))
            place = files["site-0"]
            request = Request("join", 0, "nonce", {"run": "r", "settings": terms.to_dict()}, {})
            with pytest.raises(LocumError, match=r"name your copy|not those of the terms"):
                Site(place).reply(request)
            assert not SiteFile.read(place).ledger_file.exists()


def test_recipes_write_the_hash(file: Path, tmp_path: Path) -> None:
    start_federation(tmp_path / "f", ["a", "b"], backbone="hf", reference=file, settings={"dim": 64})
    assert FederationSettings.read(tmp_path / "f" / "federation.toml").reference == "own"
    assert str(tmp_path) not in (tmp_path / "f" / "federation.toml").read_text()
    start_federation(tmp_path / "g", ["a", "b"], settings={"dim": 1280})
    shipped = FederationSettings.read(tmp_path / "g" / "federation.toml")
    assert shipped.reference == "efflite0"
    assert len(shipped.reference_sha256) == 64
    with pytest.raises(DataError, match="64 features"):
        start_federation(tmp_path / "h", ["a", "b"], reference=file, settings={"dim": 10})


def test_a_simulation_takes_what_embed_made(
    file: Path, sites: Sites, tmp_path: Path, hardly_trained_personal_models: None
) -> None:
    records = read_embeddings(sites(3)["site-0"].parent / "records.npz")
    data = tmp_path / "data.npz"
    write_embeddings(data, replace(records, info=replace(records.info, reference=str(file))))
    found = simulate_federation(str(data), tmp_path / "out", sites=2, settings={"mode": "sums"})
    assert load(found.release).manifest.settings["reference"] == "own"
    off = {"mode": "sums", "reference": "none"}
    found = simulate_federation(str(data), tmp_path / "out2", sites=2, settings=off)
    assert load(found.release).manifest.settings["reference"] == "none"
