"""What would waste a budget, publish what is not public, or pay twice is refused before anything is charged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum import EmbeddingSet
from locum.accounting import Ledger
from locum.data import write_embeddings
from locum.io import LEDGER, STATE_FOLDER
from locum.recipes import fit_release

RANGES = "name,low,high\nage,18,98\nheight,140,200\n"


def table(file: Path, label: str = "label", n: int = 400) -> str:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    age, height = 40 + 30 * y + rng.normal(0, 8, n), 165 + rng.normal(0, 8, n)
    rows = [f"{a:.1f},{h:.1f},{'ab'[c]}" for a, h, c in zip(age, height, y, strict=True)]
    file.write_text("\n".join([f"age,height,{label}", *rows]) + "\n")
    return file.name


def images(folder: Path, classes: str = "ab", n: int = 4) -> Path:
    rng = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def paid(folder: Path) -> bool:
    return any(holding.charges for place in folder.rglob(LEDGER) for holding in Ledger(place).holdings().values())


def test_one_class_is_no_release(program, tmp_path: Path) -> None:
    images(tmp_path / "scans")
    ran = program("fit", "scans/a", "-o", "r", "--classes-public")
    assert ran.code == 2
    X = np.random.default_rng(0).normal(size=(60, 3))
    write_embeddings(tmp_path / "one.npz", EmbeddingSet.from_arrays(X, np.full(60, "ill")))
    for asked in (["--classes-public"], ["--classes", "ill"]):
        ran = program("fit", "one.npz", "-o", "r", *asked)
        assert ran.code == 2
        assert "All records belong to one class, 'ill'" in ran.err, asked
        assert not paid(tmp_path)
        assert not (tmp_path / "r").exists()


def test_a_guessed_column_is_not_published_unseen(program, tmp_path: Path) -> None:
    name = table(tmp_path / "t.csv", label="ward")
    more = ("-o", "r", "--reference", "none")
    ran = program("fit", name, *more, "--classes-public")
    assert ran.code == 2
    assert "the last one, 'ward', would be taken for the classes" in " ".join(ran.err.split())
    assert not paid(tmp_path)
    ran = program("fit", name, *more, "--classes", "a,b")
    assert ran.code == 0, ran.err


def test_a_table_needs_ranges(program, tmp_path: Path) -> None:
    name = table(tmp_path / "t.csv")
    ran = program("fit", name, "-o", "r", "--classes", "a,b")
    assert ran.code == 2
    assert "must know the usual range of each column" in " ".join(ran.err.split())
    (tmp_path / "wrong.csv").write_text(RANGES.replace("age", "weight"))
    (tmp_path / "short.csv").write_text("name,low,high\nage,18,98\n")
    for file, told in (
        ("wrong.csv", "line 2 names 'weight', where the table has 'age'"),
        ("short.csv", "line 3 has no more lines"),
    ):
        ran = program("fit", name, "-o", "r", "--classes", "a,b", "--reference", file)
        assert ran.code == 2
        assert told in " ".join(ran.err.split())
        assert not paid(tmp_path)
    (tmp_path / "ranges.csv").write_text(RANGES)
    ran = program("fit", name, "-o", "r", "--classes", "a,b", "--reference", "ranges.csv")
    assert ran.code == 0, ran.err
    assert "of what real data gain over chance in AUC" in " ".join(ran.out.split())
    # As useful as it says: the classes lie apart by nearly four standard deviations.
    table(tmp_path / "test.csv")
    told = program("evaluate", "r", "--test", "test.csv", "--json").json
    assert told["rows"][0]["scores"]["auc"]["value"] > 0.95, told


def test_a_file_of_ranges_is_the_statistics_made_of_it(program, tmp_path: Path) -> None:
    name = table(tmp_path / "t.csv")
    (tmp_path / "ranges.csv").write_text(RANGES)
    assert program("reference", "make", "--ranges", "ranges.csv", "-o", "made.safetensors").code == 0
    ran = program("fit", name, "-o", "r", "--classes", "a,b", "--reference", "ranges.csv")
    assert ran.code == 0, ran.err
    for file in ("ranges.csv", "made.safetensors"):
        ran = program("verify", "r", "--ledger", f"{STATE_FOLDER}/{LEDGER}", "--reference", file)
        assert ran.code == 0, ran.err
    (tmp_path / "other.csv").write_text(RANGES.replace("98", "90"))
    assert program("verify", "r", "--ledger", f"{STATE_FOLDER}/{LEDGER}", "--reference", "other.csv").code == 2


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    for part in ("train", "test"):
        images(tmp_path / "scans" / part, n=30)
    (tmp_path / "out").mkdir()
    return tmp_path / "scans"


FIT = ("--classes", "a,b")
OWN = f"{STATE_FOLDER}/{LEDGER}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # A part of what was paid for; what was paid for as a part of more; vectors stand for their images.
        (["fit", "scans"], ["fit", "scans/train"]),
        (["fit", "scans/train"], ["fit", "scans"]),
        (["embed", "scans", "fit"], ["fit", "scans/train"]),
        (["embed", "scans/train", "fit"], ["fit", "scans"]),
        (["fit", "scans"], ["embed", "scans/train", "fit"]),
        (["embed", "scans", "fit"], ["publish", "scans/train"]),
    ],
)
def test_records_have_one_budget_on_this_machine(
    first: list[str], second: list[str], program, scans: Path, tmp_path: Path
) -> None:
    assert program("keygen", "holder.pem").code == 0

    def made(steps: list[str], out: str):
        data = steps[1]
        if steps[0] == "embed":
            ran = program("embed", data, "-o", f"out/{out}.npz")
            assert ran.code == 0, ran.err
            data = f"out/{out}.npz"
        more = ("--key", "holder.pem") if steps[0] == "publish" else ()
        return program("publish" if more else "fit", data, "-o", f"out/{out}", *FIT, *more)

    ran = made(first, "one")
    assert ran.code == 0, ran.err
    books = list(tmp_path.rglob(LEDGER))
    ran = made(second, "two")
    assert ran.code == 2
    assert "a second ledger would be a second budget for the same people" in " ".join(ran.err.split())
    assert list(tmp_path.rglob(LEDGER)) == books
    (book,) = books
    # The way out that it names.
    data = second[1] if second[0] != "embed" else "out/two.npz"
    again = program("fit", data, "-o", "out/three", *FIT, "--ledger", book)
    assert again.code == 2
    assert "is left" in again.err
    again = program("fit", data, "-o", "out/three", *FIT, "--ledger", book, "--holding", "second")
    assert again.code == 0, again.err
    assert "2 releases" in again.out


def test_a_ledger_that_moves_with_its_data_still_knows_them(program, scans: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    scans.rename(tmp_path / "old" / "scans")
    ran = program("fit", "old/scans", "-o", "out/r", *FIT)
    assert ran.code == 0, ran.err
    (tmp_path / "old").rename(tmp_path / "new")
    ran = program("fit", "new/scans/train", "-o", "out/r2", *FIT)
    assert ran.code == 2
    assert "in which 'train' lies" in " ".join(ran.err.split())
    # Nothing of this machine's folders is in what others may check.
    assert str(tmp_path) not in program("ledger", "export", "new/scans").out


def test_a_fit_that_was_refused_has_paid_for_nothing(program, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        table(tmp_path / name)
    assert program("fit", "a.csv", "-o", "r", *FIT, "--reference", "none").code == 0
    ran = program("fit", "b.csv", "-o", "r2", *FIT, "--reference", "none")
    assert ran.code == 2
    assert "left" in ran.err
    assert [place.name for place in Ledger(tmp_path / OWN).data()] == ["a.csv"]
    ran = program("fit", "b.csv", "-o", "r2", *FIT, "--reference", "none", "--ledger", "other.sqlite")
    assert "second budget" not in ran.err


def test_other_data_below_a_ledger_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(60, 3))
    vectors = EmbeddingSet.from_arrays(X, np.array(["a", "b"])[np.arange(60) % 2])
    for place in ("above.npz", "below/below.npz"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        write_embeddings(tmp_path / place, vectors)
        fit_release(place, Path(f"{place}-release"), classes=["a", "b"])
    assert len(list(tmp_path.rglob(LEDGER))) == 2
    assert Ledger(tmp_path / STATE_FOLDER / LEDGER).data() == ((tmp_path / "above.npz").resolve(),)
