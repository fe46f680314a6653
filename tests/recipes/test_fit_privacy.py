"""What a private fit settles before it pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Ledger
from locum.data import write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import CGANGenerator, ClassGaussian, CVAEGenerator
from locum.generate.private.guarantee import LOOKED, NOT_COVERED
from locum.recipes import fit_release, set_budget, show_ledger, verify_release
from locum.recipes.fit_privacy import LEAST_UNITS, MOST_CLASSES, names_read, public_classes
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP, SetBatches


def labeled(counts: list[int], subject: Any = None) -> EmbeddingSet:
    y = np.repeat(np.arange(len(counts)), counts)
    X = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    return EmbeddingSet.from_arrays(X, [f"name-{code}" for code in y], subject=subject)


def test_a_folder_per_patient_never_becomes_a_set_of_classes() -> None:
    with pytest.raises(PrivacyError, match=f"name {MOST_CLASSES + 1} classes") as many:
        public_classes(SetBatches(labeled([LEAST_UNITS] * (MOST_CLASSES + 1))), "record", None)
    with pytest.raises(PrivacyError, match="2 of the 3 classes in the data have fewer than 20 records") as few:
        public_classes(SetBatches(labeled([LEAST_UNITS, LEAST_UNITS - 1, 1])), "record", None)
    # They may be patients' names.
    assert "name-" not in f"{many.value} {few.value}"
    assert len(public_classes(SetBatches(labeled([LEAST_UNITS] * MOST_CLASSES)), "record", None)) == MOST_CLASSES


def test_a_class_is_counted_in_subjects_if_those_are_the_unit() -> None:
    """Forty records of nineteen subjects are too few; forty of twenty are enough."""
    for subjects, enough in ((LEAST_UNITS - 1, False), (LEAST_UNITS, True)):
        data = labeled([40, 40], subject=np.arange(80) % subjects)
        assert len(public_classes(SetBatches(data), "record", None)) == 2
        if enough:
            assert len(public_classes(SetBatches(data), "subject", None)) == 2
        else:
            with pytest.raises(PrivacyError, match="fewer than 20 subjects"):
                public_classes(SetBatches(data), "subject", None)


def test_the_holder_is_shown_names_and_decides(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "d.npz", labeled([60, 60]))
    asked: list[Any] = []

    def answer(yes: bool) -> Any:
        return lambda names: asked.append(names) or yes

    with pytest.raises(PrivacyError, match="nothing was spent"):
        fit_release(str(tmp_path / "d.npz"), tmp_path / "r", confirm_classes=answer(False))
    assert not (tmp_path / ".locum" / "ledger.sqlite").exists()
    done = fit_release(str(tmp_path / "d.npz"), tmp_path / "r", confirm_classes=answer(True))
    assert asked == [("name-0", "name-1")] * 2
    assert done.claim.assumptions == (names_read(classes=True),)
    # Nobody is asked about names that were declared.
    (tmp_path / "own").mkdir()
    write_embeddings(tmp_path / "own" / "d.npz", labeled([60, 60]))
    names, out = ("name-0", "name-1"), tmp_path / "own" / "r"
    fit_release(str(tmp_path / "own" / "d.npz"), out, classes=names, confirm_classes=lambda _: pytest.fail("asked"))


def test_python_refuses_what_contradicts_itself(tmp_path: Path) -> None:
    """All of it before data are read: there are none here."""
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"no_dp": True, "privacy": DP(1.0, 1e-6)}, ConfigError, "`no_dp` and `privacy`"),
        ({"no_dp": True, "classes": ["a"]}, ConfigError, "belong to a guarantee"),
        ({"no_dp": True, "classes_public": True}, ConfigError, "belong to a guarantee"),
        ({"classes": ["a"], "classes_public": True}, ConfigError, "leave out"),
        ({}, PrivacyError, "--classes-public"),
        ({"classes": ["a"], "generator": "ksame"}, PrivacyError, "no_dp=True"),
        ({"classes": ["a"], "generator": "cvae"}, PrivacyError, "n_public"),
    ]
    for options, error, told in cases:
        with pytest.raises(error, match=told):
            fit_release(str(tmp_path / "nowhere.npz"), tmp_path / "r", **options)


def test_one_record_is_one_sentence(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "d.npz", labeled([1]))
    with pytest.raises(DataError, match="two records or more"):
        fit_release(str(tmp_path / "d.npz"), tmp_path / "r", classes=["name-0"])
    assert not (tmp_path / ".locum" / "ledger.sqlite").exists()


def test_the_default_budget_is_written_once(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "d.npz", labeled([60, 60], subject=np.arange(120)))
    done = fit_release(str(tmp_path / "d.npz"), tmp_path / "r", classes_public=True)
    assert done.claim.dp is not None
    assert (done.claim.dp.delta, done.claim.unit) == (DEFAULT_DELTA, "subject")
    assert done.claim.dp.epsilon <= DEFAULT_EPSILON
    assert done.limit is not None
    assert done.limit.open_assumptions == ()
    assert done.left is not None
    assert done.left[0] == pytest.approx(DEFAULT_EPSILON - done.claim.dp.epsilon)


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_more_units_than_delta_allows_are_refused_before_anything_is_paid(tmp_path: Path, unit: Any) -> None:
    """At a delta of 1e-3 there may be 100 units: whole numbers, so that both sides of the border are seen."""
    rng, ledger = np.random.default_rng(0), tmp_path / "ledger.sqlite"
    model = ClassGaussian(privacy=DP(1.0, 1e-3, unit), classes=[0, 1], ledger=ledger)
    n = 101 if unit == "record" else 202
    X, y, subject = rng.normal(size=(n, 3)), np.arange(n) % 2, np.arange(n) % 101
    with pytest.raises(PrivacyError, match=f"so many {unit}s.* declare a delta of 0.0001 or less"):
        model.fit(X, y, subject)
    assert not ledger.exists()
    keep = subject < 100
    assert model.fit(X[keep], y[keep], subject[keep]).claim_.kind == "dp"
    assert any("1 / (10 delta) units" in line for line in NOT_COVERED)
    assert set(NOT_COVERED) <= set(model.claim_.not_covered)


def test_only_networks_need_a_public_size() -> None:
    budget = DP(1.0, 1e-6)
    assert ClassGaussian(privacy=budget, classes=[0, 1]).plan().noise_multiplier > 1
    for network in (CVAEGenerator, CGANGenerator):
        with pytest.raises(PrivacyError, match="n_public"):
            network(privacy=budget, classes=[0, 1]).plan()


def test_a_public_size_is_released_only_if_there_is_one() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), np.arange(400) % 2
    for size in (None, 10_000):
        budget = DP(8.0, 1e-6, n_public=size)
        release = ClassGaussian(privacy=budget, classes=[0, 1], insecure_seed=0).fit(X, y).release()
        assert release.manifest.settings.get("n_public") == size


def test_a_claim_says_that_somebody_looked_before(tmp_path: Path) -> None:
    """Also if the look was noted for another holding: the same people can be in both."""
    data, place = tmp_path / "d.npz", tmp_path / ".locum" / "ledger.sqlite"
    write_embeddings(data, labeled([60, 60]))
    before = fit_release(str(data), tmp_path / "before", classes_public=True)
    assert LOOKED not in before.claim.not_covered
    Ledger(place).note_look("elsewhere", "preview of budgets")
    set_budget(place, "default", epsilon=2.0, delta=1e-5, confirm=lambda meaning: None)
    after = fit_release(str(data), tmp_path / "after", classes_public=True)
    assert after.claim.kind == "dp"
    assert after.claim.not_covered == (*before.claim.not_covered, LOOKED)
    for release in ("before", "after"):
        verify_release(tmp_path / release, ledger=place)
    shown = show_ledger(place)
    assert (shown["looks"], [(h["name"], h["looks"]) for h in shown["holdings"]]) == (1, [("default", 0)])


@pytest.mark.parametrize("kind", [ClassGaussian, CVAEGenerator, CGANGenerator])
def test_so_does_every_private_generator_in_python(kind: Any, tmp_path: Path) -> None:
    data, place = labeled([60, 60]), tmp_path / "ledger.sqlite"
    quick = {} if kind is ClassGaussian else {"max_epochs": 1}
    Ledger(place).note_look("default", "preview of budgets")
    model = kind(privacy=DP(1.0, 1e-4, n_public=120), classes=[0, 1], ledger=place, **quick).fit(data.X, data.y)
    assert model.claim_.kind == "dp"
    assert LOOKED in model.claim_.not_covered


def test_a_ledger_that_only_knows_looks_is_not_the_one_that_paid(tmp_path: Path) -> None:
    """A preview makes a new ledger where the old one was lost: the release beside it still shows that."""
    data, place = tmp_path / "d.npz", tmp_path / ".locum" / "ledger.sqlite"
    write_embeddings(data, labeled([60, 60]))
    fit_release(str(data), tmp_path / "r", classes_public=True)
    place.unlink()
    Ledger(place).note_look("default", "preview of budgets")
    with pytest.raises(PrivacyError, match="or it has no budget"):
        fit_release(str(data), tmp_path / "again", classes_public=True)
