"""One rule for each question about a path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from locum.errors import ConfigError
from locum.io import check_output_file, check_output_folder, ledger_path, lies_in_release, split_path
from locum.io.paths import state_folder


def test_private_state_lies_beside_the_data(tmp_path: Path) -> None:
    (tmp_path / "data.npz").touch()
    (tmp_path / "images").mkdir()
    expected = tmp_path.resolve() / ".locum"
    assert state_folder(tmp_path / "data.npz") == state_folder(str(tmp_path / "images")) == expected
    assert ledger_path(tmp_path / "data.npz#train") == expected / "ledger.sqlite"


def test_a_link_shares_the_ledger_of_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "data.npz").touch()
    (tmp_path / "b" / "link.npz").symlink_to(tmp_path / "a" / "data.npz")
    assert ledger_path(tmp_path / "b" / "link.npz") == ledger_path(tmp_path / "a" / "data.npz")


def test_a_folder_of_links_to_parquet_files_has_their_ledger(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for part in ("0.parquet", "1.parquet"):
        (tmp_path / "a" / part).touch()
        (tmp_path / "b" / part).symlink_to(tmp_path / "a" / part)
    assert ledger_path(tmp_path / "b") == ledger_path(tmp_path / "a") == ledger_path(tmp_path / "b" / "0.parquet")


def test_what_follows_the_last_mark_is_the_split_unless_the_file_is_called_so(tmp_path: Path) -> None:
    assert split_path("a.npz#train") == ("a.npz", "train")
    assert split_path("a#b.npz#nonsense") == ("a#b.npz", "nonsense")
    assert split_path("#train") == ("#train", None)
    (tmp_path / "ward#3").mkdir()
    assert split_path(tmp_path / "ward#3") == (str(tmp_path / "ward#3"), None)
    assert split_path(f"{tmp_path / 'ward#3'}#test") == (str(tmp_path / "ward#3"), "test")


def test_places_that_cannot_be_written_are_refused_before_any_work(tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.mkdir()
    (release / "manifest.json").touch()
    (tmp_path / "there.csv").touch()
    os.mkfifo(tmp_path / "pipe.csv")
    for name, told, options in [
        ("there.csv", "already exists", {}),
        ("release", "is a folder", {}),
        ("pipe.csv", "pipe", {"overwrite": True}),
        ("no/such/folder.csv", "does not exist", {}),
        ("a.txt", "must end in .csv or .json", {"suffixes": (".csv", ".json")}),
        ("release/a.csv", "next to it", {"release": release}),
    ]:
        with pytest.raises(ConfigError, match=told):
            check_output_file(tmp_path / name, **{"overwrite": False, **options})
    check_output_file(tmp_path / "there.csv", overwrite=True)
    check_output_file(tmp_path / "new.CSV", overwrite=False, suffixes=(".csv",))


def test_a_folder_that_is_no_release_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    check_output_folder(mine, overwrite=True)
    (mine / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="left alone"):
        check_output_folder(mine, overwrite=True)
    (mine / "manifest.json").touch()
    check_output_folder(mine, overwrite=True)
    with pytest.raises(ConfigError, match="--force"):
        check_output_folder(mine, overwrite=False)
    assert lies_in_release(mine / "a" / "b.csv")
    assert not lies_in_release(mine)
