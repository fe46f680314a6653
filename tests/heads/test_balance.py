"""How classes weigh: counts for a loss, class weights, and prior corrections done by hand."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from locum.errors import ConfigError
from locum.heads.balance import ClassBalance, class_weights
from locum.heads.losses import LDAM, BalancedSoftmax, ClassBalanced, CrossEntropy, Focal
from locum.heads.objective import make_plan

RECORDS = np.array([90.0, 10.0])


def test_a_loss_gets_the_counts_that_fit_it() -> None:
    balanced = ClassBalance(RECORDS, "class_balanced")
    assert balanced.loss("balanced_softmax").counts.tolist() == [50, 50]
    assert balanced.loss("ldam").counts.tolist() == [90, 10], (
        "margins are about records, however often they are drawn"
    )
    assert balanced.loss("balanced_softmax", "records").counts.tolist() == [90, 10]
    assert balanced.loss("ldam", "drawn").counts.tolist() == [50, 50]
    assert balanced.loss("balanced_softmax", [1, 3]).counts.tolist() == [1, 3]
    assert ClassBalance(RECORDS).loss("balanced_softmax").counts.tolist() == [90, 10]
    made = balanced.loss(partial(Focal, gamma=1.0))
    assert (type(made), made.gamma) == (Focal, 1.0)
    assert ClassBalance(RECORDS, "class_balanced").loss(partial(LDAM, s=1.0)).counts.tolist() == [90, 10]


def log(*shares: float) -> list[float]:
    return [math.log(s) for s in shares]


@pytest.mark.parametrize(
    ("balance", "loss", "implied"),
    [
        (ClassBalance(RECORDS), CrossEntropy(RECORDS), (0.9, 0.1)),
        (ClassBalance(RECORDS, "class_balanced"), CrossEntropy(RECORDS), (0.5, 0.5)),
        (ClassBalance(RECORDS, "progressive"), CrossEntropy(RECORDS), (0.5, 0.5)),
        (ClassBalance(RECORDS, "square_root"), CrossEntropy(RECORDS), (0.75, 0.25)),
        (ClassBalance(RECORDS, weight=np.array([1.0, 9.0])), CrossEntropy(RECORDS), (0.5, 0.5)),
        (ClassBalance(RECORDS), BalancedSoftmax(RECORDS), (0.5, 0.5)),
        # Corrected twice: the rare class is taken to be nine times as frequent.
        (ClassBalance(RECORDS, "class_balanced"), BalancedSoftmax(RECORDS), (0.1, 0.9)),
        (ClassBalance(np.array([2.0, 1.0])), ClassBalanced([2, 1], beta=0.5), (4 / 7, 3 / 7)),
    ],
)
def test_the_prior_that_training_implies(balance: ClassBalance, loss: object, implied: tuple[float, float]) -> None:
    uniform = balance.shift(loss, "uniform")
    assert uniform - np.mean(uniform) == pytest.approx(np.mean(log(*implied)) - np.array(log(*implied)))
    assert balance.shift(loss, None) is None
    # Probabilities as trained, times the shift, have the wanted prior.
    for prior, wanted in (("train", balance.records / balance.records.sum()), ([3, 1], np.array([0.75, 0.25]))):
        assert np.array(implied) * np.exp(balance.shift(loss, prior)) == pytest.approx(wanted)
    assert balance.shift(loss, "uniform", tau=0.5) == pytest.approx(uniform / 2)


def test_class_weights_are_scaled_to_a_mean_of_one_over_the_draws() -> None:
    assert ClassBalance(RECORDS).scaled_weight is None
    even = class_weights("balanced", np.array([0, 1]), RECORDS)
    assert even == pytest.approx([100 / 180, 5])
    assert ClassBalance(RECORDS, weight=even).scaled_weight == pytest.approx(even)
    assert ClassBalance(RECORDS, "class_balanced", np.array([30.0, 10.0])).scaled_weight == pytest.approx([1.5, 0.5])


def test_validation_rows_count_as_the_draws_do() -> None:
    assert ClassBalance(RECORDS).draw_weight is None
    assert ClassBalance(RECORDS, "class_balanced").draw_weight == pytest.approx([5 / 9, 5])


def test_a_mapping_names_labels() -> None:
    weights = class_weights({"bee": 4, np.str_("ant"): 2}, np.array(["ant", "bee", "cat"]), np.ones(3))
    assert weights.tolist() == [2, 4, 1]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"loss": "hinge"}, "`loss` must be one of .*'hinge'"),
        ({"loss": 3}, "`loss` must be a name"),
        ({"counts": "real"}, "`counts` must be None"),
        ({"counts": [1, 2, 3]}, "`counts` must hold one number for each of 2"),
        ({"prior": "balanced"}, "`prior` must be None"),
        ({"prior": [0.5, 0.0]}, "`prior` must be above 0"),
        ({"prior": "uniform", "tau": math.inf}, "`tau` must be"),
        ({"prior": "uniform", "tau": "1"}, "`tau` must be"),
        ({"remix": "yes"}, "`remix` must be"),
    ],
)
def test_wrong_settings_name_themselves(wrong: dict[str, object], match: str) -> None:
    settings = {"loss": "cross_entropy", "counts": None, "remix": False, "prior": None, "tau": 1.0, **wrong}
    with pytest.raises(ConfigError, match=match):
        make_plan(ClassBalance(RECORDS), **settings)


@pytest.mark.parametrize("wrong", ["even", {"dog": 1.0}, {"ant": 0}, {"ant": math.inf}, 3])
def test_wrong_class_weights(wrong: object) -> None:
    with pytest.raises(ConfigError, match="`class_weight`"):
        class_weights(wrong, np.array(["ant", "bee"]), RECORDS)
