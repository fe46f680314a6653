"""Previews: no record without a note in the ledger, one map for all settings, and trends that budgets must have."""

from __future__ import annotations

import inspect
import json
import math
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Ledger, attack_limit, plan_head
from locum.data import load_reference, load_sample, write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate.private.guarantee import LOOKED
from locum.heads import bayes_head
from locum.metrics import auc_macro
from locum.recipes import (
    dial_curves,
    fit_release,
    forecast,
    preview_budgets,
    preview_groups,
    preview_records,
    show_ledger,
    verify_release,
)
from locum.recipes.preview import _made_up, _release, _scaled
from locum.recipes.preview_map import MOST_POINTS, MadeUp
from locum.types import DP, EmbeddingInfo

DATA = Path(os.environ.get("LOCUM_DATA", "/nowhere"))
SMALL: dict[str, Any] = {"units": 800, "class_names": ["no", "yes"], "features": 64, "delta": 1e-6, "points": 90}


@pytest.fixture(scope="module")
def public() -> dict[str, Any]:
    return preview_budgets(**SMALL)


@pytest.fixture
def tumors(tmp_path: Path) -> Path:
    data = load_sample("breast-cancer")
    # On one scale: without public statistics, features of large numbers hide all others.
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    write_embeddings(tmp_path / "tumors.npz", EmbeddingSet(X, data.y, info=data.info))
    return tmp_path / "tumors.npz"


def off(found: dict[str, Any], step: dict[str, Any]) -> float:
    """How far the released class means of a step lie from the true ones."""
    return float(np.linalg.norm(np.array(step["means"]) - np.array(found["real"]["means"])))


class TestDial:
    def test_it_is_the_forecast_and_the_limit_of_the_plan(self) -> None:
        found = dial_curves(units=3000, classes=3, delta=1e-6, unit="subject", points=5)
        for step in found["steps"]:
            budget = DP(step["epsilon"], 1e-6, "subject")
            assert step["auc"] == forecast(budget, units=3000, classes=3).auc.to_dict()
            assert step["limit"] == attack_limit(plan_head(budget).events)
            assert step["noise_multiplier"] == plan_head(budget).noise_multiplier
        assert json.loads(json.dumps(found)) == found

    def test_more_epsilon_is_more_useful_and_proves_less(self) -> None:
        steps = dial_curves(units=3000, classes=2, delta=1e-6)["steps"]
        assert (steps[0]["epsilon"], steps[-1]["epsilon"], len(steps)) == (0.1, 10.0, 41)
        ratios = [b["epsilon"] / a["epsilon"] for a, b in pairwise(steps)]
        assert max(ratios) / min(ratios) < 1.01
        for before, after in pairwise(steps):
            assert before["auc"]["value"] <= after["auc"]["value"]
            assert before["limit"] < after["limit"]
            assert before["noise_multiplier"] > after["noise_multiplier"]

    def test_the_relation_counts(self) -> None:
        asked: dict[str, Any] = {"units": 3000, "classes": 2, "delta": 1e-6, "points": 2}
        one, two = (dial_curves(**asked, relation=relation) for relation in ("add-or-remove", "replace-one"))
        assert one["steps"][0]["noise_multiplier"] < two["steps"][0]["noise_multiplier"]

    def test_a_page_can_ask_again_and_again(self) -> None:
        dial_curves(units=3000, classes=2, delta=1e-7)
        begun = time.perf_counter()
        dial_curves(units=5000, classes=4, delta=1e-7)
        assert time.perf_counter() - begun < 0.1

    @pytest.mark.parametrize("wrong", [{"points": 1}, {"units": 0}, {"classes": 1}, {"delta": 0.0}])
    def test_wrong_numbers_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            dial_curves(**{"units": 3000, "classes": 2, "delta": 1e-6, **wrong})


class TestPublic:
    def test_it_takes_no_data_and_leaves_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not {"data", "path", "ledger", "holding"} & set(inspect.signature(preview_budgets).parameters)
        monkeypatch.chdir(tmp_path)
        preview_budgets(**SMALL | {"epsilons": [1.0]})
        assert list(tmp_path.iterdir()) == []

    def test_the_shape_is_plain_and_the_same_in_every_step(self, public: dict[str, Any]) -> None:
        assert json.loads(json.dumps(public, allow_nan=False)) == public
        assert (public["mode"], public["units"], public["classes"]) == ("public", 800, ["no", "yes"])
        assert len(public["axes"]) == 2
        assert [step["epsilon"] for step in public["steps"]] == pytest.approx(np.geomspace(0.1, 10, 12), rel=1e-3)
        for step in public["steps"]:
            assert len(step["means"]) == 2
            # The same class at the same place of the list: a page can move each point from step to step.
            assert [p[2] for p in step["points"]] == [p[2] for p in public["steps"][0]["points"]]
        assert sum(step["attack"] is not None for step in public["steps"]) == 4

    def test_points_move_as_one_with_their_class_mean(self, public: dict[str, Any]) -> None:
        """Point i has the same normal numbers in every step, and so its place around the class mean, up to scale."""
        around = []
        for step in public["steps"][-2:]:
            points, means = np.array(step["points"]), np.array(step["means"])
            around.append(points[:, :2] - means[points[:, 2].astype(int)])
        assert np.corrcoef(around[0].ravel(), around[1].ravel())[0, 1] > 0.99

    def test_more_epsilon_comes_nearer_to_the_true_means(self, public: dict[str, Any]) -> None:
        first, last = public["steps"][0], public["steps"][-1]
        assert off(public, last) < off(public, first)
        apart = np.linalg.norm(np.subtract(*public["real"]["means"]))
        assert np.linalg.norm(np.subtract(*last["means"])) == pytest.approx(apart, rel=0.4)
        assert first["limit"] < last["limit"]
        assert first["auc"]["value"] < last["auc"]["value"]
        assert first["attack"]["value"] < last["attack"]["value"]

    def test_most_points_lie_in_the_picture(self, public: dict[str, Any]) -> None:
        places = np.array(public["real"]["points"])[:, :2]
        assert 0.7 < np.abs(places).max() < 1.5
        assert np.array_equal(places, places.round(4))

    def test_it_is_deterministic_and_the_seed_counts(self, public: dict[str, Any]) -> None:
        asked = SMALL | {"epsilons": [public["steps"][3]["epsilon"]]}
        step = preview_budgets(**asked)["steps"][0]
        for key in ("means", "points", "limit", "auc"):
            assert step[key] == public["steps"][3][key]
        assert preview_budgets(**asked, seed=1)["steps"][0]["points"] != step["points"]

    def test_steps_are_told_as_they_come(self) -> None:
        told: list[Any] = []
        found = preview_budgets(
            **SMALL | {"epsilons": [8.0, 1.0]},
            progress=lambda done, total, note="": told.append((done, total, note)),
            on_start=told.append,
            on_step=told.append,
        )
        about = {key: value for key, value in found.items() if key != "steps"}
        assert told == [about, found["steps"][0], (1, 2, "epsilon 1"), found["steps"][1], (2, 2, "epsilon 8")]

    def test_points_are_limited(self) -> None:
        found = preview_budgets(**SMALL | {"points": MOST_POINTS, "epsilons": [1.0]})
        assert len(found["steps"][0]["points"]) == MOST_POINTS
        assert len(found["real"]["points"]) == 800
        with pytest.raises(ConfigError, match="from 1 to 5000"):
            preview_budgets(**SMALL | {"points": MOST_POINTS + 1})

    def test_made_up_classes_lie_on_a_polygon(self) -> None:
        """Any two neighbors on the map are equally far apart, however many classes there are."""
        found = preview_budgets(**SMALL | {"class_names": list("abcde"), "epsilons": [1.0]})
        means = np.array(found["real"]["means"])
        sides = np.linalg.norm(means - np.roll(means, 1, axis=0), axis=1)
        assert sides == pytest.approx(np.full(5, sides.mean()), rel=0.01)

    def test_wrong_numbers_are_refused(self) -> None:
        for wrong in ({"class_names": ["a"]}, {"class_names": ["a", "a"]}, {"units": 5}, {"real_auc": 0.5}):
            with pytest.raises(ConfigError):
                preview_budgets(**SMALL | wrong)
        with pytest.raises(ConfigError, match="as many features as classes"):
            preview_budgets(**SMALL | {"features": 1, "class_names": ["a", "b", "c"]})
        with pytest.raises(PrivacyError, match="smaller delta"):
            preview_budgets(**SMALL | {"delta": 0.01})

    def test_no_fit_claims_anything(self) -> None:
        names, info = ("a", "b"), EmbeddingInfo(class_names=("a", "b"))
        world = _made_up(names, 16, "none", 0.9, 200, 50, 0, info)
        claim = _release(world.records, world, DP(1.0, 1e-6), 4.0, 0).claim
        assert (claim.kind, claim.test, claim.dp) == ("none", True, None)

    def test_fewer_records_get_as_much_less_noise(self) -> None:
        """A tenth of the records with a tenth of the noise: the same against a class mean."""
        budget = DP(1.0, 1e-6, n_public=50_000)
        full, tenth = plan_head(budget).noise_multiplier, plan_head(_scaled(budget, 0.1)).noise_multiplier
        assert tenth == pytest.approx(full / 10, rel=1e-4)
        assert plan_head(_scaled(budget, 1.0)).noise_multiplier == full
        # So little noise cannot be seen, and its price would not be finite.
        assert math.isfinite(_scaled(budget, 1e-9).epsilon)

    def test_many_units_are_drawn_in_part_and_it_says_so(self) -> None:
        found = preview_budgets(**SMALL | {"units": 40_000, "epsilons": [0.1]})
        assert (found["used"], found["noise_scaled"]) == (4000, 0.1)
        few = preview_budgets(**SMALL | {"units": 4000, "epsilons": [0.1]})
        assert (few["used"], few["noise_scaled"]) == (4000, 1.0)
        assert off(found, found["steps"][0]) < off(few, few["steps"][0])

    @pytest.mark.parametrize("classes", [2, 5])
    def test_the_best_classifier_of_made_up_records_has_the_auc_that_was_asked_for(self, classes: int) -> None:
        model = MadeUp.of(load_reference("none", 32), classes, 0.9, 0)
        X, y = model.draw(6000, [1])
        # Records vary three times as much along the directions of the classes: the best rule takes that off.
        along = X @ model.basis / 3
        scores = np.exp(along @ model.corners.T)
        assert auc_macro(y, scores / scores.sum(axis=1, keepdims=True), np.arange(classes)) == pytest.approx(
            0.9, abs=0.015
        )

    @pytest.mark.parametrize(("units", "epsilon"), [(4000, 0.3), (2000, 1.0), (4000, 3.0)])
    def test_a_made_up_release_keeps_about_what_is_forecast(self, units: int, epsilon: float) -> None:
        """So map and curve tell one story; the forecast comes from releases of real vectors."""
        names, info = ("a", "b"), EmbeddingInfo(class_names=("a", "b"))
        world = _made_up(names, 1280, "efflite0", 0.95, units, 500, 0, info)
        head = bayes_head(_release(world.records, world, DP(epsilon, 1e-6), 4.0, 0))
        reached = auc_macro(world.others.y, head.predict_proba(world.others.X), [0, 1])
        expected = forecast(DP(epsilon, 1e-6), units=units, classes=2).auc
        assert reached == pytest.approx(expected.value, abs=0.06)


class TestRecords:
    def test_a_look_is_noted_and_later_claims_say_so(self, tumors: Path, tmp_path: Path) -> None:
        place = tmp_path / ".locum" / "ledger.sqlite"
        found = preview_records(str(tumors), delta=1e-5, epsilons=[0.1, 8.0], points=100)
        assert found["mode"] == "records"
        assert "noted in the ledger" in found["warning"]
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert (show_ledger(place)["looks"], show_ledger(place)["holdings"]) == (1, [])
        # A quarter is held out for tests, so the noise is three quarters.
        assert found["noise_scaled"] == pytest.approx(0.75, abs=0.01)
        low, high = found["steps"]
        assert low["auc"]["value"] < high["auc"]["value"] <= 1
        assert found["real_auc"]["low"] < found["real_auc"]["value"] <= found["real_auc"]["high"]
        assert high["attack"]["name"] == "LiRA on sums"
        made = fit_release(str(tumors), tmp_path / "r", classes_public=True)
        assert LOOKED in made.claim.not_covered
        verify_release(tmp_path / "r", ledger=place)

    def test_it_is_noted_before_reading_even_if_that_fails(self, tmp_path: Path) -> None:
        for number, damaged in enumerate((b"not a file of vectors", b""), start=1):
            (tmp_path / "d.npz").write_bytes(damaged)
            with pytest.raises(DataError):
                preview_records(str(tmp_path / "d.npz"), delta=1e-5)
            assert Ledger(tmp_path / ".locum" / "ledger.sqlite").looks("default") == number

    def test_nothing_is_noted_for_settings_that_are_wrong(self, tumors: Path, tmp_path: Path) -> None:
        for wrong in ({"points": 0}, {"epsilons": [-1.0]}, {"epsilons": []}, {"unit": "person"}, {"delta": 2.0}):
            with pytest.raises(ConfigError):
                preview_records(str(tumors), **{"delta": 1e-5, **wrong})
        with pytest.raises(ConfigError, match="There is no"):
            preview_records(str(tmp_path / "nowhere.npz"), delta=1e-5)
        assert not (tmp_path / ".locum").exists()

    def test_subjects_are_the_unit_where_there_are_some(self, tmp_path: Path) -> None:
        data = load_sample("breast-cancer")
        who = np.array([f"p{i // 2}" for i in range(len(data))])
        paired = EmbeddingSet(data.X, data.y, subject=who, info=data.info)
        write_embeddings(tmp_path / "d.npz", paired)
        given: dict[str, Any] = {"delta": 1e-5, "epsilons": [2.0], "points": 20, "ledger": tmp_path / "l.sqlite"}
        found = preview_records(str(tmp_path / "d.npz"), **given, holding="clinic")
        assert (found["unit"], found["units"]) == ("subject", len(np.unique(who)))
        assert preview_records(str(tmp_path / "d.npz"), **given, unit="record")["units"] == len(data)
        assert (Ledger(tmp_path / "l.sqlite").looks("clinic"), Ledger(tmp_path / "l.sqlite").looks()) == (1, 2)

    @pytest.mark.skipif(not (DATA / "breastmnist_efflite0.npz").is_file(), reason="needs LOCUM_DATA")
    def test_on_real_vectors(self, tmp_path: Path) -> None:
        file = str(DATA / "breastmnist_efflite0.npz")
        found = preview_records(
            file, delta=1e-6, reference="efflite0", ledger=tmp_path / "l.sqlite", epsilons=[0.1, 1.0, 10.0]
        )
        assert (found["units"], found["noise_scaled"], found["features"]) == (546, 1.0, 1280)
        first, _, last = found["steps"]
        assert first["auc"]["value"] < last["auc"]["value"]
        assert last["auc"]["value"] > found["real_auc"]["low"]
        assert off(found, last) < off(found, first)
        for step in found["steps"]:
            assert step["attack"]["low"] <= step["limit"]


class TestGroups:
    def test_larger_groups_hide_more_and_keep_less(self) -> None:
        found = preview_groups(units=300, class_names=["no", "yes"], features=20, points=80, ks=[2, 10, 50, 400])
        assert [step["k"] for step in found["steps"]] == [2, 10, 50]
        assert [step["reidentification"] for step in found["steps"]] == [0.5, 0.1, 0.02]
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        two, _, fifty = found["steps"]
        assert two["attack"]["value"] > fifty["attack"]["value"]
        assert two["auc"]["value"] > fifty["auc"]["value"]
        assert two["attack"]["name"] == "nearest distance"
        # The points of a group lie on each other, and there are fewer groups.
        places = [len({tuple(p[:2]) for p in step["points"]}) for step in found["steps"]]
        assert places[0] > places[1] > places[2]
        assert [p[2] for p in two["points"]] == [p[2] for p in found["real"]["points"]]

    def test_on_records_the_look_is_noted(self, tumors: Path, tmp_path: Path) -> None:
        found = preview_groups(str(tumors), ks=[5], points=50)
        assert (found["mode"], found["units"]) == ("records", 569)
        assert "noted in the ledger" in found["warning"]
        assert Ledger(tmp_path / ".locum" / "ledger.sqlite").export()[0]["body"]["purpose"] == "preview of groups"

    def test_groups_are_of_subjects_where_there_are_some(self, tmp_path: Path) -> None:
        data = load_sample("breast-cancer")
        few = EmbeddingSet(data.X, data.y, subject=np.array([f"p{i % 12}" for i in range(len(data))]), info=data.info)
        write_embeddings(tmp_path / "d.npz", few)
        found = preview_groups(str(tmp_path / "d.npz"), points=20)
        # A quarter of the twelve subjects is held out.
        assert [step["k"] for step in found["steps"]] == [2, 3, 5, 8]

    def test_one_of_the_two_modes(self, tumors: Path) -> None:
        for wrong in ({}, {"data": str(tumors), "units": 100}):
            with pytest.raises(ConfigError, match="Give either `data`"):
                preview_groups(**wrong)
        with pytest.raises(ConfigError, match="two classes or more"):
            preview_groups(units=100)
