"""Frames, feature names and torch datasets; none of it is loaded unless asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import locum
from locum.errors import ConfigError, DataError, MissingExtraError
from locum.federated import merge_releases
from locum.generate import ClassGaussian
from locum.generate.base import NAMES_LEAVE
from locum.release import Release
from locum.types import DP

pd = pytest.importorskip("pandas")
NAMES = ["age", "bmi", "<b>pulse</b>", "label"]


@pytest.fixture
def table(rng: np.random.Generator) -> tuple[object, np.ndarray]:
    return pd.DataFrame(rng.normal(size=(60, 4)), columns=NAMES), np.repeat(["ill", "well"], 30)


@pytest.fixture
def named(table: tuple[object, np.ndarray]) -> Release:
    return ClassGaussian(random_state=0).fit(*table).release(no_dp=True)  # type: ignore[arg-type]


def test_names_survive_a_fit_a_folder_and_a_draw(named: Release, tmp_path: Path) -> None:
    release = locum.load(named.save(tmp_path / "release"))
    X, y = release.sample(per_class={"ill": 2, "well": 1}, as_frame=True, random_state=0)
    assert list(X.columns) == NAMES
    assert y.name == "label"
    assert sorted(y) == ["ill", "ill", "well"]
    plain, labels = release.sample(per_class={"ill": 2, "well": 1}, random_state=0)
    np.testing.assert_array_equal(X.to_numpy(), plain)
    np.testing.assert_array_equal(y.to_numpy(), labels)


def test_the_claim_says_that_names_leave(named: Release, table: tuple[object, np.ndarray], tmp_path: Path) -> None:
    assert NAMES_LEAVE in named.claim.not_covered
    X, y = table
    bare = ClassGaussian(random_state=0).fit(np.asarray(X), y).release(no_dp=True)
    assert NAMES_LEAVE not in bare.claim.not_covered
    assert "feature_names" not in bare.manifest.dumps()
    assert bare.feature_names == ("x0", "x1", "x2", "x3")
    private = ClassGaussian(privacy=DP(1.0, 1e-5), classes=["ill", "well"], ledger=tmp_path / "ledger.sqlite")
    assert NAMES_LEAVE in private.fit(X, y).release().claim.not_covered  # type: ignore[arg-type]


def test_a_second_fit_on_an_array_forgets_the_names(table: tuple[object, np.ndarray]) -> None:
    X, y = table
    model = ClassGaussian(random_state=0).fit(X, y)  # type: ignore[arg-type]
    assert model.feature_names_in_.tolist() == NAMES
    assert model.fit(np.asarray(X), y).release(no_dp=True).manifest.embedding.feature_names == ()


def test_names_that_a_release_cannot_hold_are_refused_before_anything_is_paid(tmp_path: Path) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a" * 201, "b"])
    model = ClassGaussian(privacy=DP(1.0, 1e-5), classes=[0, 1], ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(ConfigError, match="column names"):
        model.fit(X, np.arange(40) % 2)
    assert not (tmp_path / "ledger.sqlite").exists()


def test_one_frame_with_labels_never_hides_a_feature(named: Release) -> None:
    frame = named.to_pandas(20, random_state=0)
    assert list(frame.columns) == [*NAMES, "label_"]
    assert set(frame["label_"]) <= {"ill", "well"}


def test_set_output_is_for_people_not_for_our_own_code(named: Release, table: tuple[object, np.ndarray]) -> None:
    assert named.set_output(transform="pandas") is named
    assert isinstance(named.sample(3)[0], pd.DataFrame)
    assert isinstance(named.sample(3, as_frame=False)[0], np.ndarray)
    X = table[0]
    assert list(named.transform(X).columns) == NAMES  # type: ignore[arg-type]
    assert isinstance(named.transform(np.asarray(X)), np.ndarray)
    assert isinstance(named.sample_set(3).X, np.ndarray)
    with pytest.raises(ConfigError, match="default, pandas"):
        named.set_output(transform="polars")  # type: ignore[arg-type]


def test_an_audit_of_a_release_that_gives_frames(named: Release, rng: np.random.Generator) -> None:
    from locum.audit import audit

    data = locum.EmbeddingSet(rng.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 2,
                              info=locum.EmbeddingInfo(class_names=("ill", "well")))  # fmt: skip
    named.set_output(transform="pandas")
    assert audit(named, data.take(range(20)), data.take(range(20, 40))).results


def test_a_generator_gives_frames_too_also_its_clone(table: tuple[object, np.ndarray]) -> None:
    from sklearn.base import clone

    model = clone(ClassGaussian(random_state=0).set_output(transform="pandas")).fit(*table)
    assert list(model.sample(3)[0].columns) == NAMES
    assert isinstance(model.sample(3, as_frame=False)[0], np.ndarray)


def test_columns_in_another_order_are_refused(named: Release, table: tuple[object, np.ndarray]) -> None:
    X = table[0]
    with pytest.raises(DataError, match="another order"):
        named.transform(X[NAMES[::-1]])  # type: ignore[index]
    with pytest.raises(DataError, match="other columns"):
        named.transform(X.rename(columns={"age": "years"}))  # type: ignore[attr-defined]


def test_sites_with_other_columns_are_not_merged(table: tuple[object, np.ndarray], named: Release) -> None:
    X, y = table
    other = ClassGaussian(random_state=1).fit(X[NAMES[::-1]], y).release(no_dp=True)  # type: ignore[index]
    with pytest.raises(DataError, match="other names"):
        merge_releases([named, other])
    same = ClassGaussian(random_state=1).fit(X[5:55], y[5:55]).release(no_dp=True)  # type: ignore[index]
    assert merge_releases([named, same]).feature_names == tuple(NAMES)


def test_a_torch_dataset(named: Release) -> None:
    torch = pytest.importorskip("torch")
    rows = named.to_torch(10, random_state=0)
    X, code = rows[0]
    assert len(rows) == 10
    assert X.dtype == torch.float32
    assert code.dtype == torch.int64


def test_without_pandas_the_error_names_the_extra(named: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"locum\[fit\]"):
        named.sample(1, as_frame=True)
    with pytest.raises(MissingExtraError):
        named.to_pandas(1)


def test_a_receiver_who_asks_for_arrays_loads_nothing_heavy(named: Release, tmp_path: Path) -> None:
    from locum.release import pack_release

    folder = named.save(tmp_path / "release")
    (tmp_path / "release.zip").write_bytes(pack_release(folder))
    code = (
        "import sys, locum\n"
        "for name in sys.argv[1:]:\n    release = locum.load(name); release.sample(5); release._repr_html_()\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'pyarrow', 'onnx', 'huggingface_hub', 'fsspec'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "release.zip")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == "[]\n"
