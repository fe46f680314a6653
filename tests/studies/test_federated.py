"""The studies of training together: who has which records, and what their own methods compute."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from locum.data import load_reference, write_embeddings
from locum.errors import ConfigError, DataError
from locum.federated.baselines import federated_head
from locum.recipes import StudyResults, apply_settings, find_studies, run_study
from locum.recipes.study_sets import using_sets
from locum.release import load
from locum.types import EmbeddingInfo, EmbeddingSet

ROOT = Path(__file__).parents[2] / "studies"


@pytest.fixture(scope="module", autouse=True)
def studies() -> dict[str, Any]:
    """Loading them also makes their modules known."""
    return find_studies(ROOT)


def module(name: str) -> ModuleType:
    return sys.modules[name]


def made_up(sites: int = 3, n: int = 60, d: int = 8) -> Any:
    """Sites of two classes a little apart."""
    rng, parts = np.random.default_rng(0), {}
    for i in range(sites):
        y = np.arange(n) % 2
        X = rng.normal(size=(n, d)) + np.outer(4.0 * y, np.eye(d)[0])
        info = EmbeddingInfo(class_names=("a", "b"))
        parts[f"site-{i}"] = EmbeddingSet(X=X.astype(np.float32), y=y, info=info)
    return module("fed_sets").Deal(parts, parts, reference="none", delta=1e-4)


def test_hospitals_are_scaled_by_public_ranges_alone(real_data: Path) -> None:
    table = module("fed_sets").hospitals()
    assert table.X.shape == (920, 22)
    assert np.abs(table.X).max() <= 1
    columns = list(module("fed_sets").RANGES)
    # The first row: a man of 63 with a blood pressure of 145.
    assert table.X[0, columns.index("age")] == pytest.approx(2 * 43 / 60 - 1)
    assert table.X[0, columns.index("trestbps")] == pytest.approx(2 * 65 / 120 - 1)
    assert table.X[0, columns.index("sex")] == 1
    # No hospital of Switzerland measured cholesterol: 0 stands for a missing value, which is put in the middle.
    swiss = table.attributes["site"] == "switzerland"
    assert (table.X[swiss, columns.index("chol")] == 0).all()
    assert table.y.sum() == 920 - 411


def test_each_record_of_a_hospital_is_tested_once(real_data: Path) -> None:
    folds = module("fed_sets").deals("heart4", 0)
    assert len(folds) == 5
    for name, n in {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}.items():
        assert sum(len(deal.test[name]) for deal in folds) == n
        assert all(len(deal.test[name]) + len(deal.train[name]) == n for deal in folds)


@pytest.mark.parametrize("scenario", ["sex/by view", "sex/shortcut", "effusion/shortcut"])
def test_patients_are_at_one_site_and_never_tested_there(real_data: Path, scenario: str) -> None:
    deal = module("fed_confounders").dealt(scenario, 4, 0)
    subjects = [set(part.subject.tolist()) for part in deal.train.values()]
    assert sum(map(len, subjects)) == len(set.union(*subjects))
    assert not set.union(*subjects) & set(deal.test["site-0"].subject.tolist())
    ap = [float((part.attributes["view"] == "AP").mean()) for part in deal.train.values()]
    if scenario == "sex/by view":
        assert min(ap[:2]) > 0.5 > max(ap[2:])
    else:
        # The view tells the label one way at the first half of the sites, and less or the other way elsewhere.
        tells = [np.corrcoef(p.attributes["view"] == "AP", p.y)[0, 1] for p in deal.train.values()]
        assert min(tells[:2]) > max(tells[2:]) + 0.2
    assert deal.unit == "subject"


def test_an_unknown_scenario_is_refused(real_data: Path) -> None:
    with pytest.raises(ConfigError, match="'by view' or 'shortcut'"):
        module("fed_confounders").dealt("sex/by age", 4, 0)


def test_private_fedavg_is_the_baseline_of_the_package() -> None:
    """Written again in the study for subjects; with records both must agree."""
    deal = made_up()
    ours = module("fed_methods").private_head(deal, 1.0, rounds=2, seed=3)
    sites, reference = list(deal.train.values()), load_reference("none", 8)
    theirs = federated_head(sites, 2, reference, rounds=2, privacy=deal.budget(1.0), seed=3)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["HEAD", "SUMS"])
def test_leaving_out_the_masks_changes_nothing(mode: str, tmp_path: Path) -> None:
    """The naive twin is a simulation with keys, shares and masks."""
    methods, deal = module("fed_methods"), made_up(sites=4)
    settings, budget = getattr(methods, mode), deal.budget(3.0)
    fast = methods.together_without_masks(settings, budget, deal, 5)
    found, models = methods.simulated(settings, budget, deal, 5, tmp_path)
    slow = load(found.release)
    assert fast.tensors.keys() == slow.tensors.keys()
    for name, value in fast.tensors.items():
        np.testing.assert_array_equal(value, slow.tensors[name])
    guesses = methods.federation(settings, 3.0)(deal, 5)
    assert guesses.lams == [model.lam for model in models]


def test_statistics_in_a_file_give_what_the_same_numbers_give(tmp_path: Path) -> None:
    """A backbone that ships with none has its own; mean 0 and variance 1 is what "none" means."""
    methods, deal = module("fed_methods"), made_up(sites=4)
    load_reference("none", deal.dim).save(tmp_path / "own.safetensors")
    given = replace(deal, reference=str(tmp_path / "own.safetensors"))
    found, plain = (methods.together_without_masks(methods.HEAD, d.budget(3.0), d, 5) for d in (given, deal))
    assert found.manifest.settings["federation"]["reference"] == "own"
    for name, value in plain.tensors.items():
        np.testing.assert_array_equal(value, found.tensors[name])


def test_decoders_too_take_statistics_in_a_file(tmp_path: Path) -> None:
    methods, deal = module("fed_methods"), made_up(sites=2)
    load_reference("none", deal.dim).save(tmp_path / "own.safetensors")
    given = replace(deal, reference=str(tmp_path / "own.safetensors"))
    settings = {**methods.PAPER, "rounds": 1, "local_epochs": 1}
    found, plain = (
        methods.simulated(settings, d.budget(3.0), d, 5, tmp_path / name)[0]
        for name, d in (("own", given), ("none", deal))
    )
    releases = [load(one.release) for one in (found, plain)]
    assert [r.manifest.settings["federation"]["reference"] for r in releases] == ["own", "none"]
    for name, value in releases[1].tensors.items():
        np.testing.assert_array_equal(value, releases[0].tensors[name])


@pytest.mark.slow
def test_a_sharper_head_has_the_same_borders_and_a_balanced_one_finds_a_rare_class() -> None:
    methods, deal = module("fed_methods"), made_up(n=400)
    plain = methods.federation(methods.HEAD, 3.0)(deal, 0)
    sharp = methods.as_sharp(3.0)(deal, 0)
    for a, b in zip(plain.sites, sharp.sites, strict=True):
        np.testing.assert_array_equal(a["global"], b["global"])
    # One in ten is left of the second class.
    rare = {k: p.take(np.flatnonzero((p.y == 0) | (np.arange(len(p)) % 20 == 1))) for k, p in deal.train.items()}
    skewed = module("fed_sets").Deal(rare, deal.test, reference="none", delta=1e-4)
    both = [methods.federation(methods.HEAD, 3.0, balanced=b)(skewed, 0) for b in (False, True)]
    said = [np.mean(guesses.sites[0]["global"]) for guesses in both]
    assert said[0] < said[1]
    assert 0.3 < said[1] < 0.8


def test_averaging_gives_every_site_the_mean() -> None:
    import torch

    nets = [torch.nn.Linear(2, 1) for _ in range(3)]
    mean = torch.stack([net.weight.detach().clone() for net in nets]).mean(dim=0)
    module("fed_averaged").share(nets)
    assert all(torch.allclose(net.weight, mean) for net in nets)


@pytest.mark.parametrize("name", ["CVAE, decoders averaged", "CVAE, all averaged", "CGAN, generators averaged"])
def test_averaged_networks_give_samples_of_every_class(name: str) -> None:
    deal = made_up(sites=2)
    x, y = module("fed_averaged").NETWORKS[name](deal, 1.0, 1, 0).samples(5, 0)
    assert x.shape == (10, 8)
    assert np.isfinite(x).all()
    assert y.tolist() == [0] * 5 + [1] * 5


def test_agreement_of_class_means_tells_useless_samples_from_useful_ones() -> None:
    deal, rng = made_up(n=200, d=200), np.random.default_rng(1)
    pooled = deal.pooled()
    useful = module("fed_decoders").measured(pooled.X, pooled.y, deal, 0)
    useless = module("fed_decoders").measured(pooled.X, rng.permutation(pooled.y), deal, 0)
    assert useful["agreement of class means"] > 0.7
    assert abs(useless["agreement of class means"]) < 0.5
    assert useful["global bacc"] > 0.75 > useless["global bacc"]
    # The same vectors with shuffled labels: a distance that ignores classes cannot tell.
    assert useful["wasserstein"] == pytest.approx(useless["wasserstein"], rel=0.1)


@pytest.fixture
def own_set(tmp_path: Path) -> str:
    """Three classes that are easy to tell, given as one's own, with hospitals."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(3), 240)
    X = (rng.normal(size=(720, 60)) + rng.normal(size=(3, 60))[y]).astype(np.float32)
    where = {"hospital": np.array(["east", "north", "west"])[np.arange(720) % 3]}
    info = EmbeddingInfo(class_names=("a", "b", "c"))
    write_embeddings(tmp_path / "mine.npz", EmbeddingSet(X, y, attributes=where, info=info))
    return f"mine={tmp_path / 'mine.npz'}"


def test_decoders_are_ordered_on_any_set(
    own_set: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: dict[str, Any]
) -> None:
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    given = [own_set, 'networks=[["CVAE, decoders averaged", "inf", 1]]']
    found = apply_settings(studies["federated-decoders"], given, place=tmp_path / "sets")
    results = run_study(found, quick=True, out=tmp_path / "out")
    use = {name: figures["0"]["global bacc"] for name, figures in results.raw.items()}
    assert set(use) == {
        "CVAE, decoders averaged, no privacy, 1 rounds",
        "Gaussian (means), epsilon 1",
        "Gaussian (head), epsilon 1",
        "Gaussian, no privacy",
        "real records",
    }
    assert min(use["real records"], use["Gaussian, no privacy"]) > 0.9
    # Real records are nearest to real records.
    near = {name: figures["0"]["distance of class means"] for name, figures in results.raw.items()}
    assert near["real records"] == min(near.values())
    text = (tmp_path / "out" / "federated-decoders.md").read_text()
    assert "mine; seeds [0]" in text
    assert "CIFAR" not in text


def test_factors_change_the_number_of_sites_of_any_set(
    own_set: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: dict[str, Any]
) -> None:
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    found = apply_settings(studies["federated-factors"], [own_set], place=tmp_path / "sets")
    config = found.settings(quick=False)
    found.check(config)
    # 576 records for training are too few for 20 sites of 40.
    assert (config["sites"], config["paper_sites"], config["backbones"]) == (["5", "10"], ["5", "10"], ["efflite0"])
    with using_sets(config):
        assert [len(module("fed_sets").deals("mine", 0, n)[0].train) for n in (5, 10, None)] == [5, 10, 3]
        cell = found.study.cells(config)["ours: head/inf/10/efflite0"]
        assert cell(0)["global bacc"] > 0.9


def test_a_set_of_hospitals_must_name_them(tmp_path: Path, studies: dict[str, Any]) -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32), np.arange(300) % 2
    write_embeddings(tmp_path / "c.npz", EmbeddingSet(X, y, info=EmbeddingInfo(class_names=("a", "b"))))
    found = apply_settings(studies["federated-results"], [f"camelyon={tmp_path / 'c.npz'}"], place=tmp_path / "sets")
    with pytest.raises(DataError, match="needs an attribute that names the hospital"):
        found.check(found.settings(quick=False))


def test_heads_of_one_site_learn_the_shortcut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: dict[str, Any]
) -> None:
    """The view is easy to see and the sex is not: a site's own head takes one for the other, a common one cannot."""
    rng, arrays = np.random.default_rng(0), {}
    for part, patients in (("train", 180), ("val", 20), ("test", 80)):
        sex, view = np.arange(patients) % 2, np.arange(patients) // 2 % 2
        X = rng.normal(size=(patients, 1280))
        X[:, :20] += 1.5 * (2 * sex - 1)[:, None]
        X[:, 20:40] += 3 * (2 * view - 1)[:, None]
        arrays |= {f"{part}_x": X.astype(np.float32), f"{part}_y": sex}
        arrays[f"{part}_subject"] = np.array([f"{part}{i}" for i in range(patients)])
        arrays[f"{part}_attr_view"] = np.array(["PA", "AP"])[view]
        arrays[f"{part}_attr_age"] = rng.integers(20, 80, patients).astype(str)
        arrays[f"{part}_attr_effusion"] = np.array(["no", "yes"])[rng.integers(2, size=patients)]
    np.savez(tmp_path / "nih_cxr14_efflite0.npz", **arrays)
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    module("fed_sets").xrays.cache_clear()
    few = {
        k: v for k, v in module("fed_confounders").methods(False).items() if k in ("ours: head, epsilon 1", "FedAvg")
    }
    monkeypatch.setattr(module("fed_confounders"), "methods", lambda balanced: few)
    try:
        results = run_study(studies["federated-confounders"], quick=True, out=tmp_path / "out")
    finally:
        module("fed_sets").xrays.cache_clear()
    figures = results.raw["sex/shortcut/ours: head, epsilon 1"]["0"]
    common = results.raw["sex/shortcut/FedAvg"]["0"]
    assert figures["local worst group"] + 0.1 < common["global worst group"]
    text = (tmp_path / "out" / "federated-confounders.md").read_text()
    assert "at each site the view tells the sex, one way or the other" in text
    assert "| local |" in text


def test_the_papers_data_are_named_if_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: dict[str, Any]
) -> None:
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"no file 'organsmnist_dinov2\.npz' in LOCUM_DATA"):
        run_study(studies["federated-table1"], quick=True, out=tmp_path / "out")


def test_the_papers_presets_take_all_splits_and_the_hospitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: dict[str, Any]
) -> None:
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    config, rng = studies["federated-table1"].settings(quick=False), np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, n in (("train", 700), ("val", 100), ("test", 200)):
        arrays |= {f"{split}_x": rng.normal(size=(n, 4)), f"{split}_y": rng.integers(11, size=n)}
        arrays[f"{split}_attr_hospital"] = rng.choice(["a", "b", "c", "d", "e"], size=n)
    for key in ("organs", "camelyon"):
        np.savez(tmp_path / config[key], **arrays)
    for name, sites in (("organs-iid", 10), ("organs-dirichlet", 10), ("camelyon", 5)):
        deal = module("fed_paper").dealt(config, name, 0)
        assert len(deal.train) == sites
        assert sum(len(p) for p in (*deal.train.values(), *deal.test.values())) == 1000
        assert deal.delta <= 1 / (10 * 1000)


@pytest.mark.parametrize("name", ["federated-results", "federated-factors", "federated-tails"])
def test_committed_results_can_be_shown(name: str, tmp_path: Path, studies: dict[str, Any]) -> None:
    """All cells of the settings are there, and the tables follow from them."""
    committed = json.loads((ROOT / "federated" / "results" / f"{name}.json").read_text())
    study = studies[name]
    assert set(committed["raw"]) == set(study.study.cells(study.settings(quick=False)))
    text = study.study.render(StudyResults(committed["raw"], committed["config"], quick=False), tmp_path)
    assert text.strip() in (ROOT / "federated" / "results" / f"{name}.md").read_text()
