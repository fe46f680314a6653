from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from locum.errors import ConfigError, DataError
from locum.metrics import FrechetByClass
from locum.rebalance import accuracy_by_class, plot_accuracy_by_class, plot_by_class, plot_frechet
from locum.rebalance.figures import _MARKS

pytest.importorskip("matplotlib")


def tables() -> dict:
    y_train, y_true = np.repeat(["ant", "b$e$e", "cat"], [9, 40, 200]), np.repeat(["ant", "b$e$e", "cat"], 10)
    flipped = np.where(np.arange(30) % 3 == 0, "cat", y_true)
    return {
        "none": accuracy_by_class(y_train, y_true, flipped),
        "ours": accuracy_by_class(y_train, y_true, y_true),
    }


def test_accuracy_is_drawn_by_size_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plot_accuracy_by_class(tables(), tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert (tmp_path / "b.svg").read_text() == text
    assert text.index(">cat<") < text.index(">b$e$e<") < text.index(">ant<")
    assert ">ours<" in text
    assert stat.S_IMODE((tmp_path / "a.svg").stat().st_mode) == 0o600


def test_thirty_methods_differ_in_color_or_mark() -> None:
    from matplotlib import rcParams

    colors = len(rcParams["axes.prop_cycle"])
    assert len({(i % colors, _MARKS[i % len(_MARKS)]) for i in range(30)}) == 30


def test_values_by_class_and_over_variances(tmp_path: Path) -> None:
    records = {c: 500 // (c + 1) for c in range(40)}
    plot_by_class(
        {"real": dict.fromkeys(range(40), 1.0), "ours": {0: 0.5}}, records, tmp_path / "c.png", ylabel="coverage"
    )
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    found = {v: FrechetByClass({}, abs(v - 1), ()) for v in (2.0, 0.5, 1.0)}
    plot_frechet({"small": found}, tmp_path / "f.svg")
    assert "sampling variance" in (tmp_path / "f.svg").read_text()


def test_wrong_input_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg"):
        plot_frechet({"a": {}}, tmp_path / "f.txt")
    with pytest.raises(DataError, match="nothing to draw"):
        plot_by_class({}, {}, tmp_path / "f.svg", ylabel="x")
    with pytest.raises(DataError, match="different classes"):
        plot_accuracy_by_class({**tables(), "other": tables()["none"][:2]}, tmp_path / "f.svg")
    with pytest.raises(DataError, match="folder does not exist"):
        plot_frechet({"a": {1.0: FrechetByClass({}, 1.0, ())}}, tmp_path / "no" / "f.svg")
    assert list(tmp_path.iterdir()) == []
