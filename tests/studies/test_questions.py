"""The studies of open questions on made records: rules do what they say, papers' methods are theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from locum.generate import CVAEGenerator
from locum.recipes import FoundStudy, find_studies, run_study

ROOT = Path(__file__).parents[2] / "studies"
SIZES = (160, 130, 110, 105, 60, 30, 15, 9)


@pytest.fixture(scope="module")
def studies() -> dict[str, FoundStudy]:
    """Loading them also makes their modules known."""
    return find_studies(ROOT)


def module(name: str) -> ModuleType:
    return sys.modules[name]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, studies: dict[str, FoundStudy]) -> Iterator[Path]:
    """Small files under the names of the real ones, as wide as the public statistics of the backbone."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    means = 0.2 * rng.normal(size=(8, 1280))
    vectors: dict[str, np.ndarray] = {}
    images: dict[str, np.ndarray] = {}
    for part, count in (("train", 60), ("val", 20), ("test", 30)):
        y = np.arange(count) % 2
        vectors |= {f"{part}_x": (means[y] + rng.normal(size=(count, 1280))).astype(np.float32), f"{part}_y": y}
        images |= {f"{part}_images": rng.integers(60, 190, (count, 28, 28), dtype=np.uint8), f"{part}_labels": y}
    for name in ("breastmnist", "pneumoniamnist"):
        np.savez(folder / f"{name}_efflite0.npz", **vectors)
        np.savez(folder / f"{name}.npz", **images)
    y = np.repeat(np.arange(8), SIZES)
    rows = (means[y, :100] * 10 + rng.normal(size=(len(y), 100))).astype(np.float32)
    np.savez(folder / "cifar10lt_efflite0.npz", train_x=rows, train_y=y)
    weights = module("que_weights")
    caches = [
        module("que_corruptions").images, module("que_corruptions").embedded,
        weights.records, weights.folds, weights.generator, module("que_distance")._fitted,
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCUM_DATA", str(folder))
        for function in caches:
            function.cache_clear()
        yield folder
        for function in caches:
            function.cache_clear()


def test_the_papers_cvae_is_the_papers(studies: dict[str, FoundStudy]) -> None:
    model = module("que_sets").PLAIN["cvae-paper"](0)
    assert isinstance(model, CVAEGenerator)
    used = model.settings_
    assert model.authors_compat
    assert (used.hidden, used.latent, used.beta, used.scaling) == ((256,), 50, 0.1, "minmax")
    assert (used.decoder_noise, used.max_epochs, used.patience) == ("none", 1000, 15)


def test_every_method_and_question_has_a_name(studies: dict[str, FoundStudy]) -> None:
    for study in ("few-records", "min-distance", "corruptions"):
        config = studies[study].settings(quick=False)
        assert set(config["methods"]) <= set(module("que_sets").NAMES)
        assert studies[study].minutes(quick=True) < studies[study].minutes(quick=False)


def test_members_and_others_are_apart_and_equal_in_number(made: Path) -> None:
    members, others = module("que_few").drawn("pneumoniamnist", 7, 0)
    assert members.counts.tolist() == others.counts.tolist() == [7, 7]
    assert not {row.tobytes() for row in members.X} & {row.tobytes() for row in others.X}


def test_few_records_runs(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    settings = ["counts=[12]", "methods=['gaussian', '2-same', 'head-1']", "samples=200"]
    results = run_study(studies["few-records"].changed(settings), quick=True, out=tmp_path)
    text = (tmp_path / "few-records.md").read_text()
    assert "minus real, 12 per class" in text
    # Means of two records are close to both.
    assert results.runs("pneumoniamnist/2-same/12", "attack/nearest distance")[0] > 0.8
    assert "attack/LiRA on sums" in results.raw["pneumoniamnist/head-1/12"]["0"]
    assert "attack/LiRA" not in results.raw["pneumoniamnist/2-same/12"]["0"]


def test_the_nearest_samples_are_drawn_again(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    settings = ["shares=[0.0, 0.5]", "drawn=400", "sizes=[4]", "members=30"]
    results = run_study(studies["min-distance"].changed(settings), quick=True, out=tmp_path)
    far, near = (results.runs(f"breastmnist/gaussian/4/{share}", "D")[0] for share in ("0.5", "0"))
    assert far > near
    # No row lies within the radius of a member: only others can be cleared.
    assert results.runs("breastmnist/gaussian/4/0.5", "hole, table")[0] >= 0.5
    assert "non-members proven absent" in (tmp_path / "min-distance.md").read_text()


def test_corruptions_grow_with_severity(made: Path, studies: dict[str, FoundStudy]) -> None:
    own = module("que_corruptions")
    pixels = own.images("breastmnist", "test")
    for kind in own.CORRUPTIONS:
        changed = [own.corrupted(pixels, kind, severity) for severity in own.SEVERITIES]
        assert all(c.shape == pixels.shape and c.dtype == np.uint8 for c in changed)
        errors = [float(np.abs(c.astype(float) - pixels).mean()) for c in changed]
        assert 0 < errors[0] < errors[1] < errors[2]


def test_corruptions_are_judged(
    made: Path, studies: dict[str, FoundStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = module("que_corruptions")
    test = module("que_sets").records("breastmnist", "test").X

    def blurred(name: str, kind: str, severity: int) -> np.ndarray:
        # The backbone itself is tested in tests/embed.
        return test if kind == "clean" else test + np.float32(severity) * np.roll(test, 1, axis=0)

    monkeypatch.setattr(own, "embedded", blurred)
    results = run_study(studies["corruptions"], quick=True, out=tmp_path)
    assert results.runs("breastmnist/real", "gap") == [0.0]
    assert results.runs("breastmnist/real", "mean/3")[0] <= results.runs("breastmnist/real", "clean")[0]
    assert "severity 3" in (tmp_path / "corruptions.md").read_text()


def test_variances_follow_their_rule(studies: dict[str, FoundStudy]) -> None:
    own = module("que_weights")
    falling = own.RULES["variance from 2 to 0.5"]
    assert own.variances(falling, 0, None).tolist() == [2.0]
    assert own.variances(falling, own.EPOCHS - 1, np.ones(3)).tolist() == [0.5] * 3
    # Mean loss 2: ratios of 0.5 and 1.5, and their inverses.
    losses = np.array([1.0, 3.0])
    assert own.variances(own.RULES["variance grows with the loss of a class"], 4, losses).tolist() == [0.5, 1.5]
    assert own.variances(own.RULES["variance falls with the loss of a class"], 4, losses).tolist() == [2.0, 1 / 1.5]


def test_probabilities_follow_their_rule(studies: dict[str, FoundStudy]) -> None:
    own, sizes = module("que_weights"), np.array([100.0, 10.0])
    usual = own.chances(own.RULES["as it is"], sizes, np.array([1.0, 3.0]))
    assert usual == pytest.approx([0.01, 0.7])
    growing = own.RULES["probability grows with the loss of a class"]
    assert own.chances(growing, sizes, None) == pytest.approx(usual)
    assert own.chances(growing, sizes, np.array([1.0, 3.0])) == pytest.approx([0.005, 1.0])
    assert own.chances(own.RULES["no generated rows"], sizes, None).tolist() == [0.0, 0.0]


def test_class_sizes_are_counted_in_the_batches_before(studies: dict[str, FoundStudy]) -> None:
    own = module("que_weights")
    codes = np.repeat([0, 1, 0], [own.BATCH, own.BATCH, 5])
    found = own.sizes_by_batch(codes, np.ones(2))
    assert found.tolist() == [
        [1, 1],
        [1 + own.BATCH, 1],
        [1 + own.BATCH, 1 + own.BATCH],
        [6 + own.BATCH, 1 + own.BATCH],
    ]
    assert "class sizes counted on the way" in own.rules_for("softmax")
    assert "class sizes counted on the way" not in own.rules_for("balanced")


def test_a_weight_of_generated_rows_changes_the_head_and_no_rows_have_none(
    made: Path, studies: dict[str, FoundStudy]
) -> None:
    own = module("que_weights")
    X, y = own.records("lt100")
    release = own.generator("lt100", 2, 0, 0)

    def head(rule: object) -> np.ndarray:
        return np.asarray(own.train(X, y, release, rule, "balanced", 0).weight.detach())

    plain = head(own.RULES["as it is"])
    assert np.array_equal(plain, head(own.Rule(weight=1.0)))
    assert not np.allclose(plain, head(own.RULES["weight 4"]))
    without = own.Rule(most=0.0, weight=4.0)
    assert np.array_equal(head(own.RULES["no generated rows"]), head(without))


def test_generated_weights_reads_no_test_record(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    # The made file has none.
    results = run_study(studies["generated-weights"].changed(["sets=['lt100']"]), quick=True, out=tmp_path)
    assert min(results.runs(cell, "overall")[0] for cell in results.raw) > 50
    assert "No test record" in (tmp_path / "generated-weights.md").read_text()
