"""`federate` from Python: how records are partitioned, and what a site's model predicts."""

from __future__ import annotations

import csv
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Ledger
from locum.data import Reference, write_embeddings
from locum.errors import ConfigError, DataError, FormatError, PrivacyError
from locum.federated import PersonalModel
from locum.generate.private import reference_hash
from locum.recipes import predict_personally, simulate_federation
from locum.recipes.federate import deal_out
from locum.release import load
from locum.types import DP, EmbeddingInfo

TINY = {"mode": "decoder", "hidden": [3], "latent": 2, "rounds": 1, "local_epochs": 1, "batch": 20}


def records(n: int = 90, **more: Any) -> EmbeddingSet:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = (rng.normal(size=(n, 4)) + 2 * y[:, None]).astype(np.float32)
    return EmbeddingSet.from_arrays(X, np.array(["ant", "bee", "cow"])[y], **more)


@pytest.fixture
def data(tmp_path: Path) -> str:
    write_embeddings(tmp_path / "data.npz", records(attributes={"site": np.repeat(["n", "s"], [50, 40])}))
    return str(tmp_path / "data.npz")


def hospitals(file: Path, *, text: bool = False) -> str:
    """A table as hospitals keep it: scales of 200 and 0.5, gaps, and a column that names the hospital."""
    rng = np.random.default_rng(1)
    lines = ["site,age,chol,oldpeak,num"]
    for i in range(120):
        ill = i % 3
        age, chol = f"{50 + 10 * ill + rng.normal():.0f}", f"{200 + 40 * ill + 5 * rng.normal():.0f}"
        chol = "" if i % 7 == 0 else chol
        lines.append(f"{('rome', 'oslo')[i % 2]},{age},{chol},{0.5 + 0.1 * rng.normal():.2f},{ill}")
    if text:
        sexes = ["sex", *("m" if i % 4 < 2 else "f" for i in range(120))]
        lines = [line.replace(",", f",{sex},", 1) for line, sex in zip(lines, sexes, strict=True)]
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.mark.parametrize("text", [False, True])
def test_a_stranger_s_table_works_at_the_first_try(tmp_path: Path, text: bool) -> None:
    told: list[dict[str, Any]] = []
    table = hospitals(tmp_path / "table.csv", text=text)
    settings = {"mode": "sums", "secure": False}
    found = simulate_federation(table, tmp_path / "out", partition="by-site", settings=settings, on_event=told.append)
    assert [site.name for site in found.sites] == ["oslo", "rome"]
    (about,) = [event for event in told if event["event"] == "table"]
    assert about["ranges"] == "records"
    assert about["gaps"] == 18
    assert about["texts"] == (["sex"] if text else [])
    assert min(site.alone["global"]["bacc"] for site in found.sites) > 0.8
    assert load(found.release).claim.test


def test_declared_ranges_are_those_of_the_terms(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    table, ranges = hospitals(tmp_path / "table.csv"), tmp_path / "ranges.csv"
    ranges.write_text("name,low,high\nage,20,90\nchol,100,400\noldpeak,0,6\n")
    settings = {"mode": "sums", "secure": False}
    simulate_federation(
        table, tmp_path / "out", partition="by-site", ranges=ranges, settings=settings, on_event=told.append
    )
    assert [event["ranges"] for event in told if event["event"] == "table"] == ["declared"]
    reference = Reference.from_ranges([20, 100, 0], [90, 400, 6], source="x")
    terms = load(tmp_path / "out" / "release").manifest.settings["federation"]
    assert terms["reference"] == "own"
    assert terms["reference_sha256"] == reference_hash(reference)


def test_ranges_are_for_tables(data: str, tmp_path: Path) -> None:
    (tmp_path / "ranges.csv").write_text("name,low,high\nage,20,90\n")
    with pytest.raises(ConfigError, match="CSV table"):
        simulate_federation(data, tmp_path / "out", ranges=tmp_path / "ranges.csv", settings=TINY)


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "by-site"])
def test_every_record_is_dealt_out_once(partition: str, rng: np.random.Generator) -> None:
    whole = records(attributes={"ward": np.repeat(["n", "s", "w"], 30)})
    parts = deal_out(whole, 3, partition, 1.0, "ward", rng)
    assert len(parts) == 3
    assert min(map(len, parts.values())) >= 10
    rows = [row.tobytes() for part in parts.values() for row in part.X]
    assert sorted(rows) == sorted(row.tobytes() for row in whole.X)
    if partition == "by-site":
        assert {len(set(p.attributes["ward"].tolist())) for p in parts.values()} == {1}


@pytest.mark.parametrize(
    ("sites", "partition", "error"),
    [(1, "iid", DataError), (30, "iid", DataError), (2, "by-taste", ConfigError), (2, "by-site", Exception)],
)
def test_what_cannot_be_dealt_out(sites: int, partition: str, error: type[Exception], rng: Any) -> None:
    with pytest.raises(error) as told:
        deal_out(records(), sites, partition, 1.0, "ward", rng)
    assert isinstance(told.value, (ConfigError, DataError))


def test_a_simulation_leaves_its_release_and_nothing_else(data: str, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    budget = DP(2.0, 1e-4, "record", 50)
    found = simulate_federation(
        data, tmp_path / "out", sites=2, privacy=budget, classes=["ant", "bee", "cow", "dog"], settings=TINY,
        on_event=told.append,
    )  # fmt: skip
    assert {e["event"] for e in told} == {"reply", "joined", "round", "done"}
    # Each site's reply is counted, also while heads are fitted at the end.
    assert [(e["reply"], e["of"]) for e in told if e["event"] == "reply" and e["step"] == "finish"] == [
        (1, 2),
        (2, 2),
    ]
    assert found.release == tmp_path / "out" / "release"
    release = load(found.release)
    assert release.claim.kind == "none"
    # A class that no site has is still a class.
    assert release.manifest.class_names == ("ant", "bee", "cow", "dog")
    assert all(0 < s.epsilon_spent <= 2 for s in found.sites)
    assert sum(s.n for s in found.sites) == 90
    assert {p.name for p in tmp_path.iterdir()} == {"data.npz", "out"}
    with pytest.raises(ConfigError, match="not an empty folder"):
        simulate_federation(data, tmp_path / "out", sites=2, settings=TINY)


def test_a_simulation_touches_no_ledger_and_nothing_of_yours(data: str, tmp_path: Path) -> None:
    ledger = tmp_path / "mine" / ".locum" / "ledger.sqlite"
    ledger.parent.mkdir(parents=True)
    Ledger(ledger).set_budget("default", epsilon=1.0, delta=1e-5)
    with pytest.raises(ConfigError, match="not an empty folder"):
        simulate_federation(data, tmp_path / "mine", sites=2, settings=TINY)
    assert Ledger(ledger).holding("default").epsilon == 1.0


def test_a_simulation_that_fails_keeps_what_was_done(data: str, tmp_path: Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            raise DataError("no disk")

    with pytest.raises(DataError):
        simulate_federation(data, tmp_path / "out", sites=2, settings={**TINY, "rounds": 2}, on_event=stop)
    (tmp_path / "out" / "my-notes.txt").touch()
    simulate_federation(data, tmp_path / "out", sites=2, settings={**TINY, "rounds": 2})
    assert (tmp_path / "out" / "my-notes.txt").exists()


def test_what_is_left_of_a_finished_simulation_is_deleted_and_its_release_kept(data: str, tmp_path: Path) -> None:
    found = simulate_federation(data, tmp_path / "out", sites=2, settings=TINY)
    left = tmp_path / "out" / ".locum-simulation-done" / "sites"
    left.mkdir(parents=True)
    with pytest.raises(ConfigError, match="not an empty folder"):
        simulate_federation(data, tmp_path / "out", sites=2, settings=TINY)
    assert not left.exists()
    assert load(found.release).claim.test


class Killed(BaseException):
    pass


def test_a_simulation_that_was_stopped_resumes(data: str, tmp_path: Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        told.append(event)
        if event["event"] == "round" and event["round"] == 1:
            raise Killed

    terms = {**TINY, "rounds": 3}
    told: list[dict[str, Any]] = []
    with pytest.raises(Killed):
        simulate_federation(data, tmp_path / "out", sites=2, settings=terms, on_event=stop)
    with pytest.raises(ConfigError, match="of other records or settings"):
        simulate_federation(data, tmp_path / "out", sites=2, settings=terms, seed=1)
    told.clear()
    resumed = simulate_federation(data, tmp_path / "out", sites=2, settings=terms, on_event=told.append)
    assert [event["round"] for event in told if event["event"] == "round"] == [2, 3]
    whole = simulate_federation(data, tmp_path / "whole", sites=2, settings=terms)
    assert resumed.sites == whole.sites
    for name, value in load(whole.release).tensors.items():
        np.testing.assert_array_equal(load(resumed.release).tensors[name], value)
    # What sites would keep to themselves is gone.
    assert not list(tmp_path.rglob("site.toml"))
    with pytest.raises(ConfigError, match="not an empty folder"):
        simulate_federation(data, tmp_path / "out", sites=2, settings=terms)


@pytest.mark.parametrize(
    "more",
    [
        {"sites": 40},
        {"partition": "by-taste"},
        {"partition": "dirichlet", "alpha": 0.0},
        {"partition": "by-site", "site_attribute": "planet"},
        {"settings": {**TINY, "rounds": 0}},
        {"settings": {**TINY, "speed": 3}},
        {"classes": ["ant", "bee"]},
        {"seed": -1},
    ],
    ids=str,
)
def test_wrong_settings_write_nothing(more: dict[str, Any], data: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, DataError)):
        simulate_federation(data, tmp_path / "out", **{"sites": 2, "settings": TINY, **more})
    assert [p.name for p in tmp_path.iterdir()] == ["data.npz"]


class TestPredict:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        home = tmp_path / "site"
        home.mkdir()
        (home / "site.toml").write_text('data = "none.npz"\ninsecure_seed = 1\n')
        local, shared = (np.eye(3, 4), np.zeros(3)), (np.zeros((3, 4)), np.array([0.0, 0.0, 5.0]))
        PersonalModel(("ant", "bee", "cow"), 0.5, local, shared).save(home / ".locum" / "federation" / "personal")
        return home / "site.toml"

    def test_predictions_are_those_of_the_model(self, site: Path, data: str) -> None:
        found = predict_personally(site, data)
        told = found.to_dict()
        assert (told["records"], told["lambda"], told["classes"]) == (90, 0.5, ["ant", "bee", "cow"])
        assert sum(told["predicted"].values()) == len(told["predictions"]) == 90
        for row, one in zip(found.proba, told["predictions"], strict=True):
            assert one["label"] == told["classes"][int(np.argmax(row))]
            assert sum(one["probabilities"]) == pytest.approx(1)

    def test_another_lambda_can_be_given(self, site: Path, data: str) -> None:
        told = predict_personally(site, data, lam=0.0).to_dict()
        assert (told["lambda"], told["predicted"]) == (0.0, {"cow": 90})
        with pytest.raises(ConfigError, match="0 uses only the global head"):
            predict_personally(site, data, lam=1.5)

    def test_only_its_owner_can_read_the_table(self, site: Path, data: str, tmp_path: Path) -> None:
        found = predict_personally(site, data, out=tmp_path / "p.csv")
        assert "predictions" not in found.to_dict()
        assert stat.S_IMODE((tmp_path / "p.csv").stat().st_mode) == 0o600
        with (tmp_path / "p.csv").open() as f:
            rows = list(csv.DictReader(f))
        assert [r["record"] for r in rows] == [str(i) for i in range(90)]
        assert float(rows[0]["p(cow)"]) == pytest.approx(found.proba[0, 2], rel=1e-5)
        before = (tmp_path / "p.csv").read_bytes()
        with pytest.raises(ConfigError, match="already exists"):
            predict_personally(site, data, out=tmp_path / "p.csv")
        assert (tmp_path / "p.csv").read_bytes() == before

    def test_what_is_missing_is_reported(self, site: Path, data: str, tmp_path: Path) -> None:
        write_embeddings(tmp_path / "wide.npz", EmbeddingSet.from_arrays(np.zeros((2, 5), np.float32), [0, 1]))
        with pytest.raises(DataError, match="4 features"):
            predict_personally(site, str(tmp_path / "wide.npz"))
        with pytest.raises(ConfigError, match="cannot be read"):
            predict_personally(tmp_path / "nowhere.toml", data)
        (tmp_path / "site.toml").write_text('data = "none.npz"\ninsecure_seed = 1\n')
        with pytest.raises(FormatError, match="take part"):
            predict_personally(tmp_path / "site.toml", data)

    def test_vectors_of_another_backbone_are_refused(self, site: Path, tmp_path: Path) -> None:
        folder = site.parent / ".locum" / "federation" / "personal"
        replace(PersonalModel.open(folder), backbone="efflite0").save(folder)
        assert PersonalModel.open(folder).backbone == "efflite0"
        other = EmbeddingSet.from_arrays(np.zeros((2, 4), np.float32), [0, 1], info=EmbeddingInfo("efflite1"))
        write_embeddings(tmp_path / "other.npz", other)
        with pytest.raises(DataError, match="efflite1"):
            predict_personally(site, str(tmp_path / "other.npz"))


def test_a_simulation_with_a_guarantee_refuses_a_random_part(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="random part"):
        simulate_federation("scans.npz#[20]", tmp_path / "out", privacy=DP(1.0, 1e-5), classes=["a", "b"])
