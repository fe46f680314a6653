"""Settings that are typed for a study: their form, and their names, are those of its config.toml."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locum.errors import ConfigError
from locum.recipes import FoundStudy, Study, load_studies
from locum.recipes.study_settings import checked_setting

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.parametrize(
    ("examples", "value", "expected"),
    [
        ([[0.5, 1.0]], [1, 2], [1.0, 2.0]),
        ([["0.5", "inf"]], [1, 3], ["1", "3"]),
        ([["0.5", "inf"]], ["inf"], ["inf"]),
        ([[0, -1, -50]], [-7], [-7]),
        ([["low/a"], []], [], []),
        ([{"a": [1.0]}], {"a": [3]}, {"a": [3.0]}),
        ([[["CVAE", "inf", 5], ["CGAN", "1", 3]]], [["CGAN", "inf", 9]], [["CGAN", "inf", 9]]),
        ([5], 9, 9),
        ([[2, 5]], [], []),
        ([{"a": 16}], {"a": 0}, {"a": 0}),
        ([True], False, False),
    ],
)
def test_a_value_like_the_examples_is_taken(examples: list[Any], value: object, expected: object) -> None:
    taken = checked_setting("key", value, examples)
    assert json.dumps(taken) == json.dumps(expected)


@pytest.mark.parametrize(
    ("examples", "value", "words"),
    [
        ([["head", "means"]], ["tail"], "takes 'head' or 'means'; got 'tail'"),
        ([["head"]], [3], "got 3"),
        ([[2, 5]], ["a"], "got 'a'"),
        ([[2, 5]], [2.5], "whole numbers"),
        ([[2, 5]], [5, 5], "twice"),
        ([[2, 5]], [True], "got True"),
        ([5], 0, "above 0"),
        ([5], -1, "no negative numbers"),
        ([1.0], float("nan"), "finite"),
        ([1.0], float("inf"), "finite"),
        ([["0.5", "inf"]], ["-1"], "above 0"),
        ([["5", "10"]], ["2.5"], "whole numbers"),
        ([{"a": [1.0]}], {"b": [1.0]}, "has entries 'a'; got 'b'"),
        ([{"a": [1.0]}], {"a": [float("nan")]}, "finite"),
        ([{"a": 1}], {"a": "x"}, "got 'x'"),
        ([[["CVAE", "inf", 5], ["CGAN", "1", 3]]], [["CVAE"]], "such as"),
    ],
)
def test_any_other_value_is_refused_in_one_sentence(examples: list[Any], value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=r"^`key`") as refused:
        checked_setting("key", value, examples)
    assert words in str(refused.value)


def test_fractions_of_noise_work_where_all_examples_are_whole() -> None:
    assert checked_setting("paper_noises", [1.5], [[1, 2, 3]]) == [1.5]


def test_a_table_by_set_takes_sets_that_were_added() -> None:
    assert checked_setting("members", {"mine": 80}, [{"one": 100}], sets=["one", "two"]) == {"mine": 80}


FOUND, _ = load_studies(STUDIES)


def settings() -> Iterator[tuple[str, str]]:
    for name, found in FOUND.items():
        yield from ((name, key) for key in found.config if key != "quick")


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return json.dumps(value)


def spoiled(value: Any, new: object, old: type) -> Any:
    """The value with the first entry of a type replaced; None if it has none."""
    if isinstance(value, dict):
        for k, v in value.items():
            if (inner := spoiled(v, new, old)) is not None:
                return {**value, k: inner}
    elif isinstance(value, list):
        for i, v in enumerate(value):
            if (inner := spoiled(v, new, old)) is not None:
                return [*value[:i], inner, *value[i + 1 :]]
    elif isinstance(value, old) and not isinstance(value, bool):
        return new
    return None


@pytest.mark.parametrize(("name", "key"), list(settings()))
def test_each_setting_takes_its_own_value_and_no_nonsense(name: str, key: str) -> None:
    found: FoundStudy = FOUND[name]
    own = found.config[key]
    if isinstance(own, str) or key == "seeds":
        return
    assert found.changed([f"{key}={toml(own)}"]).config[key] == own
    for bad, old in ((float("nan"), float), (float("nan"), int), ("nonsense of a number", int), (["list"], str)):
        worse = spoiled(own, bad, old)
        if worse is not None:
            text = toml(worse).replace("NaN", "nan")
            with pytest.raises(ConfigError) as refused:
                found.changed([f"{key}={text}"])
            assert "\n" not in str(refused.value)


def test_names_are_checked_before_any_cell_is_computed() -> None:
    found = FoundStudy(
        "s", Path("."), Study("t", lambda c: {}, lambda r, o: "", names={"methods": ["c"]}), {"methods": ["a", "b"]}
    )
    assert found.changed(['methods=["a", "c"]']).config["methods"] == ["a", "c"]
    with pytest.raises(ConfigError, match="takes 'a', 'b' or 'c'; got 'd'"):
        found.changed(['methods=["d"]'])
