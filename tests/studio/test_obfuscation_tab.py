"""The tab "Noise and lambda": columns to choose from, the measured grid, and command lines that do the same."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

pytest.importorskip("fastapi", reason="the studio needs the extra locum[studio]")
pytest.importorskip("httpx", reason="a client for the studio's addresses")

from fastapi.testclient import TestClient

from locum.errors import ConfigError
from locum.recipes import list_columns
from locum.recipes.studio_demo import _diabetes
from locum.studio.access import Access
from locum.studio.actions import ACTIONS, MeasureTradeOff
from locum.studio.app import make_app
from locum.studio.jobs import Jobs
from locum.studio.places import Root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    (folder / "patients").mkdir()
    _diabetes().to_csv(folder / "patients" / "diabetes.csv", index=False)
    names = pd.DataFrame(
        {
            "name": [f"Ms {i:03d} Smith" for i in range(50)],
            "ward": ["east", "west"] * 25,
            "left": [None, *["yes"] * 49],
            "weight": np.linspace(50, 90, 50),
        }
    )
    names.to_csv(folder / "people.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> TestClient:
    place = Root(root)
    return TestClient(make_app(place, Access(80), Jobs(place.state / "jobs", root)), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def measured(root: Path) -> tuple[MeasureTradeOff, dict[str, Any], list[tuple[int, int]]]:
    """The demo's own choice as a job runs it, at the outermost settings: a browser's test has them all."""
    action = ACTIONS["trade-off"](data="patients/diabetes.csv", keep=["progression"], hide="sex")
    assert isinstance(action, MeasureTradeOff)
    ends = {"noises": [max(action.noises), min(action.noises)], "lambdas": [max(action.lambdas), min(action.lambdas)]}
    action = action.model_copy(update=ends)
    steps: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        result = action.run(lambda done, total, note="": steps.append((done, total)), lambda *_, **__: None)
    return action, json.loads(json.dumps(result, allow_nan=False)), steps


def test_columns_are_named_without_any_value(client: TestClient) -> None:
    answer = client.get("/api/columns", params={"path": "people.csv"})
    assert answer.status_code == 200
    by_name = {column["name"]: column for column in answer.json()["columns"]}
    assert list(by_name) == ["name", "ward", "left", "weight"]
    assert {name: c["values"] for name, c in by_name.items()} == {"name": 50, "ward": 2, "left": 1, "weight": 50}
    # Text that differs from record to record, as `obfuscate fit` refuses it; numbers do not count.
    assert [name for name, c in by_name.items() if c["identifies"]] == ["name"]
    assert [name for name, c in by_name.items() if c["missing"]] == ["left"]
    assert not any(value in answer.text for value in ("Smith", "east", "yes"))


@pytest.mark.parametrize("path", ["../people.csv", "/etc/passwd", "nothing.csv", "patients/../../x.csv"])
def test_columns_of_what_is_not_below_the_root_are_not_told(client: TestClient, path: str) -> None:
    answer = client.get("/api/columns", params={"path": path})
    assert answer.status_code == 404
    assert "There is no" in answer.json()["error"]


def test_a_file_that_is_no_table_is_refused_without_its_place(client: TestClient, root: Path) -> None:
    (root / "vectors.npz").write_bytes(b"not an archive")
    answer = client.get("/api/columns", params={"path": "vectors.npz"})
    assert answer.status_code == 400
    assert str(root) not in answer.text


def test_columns_of_images_are_their_attributes(tmp_path: Path) -> None:
    images = np.zeros((6, 16, 16), np.uint8)
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=[0, 1] * 3, train_attr_kind=["a", "b", "c"] * 2)
    found = list_columns(str(tmp_path / "a.npz"))
    assert found["kind"] == "image"
    assert {column["name"]: column["values"] for column in found["columns"]} == {"label": 2, "kind": 3}


def test_the_grid_is_whole_and_every_figure_has_its_interval(measured: Any) -> None:
    action, result, steps = measured
    assert {(p["noise"], p["lambda"]) for p in result["points"]} == {
        (noise, lambda_) for noise in action.noises for lambda_ in action.lambdas
    }
    assert result["noises"] == sorted(action.noises)
    assert result["lambdas"] == sorted(action.lambdas)
    levels = [level for side in result["levels"].values() for level in side.values()]
    for estimate in [p[part] for p in result["points"] for part in ("receiver", "attacker")] + levels:
        assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
        assert estimate["n"] == 221
    assert steps[0] == (0, 1)
    assert steps[-1] == (24, 24)


def test_the_demo_has_something_to_trade(measured: Any) -> None:
    _, result, _ = measured
    assert result["caution"] == "", "attackers find nothing in the originals"
    by_knobs = {(p["noise"], p["lambda"]): p for p in result["points"]}
    hidden = by_knobs[8.0, -50.0]
    originals = {side: level["originals"]["value"] for side, level in result["levels"].items()}
    assert hidden["attacker"]["value"] < originals["attacker"] - 0.1
    assert hidden["receiver"]["value"] > originals["receiver"] - 0.1


def test_results_are_private_and_beside_the_data(measured: Any, root: Path) -> None:
    action, result, _ = measured
    folder = root / action.out
    assert folder.parent == root / "patients"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (root / result["report"]).is_file()
    # What the page lists as data does not grow.
    assert Root(root).listing()["data"] == ["patients/diabetes.csv", "people.csv", "vectors.npz"]
    manifest = json.loads((folder / "obfuscator" / "manifest.json").read_bytes())
    assert "sex" not in json.dumps(manifest), "what is hidden was handed to the obfuscator"


@pytest.mark.slow
def test_the_command_lines_do_the_same(
    measured: Any, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from locum.cli.main import main

    action, result, _ = measured
    report = root / action.out / "trade-off" / "trade-off.json"
    before = json.loads(report.read_bytes())
    copies = f"{result['apply']} --noise 2 --lambda -50"
    for line in (*action.command().split("\n"), copies):
        words = shlex.split(line)
        assert words[0] == "locum"
        monkeypatch.chdir(root)
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, (line, capsys.readouterr().err)
    assert json.loads(report.read_bytes())["points"] == before["points"]
    made = pd.read_csv(root / action.out / "copies.csv")
    assert len(made) == 442
    assert "progression" in made.columns
    assert "sex" not in made.columns


def test_a_page_can_ask_for_the_command_lines_first(client: TestClient) -> None:
    arguments = {"data": "people.csv", "keep": ["ward"], "hide": "a b", "drop": ["name", "a b"]}
    answer = client.post("/api/command", json={"kind": "trade-off", "arguments": arguments})
    first, second = map(shlex.split, answer.json()["command"].split("\n"))
    assert first[:4] == ["locum", "obfuscate", "fit", "people.csv"]
    assert [first[i + 1] for i, word in enumerate(first) if word == "--drop"] == ["a b", "name"]
    assert second[second.index("--private") + 1] == "a b"
    assert second[3] == first[first.index("-o") + 1]
    outside = client.post("/api/command", json={"kind": "trade-off", "arguments": arguments | {"data": "../x.csv"}})
    assert outside.status_code == 404


def test_each_choice_has_a_folder_of_its_own_with_a_plain_name() -> None:
    def out(keep: str, hide: str) -> str:
        return MeasureTradeOff(data="a/t.csv", keep=[keep], hide=hide).out

    assert out("income", "sex") == "a/t-keep-income-hide-sex"
    assert out("income", "sex") != out("sex", "income")
    assert Path(out("../../x", "/etc/passwd\n")).parent == Path("a")
    assert len(Path(out("x" * 200, "y" * 200)).name) < 120


def test_nonsense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    both = MeasureTradeOff(data="t.csv", keep=["sex"], hide="sex")
    with pytest.raises(ConfigError, match="both kept and hidden"):
        both.run(lambda *_: None, lambda *_, **__: None)
    assert list(tmp_path.iterdir()) == []
    pd.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30}).to_csv("t.csv", index=False)
    with pytest.raises(ConfigError, match="no column 'c'"):
        MeasureTradeOff(data="t.csv", keep=["a"], hide="c").run(lambda *_: None, lambda *_, **__: None)
    assert [place.name for place in tmp_path.iterdir()] == ["t.csv"]
    for wrong in ({"keep": []}, {"noises": [-1.0]}, {"lambdas": [1.0]}, {"limit": 1}, {"out": "elsewhere"}):
        with pytest.raises(ValidationError):
            MeasureTradeOff.model_validate({"data": "t.csv", "keep": ["a"], "hide": "b"} | wrong)
