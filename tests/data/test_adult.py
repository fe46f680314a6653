"""UCI Adult's own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from locum.data import read_adult
from locum.data.formats.adult import ADULT_COLUMNS
from locum.errors import DataError

ROW = "39, State-gov, 775, Bachelors, 13, Divorced, Sales, Unmarried, White, Male, 2174, 0, 40, Cuba, <=50K"


def test_real_rows(real_data: Callable[[str], Path]) -> None:
    frame = read_adult(real_data("adult"))
    assert frame.shape == (45_222, 15)
    assert tuple(frame.columns) == ADULT_COLUMNS
    assert (frame.dtypes == "int64").sum() == 6
    assert set(frame["income"]) == {"<=50K", ">50K"}
    # The guesses that a study compares with.
    assert (frame["income"] == "<=50K").mean() == pytest.approx(0.752, abs=0.001)
    assert (frame["sex"] == "Male").mean() == pytest.approx(0.675, abs=0.001)
    assert not (frame == "?").any().any()
    one = read_adult(real_data("adult/adult.data"))
    assert len(one) == 30_162
    assert one.equals(frame.iloc[:30_162])


def test_rows_by_hand(tmp_path: Path) -> None:
    (tmp_path / "adult.data").write_text(f"{ROW}\n{ROW.replace('Cuba', '?')}\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{ROW.replace('<=50K', '>50K.')}\n\n")
    frame = read_adult(tmp_path)
    assert frame["income"].tolist() == ["<=50K", ">50K"]
    assert frame["age"].tolist() == [39, 39]
    assert frame["native-country"].tolist() == ["Cuba", "Cuba"]
    assert frame.index.tolist() == [0, 1]
    assert len(read_adult(tmp_path / "adult.test")) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROW + "\n39, State-gov", "Row 2 of .* has 2 fields where UCI Adult has 15"),
        (ROW.replace("39", "secret"), "Row 1 of .* has no whole number in 'age'"),
        (ROW.replace("Cuba", "?"), "no complete row"),
        ("", "no complete row"),
        (b"\xff\xfe", "damaged, or is not a file of UCI Adult"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str | bytes, words: str) -> None:
    (tmp_path / "adult.data").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=words) as caught:
        read_adult(tmp_path)
    assert "secret" not in str(caught.value)


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds neither"):
        read_adult(tmp_path)
    with pytest.raises(DataError, match="There is no file"):
        read_adult(tmp_path / "adult.data")
