"""The studies of a guarantee: their cells are those of their settings, and their models are as they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from locum.generate import CGANGenerator, ClassGaussian, CVAEGenerator
from locum.recipes import FoundStudy, StudyResults, find_studies
from locum.recipes.forecasting import TABLE

ROOT = Path(__file__).parents[2] / "studies"
EPSILON_METRICS = ("auc", "balanced_accuracy", "rule_auc", "rule_balanced_accuracy", "penalty")


def found(name: str) -> FoundStudy:
    return find_studies(ROOT)[name]


def made_up(study: FoundStudy, metrics: tuple[str, ...]) -> StudyResults:
    """Figures by chance."""
    config, rng = study.settings(quick=False), np.random.default_rng(0)
    raw = {
        cell: {str(seed): {m: float(rng.uniform(0.5, 0.8)) for m in metrics} for seed in config["seeds"]}
        for cell in study.study.cells(config)
    }
    return StudyResults(raw, config, quick=False)


def test_every_generator_and_epsilon_is_in_the_table(real_data: Path, tmp_path: Path) -> None:
    study = found("private-epsilon")
    results = made_up(study, EPSILON_METRICS)
    text = study.study.render(results, tmp_path)
    assert text.count("## ") == 5
    for words in (
        "ClassGaussian, head (default)",
        "CVAE of the federated paper",
        "CGAN of the federated paper",
        "per patient",
        "epsilon 0.1",
        "epsilon 8",
        "no guarantee",
        "delta 1e-06",
    ):
        assert words in text
    # What takes minutes a fit is left to the small sets; the default delta is run at two epsilons.
    assert "cifar10_12k/cgan-1-1e-05" not in results.raw
    assert {"breastmnist/cgan-1-1e-05", "nih_cxr14-patients/head-1-1e-06"} <= set(results.raw)
    assert "breastmnist/head-8-1e-06" not in results.raw
    table = json.loads((tmp_path / "private-forecast.json").read_text())
    assert len(table["releases"]) == 25


def test_forecasts_go_by_the_committed_results() -> None:
    """The table that ships with Locum is the one that the study wrote."""
    assert TABLE.read_text() == (ROOT / "private" / "results" / "private-forecast.json").read_text()


def test_every_change_of_the_schedule_is_compared_with_the_rule(tmp_path: Path) -> None:
    study = found("private-schedule")
    text = study.study.render(made_up(study, ("auc", "steps")), tmp_path)
    assert "| the rule |" in text
    assert "| clip 1 |" in text
    assert "No test data are read" in text


def test_distances_and_sizes(tmp_path: Path) -> None:
    study = found("private-baselines")
    metrics = ("wasserstein", "frechet", "nearest", "released")
    text = study.study.render(made_up(study, metrics), tmp_path)
    assert "Wasserstein" in text
    assert "ClassGaussian, head (default), epsilon 1" in text


@pytest.mark.parametrize(
    ("method", "kind"),
    [("head", ClassGaussian), ("means", ClassGaussian), ("federated-paper", CVAEGenerator), ("cgan", CGANGenerator)],
)
def test_models_have_the_budget_of_the_table(real_data: Path, method: str, kind: type) -> None:
    module = __import__("sys").modules[found("private-epsilon").study.cells.__module__]
    model = module.private(method, "breastmnist", 1.0, 1e-5, 3)
    assert type(model) is kind
    assert (model.privacy.epsilon, model.privacy.delta) == (1.0, 1e-5)
    assert model.plan().epsilon <= 1.0
    assert (model.insecure_seed, model.reference) == (3, "efflite0")


def test_the_paper_s_network_has_the_paper_s_loss(real_data: Path) -> None:
    """The federated paper weighs the KL term by 0.1 and adds nothing to the decoder's mean; ours does neither."""
    module = __import__("sys").modules[found("private-epsilon").study.cells.__module__]
    paper, ours = (module.private(m, "breastmnist", 1.0, 1e-5, 3).settings_ for m in ("federated-paper", "federated"))
    assert (paper.beta, paper.decoder_noise) == (0.1, "none")
    assert (paper.hidden, paper.latent, paper.max_epochs, paper.clip) == ((256, 256, 256), 100, 250, 1.5)
    assert (ours.beta, ours.decoder_noise) == (1.0, "low-rank")
