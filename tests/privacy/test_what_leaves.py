"""No record, and nothing that names one, is in what leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.generate import BaseGenerator, CGANGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.recipes import fit_release

GENERATORS = [
    ClassGaussian(random_state=0),
    CVAEGenerator(max_epochs=5, random_state=0),
    KSame(k=3, random_state=0),
    CGANGenerator(generator_hidden=(16,), critic_hidden=(16,), max_epochs=3, random_state=0),
]


def rows(release_tensors: dict[str, np.ndarray], width: int) -> np.ndarray:
    """Every row of every tensor that is as wide as a record."""
    found = [np.atleast_2d(t) for t in release_tensors.values() if t.dtype.kind == "f" and t.shape[-1] == width]
    return np.concatenate(found)


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda g: type(g).__name__)
def test_no_tensor_row_is_a_record(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    released = rows(dict(generator.fit(X, y).release(no_dp=True).tensors), X.shape[1])
    distance = np.linalg.norm(released[:, None] - X[None], axis=2)
    assert distance.min() > 1e-3


def test_the_check_would_see_a_record(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = blobs
    assert np.linalg.norm(rows({"means": X[:1]}, X.shape[1])[:, None] - X[None], axis=2).min() == 0


@pytest.mark.parametrize("generator", ["gaussian", "cvae", "ksame"])
def test_subjects_and_file_names_stay_at_home(
    generator: str, blob_set: EmbeddingSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subjects = np.array([f"patient-{i // 2:04d}-smith" for i in range(len(blob_set))])
    data = EmbeddingSet(blob_set.X, blob_set.y, subjects, {"ward": subjects}, blob_set.info)
    file = tmp_path / "smith_john_1970.npz"
    write_embeddings(file, data)
    settings = {"max_epochs": 3} if generator == "cvae" else {}
    fit_release(str(file), tmp_path / "release", generator=generator, settings=settings, no_dp=True)
    shown = capsys.readouterr()
    left = b"".join(p.read_bytes() for p in (tmp_path / "release").iterdir())
    assert b"smith" not in left
    assert "smith" not in shown.out + shown.err


def test_held_out_records_have_no_influence(blob_set: EmbeddingSet, tmp_path: Path) -> None:
    """Neighbor replay on the non-members: change them all, and not a byte of the release moves."""
    rng = np.random.default_rng(0)
    left = []
    for shift in (0.0, 100.0):
        others = EmbeddingSet(
            blob_set.X[:40] + np.float32(shift) + rng.normal(size=(40, 8)).astype(np.float32),
            blob_set.y[:40],
            info=blob_set.info,
        )
        write_embeddings(tmp_path / "train.npz", blob_set)
        write_embeddings(tmp_path / "others.npz", others)
        out = tmp_path / f"release-{shift:g}"
        fit_release(
            str(tmp_path / "train.npz"),
            out,
            generator="gaussian",
            non_members=str(tmp_path / "others.npz"),
            no_dp=True,
        )
        left.append({p.name: p.read_bytes() for p in out.iterdir()})
    assert left[0] == left[1]
