"""A curve made by hand: what is picked, drawn, listed and summed up."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from locum.errors import ConfigError, DataError
from locum.obfuscate import Judgment, Point, TradeOff
from locum.types import Estimate


def near(value: float) -> Estimate:
    return Estimate(value, round(value - 0.01, 9), round(value + 0.01, 9), 5000)


def point(noise: float | None, lambda_: float, weak: float, strong: float, utility: float) -> Point:
    """Trees find one point more than the network, for good and for ill."""
    both = {
        "weak": weak,
        "strong": strong,
        "informed": strong - 0.01,
        "averaged": strong - 0.02,
        "utility_original": utility,
        "utility_released": 0.95,
        "original_private": 0.84,
        "original_informed": 0.845,
        "original_utility": 0.86,
    }
    found = Judgment(
        **{name: {"network": near(v), "trees": near(v + 0.01)} for name, v in both.items()},
        label_only=near(0.6),
        majority=near(0.55),
        utility_majority=near(0.75),
    )
    knobs = {"lambda_": lambda_} if noise is None else {"noise": noise, "lambda_": lambda_}
    return Point(", ".join(f"{k.strip('_')} {v:g}" for k, v in knobs.items()), knobs, found)


@pytest.fixture
def curve() -> TradeOff:
    return TradeOff(
        (
            point(5, -50, 0.60, 0.64, 0.80),
            point(0, -50, 0.80, 0.83, 0.85),
            point(2, -1, 0.66, 0.69, 0.82),
            point(2, -50, 0.67, 0.69, 0.83),
        )
    )


def test_the_smallest_noise_that_meets_the_target_is_picked(curve: TradeOff) -> None:
    # Strongest at noise 2: trees, 0.70, at most 0.71; the better utility wins.
    assert curve.pick(attacker_at_most=0.71).knobs == {"noise": 2, "lambda_": -50}
    assert curve.pick(attacker_at_most=0.99).noise == 0
    # The weak attacker alone: 0.67 and 0.68 at noise 2, at most 0.68 and 0.69.
    assert curve.pick(attacker_at_most=0.69, attacker="weak").knobs == {"noise": 2, "lambda_": -50}
    assert curve.pick(attacker_at_most=0.68, attacker="weak").knobs == {"noise": 2, "lambda_": -1}
    # The value would meet 0.70; its interval does not.
    assert curve.pick(attacker_at_most=0.70).noise == 5


def test_where_nothing_meets_it_the_least_leak_is_told(curve: TradeOff) -> None:
    with pytest.raises(
        ConfigError, match=r"0\.650 \[0\.640, 0\.660\], at noise 5, lambda -50, .* alone gives 0\.600"
    ):
        curve.pick(attacker_at_most=0.6)
    for wrong in (0, -1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="accuracy"):
            curve.pick(attacker_at_most=wrong)


def test_without_the_knob_noise_the_best_utility_is_picked() -> None:
    baseline = TradeOff(
        (point(None, 1, 0.6, 0.7, 0.80), point(None, 2, 0.6, 0.7, 0.82), point(None, 3, 0.6, 0.9, 0.85))
    )
    assert baseline.pick(attacker_at_most=0.75).knobs == {"lambda_": 2}


def test_the_hull_closes_at_what_the_original_rows_give(curve: TradeOff) -> None:
    alone = TradeOff((curve.points[0],))
    area = 0.64 * 0.80 / 2 + (0.84 - 0.64) * (0.80 + 0.86) / 2
    assert alone.hull_auc() == pytest.approx(area)
    area = 0.61 * 0.81 / 2 + (0.85 - 0.61) * (0.81 + 0.87) / 2
    assert alone.hull_auc(attacker="weak", judge="trees") == pytest.approx(area)
    area = 0.14 * 0.30 / 2 + (0.34 - 0.14) * (0.30 + 0.36) / 2
    assert alone.hull_auc(origin=(0.5, 0.5)) == pytest.approx(area)
    assert curve.hull_auc() >= alone.hull_auc()
    # Who knows the label starts from more.
    assert alone.original()[0].value == 0.855
    assert alone.original("strong")[0].value == 0.85
    with pytest.raises(ConfigError, match="network, trees, best"):
        curve.hull_auc(judge="forest")
    with pytest.raises(ConfigError, match="weak, strong, informed, averaged"):
        curve.hull_auc(attacker="mighty")


def test_the_curve_takes_the_best_of_who_is_asked_for(curve: TradeOff) -> None:
    assert [round(x.value, 3) for x, _ in curve.curve()] == [0.65, 0.84, 0.70, 0.70]
    assert [round(x.value, 3) for x, _ in curve.curve("averaged", "network")] == [0.62, 0.81, 0.67, 0.67]
    assert [round(y.value, 3) for _, y in curve.curve(judge="trees")] == [0.81, 0.86, 0.83, 0.84]


def test_the_table_holds_every_figure_with_its_interval(curve: TradeOff) -> None:
    table = curve.table()
    assert list(table["noise"]) == [5, 0, 2, 2]
    assert list(table["lambda_"]) == [-50, -50, -1, -50]
    assert set(table["attacker_is"]) == {"strong trees"}
    assert (table["attacker_low"] < table["attacker"]).all()
    assert (table["attacker"] == table["strong_trees"]).all()
    # Name, two knobs, who; then 2 + 18 + 3 figures with both ends.
    assert table.shape == (4, 4 + 3 * 23)


def test_the_text_shows_each_attacker_beside_its_baseline(curve: TradeOff) -> None:
    lines = curve.to_markdown().splitlines()
    assert len(lines) == 2 + 4 + 3
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| noise 5, lambda -50 | 0.610 [0.600, 0.620] | 0.650 [0.640, 0.660] |")
    assert "utility label alone | 0.600" in lines[-2]


def test_it_goes_to_json_and_back(curve: TradeOff) -> None:
    assert TradeOff.from_dict(json.loads(json.dumps(curve.to_dict()))) == curve


def test_a_curve_has_points() -> None:
    with pytest.raises(DataError, match="at least one point"):
        TradeOff(())


def test_the_figure_is_the_same_each_time_and_private(curve: TradeOff, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        curve.plot(tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert (tmp_path / "b.svg").read_text() == text
    for words in ("lambda -50", "lambda -1", "original rows", "utility label alone", "most frequent code"):
        assert f">{words}<" in text
    assert stat.S_IMODE((tmp_path / "a.svg").stat().st_mode) == 0o600
    curve.plot(tmp_path / "c.png", attacker="weak", judge="network")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"\.svg"):
        curve.plot(tmp_path / "d.txt")
    with pytest.raises(ConfigError, match="attacker"):
        curve.plot(tmp_path / "d.svg", attacker="mighty")
    assert {p.name for p in tmp_path.iterdir()} == {"a.svg", "b.svg", "c.png"}
