"""One body of data has one ledger, however it is reached: a second one would be a second budget."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import locum
from locum.accounting import Ledger
from locum.data import read_embeddings, write_embeddings
from locum.embed import embed_images
from locum.errors import ConfigError, PrivacyError
from locum.generate import ClassGaussian
from locum.io import ledger_path
from locum.recipes import fit_release
from locum.types import DP, EmbeddingSet

BUDGET = DP(1.0, 1e-5, n_public=60)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "study"
    folder.mkdir()
    vectors = EmbeddingSet.from_arrays(rng.normal(size=(60, 4)), np.arange(60) % 2)
    write_embeddings(folder / "scans.npz", vectors)
    return folder / "scans.npz"


def test_the_program_and_python_in_another_folder_share_a_budget(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shown before the fix: two ledgers, each with 0.9998 of 1 spent."""
    monkeypatch.chdir(data.parent)
    fit_release("scans.npz", tmp_path / "first", privacy=BUDGET, classes=["0", "1"])
    elsewhere = tmp_path / "notebook"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    records = read_embeddings(data)
    model = ClassGaussian(privacy=BUDGET, classes=[0, 1], ledger=locum.ledger_for(data))
    with pytest.raises(PrivacyError, match="does not allow this"):
        model.fit(records.X, records.y)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("ledger.sqlite")] == ["study/.locum/ledger.sqlite"]


def test_python_without_a_ledger_is_told_what_to_pass(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = read_embeddings(data)
    with pytest.raises(PrivacyError, match=r"locum\.ledger_for"):
        ClassGaussian(privacy=BUDGET, classes=[0, 1]).fit(records.X, records.y)
    assert not list(tmp_path.rglob("ledger.sqlite"))


def test_every_spelling_of_a_path_gives_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown before the fix: `fit images`, `fit .` and `fit images/a/..` gave three."""
    images = tmp_path / "images"
    (images / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(images)
    monkeypatch.chdir(tmp_path)
    found = {
        ledger_path(p) for p in ("images", "images/", "images/a/..", "./images", str(images), "link", "images#train")
    }
    monkeypatch.chdir(images)
    found |= {ledger_path("."), ledger_path(""), ledger_path(Path())}
    assert found == {tmp_path.resolve() / ".locum" / "ledger.sqlite"}


def test_vectors_of_one_folder_of_images_share_its_budget(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
                tmp_path / "images" / name / f"{i}.png"
            )
    expected = locum.ledger_for(tmp_path / "images")
    with embed_images(tmp_path / "images") as embedded:
        vectors = embedded.sets()["all"]
    assert vectors.info.ledger == str(expected)
    for suffix in (".npz", ".parquet", ".safetensors"):
        place = tmp_path / suffix[1:] / f"vectors{suffix}"
        place.parent.mkdir()
        write_embeddings(place, vectors)
        assert read_embeddings(place).info.ledger == str(expected)
        assert locum.ledger_for(place) == expected


def test_the_ledgers_place_is_never_released(data: Path, tmp_path: Path) -> None:
    records = read_embeddings(data)
    kept = {name: str(tmp_path / "secret-ward" / name) for name in ("ledger", "reference")}
    marked = replace(records, info=replace(records.info, **kept))
    write_embeddings(tmp_path / "marked.npz", marked)
    assert read_embeddings(tmp_path / "marked.npz").info == marked.info
    release = ClassGaussian(random_state=0).fit(marked.X, marked.y).release(marked.info, no_dp=True)
    release.save(tmp_path / "r")
    for file in (tmp_path / "r").iterdir():
        assert b"secret-ward" not in file.read_bytes()
    drawn = locum.load(tmp_path / "r").sample_set(4).info
    assert (drawn.ledger, drawn.reference) == ("", "")


def pay(ledger: Ledger, n: int) -> None:
    from locum.accounting import Gaussian

    for _ in range(n):
        ledger.charge("scans", [Gaussian(20.0)], delta=1e-7, purpose="fit")


def test_a_restore_that_would_forget_a_charge_is_refused(tmp_path: Path) -> None:
    from locum.recipes import backup_ledger, restore_ledger

    place, copy = tmp_path / ".locum" / "ledger.sqlite", tmp_path / "copy.sqlite"
    ledger = Ledger(place)
    ledger.set_budget("scans", epsilon=5.0, delta=1e-5)
    pay(ledger, 1)
    assert backup_ledger(place, copy)["entries"] == 2
    assert os.stat(copy).st_mode & 0o077 == 0
    # The same, and a ledger that was lost: both are fine.
    assert restore_ledger(place, copy)["added"] == 0
    place.unlink()
    assert restore_ledger(place, copy)["added"] == 2
    pay(Ledger(place), 1)
    tip = Ledger(place).tip
    with pytest.raises(PrivacyError, match="forget"):
        restore_ledger(place, copy)
    assert Ledger(place).tip == tip
    # Damaged on top: what it holds beyond the backup is still there to see.
    raw = place.read_bytes()
    place.write_bytes(raw.replace(b'"purpose": "fit"', b'"purpose": "fix"'))
    with pytest.raises(PrivacyError, match="damaged"):
        restore_ledger(place, copy)
    assert b"fix" in place.read_bytes()


def test_a_damaged_ledger_is_replaced_by_its_backup_and_kept(tmp_path: Path) -> None:
    from locum.recipes import backup_ledger, restore_ledger

    place, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    ledger = Ledger(place)
    ledger.set_budget("scans", epsilon=5.0, delta=1e-5)
    pay(ledger, 2)
    backup_ledger(place, copy)
    tip = ledger.tip
    place.write_bytes(place.read_bytes().replace(b'"purpose": "fit"', b'"purpose": "fix"'))
    made = restore_ledger(place, copy)
    assert (Ledger(place).tip, made["added"]) == (tip, 3)
    assert Path(made["damaged"]).is_file()


def test_a_backup_older_than_a_release_is_refused(data: Path, tmp_path: Path) -> None:
    from locum.recipes import backup_ledger, restore_ledger

    ledger = Ledger(locum.ledger_for(data))
    ledger.set_budget("default", epsilon=5.0, delta=1e-4)
    backup_ledger(ledger.file, tmp_path / "old.sqlite")
    fit_release(str(data), tmp_path / "r", privacy=BUDGET, classes=["0", "1"])
    ledger.file.unlink()
    with pytest.raises(PrivacyError, match="after this backup"):
        restore_ledger(ledger.file, tmp_path / "old.sqlite", releases=(tmp_path / "r",))
    assert not ledger.file.exists()


def test_a_ledger_that_is_gone_is_missed(data: Path, tmp_path: Path) -> None:
    """Shown before the fix: the second fit paid from a fresh budget."""
    fit_release(str(data), data.parent / "first", privacy=BUDGET, classes=["0", "1"])
    kept = Ledger(ledger_path(data)).backup()
    ledger_path(data).unlink()
    with pytest.raises(PrivacyError, match="'first'") as told:
        fit_release(str(data), data.parent / "second", privacy=BUDGET, classes=["0", "1"])
    assert "restore" in str(told.value)
    assert not ledger_path(data).exists()
    assert not (data.parent / "second").exists()
    with pytest.raises(PrivacyError, match="'first'"):
        fit_release(str(data), data.parent / "first", privacy=BUDGET, classes=["0", "1"], overwrite=True)
    # A backup that was put back knows what was spent; without privacy nothing is.
    fit_release(str(data), data.parent / "third", no_dp=True)
    ledger_path(data).write_bytes(kept)
    with pytest.raises(PrivacyError, match="does not allow this"):
        fit_release(str(data), data.parent / "second", privacy=BUDGET, classes=["0", "1"])


def test_a_release_of_other_data_needs_a_decision_not_a_backup(data: Path, tmp_path: Path) -> None:
    fit_release(str(data), data.parent / "first", privacy=BUDGET, classes=["0", "1"])
    ledger_path(data).unlink()
    Ledger(ledger_path(data)).set_budget("default", epsilon=1.0, delta=1e-5)
    fit_release(str(data), data.parent / "second", privacy=BUDGET, classes=["0", "1"])


def test_another_unit_is_no_reason_for_a_second_budget(tmp_path: Path) -> None:
    """Shown before the fix: "name another holding", which pays for the same people twice."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_for(DP(1.0, 1e-5), "scans")
    with pytest.raises(PrivacyError) as told:
        ledger.open_for(DP(1.0, 1e-5, "subject"), "scans")
    assert "name another holding" not in str(told.value)
    assert "the same people" in str(told.value)


def test_a_folder_of_parquet_files_has_the_ledger_that_its_files_name(tmp_path: Path) -> None:
    from dataclasses import replace

    from locum.data import ledger_for, load_sample, write_embeddings

    data = load_sample("breast-cancer")
    (tmp_path / "parts").mkdir()
    write_embeddings(tmp_path / "parts" / "a.parquet", data)
    # The files alone and together are the same records: one ledger.
    assert ledger_for(tmp_path / "parts") == ledger_for(tmp_path / "parts" / "a.parquet")
    assert ledger_for(tmp_path / "parts") == tmp_path / "parts" / ".locum" / "ledger.sqlite"
    (tmp_path / "named").mkdir()
    named = replace(data, info=replace(data.info, ledger=str(tmp_path / "images" / ".locum" / "ledger.sqlite")))
    write_embeddings(tmp_path / "named" / "a.parquet", named)
    assert ledger_for(tmp_path / "named") == ledger_for(tmp_path / "named" / "a.parquet")
    assert ledger_for(tmp_path / "named") == tmp_path / "images" / ".locum" / "ledger.sqlite"


def test_a_part_without_rows_does_not_hide_the_ledger_of_the_others(tmp_path: Path) -> None:
    """A look was noted in another ledger than the one that `fit` reads."""
    from dataclasses import replace

    import pyarrow.parquet as pq

    from locum.data import ledger_for, load_sample, read_embeddings, write_embeddings

    data, named = load_sample("breast-cancer"), str(tmp_path / "images" / ".locum" / "ledger.sqlite")
    (tmp_path / "parts").mkdir()
    write_embeddings(tmp_path / "parts" / "b.parquet", replace(data, info=replace(data.info, ledger=named)))
    pq.write_table(pq.read_table(tmp_path / "parts" / "b.parquet").slice(0, 0), tmp_path / "parts" / "a.parquet")
    assert read_embeddings(tmp_path / "parts").info.ledger == named
    assert ledger_for(tmp_path / "parts") == Path(named)


def _unpacked(folder: Path) -> Path:
    folder.mkdir(parents=True)
    np.save(folder / "X.npy", np.eye(4, dtype=np.float32))
    np.save(folder / "y.npy", np.array([0, 1, 0, 1]))
    return folder


def test_a_folder_of_links_to_arrays_has_the_ledger_of_the_arrays(tmp_path: Path) -> None:
    real, other = _unpacked(tmp_path / "one" / "arrays"), tmp_path / "two" / "arrays"
    other.mkdir(parents=True)
    for file in real.iterdir():
        (other / file.name).symlink_to(file)
    assert locum.ledger_for(other) == locum.ledger_for(real) == ledger_path(real)
    # As that of the .npz that was unpacked there.
    assert ledger_path(real) == ledger_path(tmp_path / "one" / "arrays.npz")


def test_a_folder_of_arrays_has_the_ledger_that_it_names(tmp_path: Path) -> None:
    folder = _unpacked(tmp_path / "arrays")
    np.save(folder / "info.npy", np.array('{"backbone": "made up", "ledger": "/images/.locum/ledger.sqlite"}'))
    assert locum.ledger_for(folder) == Path("/images/.locum/ledger.sqlite")


@pytest.mark.parametrize(
    "address", ["s3://bucket/ledger.sqlite", "S3:/bucket/ledger.sqlite", "file:///ledger.sqlite"]
)
def test_a_ledger_at_an_address_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """As a path it would be a folder `s3:` wherever the program was started, and so several budgets."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    with pytest.raises(ConfigError, match="an address"):
        fit_release(str(data), tmp_path / "release", classes_public=True, ledger=Path(address))
    assert not list((tmp_path / "s3:" / "bucket").iterdir())


def test_a_release_at_an_address_is_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="an address"):
        fit_release(str(data), Path("s3://bucket/release"), classes_public=True)
    assert not (tmp_path / "s3:").exists()
