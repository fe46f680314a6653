"""Simulations: repeatable to the last digit, marked as tests, scored on held-out records."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import epsilon_of
from locum.data import read_embeddings
from locum.errors import LocumError
from locum.federated import FederationSettings, Simulation, plan_site, simulate
from locum.federated.simulation import SiteScore, write_sites
from locum.release import load
from locum.types import DP, Estimate

Terms = Callable[..., FederationSettings]
BUDGET = DP(2.0, 1e-4, "record", 50)


def parts(count: int = 2, n: int = 40, **more: object) -> dict[str, EmbeddingSet]:
    out = {}
    for i in range(count):
        rng = np.random.default_rng(i)
        y = np.arange(n) % 2
        X = (rng.normal(size=(n, 4)) + 3 * y[:, None]).astype(np.float32)
        out[f"ward {i}"] = EmbeddingSet.from_arrays(X, np.array(["ant", "bee"])[y], **more)
    return out


@pytest.mark.usefixtures("hardly_trained_personal_models")
@pytest.mark.parametrize("privacy", [BUDGET, None], ids=["budget", "none"])
def test_the_same_seed_gives_the_same_numbers(privacy: DP | None, tmp_path: Path, little: Terms) -> None:
    found, settings = [], little(rounds=1)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        found.append(simulate(parts(), settings, privacy, out=tmp_path / name, work=tmp_path / f"w{name}", seed=seed))
    one, two, other = (load(r.release) for r in found)
    assert all(np.array_equal(one.tensors[k], two.tensors[k]) for k in one.tensors)
    assert [s.to_dict() for s in found[0].sites] == [s.to_dict() for s in found[1].sites]
    assert any(not np.array_equal(one.tensors[k], other.tensors[k]) for k in one.tensors)
    # Whatever the budget: randomness that anyone can repeat guarantees nothing.
    assert one.claim.kind == "none"
    assert one.claim.test
    assert not list(tmp_path.rglob("ledger.sqlite"))
    spent = {s.epsilon_spent for s in found[0].sites}
    assert spent == ({None} if privacy is None else {epsilon_of(plan_site(settings, BUDGET).events, 1e-4)})


def test_what_a_site_scores(tmp_path: Path, little: Terms) -> None:
    found = simulate(parts(), little(mode="sums"), None, out=tmp_path / "out", work=tmp_path / "w")
    assert [s.name for s in found.sites] == ["ward 0", "ward 1"]
    for score in found.sites:
        told = json.loads(json.dumps(score.to_dict()))
        assert {"name", "n", "epsilon_spent", "lambda", "acc", "bacc"} <= told.keys()
        assert told["n"] == 40
        assert 0 <= told["acc_interval"][0] <= told["acc"] <= told["acc_interval"][1] <= 1
        # Far apart as the classes are, both heads find them.
        assert min(told["bacc"], told["local"]["bacc"], told["global"]["bacc"]) > 0.7


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("subjects", [False, True])
def test_test_records_are_held_out(validation: bool, subjects: bool, tmp_path: Path) -> None:
    given = parts(subject=np.arange(40) // 2 // 2) if subjects else parts()
    held = write_sites(given, tmp_path, BUDGET, 0, validation=validation)
    assert list(held) == list(given)
    for i, (name, test) in enumerate(held.items()):
        home = tmp_path / f"site-{i}"
        sets = [test, *(read_embeddings(home / f"{p}.npz") for p in ("train", "val")[: 1 + validation])]
        rows = [{row.tobytes() for row in s.X} for s in sets]
        assert sum(map(len, rows)) == len(set().union(*rows)) == len(given[name])
        if subjects:
            who = [set(s.subject.tolist()) for s in sets]
            assert sum(map(len, who)) == len(set().union(*who))
        assert ("validation" in (home / "site.toml").read_text()) == validation
    # Seeds differ between sites, or one site's noise could be subtracted from another's.
    lines = [line for f in tmp_path.rglob("site.toml") for line in f.read_text().splitlines()]
    seeds = {line for line in lines if line.startswith("insecure_seed")}
    assert len(seeds) == 2


def test_too_few_records_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LocumError):
        write_sites(parts(n=2), tmp_path, None, 0, validation=True)


def test_a_warning_if_one_head_always_wins() -> None:
    score = SiteScore("a", 9, None, 0.0, Estimate(0.5, 0.2, 0.8, 9), 0.5, 0.5, {})
    assert "Every lambda is 0" in Simulation(Path("r"), (score, score)).warning
    ones = tuple(replace(score, lam=1.0) for _ in range(2))
    assert "Every lambda is 1" in Simulation(Path("r"), ones).warning
    assert Simulation(Path("r"), (score, *ones)).warning == ""
    assert Simulation(Path("r"), (replace(score, lam=0.4),)).warning == ""


@pytest.mark.parametrize("validation", [False, True])
def test_with_common_test_records_a_site_keeps_its_own(validation: bool, tmp_path: Path) -> None:
    given, test = parts(), parts(1, n=12)["ward 0"]
    held = write_sites(given, tmp_path, None, 0, validation=validation, test=test)
    assert all(part is test for part in held.values())
    for i, data in enumerate(given.values()):
        names = ("train", "val")[: 1 + validation]
        sizes = [len(read_embeddings(tmp_path / f"site-{i}" / f"{name}.npz")) for name in names]
        assert sum(sizes) == len(data)
        assert sizes[0] == round(len(data) * (0.8 if validation else 1))


def test_notes_name_the_sites_that_have_them() -> None:
    score = SiteScore("a", 9, None, 0.4, Estimate(0.5, 0.2, 0.8, 9), 0.5, 0.5, {}, notes=("Rare.",))
    others = (replace(score, name="b", notes=("Often.", "Rare.")), replace(score, name="c", notes=()))
    found = Simulation(Path("r"), (score, *others))
    assert found.notes == ("a, b: Rare.", "b: Often.")
    assert others[0].to_dict()["notes"] == ["Often.", "Rare."]
    assert others[0].to_dict()["fallback"] is False
