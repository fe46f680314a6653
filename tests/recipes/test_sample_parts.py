"""Sampling into a folder: the same rows whatever draws them, and nothing lost when it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from locum.data import DRAWN, load_sample, read_embeddings, write_embeddings
from locum.errors import ConfigError, DataError
from locum.recipes import fit_release, sample_to_folder
from locum.release import load


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    write_embeddings(folder / "tumors.npz", load_sample("breast-cancer"))
    return fit_release(str(folder / "tumors.npz"), folder / "release", no_dp=True).release


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.parquet"))}


def test_rows_do_not_depend_on_the_number_of_threads(release: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        sample_to_folder(release, tmp_path / str(workers), n=1000, rows_per_file=300, seed=7, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert len(contents(tmp_path / "1")) == 4


def test_no_two_parts_and_no_two_draws_repeat_a_row(release: Path, tmp_path: Path) -> None:
    sample_to_folder(release, tmp_path / "a", n=600, rows_per_file=200, seed=0, workers=1)
    sample_to_folder(release, tmp_path / "b", n=600, rows_per_file=200, workers=1)
    X = np.concatenate([read_embeddings(tmp_path / name).X for name in "ab"])
    assert len(np.unique(X, axis=0)) == 1200


def test_parts_are_draws_of_the_release(release: Path, tmp_path: Path) -> None:
    """Part i is what the release gives for the i-th child of the seed: a number that anyone can redo."""
    sample_to_folder(release, tmp_path / "out", n=500, rows_per_file=250, seed=3, workers=1)
    drawn = read_embeddings(tmp_path / "out" / "part-000001.parquet")
    rng = np.random.default_rng(np.random.SeedSequence(3, spawn_key=(1,)))
    expected = load(release).sample_set(250, random_state=rng)
    assert np.array_equal(drawn.X, expected.X)
    assert np.array_equal(drawn.labels, expected.labels)
    assert drawn.info.class_names == expected.info.class_names


def test_a_part_larger_than_a_block_is_complete(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locum.recipes.sample_parts._AT_ONCE", 30 * 70)
    sample_to_folder(release, tmp_path / "out", n=500, rows_per_file=400, seed=3, workers=1)
    assert len(read_embeddings(tmp_path / "out")) == 500


def test_a_draw_goes_on_where_it_was(release: Path, tmp_path: Path) -> None:
    given = {"n": 1000, "rows_per_file": 100, "seed": 1, "workers": 1}
    sample_to_folder(release, tmp_path / "whole", **given)
    sample_to_folder(release, tmp_path / "cut", **given)
    for name in ("part-000003.parquet", "part-000007.parquet"):
        (tmp_path / "cut" / name).unlink()
    with pytest.raises(DataError, match="800 of 1000 vectors"):
        read_embeddings(tmp_path / "cut")
    assert sample_to_folder(release, tmp_path / "cut", **given)["resumed"] == 8
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_killed_draw_leaves_whole_files_and_can_be_finished(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    code = (
        "from pathlib import Path; from locum.recipes import sample_to_folder\n"
        "if __name__ == '__main__':\n"
        f"    sample_to_folder(Path({str(release)!r}), Path({str(out)!r}), n=400_000, rows_per_file=20_000, seed=1)\n"
    )
    (tmp_path / "draw.py").write_text(code)
    process = subprocess.Popen([sys.executable, str(tmp_path / "draw.py")], start_new_session=True)
    end = time.monotonic() + 60
    while len(contents(out)) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for file in out.glob("*.parquet"):
        assert len(read_embeddings(file)) == 20_000
    found = sample_to_folder(release, out, n=400_000, rows_per_file=20_000, seed=1)
    assert found["resumed"] >= 3
    assert sum(len(read_embeddings(file)) for file in out.glob("*.parquet")) == 400_000


@pytest.mark.parametrize("change", [{"n": 900}, {"rows_per_file": 50}, {"seed": 2}, {"variance": 0.5}])
def test_other_settings_are_refused(release: Path, tmp_path: Path, change: dict[str, float]) -> None:
    given = {"n": 300, "rows_per_file": 100, "seed": 1, "workers": 1}
    sample_to_folder(release, tmp_path / "out", **given)
    before = contents(tmp_path / "out")
    with pytest.raises(ConfigError, match="another draw"):
        sample_to_folder(release, tmp_path / "out", **{**given, **change})
    assert contents(tmp_path / "out") == before


def test_a_seed_that_nobody_chose_is_not_kept(release: Path, tmp_path: Path) -> None:
    sample_to_folder(release, tmp_path / "out", n=100, workers=1)
    assert json.loads((tmp_path / "out" / DRAWN).read_text())["entropy"] is None
    with pytest.raises(ConfigError, match="complete draw"):
        sample_to_folder(release, tmp_path / "out", n=100, workers=1)


def test_a_folder_of_somebody_else_is_left_alone(release: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="not a folder that Locum wrote"):
        sample_to_folder(release, tmp_path / "mine", n=10, workers=1)
    with pytest.raises(ConfigError, match="whole number"):
        sample_to_folder(release, tmp_path / "new", n=0)
    with pytest.raises(ConfigError, match="variance"):
        sample_to_folder(release, tmp_path / "new", n=10, variance=-1)
    with pytest.raises(ConfigError, match="`seed`"):
        sample_to_folder(release, tmp_path / "new", n=10, seed=-1, workers=1)
    assert not (tmp_path / "new").exists()


def test_a_fixed_table_is_drawn_into_a_file(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "tumors.npz", load_sample("breast-cancer"))
    made = fit_release(str(tmp_path / "tumors.npz"), tmp_path / "rows", generator="ksame", no_dp=True)
    with pytest.raises(ConfigError, match="fixed table"):
        sample_to_folder(made.release, tmp_path / "out", n=10)


def test_parquet_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write_embeddings(tmp_path / "parts" / "a.parquet", load_sample("breast-cancer"))
    write_embeddings(tmp_path / "parts" / "b.parquet", load_sample("digits"))
    with pytest.raises(DataError, match="different columns, classes or sources"):
        read_embeddings(tmp_path / "parts")
