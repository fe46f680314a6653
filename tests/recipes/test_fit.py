"""Which records are used, which are not, and what the summary tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.recipes import fit_release


def save(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_a_file_with_splits_uses_its_own(tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    data = save(tmp_path / "d.npz", train_x=X[::2], train_y=y[::2], val_x=X[1::2], val_y=y[1::2])
    summary = fit_release(data, tmp_path / "r", generator="gaussian", no_dp=True)
    assert (summary.records, summary.held_out) == (105, 105)
    alone = fit_release(f"{data}#train", tmp_path / "r2", generator="gaussian", holdout=0.2, no_dp=True)
    assert (alone.records, alone.held_out) == (84, 21)


def test_non_members_do_not_steer_the_fit(tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """Other non-members, same release: early stopping does not look at them."""
    X, y = blobs
    prints = set()
    for i, others in enumerate((X[1::2], X[1::2] + 50)):
        data = save(tmp_path / f"d{i}.npz", train_x=X[::2], train_y=y[::2], test_x=others, test_y=y[1::2])
        prints.add(
            fit_release(
                data, tmp_path / f"r{i}", generator="cvae", settings={"max_epochs": 20}, no_dp=True
            ).fingerprint
        )
    assert len(prints) == 1


def test_too_few_records_are_noticed_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from locum.generate import ClassGaussian

    monkeypatch.setattr(ClassGaussian, "fit", lambda *_, **__: pytest.fail("fitted before the check"))
    data = save(tmp_path / "d.npz", X=np.eye(12), y=[0, 1] * 6)
    with pytest.raises(DataError, match="4 records that the fit does not use"):
        fit_release(data, tmp_path / "r", generator="gaussian", no_dp=True)


def test_people_are_not_on_both_sides(
    tmp_path: Path, blob_set: EmbeddingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from locum.recipes import fit as module

    seen: dict[str, EmbeddingSet] = {}

    check = module.check_membership

    def spy(release: object, members: EmbeddingSet, non_members: EmbeddingSet, rng: object) -> object:
        seen.update(members=members, others=non_members)
        return check(release, members, non_members, rng)

    monkeypatch.setattr(module, "check_membership", spy)
    subjects = np.arange(len(blob_set)) // 3
    with_people = EmbeddingSet(blob_set.X, blob_set.y, subjects, info=blob_set.info)
    write_embeddings(tmp_path / "d.npz", with_people)
    fit_release(str(tmp_path / "d.npz"), tmp_path / "r", generator="gaussian", holdout=0.2, no_dp=True)
    assert not set(seen["members"].subject) & set(seen["others"].subject)
    assert len(seen["members"]) + len(seen["others"]) == len(blob_set)


def test_the_same_seed_gives_the_same_release(tmp_path: Path, blob_set: EmbeddingSet) -> None:
    write_embeddings(tmp_path / "d.npz", blob_set)
    prints = {
        fit_release(
            str(tmp_path / "d.npz"), tmp_path / name, generator="cvae", settings={"max_epochs": 3}, no_dp=True, seed=4
        ).fingerprint
        for name in ("a", "b")
    }
    assert len(prints) == 1


def test_conditions_reach_the_generator(tmp_path: Path, blob_set: EmbeddingSet) -> None:
    site = np.array(["north", "south"])[np.arange(len(blob_set)) % 2]
    data = EmbeddingSet(blob_set.X, blob_set.y, attributes={"site": site}, info=blob_set.info)
    write_embeddings(tmp_path / "d.npz", data)
    settings = {"max_epochs": 3, "condition_on": ["site"]}
    fit_release(str(tmp_path / "d.npz"), tmp_path / "r", generator="cvae", settings=settings, no_dp=True)
    import locum

    drawn = locum.load(tmp_path / "r").sample_set(50)
    assert set(drawn.attributes["site"]) == {"north", "south"}


def test_problems_leave_nothing_behind(tmp_path: Path, blob_set: EmbeddingSet) -> None:
    write_embeddings(tmp_path / "d.npz", blob_set)
    lone = save(tmp_path / "lone.npz", X=np.eye(9), y=[0] * 8 + [1])
    for data, settings, error in (
        (str(tmp_path / "d.npz"), {"generator": "gan"}, ConfigError),
        (str(tmp_path / "d.npz"), {"settings": {"nonsense": 1}}, ConfigError),
        (lone, {"generator": "gaussian"}, (DataError, PrivacyError)),
    ):
        with pytest.raises(error):
            fit_release(data, tmp_path / "r", **settings, no_dp=True)
        assert not (tmp_path / "r").exists()


def test_a_place_that_cannot_be_written_beside_the_data_is_no_obstacle(
    tmp_path: Path, blob_set: EmbeddingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_embeddings(tmp_path / "d.npz", blob_set)
    real = Path.mkdir

    def mkdir(self: Path, *args: object, **options: object) -> None:
        if self.name == ".locum":
            raise PermissionError(13, "no")
        real(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    fit_release(str(tmp_path / "d.npz"), tmp_path / "r", generator="cvae", settings={"max_epochs": 2}, no_dp=True)
    assert (tmp_path / "r" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["train", "test", "all"])
def test_members_are_never_their_own_non_members(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray], name: str
) -> None:
    X, y = blobs
    if name == "all":
        data = save(tmp_path / "d.npz", X=X, y=y)
    else:
        data = save(tmp_path / "d.npz", train_x=X[::2], train_y=y[::2], test_x=X[1::2], test_y=y[1::2])
    summary = fit_release(f"{data}#{name}", tmp_path / "r", generator="ksame", settings={"k": 2}, no_dp=True)
    assert summary.membership.attack.value > 0.6
    with pytest.raises(DataError, match="equal a member"):
        fit_release(f"{data}#{name}", tmp_path / "r2", generator="ksame", non_members=f"{data}#{name}", no_dp=True)


def test_a_wrong_target_is_noticed_before_the_work(tmp_path: Path, blob_set: EmbeddingSet) -> None:
    write_embeddings(tmp_path / "d.npz", blob_set)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("x")
    for out in (tmp_path / "notes", tmp_path / "d.npz" / "r"):
        with pytest.raises(ConfigError, match=r"left alone|Nothing can be written"):
            fit_release(str(tmp_path / "d.npz"), out, generator="cvae", overwrite=True, no_dp=True)
    assert not (tmp_path / ".locum").exists()
