"""Baselines: FedAvg and FedProx against hand-written steps, what DP-FedAvg spends, and FedLambda's interpolation."""

from __future__ import annotations

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import epsilon_of
from locum.data import Reference, load_sample, partition_dirichlet
from locum.errors import ConfigError, DataError
from locum.federated.baselines import fed_lambda, federated_head, plan_head, scores, steps_of
from locum.federated.personal import local_head, softmax
from locum.types import DP

RATE = 1e-2


def site(n: int, seed: int, flip: bool = False) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = (2.0 * np.eye(3, 4)[(y + flip) % 3] + rng.normal(size=(n, 4))).astype(np.float32)
    return EmbeddingSet.from_arrays(X, np.array(["ant", "bee", "cow"])[y]).with_classes(("ant", "bee", "cow"))


# No class has exactly a third of a site's records: a gradient of 0 plus rounding would be a full step of Adam.
SITES = [site(31, 0), site(50, 1), site(20, 2)]
PLAIN = Reference.plain(4)


def one_adam_step(
    weight: np.ndarray, bias: np.ndarray, data: EmbeddingSet, mu: float = 0.0
) -> tuple[np.ndarray, ...]:
    """The first step of Adam: each weight moves by the rate against the sign of its gradient, up to 1e-8.

    Pulling toward the weights that training starts from adds nothing to the first gradient.
    """
    residual = softmax(data.X, weight, bias) - np.eye(3)[data.y]
    gradients = residual.T @ data.X.astype(np.float64) / len(data), residual.mean(axis=0)
    return tuple(p - RATE * g / (np.abs(g) + 1e-8) for p, g in zip((weight, bias), gradients, strict=True))


def test_one_round_of_fedavg_is_the_weighted_average_of_full_steps() -> None:
    how = {"rounds": 1, "local_epochs": 1, "batch": 1000, "learning_rate": RATE, "whiten": False}
    found = federated_head(SITES, 3, PLAIN, **how)
    start = np.zeros((3, 4)), np.zeros(3)
    steps = [one_adam_step(*start, data) for data in SITES]
    for got, parts in zip(found, zip(*steps, strict=True), strict=True):
        twin = sum(len(d) * p for d, p in zip(SITES, parts, strict=True)) / sum(map(len, SITES))
        np.testing.assert_allclose(got, twin, atol=1e-6)
    # The second round starts from the average, with a new optimizer.
    again = federated_head(SITES, 3, PLAIN, **{**how, "rounds": 2})
    steps = [one_adam_step(*found, data) for data in SITES]
    for got, parts in zip(again, zip(*steps, strict=True), strict=True):
        twin = sum(len(d) * p for d, p in zip(SITES, parts, strict=True)) / sum(map(len, SITES))
        np.testing.assert_allclose(got, twin, atol=1e-5)


def test_fedprox_without_a_pull_is_fedavg_and_a_strong_pull_keeps_sites_near() -> None:
    how = {"rounds": 2, "local_epochs": 20, "batch": 1000, "learning_rate": RATE, "whiten": False}
    plain, none = (federated_head(SITES, 3, PLAIN, **how, **more) for more in ({}, {"proximal": 0.0}))
    assert all(np.array_equal(a, b) for a, b in zip(plain, none, strict=True))
    lengths = [
        float(np.linalg.norm(federated_head(SITES, 3, PLAIN, **how, proximal=mu)[0])) for mu in (0.0, 1.0, 100.0)
    ]
    assert lengths[0] > lengths[1] > lengths[2]
    # At 100 the pull balances the loss within 1 percent of a unit; Adam steps around that by about its rate.
    assert lengths[2] < 0.2 * lengths[0]


def test_fedprox_pulls_toward_the_common_head() -> None:
    """Two steps by hand: the second has the distance from the start in its gradient."""
    mu, data = 3.0, SITES[0]
    found = federated_head(
        [data], 3, PLAIN, rounds=1, local_epochs=2, batch=1000, learning_rate=RATE, proximal=mu, whiten=False
    )
    values = [np.zeros((3, 4)), np.zeros(3)]
    first = [np.zeros_like(v) for v in values]
    second = [np.zeros_like(v) for v in values]
    for step in (1, 2):
        residual = softmax(data.X, *values) - np.eye(3)[data.y]
        gradients = residual.T @ data.X.astype(np.float64) / len(data), residual.mean(axis=0)
        for k, plain in enumerate(gradients):
            g = plain + mu * values[k]
            first[k] = 0.9 * first[k] + 0.1 * g
            second[k] = 0.999 * second[k] + 0.001 * g**2
            mean, square = first[k] / (1 - 0.9**step), second[k] / (1 - 0.999**step)
            values[k] = values[k] - RATE * mean / (np.sqrt(square) + 1e-8)
    for got, twin in zip(found, values, strict=True):
        np.testing.assert_allclose(got, twin, atol=1e-5)


def test_dp_fedavg_spends_what_its_plan_says() -> None:
    budget, rounds = DP(1.0, 1e-4, n_public=100), 4
    plan = plan_head(budget, rounds, local_epochs=2, batch=25)
    # Two passes over 100 records in batches of 25 are 8 steps per round.
    assert plan.steps == 4 * 8
    assert 0.95 < epsilon_of(plan.events, budget.delta) <= budget.epsilon
    assert sum(event.steps for event in plan.events) == plan.steps
    # Every step is in one round, and none is used twice.
    used = [
        step for r in range(rounds) for step in range(steps_of(plan, r, rounds).start, steps_of(plan, r, rounds).stop)
    ]
    assert used == list(range(plan.steps))


def test_dp_fedavg_learns_with_noise_and_weighs_sites_equally() -> None:
    budget, alone = DP(3.0, 1e-4, n_public=100), [site(100, 5)]
    how = {"rounds": 2, "local_epochs": 5, "batch": 50, "learning_rate": RATE, "whiten": False, "privacy": budget}
    one, same, other = (federated_head(alone, 3, PLAIN, **how, seed=s) for s in (0, 0, 1))
    assert np.array_equal(one[0], same[0])
    assert not np.array_equal(one[0], other[0])
    test = site(500, 9)
    assert (scores(one, test.X, PLAIN, whiten=False).argmax(axis=1) == test.y).mean() > 0.6
    # A head weighted by 1,000 zero vectors would be a tenth as long: the number of records is private.
    idle = EmbeddingSet.from_arrays(np.zeros((1000, 4), np.float32), np.array(["ant"] * 1000))
    idle = idle.with_classes(("ant", "bee", "cow"))
    together = federated_head([*alone, idle], 3, PLAIN, **{**how, "rounds": 1})
    assert np.linalg.norm(together[0]) > 0.3 * np.linalg.norm(
        federated_head(alone, 3, PLAIN, **{**how, "rounds": 1})[0]
    )
    with pytest.raises(ConfigError, match="FedProx is not available"):
        federated_head(alone, 3, PLAIN, **how, proximal=0.1)
    with pytest.raises(DataError, match="at least one site"):
        federated_head([], 3, PLAIN)


@pytest.mark.parametrize("held", [True, False], ids=["validation", "folds"])
def test_fedlambda_mixes_a_local_head_and_the_federated_one(held: bool) -> None:
    shared = federated_head(SITES, 3, PLAIN, rounds=20, learning_rate=RATE, whiten=False)
    good, test = site(8, 7), site(300, 8)
    model = fed_lambda(good, shared, PLAIN, validation=site(60, 6) if held else None, whiten=False)
    ours, theirs = softmax(test.X, *local_head(good.X, good.y, 3, 0)), scores(shared, test.X, PLAIN, whiten=False)
    np.testing.assert_allclose(model.predict_proba(test.X), model.lam * ours + (1 - model.lam) * theirs)
    # Its labels mean something else: the federated head misleads it, and lambda says so.
    strange = fed_lambda(site(200, 7, flip=True), shared, PLAIN, whiten=False)
    assert strange.lam > 0.8 > model.lam


def test_the_papers_rule_on_validation_records() -> None:
    shared = federated_head(SITES, 3, PLAIN, rounds=5, learning_rate=RATE, whiten=False)
    mine, held = site(20, 7), site(30, 6)
    model = fed_lambda(mine, shared, PLAIN, validation=held, whiten=False)
    ours, theirs = softmax(held.X, *model.local), scores(shared, held.X, PLAIN, whiten=False)
    right = [((k * ours + (10 - k) * theirs).argmax(axis=1) == held.y).mean() for k in range(11)]
    assert model.lam == pytest.approx(np.argmax(right) / 10)


def test_on_digits_training_together_beats_training_alone() -> None:
    data = load_sample("digits")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data))
    test, reference = data.take(order[:500]), Reference.plain(64)
    parts = list(partition_dirichlet(data.take(order[500:]), 5, 0.3, rng, min_records=20).values())
    shared = federated_head(parts, 10, reference, rounds=15, learning_rate=RATE, whiten=False)
    together = (scores(shared, test.X, reference, whiten=False).argmax(axis=1) == test.y).mean()
    alone = [(softmax(test.X, *local_head(p.X, p.y, 10, 0)).argmax(axis=1) == test.y).mean() for p in parts]
    assert together > 0.85
    assert together > max(alone)
