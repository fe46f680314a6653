"""`condition_on` of ClassGaussian: a mean for each combination of class and values, with and without a guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from locum import EmbeddingSet, load
from locum.audit import LikelihoodRatio, LiRA, SumLiRA
from locum.errors import ConfigError, DataError, FormatError, NotApplicableError, PrivacyError
from locum.generate import ClassGaussian
from locum.heads import bayes_head
from locum.release import Release, cell_of
from locum.types import DP

VALUES = {"sex": ("F", "M")}
# How many records each combination of class and sex has, and where its mean is.
COUNTS = {(0, "F"): 300, (0, "M"): 100, (1, "F"): 100, (1, "M"): 500}
CENTERS = {(0, "F"): (4, 0, 0), (0, "M"): (4, 4, 0), (1, "F"): (-4, 0, 0), (1, "M"): (-4, -4, 0)}


class Planted:
    """Records whose mean depends on class and sex."""

    def __init__(self, seed: int = 0, scale: int = 1) -> None:
        rng = np.random.default_rng(seed)
        keys = [key for key, count in COUNTS.items() for _ in range(scale * count)]
        order = rng.permutation(len(keys))
        self.y = np.array([c for c, _ in keys])[order]
        self.sex = np.array([s for _, s in keys])[order]
        centers = np.array([CENTERS[key] for key in keys], dtype=np.float64)[order]
        self.X = np.hstack([centers + rng.normal(size=centers.shape), rng.normal(size=(len(keys), 5))])

    @property
    def attributes(self) -> dict[str, npt.NDArray[Any]]:
        return {"sex": self.sex}

    def set(self) -> EmbeddingSet:
        return EmbeddingSet(self.X.astype(np.float32), self.y, attributes=self.attributes)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted(scale=10)


def private(**options: Any) -> ClassGaussian:
    settings = {"privacy": DP(3.0, 1e-6), "classes": [0, 1], "insecure_seed": 0, "random_state": 0}
    return ClassGaussian(**{**settings, "condition_on": ("sex",), "condition_values": VALUES, **options})


def fitted(model: ClassGaussian, data: Planted) -> Release:
    found = model.fit(data.X, data.y, attributes=data.attributes)
    return found.release(no_dp=model.privacy is None)


def seen_means(release: Release) -> dict[tuple[int, str], Any]:
    drawn = release.sample_set(20_000, random_state=0)
    sex = drawn.attributes["sex"]
    return {(c, s): drawn.X[(drawn.y == c) & (sex == s)].mean(axis=0) for c, s in CENTERS}


def test_without_a_guarantee_the_means_are_exact(planted: Planted) -> None:
    release = fitted(ClassGaussian(condition_on="sex", random_state=0), planted)
    assert release.tensors["means"].shape == (4, 8)
    for row, (c, s) in enumerate(CENTERS):
        mine = planted.X[(planted.y == c) & (planted.sex == s)]
        assert np.allclose(release.tensors["means"][row], mine.mean(axis=0), atol=1e-5)
    for (c, s), center in CENTERS.items():
        assert np.allclose(seen_means(release)[c, s][:3], center, atol=0.3)
    assert dict(release.manifest.joint) == {(0, 0): 0.3, (0, 1): 0.1, (1, 0): 0.1, (1, 1): 0.5}


@pytest.mark.parametrize("mechanism", ["head", "means", "covariance"])
def test_private_samples_of_each_value_differ_as_planted(planted: Planted, mechanism: str) -> None:
    release = fitted(private(mechanism=mechanism), planted)
    means = seen_means(release)
    # Classes differ along the first feature; within a class, sexes along the second.
    for sex in "FM":
        assert means[0, sex][0] - means[1, sex][0] > 1
    assert means[0, "M"][1] - means[0, "F"][1] > 1
    assert means[1, "M"][1] - means[1, "F"][1] < -1
    shares = dict(release.manifest.joint)
    for (c, s), count in COUNTS.items():
        assert shares[c, VALUES["sex"].index(s)] == pytest.approx(count / 1000, abs=0.02)


def test_attributes_are_fixed_when_sampling(planted: Planted) -> None:
    release = fitted(private(), planted)
    women = release.sample_set(500, attributes={"sex": "F"}, random_state=0)
    assert set(women.attributes["sex"].tolist()) == {"F"}
    men, y = release.sample(per_class={0: 20}, attributes={"sex": "M"}, random_state=0)
    assert men.shape == (20, 8)
    assert set(y.tolist()) == {0}
    with pytest.raises(ConfigError, match="can be one of"):
        release.sample(5, attributes={"sex": "X"})


def test_conditions_cost_nothing_more(planted: Planted, tmp_path: Path) -> None:
    paid = [
        ClassGaussian(privacy=DP(1.0, 1e-6), classes=[0, 1], ledger=tmp_path / f"{number}.sqlite", **more)
        .fit(planted.X, planted.y, attributes=planted.attributes)
        .claim_
        for number, more in enumerate([{}, {"condition_on": ["sex"], "condition_values": VALUES}])
    ]
    assert paid[0].dp is not None
    assert paid[1].dp is not None
    assert (paid[0].dp.epsilon, paid[0].dp.events) == (paid[1].dp.epsilon, paid[1].dp.events)
    assert any("condition_values" in line for line in paid[1].not_covered)
    assert not any("condition_values" in line for line in paid[0].not_covered)


def test_a_value_may_be_empty_and_none_may_be_undeclared(planted: Planted) -> None:
    release = fitted(private(condition_values={"sex": ("F", "M", "X")}), planted)
    assert release.manifest.conditions[0].values == ("F", "M", "X")
    assert release.tensors["means"].shape == (6, 8)
    assert np.isfinite(release.sample(50, attributes={"sex": "X"}, random_state=0)[0]).all()
    with pytest.raises(DataError, match="A value of 'sex' is not among `condition_values`") as told:
        fitted(private(condition_values={"sex": ("F",)}), planted)
    assert "'M'" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"condition_values": None}, PrivacyError, "values of 'sex' are private too"),
        ({"condition_values": {"sex": "FM"}}, ConfigError, "list each value"),
        ({"condition_values": {"sex": ("F", "M", "M")}}, ConfigError, "list each value"),
        ({"condition_values": {"sex": ()}}, ConfigError, "list each value"),
        ({"condition_values": {**VALUES, "age": ("1",)}}, ConfigError, "'age', which `condition_on` does not name"),
        ({"condition_values": {"sex": ("F", "M", "x" * 201)}}, ConfigError, "at most 200 characters"),
        ({"condition_values": {"sex": ("F", "M", *range(99))}}, ConfigError, r"202 combinations .* at most 200"),
        ({"condition_on": ("sex", "sex")}, ConfigError, "each once"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_paid(
    planted: Planted, tmp_path: Path, options: dict[str, Any], error: type[Exception], told: str
) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with pytest.raises(error, match=told):
        fitted(private(ledger=ledger, insecure_seed=None, **options), planted)
    assert not ledger.exists()


def test_a_lone_record_of_a_combination_is_not_released() -> None:
    data = Planted()
    data.sex[np.flatnonzero((data.y == 0) & (data.sex == "M"))[1:]] = "F"
    model = ClassGaussian(condition_on=["sex"], random_state=0).fit(data.X, data.y, attributes=data.attributes)
    with pytest.raises(PrivacyError, match="Class '0' with sex 'M' has a single record"):
        model.release(no_dp=True)
    assert model.sample(10)[0].shape == (10, 8)


def test_a_combination_without_records_is_never_drawn() -> None:
    data = Planted()
    data.sex[data.y == 0] = "F"
    release = fitted(ClassGaussian(condition_on=["sex"], random_state=0), data)
    assert sorted(codes for codes, _ in release.manifest.joint) == [(0, 0), (1, 0), (1, 1)]
    assert np.array_equal(release.tensors["means"][0], release.tensors["means"][1])
    with pytest.raises(ConfigError, match="No record of class"):
        release.sample(per_class={0: 3}, attributes={"sex": "M"})


def test_two_conditions(planted: Planted) -> None:
    """Against a naive twin: rows in the order of all combinations, the last condition fastest."""
    site = np.where(np.arange(len(planted.y)) % 3 == 0, "a", "b")
    model = ClassGaussian(condition_on=["sex", "site"], random_state=0)
    release = model.fit(planted.X, planted.y, attributes={**planted.attributes, "site": site}).release(no_dp=True)
    row = 0
    for c in (0, 1):
        for s in "FM":
            for p in "ab":
                mine = planted.X[(planted.y == c) & (planted.sex == s) & (site == p)].mean(axis=0)
                assert np.allclose(release.tensors["means"][row], mine, atol=1e-5)
                row += 1
    codes = np.array(np.unravel_index(np.arange(8), (2, 2, 2))).T
    assert cell_of(codes, (2, 2, 2)).tolist() == list(range(8))


@pytest.mark.parametrize("guarantee", [True, False])
def test_the_release_survives_a_round_trip(planted: Planted, tmp_path: Path, guarantee: bool) -> None:
    release = fitted(private() if guarantee else ClassGaussian(condition_on=["sex"], random_state=0), planted)
    again = load(release.save(tmp_path / "r"))
    assert again.manifest.conditions == release.manifest.conditions
    for attributes in ({}, {"sex": "M"}):
        drawn = [r.sample(30, attributes=attributes, random_state=1)[0] for r in (release, again)]
        assert np.array_equal(*drawn)
    assert "condition_values" not in again.manifest.settings
    fewer = {**release.tensors, "means": release.tensors["means"][:2]}
    with pytest.raises(FormatError, match="'means' must have shape"):
        Release(release.manifest, fewer)


def test_the_rule_for_classes_is_not_linear(planted: Planted) -> None:
    for model in (private(), ClassGaussian(condition_on=["sex"], random_state=0)):
        with pytest.raises(ConfigError, match=r"conditioned on 'sex'.*not linear"):
            bayes_head(fitted(model, planted))


def test_attacks_use_the_mean_of_the_combination() -> None:
    """Few records and no guarantee: a likelihood attack that mixed the means up would find nothing."""
    rng = np.random.default_rng(0)

    def made() -> EmbeddingSet:
        y, sex = np.arange(80) % 2, np.array(["F", "M"])[np.arange(80) // 2 % 2]
        X = rng.normal(size=(80, 40)) + 5 * y[:, None] + 50 * (sex == "M")[:, None]
        return EmbeddingSet(X.astype(np.float32), y, attributes={"sex": sex})

    members, others = made(), made()
    model = ClassGaussian(condition_on=["sex"], rank=0, random_state=0)
    release = model.fit(members.X, members.y, attributes=members.attributes).release(no_dp=True)
    for attack in (LikelihoodRatio(), LiRA(shadows=16)):
        found = attack.score(release, members, others, np.random.default_rng(0))
        better = (found.inside[:, None] > found.outside[None, :]).mean()
        assert better > 0.7, attack.name
    with pytest.raises(NotApplicableError, match="conditioned"):
        SumLiRA().score(release, members, others, np.random.default_rng(0))


def test_a_release_without_conditions_is_as_before(planted: Planted) -> None:
    """One value for all is the same mechanism: the same noise gives the same means."""
    alone = fitted(private(condition_on=(), condition_values=None), planted)
    planted_one = Planted(scale=10)
    planted_one.sex[:] = "F"
    one = fitted(private(condition_values={"sex": ("F",)}), planted_one)
    assert all(np.array_equal(alone.tensors[name], one.tensors[name]) for name in alone.tensors)
    assert alone.manifest.conditions == ()
    assert [codes for codes, _ in alone.manifest.joint] == [(0,), (1,)]
    assert [codes for codes, _ in one.manifest.joint] == [(0, 0), (1, 0)]
