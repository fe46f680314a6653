"""Failures of libraries become one sentence that quotes nothing."""

from __future__ import annotations

import pytest

from locum.errors import DataError
from locum.io import reading_file


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("row: Meier, 40, ill"), "d.npz is damaged, or is not a thing"),
        (MemoryError(), "d.npz does not fit in memory"),
        (PermissionError(13, "no", "meier.npz"), "d.npz cannot be read by this user"),
    ],
)
def test_the_text_of_a_library_is_not_passed_on(error: Exception, said: str) -> None:
    with pytest.raises(DataError) as caught, reading_file("d.npz", "a thing"):
        raise error
    assert str(caught.value).startswith(said)
    assert "eier" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_our_own_errors_and_interrupts_pass() -> None:
    with pytest.raises(DataError, match=r"^as it was$"), reading_file("d.npz", "a thing"):
        raise DataError("as it was")
    with pytest.raises(KeyboardInterrupt), reading_file("d.npz", "a thing"):
        raise KeyboardInterrupt
