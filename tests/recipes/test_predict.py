"""Predictions are the head's own, scores count what can be counted, and the table is harmless."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum import EmbeddingInfo, EmbeddingSet
from locum.data import read_splits, write_embeddings
from locum.errors import ConfigError, DataError, FormatError
from locum.generate import ClassGaussian
from locum.heads import LinearHead, SavedHead
from locum.metrics import clopper_pearson, score_all
from locum.recipes import PredictSummary, fit_release, predict_records, train_head
from locum.recipes.predict import _harmless

INFO = EmbeddingInfo("efflite0", "", "abc", ("ant", "bee", "cat"))


@pytest.fixture
def head(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    release = ClassGaussian(random_state=0).fit(*blobs).release(INFO, no_dp=True)
    fitted = LinearHead(max_epochs=5, random_state=0).fit(*release.sample(900, random_state=0))
    return SavedHead.from_fitted(fitted, release).save(tmp_path / "head.safetensors")


@pytest.fixture
def data(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> str:
    write_embeddings(tmp_path / "mine.npz", EmbeddingSet(*blobs, info=INFO))
    return str(tmp_path / "mine.npz")


def table(summary: PredictSummary) -> list[dict[str, str]]:
    stream = io.BytesIO()
    summary.write_csv(stream)
    return list(csv.DictReader(io.StringIO(stream.getvalue().decode())))


def test_predictions_are_the_head_s(head: Path, data: str, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    summary = predict_records(head, data)
    proba = SavedHead.open(head).predict_proba(X)
    np.testing.assert_array_equal(summary.proba, proba)
    rows = table(summary)
    assert list(rows[0]) == ["record", "label", "probability", "p_ant", "p_bee", "p_cat"]
    assert [row["record"] for row in rows] == [str(i) for i in range(210)]
    for row, p in zip(rows, proba, strict=True):
        assert row["label"] == INFO.class_names[p.argmax()]
        assert float(row["probability"]) == pytest.approx(p.max(), rel=1e-5)
        assert [float(row[f"p_{name}"]) for name in INFO.class_names] == pytest.approx(p.tolist(), rel=1e-5)
    wanted = score_all(y, proba, np.arange(3))
    assert {name: e.value for name, e in summary.scores.items()} == pytest.approx(
        {name: wanted[name] for name in ("accuracy", "auc", "balanced_accuracy", "f1_macro", "calibration_error")}
    )
    assert summary.scores["accuracy"] == clopper_pearson(int((proba.argmax(axis=1) == y).sum()), 210)
    assert (summary.scored_records, summary.unknown_labels, summary.skipped) == (210, 0, 0)


def test_unknown_labels_are_predicted_and_not_scored(
    head: Path, tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = blobs
    labels = np.array(["ant", "bee", "wasp"])[y]
    np.savez(tmp_path / "w.npz", X=X, y=labels)
    summary = predict_records(head, str(tmp_path / "w.npz"))
    assert (summary.scored_records, summary.unknown_labels) == (180, 30)
    assert len(table(summary)) == 210
    right = (summary.proba.argmax(axis=1) == y)[y < 2]
    assert summary.scores["accuracy"] == clopper_pearson(int(right.sum()), 180)

    np.savez(tmp_path / "none.npz", X=X, y=np.array(["dog", "cow", "emu"])[y])
    nothing = predict_records(head, str(tmp_path / "none.npz"))
    assert (nothing.scores, nothing.scored_records, nothing.unknown_labels) == ({}, 0, 210)


def test_records_of_one_class_have_an_accuracy_only(
    head: Path, tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = blobs
    np.savez(tmp_path / "one.npz", X=X[y == 1], y=np.full(60, "bee"))
    assert list(predict_records(head, str(tmp_path / "one.npz")).scores) == ["accuracy"]


def test_the_file_is_private_and_nothing_is_overwritten(head: Path, data: str, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    summary = predict_records(head, data, out=out)
    assert out.stat().st_mode & 0o777 == 0o600
    stream = io.BytesIO()
    summary.write_csv(stream)
    assert out.read_bytes() == stream.getvalue()
    out.write_text("mine")
    with pytest.raises(ConfigError, match="already exists"):
        predict_records(head, data, out=out)
    assert out.read_text() == "mine"
    predict_records(head, data, out=out, overwrite=True)
    assert out.read_text().startswith("record,")
    with pytest.raises(ConfigError, match=r"must end in \.csv"):
        predict_records(head, data, out=head, overwrite=True)


def test_json_holds_the_predictions_where_no_file_does(head: Path, data: str, tmp_path: Path) -> None:
    told = json.loads(json.dumps(predict_records(head, data).to_dict(), allow_nan=False))
    assert told["records"] == len(told["predictions"]) == sum(told["predicted"].values()) == 210
    assert told["predictions"][3]["record"] == "3"
    assert sum(told["predictions"][3]["probabilities"]) == pytest.approx(1)
    assert told["claim"]["kind"] == "none"
    written = predict_records(head, data, out=tmp_path / "p.csv").to_dict()
    assert "predictions" not in written
    assert written["file"] == str(tmp_path / "p.csv")


@pytest.mark.parametrize("change", [{"backbone": "dinov2"}, {"preprocessing": "xyz"}])
def test_vectors_that_do_not_belong(
    head: Path, tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray], change: dict[str, str]
) -> None:
    write_embeddings(tmp_path / "o.npz", EmbeddingSet(*blobs, info=replace(INFO, **change)))
    np.savez(tmp_path / "wide.npz", X=np.ones((4, 9)), y=["ant"] * 4)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError, match="Embed them in the same way"):
        predict_records(head, str(tmp_path / "o.npz"), out=tmp_path / "p.csv")
    with pytest.raises(DataError, match="8 features"):
        predict_records(head, str(tmp_path / "wide.npz"), out=tmp_path / "p.csv")
    with pytest.raises(FormatError, match="not in safetensors format"):
        predict_records(tmp_path / "wide.npz", str(tmp_path / "wide.npz"), out=tmp_path / "p.csv")
    assert sorted(tmp_path.iterdir()) == before


# Cells


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("benign", "benign"),
        ("grade-2 (T1+N0)", "grade-2 (T1+N0)"),
        ("-1", "-1"),
        ("+1.5", "+1.5"),
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "  '=1"),
        ("＝1", "'＝1"),
        ("\t=1", "?=1"),
        ("a;=1", "a;'=1"),
        ('a;"=1', "a;\"'=1"),
        ("\x1b[2J", "?[2J"),
        ("\udcff.png", "?.png"),
    ],
)
def test_cells_run_nothing(cell: str, written: str) -> None:
    assert _harmless(cell) == written


@given(st.text())
def test_no_cell_starts_a_formula_in_any_column(cell: str) -> None:
    made = _harmless(cell)
    assert made.isprintable()
    if made != cell or not cell[:1].isascii() or not cell[1:].replace(".", "").isdecimal():
        for part in made.replace(",", ";").replace("|", ";").split(";"):
            assert part.lstrip(' "')[:1] not in tuple("=+@-＝＋＠－")


def test_hostile_class_names_do_no_harm(head: Path, data: str) -> None:
    names = ('=HYPERLINK("x")', "@b\n=c", "\x1b]0;owned\x07")
    text = table(replace(predict_records(head, data), classes=names, names=["-a/b.png", *map(str, range(1, 210))]))
    assert list(text[0])[3:] == ['p_=HYPERLINK("x")', "p_@b?=c", "p_?]0;owned?"]
    assert {row["label"] for row in text} == {'\'=HYPERLINK("x")', "'@b?=c", "?]0;owned?"}
    assert text[0]["record"] == "'-a/b.png"


@pytest.mark.slow
def test_on_real_breast_ultrasounds(real_data: Path, tmp_path: Path) -> None:
    data = str(real_data / "breastmnist_efflite0.npz")
    fit_release(data, tmp_path / "release", no_dp=True)
    trained = train_head(tmp_path / "release", tmp_path / "head.safetensors")
    summary = predict_records(tmp_path / "head.safetensors", data, out=tmp_path / "p.csv")
    assert len(summary.names) == len(read_splits(data)["test"])
    assert summary.scores["auc"].value > 0.75
    # What the release's own samples say is no forecast.
    assert trained.scores["auc"].low > summary.scores["auc"].high
