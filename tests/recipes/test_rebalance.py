"""What a rebalanced file holds, and what a comparison of methods says and does not look at."""

from __future__ import annotations

import dataclasses
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum import EmbeddingInfo, EmbeddingSet
from locum.data import read_embeddings, write_embeddings
from locum.errors import ConfigError, DataError
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.metrics import balanced_accuracy
from locum.rebalance import METHODS
from locum.recipes import compare_methods, rebalance_compare as recipe, rebalance_to_file
from locum.recipes.rebalance_compare import SIMPLE, _class_mean, _settings

NAMES = ("cat", "ant", "bee", "dog")
CENTRES = 3 * np.random.default_rng(7).normal(size=(4, 6))


def drawn(counts: list[int], seed: int = 0, **more: Any) -> EmbeddingSet:
    """Clouds of the classes in NAMES; a class may be empty."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(4), counts))
    return EmbeddingSet(
        rng.normal(size=(len(y), 6)) + CENTRES[y], y, info=EmbeddingInfo("toy", "1", "p", NAMES), **more
    )


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes lie far apart here: a tenth of the steps is enough."""
    monkeypatch.setattr(recipe, "STEPS", 150)


@pytest.fixture
def tail(tmp_path: Path) -> str:
    write_embeddings(tmp_path / "tail.npz", drawn([60, 25, 5, 1]))
    return str(tmp_path / "tail.npz")


@pytest.fixture
def test_file(tmp_path: Path) -> str:
    write_embeddings(tmp_path / "test.npz", drawn([40, 30, 20, 10], seed=1))
    return str(tmp_path / "test.npz")


@pytest.mark.parametrize("suffix", ["npz", "parquet", "safetensors", "csv"])
def test_real_records_come_first_and_generated_ones_are_marked(tail: str, tmp_path: Path, suffix: str) -> None:
    real, out = read_embeddings(tail), tmp_path / f"b.{suffix}"
    summary = rebalance_to_file(tail, out)
    made = read_embeddings(out)
    np.testing.assert_array_equal(made.X[: len(real)], real.X)
    np.testing.assert_array_equal(made.labels[: len(real)], real.labels)
    assert made.attributes["generated"].tolist() == ["no"] * 91 + ["yes"] * 149
    assert dict(zip(*np.unique(made.labels, return_counts=True), strict=True)) == dict.fromkeys(NAMES, 60)
    assert [(c.name, c.records, c.added) for c in summary.classes] == [
        ("cat", 60, 0), ("ant", 25, 35), ("bee", 5, 55), ("dog", 1, 59)
    ]  # fmt: skip
    assert (summary.records, summary.added, summary.generator) == (91, 149, "gaussian")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    if suffix != "csv":
        assert made.info == real.info


@settings(max_examples=15)
@given(amount=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_an_amount_is_a_share_of_the_way_in_logarithms(tmp_path_factory: Any, amount: float, seed: int) -> None:
    folder = tmp_path_factory.mktemp("amount")
    write_embeddings(folder / "d.npz", drawn([32, 8, 4, 2]))
    done = rebalance_to_file(str(folder / "d.npz"), folder / "b.npz", amount=amount, seed=seed)
    sizes = [c.records + c.added for c in done.classes]
    assert sizes == [round(n ** (1 - amount) * 32**amount) for n in (32, 8, 4, 2)]


def test_the_same_seed_gives_the_same_file(tail: str, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        rebalance_to_file(tail, tmp_path / f"{name}.npz", seed=seed)
    a, b, c = (read_embeddings(tmp_path / f"{name}.npz").X for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_exact_sizes_go_by_name_and_may_pass_the_largest_class(tail: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = rebalance_to_file(tail, tmp_path / "b.npz", per_class={"dog": 70, "ant": 25})
    assert [c.added for c in done.classes] == [0, 0, 0, 69]


@pytest.mark.parametrize(
    ("strategy", "added"), [("minority", [0, 0, 0, 59]), ("not minority", [0, 35, 55, 0]), ("all", [0, 35, 55, 59])]
)
def test_strategies_are_those_of_imbalanced_learn(tail: str, tmp_path: Path, strategy: str, added: list[int]) -> None:
    done = rebalance_to_file(tail, tmp_path / "b.npz", strategy=strategy)
    assert [c.added for c in done.classes] == added


def test_a_ratio_serves_two_classes(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "d.npz", drawn([40, 0, 6, 0]))
    done = rebalance_to_file(str(tmp_path / "d.npz"), tmp_path / "b.npz", strategy="0.5")
    assert [(c.records, c.added) for c in done.classes] == [(40, 0), (0, 0), (6, 14), (0, 0)]


def test_generated_records_belong_to_nobody(tmp_path: Path) -> None:
    data = drawn([20, 8, 4, 2], subject=np.arange(34), attributes={"site": np.arange(34) % 2})
    write_embeddings(tmp_path / "d.npz", data)
    rebalance_to_file(str(tmp_path / "d.npz"), tmp_path / "b.npz")
    made = read_embeddings(tmp_path / "b.npz")
    assert made.subject is not None
    for column, real in ((made.subject, data.subject), (made.attributes["site"], data.attributes["site"])):
        assert column[:34].tolist() == np.asarray(real).astype(str).tolist()
        assert set(column[34:].tolist()) == {"generated"}


def test_the_train_split_is_taken_and_a_file_is_rebalanced_once(tmp_path: Path) -> None:
    train, test = drawn([20, 8, 4, 2]), drawn([9, 9, 9, 9], seed=1)
    np.savez(tmp_path / "d.npz", train_x=train.X, train_y=train.labels, test_x=test.X, test_y=test.labels)
    done = rebalance_to_file(str(tmp_path / "d.npz"), tmp_path / "b.npz")
    assert (done.records, done.added) == (34, 46)
    with pytest.raises(DataError, match="generated records"):
        rebalance_to_file(str(tmp_path / "b.npz"), tmp_path / "c.npz")
    # Its real part alone is a file like any other.
    made = read_embeddings(tmp_path / "b.npz")
    write_embeddings(tmp_path / "r.npz", made.take(made.attributes["generated"] == "no"))
    assert rebalance_to_file(str(tmp_path / "r.npz"), tmp_path / "c.npz").added == 46


def released(folder: Path, **settings: Any) -> str:
    """A release of other records of the same classes, whose codes stand for other names."""
    other = drawn([50, 50, 50, 50], seed=5).with_classes(tuple(sorted(NAMES)))
    return str(
        ClassGaussian(random_state=0, **settings).fit(other.X, other.y).release(other.info, no_dp=True).save(folder)
    )


def test_a_release_fills_up_by_class_name(tail: str, tmp_path: Path) -> None:
    done = rebalance_to_file(tail, tmp_path / "b.npz", generator=released(tmp_path / "r"))
    assert done.generator == "ClassGaussian"
    made = read_embeddings(tmp_path / "b.npz")
    for code, name in enumerate(NAMES):
        rows = made.X[(made.labels == name) & (made.attributes["generated"] == "yes")]
        assert name == "cat" or np.linalg.norm(rows.mean(axis=0) - CENTRES[code]) < 1.5


def test_a_release_of_another_kind_is_refused(tail: str, tmp_path: Path) -> None:
    unit = released(tmp_path / "unit", space="unit")
    with pytest.raises(DataError, match="space 'unit'"):
        rebalance_to_file(tail, tmp_path / "b.npz", generator=unit)
    data = drawn([9, 9, 9, 9], seed=5)
    rows = KSame(k=2, random_state=0).fit(data.X, data.y).release(data.info, no_dp=True).save(tmp_path / "rows")
    with pytest.raises(ConfigError, match="fixed rows"):
        rebalance_to_file(tail, tmp_path / "b.npz", generator=str(rows))
    info = dataclasses.replace(data.info, backbone="other", revision="2")
    strange = ClassGaussian(random_state=0).fit(data.X, data.y).release(info, no_dp=True).save(tmp_path / "other")
    with pytest.raises(DataError, match="cannot be mixed"):
        rebalance_to_file(tail, tmp_path / "b.npz", generator=str(strange))
    assert not (tmp_path / "b.npz").exists()


def test_a_comparison_adds_up(tail: str, test_file: str) -> None:
    found = compare_methods(tail, test_file, methods=["none", "weights", "gaussian"], seeds=2)
    truth = read_embeddings(test_file)
    assert [row.method for row in found.rows] == ["none", "weights", "gaussian"]
    assert (found.records, found.test_records, found.left_out) == (91, 100, ())
    for row in found.rows:
        assert [(c.label, c.records, c.shots) for c in row.by_class] == [
            ("cat", 60, "medium"), ("ant", 25, "medium"), ("bee", 5, "few"), ("dog", 1, "few")
        ]  # fmt: skip
        value = {c.label: c.accuracy.value for c in row.by_class}
        n = dict(zip(*np.unique(truth.labels, return_counts=True), strict=True))
        assert row.scores["balanced_accuracy"].value == pytest.approx(np.mean(list(value.values())))
        assert row.scores["accuracy"].value == pytest.approx(sum(value[c] * n[c] for c in value) / 100)
        assert row.scores["few"].value == pytest.approx((20 * value["bee"] + 10 * value["dog"]) / 30)
        assert set(row.scores) == {"balanced_accuracy", "accuracy", "medium", "few"}
    (reference,) = (row for row in found.rows if row.verdict == "reference")
    assert reference.method == found.reference
    for row in found.rows:
        if row is not reference:
            gap = row.scores["balanced_accuracy"].value - reference.scores["balanced_accuracy"].value
            assert row.difference is not None
            assert row.over_seeds is not None
            assert row.difference.value == pytest.approx(gap)
            assert row.over_seeds.value == pytest.approx(gap)


def test_the_mean_over_classes_is_balanced_accuracy(rng: np.random.Generator) -> None:
    y, guess = rng.integers(5, size=200) + 2, rng.integers(5, size=200) + 2
    assert _class_mean(y, guess == y) == pytest.approx(balanced_accuracy(y, guess))


def test_test_data_choose_nothing(tail: str, tmp_path: Path) -> None:
    """Whatever the test labels say, the reference stays, and so does what each method predicts."""
    test = drawn([25, 25, 25, 25], seed=1)
    rotated = dataclasses.replace(test, y=(test.y + 1) % 4)
    found = []
    for name, part in (("right", test), ("wrong", rotated)):
        write_embeddings(tmp_path / f"{name}.npz", part)
        found.append(compare_methods(tail, str(tmp_path / f"{name}.npz"), methods=SIMPLE, seeds=1))
    assert found[0].reference == found[1].reference
    assert found[0].simple == SIMPLE
    right, wrong = (sum(row.scores["accuracy"].value for row in f.rows) for f in found)
    assert right > wrong + 0.5


def test_one_seed_is_one_run_and_no_tie(tail: str, test_file: str) -> None:
    # No class is rarer than the threshold of the equalization loss: it is the plain head here.
    found = compare_methods(tail, test_file, methods=["none", "equalization", "ldam"], seeds=1)
    assert found.reference == "none"
    assert found.simple == ("none",)
    assert [row.verdict for row in found.rows] == ["reference", "one run", "one run"]
    assert found.rows[1].difference is not None
    assert found.rows[1].difference.value == 0


def test_a_clear_difference_is_called_one(tmp_path: Path, test_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_embeddings(tmp_path / "d.npz", drawn([300, 30, 20, 10]))
    backwards = dataclasses.replace(
        METHODS["random"], resample=lambda X, y, rng: METHODS["none"].resample(X, 3 - y, rng)
    )
    monkeypatch.setattr(recipe, "METHODS", {**METHODS, "random": backwards})
    found = compare_methods(str(tmp_path / "d.npz"), test_file, methods=["weights", "random"], seeds=3)
    assert [row.verdict for row in found.rows] == ["reference", "worse"]
    assert found.rows[0].scores["many"].value > found.rows[1].scores["many"].value


def test_a_reference_is_there_even_if_nobody_named_it(tail: str, test_file: str) -> None:
    found = compare_methods(tail, test_file, methods=["smote"], seeds=1, head="thesis")
    assert found.reference in SIMPLE
    assert [row.method for row in found.rows] == [found.reference, "smote"]
    assert "repeated" in found.rows[1].note


def test_a_class_that_training_never_saw_is_missed(tmp_path: Path, test_file: str) -> None:
    write_embeddings(tmp_path / "d.npz", drawn([40, 20, 0, 20]))
    found = compare_methods(str(tmp_path / "d.npz"), test_file, methods=["none", "gaussian"], seeds=1)
    for row in found.rows:
        (bee,) = (c for c in row.by_class if c.label == "bee")
        assert (bee.records, bee.shots, bee.accuracy.value) == (0, "few", 0.0)
        assert row.scores["accuracy"].value > 0.5


def test_two_classes_of_which_one_has_a_single_record(tmp_path: Path, test_file: str) -> None:
    write_embeddings(tmp_path / "d.npz", drawn([30, 0, 0, 1]))
    assert compare_methods(str(tmp_path / "d.npz"), test_file, methods=SIMPLE, seeds=1).reference in SIMPLE


def test_subjects_stay_together_in_cross_validation(tmp_path: Path, test_file: str) -> None:
    write_embeddings(tmp_path / "d.npz", drawn([30, 10, 8, 6], subject=np.repeat([1, 2], 27)))
    assert compare_methods(str(tmp_path / "d.npz"), test_file, methods=SIMPLE, seeds=1).reference in SIMPLE


@pytest.mark.parametrize(("records", "rows"), [(100, 100), (100, 700), (12_406, 50_000), (100_000, 100_000)])
def test_every_method_takes_as_many_steps(records: int, rows: int) -> None:
    chosen = _settings("default", records, rows)
    batches = -(-rows // chosen["batch_size"])
    wanted = max(150, 10 * -(-records // 128))
    assert wanted <= chosen["max_epochs"] * batches < wanted + batches
    assert _settings("thesis", records, rows)["max_epochs"] == 10


def test_a_cvae_is_fitted_once_a_seed(tail: str, test_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, fitted = CVAEGenerator.fit, []

    def counted(self: CVAEGenerator, X: Any, y: Any, *rest: Any, **more: Any) -> CVAEGenerator:
        fitted.append((self.preset, self.random_state))
        self.max_epochs = 2
        return fit(self, X, y, *rest, **more)

    monkeypatch.setattr(CVAEGenerator, "fit", counted)
    slow = ["cvae-small", "cvae-large", "algorithm-1", "algorithm-1-remix"]
    both = compare_methods(tail, test_file, methods=["none", *slow], seeds=2, head="thesis")
    assert fitted == [("small", 0), ("large", 0), ("small", 1), ("large", 1)]
    assert [row.method for row in both.rows] == ["none", *slow]
    # Who comes along changes nothing.
    alone = compare_methods(tail, test_file, methods=["none", "algorithm-1"], seeds=2, head="thesis")
    assert alone.rows[1].to_dict() == both.rows[3].to_dict()


def test_what_takes_long_is_left_out_and_said(tail: str, test_file: str) -> None:
    found = compare_methods(tail, test_file, seeds=1)
    assert found.left_out == ("cvae-small", "cvae-large", "algorithm-1", "algorithm-1-remix")
    assert {row.method for row in found.rows} | set(found.left_out) == set(METHODS)


def test_test_records_are_other_records(tail: str, test_file: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="91 of 91 test records equal"):
        compare_methods(tail, tail)
    for name, subjects in (("d", np.arange(34)), ("t", np.arange(30, 64))):
        write_embeddings(tmp_path / f"{name}.npz", drawn([20, 8, 4, 2], seed=ord(name), subject=subjects))
    with pytest.raises(DataError, match="4 subjects are in both"):
        compare_methods(str(tmp_path / "d.npz"), str(tmp_path / "t.npz"))
    rebalance_to_file(test_file, tmp_path / "b.npz")
    with pytest.raises(DataError, match="The test data hold generated records"):
        compare_methods(tail, str(tmp_path / "b.npz"))
