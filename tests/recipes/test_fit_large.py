"""`fit` on data in pieces: the same release, the same payment and the same refusals as on data in memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import load
from locum.accounting import Ledger
from locum.data import LocalEngine, write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.recipes import fit_release
from locum.types import DP, EmbeddingSet


def _write(folder: Path, n: int = 4000, *, splits: bool = False, subjects: bool = False) -> str:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, n)
    subject = rng.integers(0, n // 3, n) if subjects else None
    data = EmbeddingSet.from_arrays(
        rng.normal(size=(n, 10)) + y[:, None],
        np.array(["a", "b", "c"])[y],
        subject=subject,
        attributes={"sex": rng.choice(["f", "m"], n)},
    )
    folder.mkdir()
    for k in range(4):
        write_embeddings(folder / f"part-{k}.parquet", data.take(range(k * n // 4, (k + 1) * n // 4)))
    return str(folder)


@pytest.fixture(params=[False, True], ids=["records", "subjects"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _write(tmp_path / "vectors", subjects=request.param)


def test_the_same_claim_and_one_payment(data: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"privacy": DP(0.5, 1e-6), "unit_from_data": True, "classes_public": True}
    whole, pieces = (
        fit_release(data, tmp_path / name, holding=name, in_memory=m, **given)
        for name, m in (("whole", 2**28), ("pieces", 0))
    )
    assert pieces.claim.unit == whole.claim.unit
    assert pieces.claim.assumptions == whole.claim.assumptions
    assert pieces.claim.dp is not None
    assert whole.claim.dp is not None
    assert pieces.claim.dp.epsilon == whole.claim.dp.epsilon
    assert (pieces.records, pieces.held_out) == (whole.records, whole.held_out) == (4000, 0)
    state = Path(data) / ".locum"
    held = Ledger(state / "ledger.sqlite").holdings()
    assert {name: len(one.charges) for name, one in held.items()} == {"whole": 1, "pieces": 1}
    # Nothing is left of a sorted copy or a checkpoint.
    assert sorted(p.name for p in state.iterdir() if "ledger" not in p.name) == []


def test_a_network_in_pieces(data: str, tmp_path: Path) -> None:
    settings = {"max_epochs": 20, "hidden": (32,), "latent": 4}
    whole, pieces = (
        fit_release(data, tmp_path / f"c{m}", generator="cvae", settings=settings, no_dp=True, in_memory=m)
        for m in (2**28, 0)
    )
    assert pieces.membership is not None
    assert pieces.records + pieces.held_out == 4000
    one, two = load(whole.release), load(pieces.release)
    assert one.manifest.settings == two.manifest.settings
    np.testing.assert_allclose(one.tensors["offset"], two.tensors["offset"], atol=0.15)
    (X, _), (Z, _) = (release.sample(4000, random_state=0) for release in (one, two))
    np.testing.assert_allclose(X.std(axis=0), Z.std(axis=0), rtol=0.15)
    assert not list((Path(data) / ".locum").glob("fit-*"))


def test_without_a_guarantee(data: str, tmp_path: Path) -> None:
    whole, pieces = (fit_release(data, tmp_path / f"r{m}", no_dp=True, in_memory=m) for m in (2**28, 0))
    assert pieces.membership is not None
    assert pieces.held_out == pytest.approx(400, abs=120)
    assert pieces.records + pieces.held_out == 4000
    assert whole.membership is not None
    one, two = load(whole.release), load(pieces.release)
    # Other records are held out, so the means are near, not equal.
    np.testing.assert_allclose(one.tensors["means"], two.tensors["means"], atol=0.15)


def test_declared_classes_conditions_and_refusals(data: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"privacy": DP(0.1, 1e-6), "unit_from_data": True, "in_memory": 0}
    summary = fit_release(
        data,
        tmp_path / "conditioned",
        classes=["c", "b", "a", "d"],
        settings={"condition_on": ["sex"], "condition_values": {"sex": ["m", "f"]}},
        **given,
    )
    assert load(summary.release).info.class_names == ("c", "b", "a", "d")
    with pytest.raises(DataError, match="not among the known classes"):
        fit_release(data, tmp_path / "few", classes=["a", "b"], **given)
    with pytest.raises(PrivacyError, match="random part"):
        fit_release(f"{data}#[100]", tmp_path / "drawn", classes_public=True, **given)
    with pytest.raises(DataError, match="no split 'train'"):
        fit_release(f"{data}#train", tmp_path / "split", classes_public=True, **given)
    with pytest.raises(ConfigError, match="leave --backbone out"):
        fit_release(data, tmp_path / "model", classes_public=True, backbone="efflite0", **given)
    # Refused before anything was paid.
    assert len(Ledger(Path(data) / ".locum" / "ledger.sqlite").holdings()["default"].charges) == 1


def test_rare_class_names_are_not_read_from_large_data(tmp_path: Path) -> None:
    y = np.array(["common"] * 300 + ["rare"] * 5)
    write_embeddings(
        tmp_path / "d.parquet", EmbeddingSet.from_arrays(np.random.default_rng(0).normal(size=(305, 4)), y)
    )
    with pytest.raises(PrivacyError, match="1 of the 2 classes in the data have fewer than 20 records"):
        fit_release(str(tmp_path / "d.parquet"), tmp_path / "r", classes_public=True, in_memory=0)
    assert not (tmp_path / "r").exists()


def test_a_random_part_without_a_guarantee(data: str, tmp_path: Path) -> None:
    assert fit_release(f"{data}#[500]", tmp_path / "r", no_dp=True).records < 500


@pytest.mark.slow
def test_a_killed_fit_per_subject_goes_on_without_paying_again(tmp_path: Path) -> None:
    data = _write(tmp_path / "vectors", 12_000, subjects=True)
    program = (
        "import sys\nfrom pathlib import Path\nfrom locum.recipes import fit_release\n"
        "fit_release(sys.argv[1], Path(sys.argv[2]), classes_public=True, in_memory=0)\n"
    )
    command = [sys.executable, "-c", program, data, str(tmp_path / "release")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, env=env)
    state = Path(data) / ".locum"
    while not any(p.suffix == ".checkpoint" and p.stat().st_size > 1500 for p in state.glob("*")):
        assert first.poll() is None
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert list(state.glob("by-subject-*"))
    again = subprocess.run(command, env=env, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert len(Ledger(state / "ledger.sqlite").holdings()["default"].charges) == 1
    assert not list(state.glob("by-subject-*"))
    assert load(tmp_path / "release").claim.kind == "dp"


def test_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = _write(tmp_path / "vectors", subjects=True)
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: real._replace(free=1000))
    with pytest.raises(DataError, match=r"sorted copy needs 0\.0 GB, which is not free"):
        fit_release(data, tmp_path / "release", classes_public=True, in_memory=0)
    assert not (tmp_path / "release").exists()
    ledger = Path(data) / ".locum" / "ledger.sqlite"
    assert not ledger.exists() or not Ledger(ledger).holdings()["default"].charges


def test_two_fits_at_once_do_not_share_a_sorted_copy(tmp_path: Path) -> None:
    data = _write(tmp_path / "vectors", 12_000, subjects=True)
    program = (
        "import sys\nfrom pathlib import Path\nfrom locum.recipes import fit_release\n"
        "fit_release(sys.argv[1], Path(sys.argv[2]), classes_public=True, in_memory=0)\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", program, data, str(tmp_path / "one")], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        while not list((Path(data) / ".locum").glob("by-subject-*")):
            assert first.poll() is None
            time.sleep(0.02)
        with pytest.raises(ConfigError, match="Another process"):
            fit_release(data, tmp_path / "two", classes_public=True, in_memory=0, privacy=DP(0.1, 1e-6, "subject"))
    finally:
        first.kill()
        first.wait()


@pytest.mark.parametrize("name", ["gone.csv", "gone.csv.gz"])
def test_a_table_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="There is no file"):
        fit_release(str(tmp_path / name), tmp_path / "release", classes_public=True)


def test_a_refused_fit_leaves_no_copy_of_records(tmp_path: Path) -> None:
    data = _write(tmp_path / "vectors", subjects=True)
    given: dict[str, Any] = {"unit_from_data": True, "classes_public": True, "in_memory": 0}
    fit_release(data, tmp_path / "one", privacy=DP(0.5, 1e-6), **given)
    with pytest.raises(PrivacyError, match="does not allow this"):
        fit_release(data, tmp_path / "two", privacy=DP(0.5, 1e-6), **given)
    assert not list((Path(data) / ".locum").glob("by-subject-*"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no file"):
        fit_release(str(tmp_path / "none.parquet"), tmp_path / "r", no_dp=True, in_memory=0)


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_other_files_on_another_engine(kind: str, tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """The passes run where the engine says, and the sums are those of the data in memory."""
    X, y = blobs
    if kind == "csv":
        lines = [",".join(map(str, [*row, label])) for row, label in zip(X.tolist(), y, strict=True)]
        (tmp_path / "d.csv").write_text("\n".join([",".join([*(f"f{i}" for i in range(8)), "label"]), *lines]) + "\n")
        data = str(tmp_path / "d.csv")
    else:
        (tmp_path / "d").mkdir()
        np.save(tmp_path / "d" / "X.npy", X)
        np.save(tmp_path / "d" / "y.npy", y)
        data = str(tmp_path / "d")
    passes = 0

    class Counting(LocalEngine):
        def map(self, *args: Any) -> Any:
            nonlocal passes
            passes += 1
            return super().map(*args)

    write_embeddings(tmp_path / "others.npz", EmbeddingSet.from_arrays(X[::2] + 1, y[::2]))
    others = str(tmp_path / "others.npz")
    whole, pieces = (
        fit_release(data, tmp_path / name, no_dp=True, non_members=others, engine=engine)
        for name, engine in (("whole", None), ("pieces", Counting()))
    )
    assert passes
    assert pieces.records == whole.records == 210
    one, two = load(whole.release), load(pieces.release)
    for name, tensor in one.tensors.items():
        np.testing.assert_allclose(two.tensors[name], tensor, atol=1e-5)
