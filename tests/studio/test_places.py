"""What the desk lists: whole data sets, not their parts."""

from __future__ import annotations

from pathlib import Path

from locum.studio.places import Root


def filled(root: Path, *names: str) -> dict[str, list[str]]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return Root(root).listing()


def test_images_are_listed_by_the_folder_that_holds_their_classes(tmp_path: Path) -> None:
    found = filled(tmp_path, "a/benign/1.png", "b/train/benign/1.png", "b/test/malignant/2.JPG", "c/d/x/1.dcm")
    assert found["data"] == ["a", "b", "c/d"]


def test_several_parquet_files_of_a_folder_are_one_data_set(tmp_path: Path) -> None:
    found = filled(tmp_path, "parts/a.parquet", "parts/b.parquet", "one/a.parquet", "x.parquet", "y.parquet")
    assert found["data"] == ["one/a.parquet", "parts", "x.parquet", "y.parquet"]


def test_what_our_verbs_write_is_not_data(tmp_path: Path) -> None:
    written = ("r-predictions.csv", "r-risk.csv", "r-samples.npz", "r-head.safetensors", ".hidden.npz", "notes.txt")
    found = filled(tmp_path, "scans.npz", "k.pem", "k.pem.pub", "other.pub", *written)
    assert found["data"] == ["scans.npz"]
    assert found["heads"] == ["r-head.safetensors"]
    assert (found["keys"], found["publics"]) == (["k.pem"], ["k.pem.pub", "other.pub"])


def test_a_release_is_listed_and_not_looked_into(tmp_path: Path) -> None:
    found = filled(tmp_path, "r/manifest.json", "r/decoder.safetensors", "r/x/more.npz", "s/manifest.json")
    assert found["releases"] == ["r"]
    assert found["data"] == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.npz").touch()
    (tmp_path / "root" / "link.npz").symlink_to(tmp_path / "secret.npz")
    (tmp_path / "root" / "folder").symlink_to(tmp_path)
    assert Root(tmp_path / "root").listing()["data"] == []
