"""A fit on records in pieces is the fit on all of them: bit for bit with a guarantee, to 1e-10 without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.accounting import Ledger
from locum.data import LocalEngine, by_subject, gather, open_batches, write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import ClassGaussian, KSame
from locum.types import DP, EmbeddingSet, SetBatches


def _records(n: int = 3000, d: int = 12, *, together: bool = False) -> EmbeddingSet:
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, n)
    who = np.sort(rng.integers(0, n // 4, n)) if together else rng.integers(0, n // 4, n)
    return EmbeddingSet.from_arrays(
        rng.normal(size=(n, d)) + y[:, None],
        y,
        subject=np.array([f"p{i}" for i in who]),
        attributes={"sex": rng.choice(["f", "m"], n)},
    )


def _tensors(model: ClassGaussian) -> dict[str, Any]:
    return dict(model._fitted().tensors)


@pytest.mark.parametrize("mechanism", ["head", "means", "covariance"])
@pytest.mark.parametrize("unit", ["record", "subject"])
@pytest.mark.parametrize("conditioned", [False, True])
def test_private_sums_are_the_same_integers(tmp_path: Path, mechanism: str, unit: str, conditioned: bool) -> None:
    data = _records()
    given: dict[str, Any] = {
        "privacy": DP(3.0, 1e-6, unit=unit), "classes": [0, 1, 2], "insecure_seed": 3, "mechanism": mechanism,
    }  # fmt: skip
    if conditioned:
        given |= {"condition_on": ["sex"], "condition_values": {"sex": ["m", "f"]}}
    whole = ClassGaussian(**given).fit(data.X, data.y, data.subject, attributes=data.attributes)
    pieces = ClassGaussian(**given).fit_batches(SetBatches(data, rows=331), scratch=tmp_path / "sorted")
    assert pieces._fitted().manifest.joint == whole._fitted().manifest.joint
    for name, tensor in _tensors(whole).items():
        np.testing.assert_array_equal(_tensors(pieces)[name], tensor, err_msg=name)


@pytest.mark.parametrize("space", ["raw", "unit"])
def test_without_a_guarantee_results_agree(space: str) -> None:
    data = _records()
    # Far from 0, where sums of squares lose digits.
    data = EmbeddingSet(data.X + np.float32(300), data.y, data.subject, data.attributes, data.info)
    given: dict[str, Any] = {"condition_on": ["sex"], "rank": 4, "space": space}
    whole = ClassGaussian(**given).fit(data.X, data.y, attributes=data.attributes)
    pieces = ClassGaussian(**given).fit_batches(SetBatches(data, rows=271))
    assert pieces._fitted().manifest.joint == whole._fitted().manifest.joint
    for name, tensor in _tensors(whole).items():
        # Directions have no sign; what they give does.
        mine, theirs = (t.T @ t if name == "factor" else t for t in (_tensors(pieces)[name], tensor))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6 if name == "factor" else 1e-7, atol=1e-7)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=80), st.integers(1, 30), st.booleans())
def test_every_piece_holds_whole_subjects(tmp_path_factory: Any, who: list[int], rows: int, arranged: bool) -> None:
    who = sorted(who) if arranged else who
    n = len(who)
    X = np.arange(3.0 * n).reshape(n, 3)
    data = EmbeddingSet.from_arrays(X, np.arange(n) % 2, subject=np.array(who))
    pieces = list(by_subject(SetBatches(data, rows=rows), tmp_path_factory.mktemp("by") / "sorted"))
    seen = [set(piece.subject.tolist()) for piece in pieces]  # type: ignore[union-attr]
    assert sum(map(len, seen)) == len(set(who))
    for subject in set(who):
        mine = np.concatenate([piece.X[piece.subject == subject] for piece in pieces])
        # In their order: only the first records of a subject count.
        np.testing.assert_array_equal(mine, X[np.array(who) == subject])


def test_spread_subjects_without_a_place_are_refused() -> None:
    with pytest.raises(DataError, match="spread over the data"):
        ClassGaussian(privacy=DP(1.0, 1e-6, unit="subject"), classes=[0, 1, 2], insecure_seed=0).fit_batches(
            SetBatches(_records(), rows=100)
        )
    # Together they need none.
    ClassGaussian(privacy=DP(1.0, 1e-6, unit="subject"), classes=[0, 1, 2], insecure_seed=0).fit_batches(
        SetBatches(_records(together=True), rows=100)
    )


def test_a_copy_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.data.whole_subjects._RUN", 400 * 12)
    data = SetBatches(_records(), rows=200)
    first = gather(by_subject(data, tmp_path / "sorted"), "x")
    runs = sorted((tmp_path / "sorted").glob("run-*.parquet"))
    assert len(runs) == 8
    assert all(run.stat().st_mode & 0o777 == 0o600 for run in runs)
    kept = {run.name: run.stat().st_mtime_ns for run in runs[:5]}
    for run in runs[5:]:
        run.unlink()
    again = gather(by_subject(data, tmp_path / "sorted"), "x")
    np.testing.assert_array_equal(first.X, again.X)
    assert kept == {run.name: run.stat().st_mtime_ns for run in runs[:5]}
    # A copy of other data is not used.
    other = gather(by_subject(SetBatches(_records(2800), rows=200), tmp_path / "sorted"), "x")
    assert len(other) == 2800


def test_a_record_that_cannot_be_used_is_found_before_anything_is_paid(tmp_path: Path) -> None:
    data = _records()

    class Broken(SetBatches):
        def __iter__(self) -> Any:
            yield from list(SetBatches(self.data, 500))[:3]
            raise DataError("Vectors must be finite.")

        def parts(self) -> Any:
            return [self]

        def only(self, *, subject: bool, attributes: Any = ()) -> Any:
            return self

    model = ClassGaussian(privacy=DP(1.0, 1e-6), classes=[0, 1, 2], ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(DataError, match="finite"):
        model.fit_batches(Broken(data))
    assert not Ledger(tmp_path / "ledger.sqlite").holdings()["default"].charges


@pytest.mark.slow
def test_a_killed_fit_goes_on_without_paying_again(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "data.parquet", _records(60_000, 32))
    program = (
        "import sys\nfrom locum.data import open_batches\nfrom locum.generate import ClassGaussian\n"
        "from locum.types import DP\n"
        "m = ClassGaussian(privacy=DP(1.0, 1e-6), classes=[0, 1, 2], ledger='ledger.sqlite',\n"
        "  checkpoint='c.checkpoint')\n"
        "m.fit_batches(open_batches('data.parquet')['all'])\nprint(m.claim_.dp.epsilon)\n"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=env)
    while not (tmp_path / "c.checkpoint").exists() or (tmp_path / "c.checkpoint").stat().st_size < 1000:
        assert first.poll() is None
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    again = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert len(Ledger(tmp_path / "ledger.sqlite").holdings()["default"].charges) == 1


def test_what_cannot_be_done_in_pieces_says_the_size() -> None:
    with pytest.raises(ConfigError, match=r"KSame needs all records in memory, about 0\.0 GB"):
        KSame().fit_batches(SetBatches(_records()))


def test_a_mean_that_shows_a_record_is_refused_in_pieces_too() -> None:
    X = np.concatenate([np.random.default_rng(0).normal(size=(50, 4)), np.ones((30, 4))])
    data = EmbeddingSet.from_arrays(X, np.repeat([0, 1], [50, 30]))
    model = ClassGaussian().fit_batches(SetBatches(data, rows=8))
    with pytest.raises(PrivacyError, match="same vector in every record"):
        model.release(no_dp=True)
    spread = EmbeddingSet.from_arrays(
        X, np.repeat([0, 1], [50, 30]), subject=np.repeat(["a", "b", "c"], [20, 30, 30])
    )
    model = ClassGaussian().fit_batches(SetBatches(spread, rows=8))
    with pytest.raises(PrivacyError, match="single record or subject"):
        model.release(no_dp=True)


def test_labels_beyond_the_declared_classes_are_refused() -> None:
    with pytest.raises(DataError, match="not among `classes`"):
        ClassGaussian(privacy=DP(1.0, 1e-6), classes=[0, 1], insecure_seed=0).fit_batches(SetBatches(_records()))


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_data_that_change_during_the_fit_are_refused(tmp_path: Path, unit: Any) -> None:
    """Otherwise a file that is no longer sorted would bring one subject into two pieces."""
    file = tmp_path / "data.parquet"
    write_embeddings(file, _records(together=True))
    passes = 0

    class Meddling(LocalEngine):
        def map(self, batches: Any, work: Any) -> Any:
            nonlocal passes
            passes += 1
            if passes == 3:
                write_embeddings(file, _records())
            return super().map(batches, work)

    model = ClassGaussian(privacy=DP(1.0, 1e-6, unit), classes=[0, 1, 2], insecure_seed=0)
    with pytest.raises(DataError, match="changed"):
        model.fit_batches(open_batches(file)["all"], engine=Meddling())
    assert passes == 3


def test_classes_of_data_in_pieces_are_codes() -> None:
    with pytest.raises(ConfigError, match="class codes"):
        ClassGaussian(privacy=DP(1.0, 1e-6), classes=["a", "b", "c"], insecure_seed=0).fit_batches(
            SetBatches(_records())
        )
