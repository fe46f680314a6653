"""The studies of rare classes on made records: the thesis' CVAE is the thesis', its figures are typed right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from locum.recipes import FoundStudy, StudyResults, find_studies

ROOT = Path(__file__).parents[2] / "studies"
SIZES = (160, 130, 120, 110, 105, 102, 60, 30, 15, 5)


@pytest.fixture(scope="module")
def studies() -> dict[str, FoundStudy]:
    """Loading them also makes their modules known."""
    return find_studies(ROOT)


def module(name: str) -> ModuleType:
    return sys.modules[name]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, studies: dict[str, FoundStudy]) -> Iterator[Path]:
    """Ten classes of unequal size, under the name of the real file; a few steps tell them apart."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    means = rng.normal(size=(10, 100)) * 2
    parts = {}
    for part, sizes in (("train", SIZES), ("test", (20,) * 10)):
        y = np.repeat(np.arange(10), sizes)
        parts |= {f"{part}_x": (means[y] + rng.normal(size=(len(y), 100))).astype(np.float32), f"{part}_y": y}
    np.savez(folder / "cifar10lt_efflite0.npz", **parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCUM_DATA", str(folder))
        yield folder


CONFIG = {
    "seeds": [0, 1],
    "sets": ["lt100"],
    "variances": [1.0],
    "cvae_epochs": 1,
    "thesis_epochs": 2,
    "thesis_fits": 1,
}


@pytest.fixture(scope="module")
def methods(made: Path, studies: dict[str, FoundStudy]) -> tuple[FoundStudy, StudyResults]:
    """Figures by chance for the cells that the tables need."""
    study, rng, run = studies["rebalance-methods"], np.random.default_rng(0), module("reb_methods")
    prefixes = ["variance 1/", "remix/", *(f"{loss}/" for loss in run.LOSSES)]
    prefixes += [f"{loss}, counts as drawn/" for loss in run.COUNTING]

    def figures(cell: str) -> dict[str, float | str]:
        out: dict[str, float | str] = {}
        for prefix in {"large": prefixes, "small": prefixes[:1]}.get(cell.rpartition("-")[2], [""]):
            out |= {f"{prefix}{g}": float(rng.uniform(50, 90)) for g in ("overall", "many", "medium", "few", "tail")}
            out[f"{prefix}right"] = np.packbits(rng.random(200) < 0.7).tobytes().hex()
        return out

    # Fewer than a study has: each row costs a bootstrap.
    heads = ("class-balanced sampling", "remix", "class-balanced sampling + remix", "ours")
    kept = ("none", *run.LOSSES[1:], *heads, "thesis-small", "thesis-large", "cvae-large")
    raw = {f"lt100/{c}": {str(seed): figures(c) for seed in CONFIG["seeds"]} for c in kept}
    assert set(raw) <= set(study.study.cells(CONFIG))
    return study, StudyResults(raw, CONFIG, quick=False)


@pytest.mark.slow
def test_each_cvae_is_the_one_that_its_name_says(made: Path) -> None:
    fitted = module("reb_methods").fitted
    thesis, ours = (fitted("lt100", whose, "small", 1, 0) for whose in ("thesis", "ours"))
    used = thesis.settings_
    assert (used.beta, used.scaling, used.decoder_noise) == (0.01, "minmax", "none")
    assert (used.hidden, used.latent, used.batch_size, used.weight_decay) == ((512,), 100, 512, 0.01)
    assert (ours.settings_.beta, ours.settings_.scaling, ours.settings_.decoder_noise) == (1.0, "class", "diagonal")


def test_the_thesis_trains_one_cvae_for_all_heads(methods: tuple[FoundStudy, StudyResults]) -> None:
    study, results = methods
    cells, fitted = study.study.cells(CONFIG), module("reb_methods").fitted_once
    fitted.cache_clear()
    heads = [cells["lt100/thesis-small"](seed) for seed in CONFIG["seeds"]]
    assert fitted.cache_info().misses == 1
    assert heads[0]["variance 1/right"] != heads[1]["variance 1/right"]
    # The figures by chance have the names that a run gives.
    assert set(heads[0]) == set(results.raw["lt100/thesis-small"]["0"])
    control = cells["lt100/class-balanced sampling + remix"](0)
    assert set(control) == set(results.raw["lt100/remix"]["0"])
    # Made records are easy: a head without any generator finds most of them.
    assert float(control["overall"]) > 60


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start} |")]


@pytest.mark.slow
def test_the_thesis_figures_stand_beside_its_rows_alone(
    methods: tuple[FoundStudy, StudyResults], tmp_path: Path
) -> None:
    text = methods[0].study.render(methods[1], tmp_path)
    assert "98.02 / 98.29 / 96.93" in lines(text, "thesis' large CVAE")[0]
    assert "97.72 / 98.39 / 95.05" in lines(text, "thesis' small CVAE, 1")[0]
    assert "95.74 / 94.80 / 99.47" in lines(text, "balanced_softmax + thesis' large CVAE")[0]
    assert lines(text, "balanced_softmax + our large CVAE")[0].endswith("| - | - |")
    # What a generator adds is told against the same head without one.
    assert "| thesis' large CVAE + remix | class-balanced sampling + remix |" in text
    assert "2 (500 in the thesis), 1 of each size" in text
    # Figure 7: the sizes of the classes.
    assert "rebalance-sizes.svg" in text
    assert "CIFAR-10 LT, ratio 100" in (tmp_path / "rebalance-sizes.svg").read_text()


def test_under_sampling_cuts_every_class_to_the_smallest(made: Path) -> None:
    run = module("reb_methods")
    found = run.RESAMPLED["under-sampling"](*run.records("lt100", "train"), np.random.default_rng(0))
    assert np.bincount(found.y).tolist() == [min(SIZES)] * 10


def test_results_from_before_the_thesis_cvae_can_be_shown_and_say_so(
    methods: tuple[FoundStudy, StudyResults], tmp_path: Path
) -> None:
    study, results = methods
    wanted = ("none", *module("reb_methods").LOSSES[1:], "ours", "cvae-large")
    old = {c: v for c, v in results.raw.items() if c.partition("/")[2] in wanted}
    config = {k: v for k, v in results.config.items() if not k.startswith("thesis")}
    text = study.study.render(StudyResults(old, config, quick=False), tmp_path)
    assert "The thesis' CVAE has not been run for this page." in text
    assert lines(text, "our large CVAE")
    assert not lines(text, "thesis' large CVAE")


def test_overall_accuracies_of_the_thesis_follow_from_its_groups() -> None:
    """CIFAR-10 LT has 8 classes of over 100 records and 2 of 21 to 100, CIFAR-100 LT 35, 34 and 31."""
    thesis = module("reb_published")
    small = [row for size in thesis.TABLE5.values() for row in size.values()]
    small += [pair[0] for pair in thesis.TABLE6.values()] + [row for pair in thesis.TABLE8.values() for row in pair]
    large = [row for size in thesis.TABLE4.values() for row in size.values()]
    large += [pair[1] for pair in thesis.TABLE6.values()] + [row for pair in thesis.TABLE7.values() for row in pair]
    assert (len(small), len(large)) == (12 + 7 + 12, 12 + 7 + 12)
    for overall, *groups in small:
        assert overall == pytest.approx(np.dot(groups, (0.8, 0.2)), abs=0.011)
    for overall, *groups in large:
        assert overall == pytest.approx(np.dot(groups, (0.35, 0.34, 0.31)), abs=0.011)


@pytest.mark.parametrize("name", ["rebalance-choice", "rebalance-questions", "rebalance-methods"])
def test_a_study_says_how_long_it_takes(studies: dict[str, FoundStudy], name: str) -> None:
    whole, quick = (studies[name].minutes(quick) for quick in (False, True))
    assert whole is not None
    assert quick is not None
    assert 0 < quick < whole / 5


def test_choice_reads_training_records_alone(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    cells = studies["rebalance-choice"].study.cells({"seeds": [0], "sets": ["lt100"], "folds": 2})
    with np.load(made / "cifar10lt_efflite0.npz") as parts:
        kept = {name: parts[name] for name in parts.files}
    try:
        np.savez(made / "cifar10lt_efflite0.npz", train_x=kept["train_x"], train_y=kept["train_y"])
        found = cells["lt100/balanced softmax"](0)
    finally:
        np.savez(made / "cifar10lt_efflite0.npz", **kept)
    assert found["overall"] > 60


def test_a_cosine_head_reads_directions_and_not_lengths(studies: dict[str, FoundStudy]) -> None:
    rng, head = np.random.default_rng(0), module("reb_cosine").thesis_head
    y = np.repeat([0, 1], (300, 30))
    X = (np.array([[4.0, 1.0], [1.0, 4.0]])[y] + rng.normal(scale=0.3, size=(330, 2))).astype(np.float32)
    settings = {
        "loss": "balanced_softmax",
        "batch_size": 16,
        "learning_rate": 0.05,
        "cosine": 10.0,
        "centered": False,
    }
    found = head(0, settings).fit(X, y)
    assert (found.predict(X) == y).mean() > 0.99
    assert np.array_equal(found.predict(X), found.predict(7 * X))


def test_a_centered_cosine_head_tells_classes_of_one_direction_apart(studies: dict[str, FoundStudy]) -> None:
    rng, head = np.random.default_rng(0), module("reb_cosine").thesis_head
    y = np.repeat([0, 1], (300, 30))
    X = (np.array([[2.0, 2.0], [4.0, 4.0]])[y] + rng.normal(scale=0.1, size=(330, 2))).astype(np.float32)
    settings = {"loss": "ldam", "learning_rate": 0.05, "cosine": 1.0}
    assert (head(0, {**settings, "centered": True}).fit(X, y).predict(X) == y).mean() > 0.99
    assert (head(0, {**settings, "centered": False}).fit(X, y).predict(X) == y).mean() < 0.95


def test_other_test_sets_weigh_classes_by_their_shares(studies: dict[str, FoundStudy]) -> None:
    shares = module("reb_methods").other_shares(np.array([60, 10, 30]))
    assert shares["as the training records"] == pytest.approx([0.6, 0.1, 0.3])
    assert shares["the other way round"] == pytest.approx([0.1, 0.6, 0.3])
    assert shares["balanced"] == pytest.approx([1 / 3] * 3)


def test_the_balanced_column_of_other_test_sets_is_the_overall_accuracy(
    methods: tuple[FoundStudy, StudyResults], made: Path
) -> None:
    _, results = methods
    run = module("reb_methods")
    truth = run.records("lt100", "test")[1]
    right = run.right_by_record(results, "lt100/ours", "", len(truth))
    assert right.shape == (len(results.config["seeds"]), len(truth))
    by_hand = 100 * np.mean([right[:, truth == c].mean() for c in range(10)])
    line = next(row for row in run._other_tests(results, "lt100").splitlines() if row.startswith("| ours |"))
    assert line.split("|")[2].split()[0] == f"{by_hand:.1f}"
