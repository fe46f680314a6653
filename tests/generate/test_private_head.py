"""The private head: gradients against a naive twin, the schedule, the descent, and the Gaussian that carries it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.linear_model import LogisticRegression

from locum.accounting import HEAD_STEPS, plan_head
from locum.data import Reference, read_embeddings
from locum.errors import ConfigError, PrivacyError
from locum.generate import ClassGaussian
from locum.generate.private import (
    FIRST,
    Descent,
    Head,
    HeadQuery,
    SoftmaxRule,
    measured,
    place_means,
    read_head,
    recentered,
    schedule_for,
    unit_vectors,
)
from locum.generate.private.gradients import MOST_RECORDS, _softmax
from locum.heads import bayes_head
from locum.metrics import auc_macro
from locum.types import DP

D, CLASSES = 6, 3


def records(n: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    X = (rng.normal(size=(n, D)) + 2 * np.eye(CLASSES, D)[y]).astype(np.float32)
    return X, y, rng.integers(n // 3, size=n)


def rule(seed: int = 1, size: float = 3.0) -> SoftmaxRule:
    rng = np.random.default_rng(seed)
    return SoftmaxRule(size * rng.normal(size=(CLASSES, D)), np.log(np.array([0.5, 0.3, 0.2])))


def naive(
    X: np.ndarray, y: np.ndarray, subject: np.ndarray | None, center: np.ndarray, at: SoftmaxRule, clip: float
) -> np.ndarray:
    """Unit by unit in floating point, from the definition."""
    plain = Reference.plain(X.shape[1])
    white = X.astype(np.float64)
    a = white / np.linalg.norm(white, axis=1, keepdims=True) - center
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    assert plain.dim == X.shape[1]
    owners = np.arange(len(y)) if subject is None else subject
    total = np.zeros((CLASSES, X.shape[1]))
    for owner in np.unique(owners):
        own = np.zeros_like(total)
        for i in np.flatnonzero(owners == owner)[:MOST_RECORDS]:
            scores = at.weights @ a[i] + at.offsets
            p = np.exp(scores - scores.max())
            residual = p / p.sum() - np.eye(CLASSES)[y[i]]
            own += np.outer(residual, a[i]) / clip
        total += own / max(1.0, np.linalg.norm(own))
    return total


class TestGradients:
    @pytest.mark.parametrize("by_subject", [False, True])
    @pytest.mark.parametrize("clip", [0.2, 0.5, 2.0])
    def test_they_are_those_of_a_naive_twin(self, by_subject: bool, clip: float) -> None:
        X, y, who = records()
        center = np.full(D, 0.1)
        query = HeadQuery(X, y, who if by_subject else None, CLASSES, Reference.plain(D))
        query.recenter(center)
        found = query.gradient(rule(), clip).to_array().reshape(CLASSES, D)
        expected = naive(X, y, who if by_subject else None, center, rule(), clip)
        # Cut contributions of subjects may be shorter by 2**-12.
        np.testing.assert_allclose(found, expected, atol=2e-2 if by_subject else 2e-3)

    def test_class_sums_are_those_of_the_recentered_vectors(self) -> None:
        X, y, _ = records()
        query = HeadQuery(X, y, None, CLASSES, Reference.plain(D))
        center = np.full(D, 0.2)
        query.recenter(center)
        a = recentered(unit_vectors(X, Reference.plain(D))[0], center)
        expected = np.stack([a[y == c].sum(axis=0) for c in range(CLASSES)])
        np.testing.assert_allclose(query.class_sums().to_array().reshape(CLASSES, D), expected, atol=1e-3)

    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
    def test_the_softmax_is_a_softmax(self, scores: list[float]) -> None:
        column = np.array(scores)[:, None]
        expected = np.exp(column - column.max())
        np.testing.assert_allclose(_softmax(column), expected / expected.sum(), atol=1e-8)

    def test_weights_that_left_every_bound_are_one_sentence(self) -> None:
        X, y, _ = records()
        query = HeadQuery(X, y, None, CLASSES, Reference.plain(D))
        query.recenter(np.zeros(D))
        for size in (np.inf, np.nan, 1e305):
            with pytest.raises(ConfigError, match="learning rate"):
                query.gradient(SoftmaxRule(np.full((CLASSES, D), size), np.zeros(CLASSES)), 1.0)

    def test_no_records_give_zero(self) -> None:
        empty = np.zeros((0, D), np.float32), np.zeros(0, np.int64)
        for subject in (None, np.zeros(0, np.int64)):
            query = HeadQuery(*empty, subject, CLASSES, Reference.plain(D))
            query.recenter(np.zeros(D))
            assert not query.gradient(rule(), 0.5).integers.any()
            assert not query.first(FIRST).integers.any()


class TestSchedule:
    @given(st.floats(1, 1e9), st.integers(2, 500), st.integers(1, 4096), st.floats(0.07, 1e3))
    def test_it_never_asks_for_more_than_is_planned(self, count: float, classes: int, d: int, noise: float) -> None:
        found = schedule_for(count, classes, d, noise)
        assert 0 <= found.steps <= HEAD_STEPS
        assert 0.12 + found.start + found.steps * found.share <= 1 + 1e-9
        assert plan_head(DP(1.0, 1e-6)).sums == 2 + HEAD_STEPS

    def test_few_records_make_no_step_and_many_make_many(self) -> None:
        steps = [schedule_for(n, 2, 1280, 4.2).steps for n in (100, 600, 5_000, 100_000)]
        assert steps[0] == 0
        assert steps == sorted(steps)
        assert steps[-1] == HEAD_STEPS


def learned(X: np.ndarray, y: np.ndarray, noise: float, classes: int, seed: int = 0) -> Head:
    """A head by the public and the private side together, with normal noise."""
    d, rng = X.shape[1], np.random.default_rng(seed)
    query, descent = HeadQuery(X, y, None, classes, Reference.plain(d)), Descent(noise, classes, d)
    for number in range(100):
        if descent.done:
            break
        if number == 0:
            sums = query.first(FIRST)
        elif number == 1:
            query.recenter(descent.center)
            sums = query.class_sums()
        else:
            sums = query.gradient(descent.rule, descent.clip)
        exact = sums.to_array()
        descent.take(exact + noise / np.sqrt(descent.share) * rng.normal(size=exact.shape))
    return descent.head


class TestHead:
    def test_with_many_records_it_is_as_good_as_logistic_regression(self) -> None:
        """Classes that differ along a direction with little variance: class means miss it, the head finds it."""
        rng = np.random.default_rng(0)
        y = np.arange(20_000) // 2 % 2
        X = rng.normal(size=(len(y), 12)) * np.linspace(3.0, 0.3, 12)
        X[:, -1] += 0.5 * (2 * y - 1)
        X[:, 0] += 0.5 * (2 * y - 1)
        X = X.astype(np.float32)
        head = learned(X[::2], y[::2], 4.2, 2)
        test = recentered(unit_vectors(X[1::2], Reference.plain(12))[0], head.center)
        scores = test @ (head.weights[1] - head.weights[0])
        fitted = LogisticRegression().fit(X[::2], y[::2]).decision_function(X[1::2])
        y = y[1::2]
        mine, best = (auc_macro(y, np.stack([-s, s], 1), np.arange(2)) for s in (scores, fitted))
        by_means = test @ (head.means[1] - head.means[0])
        assert mine > best - 0.03
        assert mine > auc_macro(y, np.stack([-by_means, by_means], 1), np.arange(2)) + 0.05

    def test_a_center_that_is_noise_is_not_used(self) -> None:
        descent = Descent(1.0, 2, 50)
        rng = np.random.default_rng(0)
        descent.take(rng.normal(size=FIRST.size(2, 50)) / np.sqrt(0.12) + np.r_[np.zeros(50), 30.0, 30.0, 10.0])
        assert np.linalg.norm(descent.center) < 0.1


class TestPlacing:
    def made(self, prior: tuple[float, ...] = (0.2, 0.8), steps: int = 8, d: int = 5, classes: int = 2) -> Head:
        rng = np.random.default_rng(3)
        counts = np.array(prior) * 1000
        sums = np.r_[np.zeros(d), counts * np.sqrt(FIRST.counts), 300.0 * np.sqrt(FIRST.lengths)]
        first = measured(sums, 1e-6, classes, d, FIRST)
        weights = rng.normal(size=(classes, d)) * 4
        means = rng.normal(size=(classes, d)) * 0.2
        schedule = replace(schedule_for(1000, classes, d, 1.0), steps=steps)
        return Head(0.2 * rng.normal(size=d), weights - weights.mean(axis=0), first, means, schedule)

    @pytest.mark.parametrize("separation", [0.5, 4.0, 20.0])
    @pytest.mark.parametrize("prior", [(0.2, 0.8), (0.1, 0.3, 0.6), (0.25, 0.25, 0.25, 0.25)])
    def test_the_bayes_rule_is_the_head(self, separation: float, prior: tuple[float, ...]) -> None:
        """Its log odds at any vector are `sharpness` times those of the head, borders and all."""
        classes, d = len(prior), 5
        reference = Reference(
            "own", "drawn", np.arange(5.0), np.array([[0.6, 0.8, 0, 0, 0]]), np.array([9.0]), rest=0.5
        )
        head = self.made(prior, d=d, classes=classes)
        found, sharpness = place_means(head, reference, separation)
        covariance = found.factor.T.astype(float) @ found.factor + np.diag(found.scale.astype(float) ** 2)
        x = reference.color(np.random.default_rng(0).normal(size=(20, d)) * head.first.length)
        weights = np.linalg.solve(covariance, found.means.T)
        bayes = x @ weights - 0.5 * np.einsum("ij,ji->i", found.means, weights) + np.log(found.shares)
        at = (reference.whiten(x) / head.first.length - head.center) / head.reach
        mine = at @ head.weights.T + np.log(head.prior)
        bayes, mine = (s - s.mean(axis=1, keepdims=True) for s in (bayes, mine))
        np.testing.assert_allclose(bayes, sharpness * mine, rtol=1e-3, atol=1e-3 * sharpness)
        far = [np.sqrt(d_ @ np.linalg.solve(covariance, d_)) for d_ in found.means - found.means.mean(axis=0)]
        assert np.sqrt(np.mean(np.square(far))) == pytest.approx(separation, rel=1e-3)

    def test_without_steps_the_class_means_are_the_measured_ones(self) -> None:
        head, plain = self.made(steps=0), Reference.plain(5)
        found, sharpness = place_means(head, plain, 4.0)
        assert sharpness == 1.0
        expected = head.first.length * (head.center + head.reach * head.means)
        np.testing.assert_allclose(found.means, expected)


class TestGenerator:
    def test_a_transcript_gives_the_same_head_again(self) -> None:
        X, y, _ = records(600)
        made = ClassGaussian(privacy=DP(3.0, 1e-6), classes=range(CLASSES), insecure_seed=0).fit(X, y).release()
        spec = made.manifest.decoder.head
        head = read_head(spec, made.tensors["transcript"], CLASSES, D)
        assert head.schedule.steps == spec.steps > 0
        found, sharpness = place_means(head, Reference.plain(D), spec.separation)
        assert sharpness == pytest.approx(spec.sharpness)
        np.testing.assert_allclose(found.means, made.tensors["means"], rtol=1e-5, atol=1e-5)

    def test_its_own_rule_and_a_classifier_on_samples_find_the_classes(self) -> None:
        X, y, _ = records(2000)
        made = ClassGaussian(privacy=DP(3.0, 1e-6), classes=range(CLASSES), insecure_seed=0).fit(X, y).release()
        test, truth, _ = records(1000, seed=9)
        real = LogisticRegression().fit(X, y).score(test, truth)
        on_samples = LogisticRegression(max_iter=500).fit(*made.sample(5000, random_state=0)).score(test, truth)
        own = float((bayes_head(made).predict(test) == truth).mean())
        assert min(own, on_samples) > real - 0.05

    def test_the_balanced_rule_of_a_private_head_takes_the_whole_prior_off(self) -> None:
        X, y, _ = records(3000)
        kept = (y > 0) | (np.arange(len(y)) % 10 == 0)
        made = ClassGaussian(privacy=DP(3.0, 1e-6), classes=range(CLASSES), insecure_seed=0).fit(X[kept], y[kept])
        release = made.release()
        assert release.manifest.decoder.head.sharpness > 1.5
        plain, balanced = bayes_head(release), bayes_head(release, balanced=True)
        prior = np.array([weight for _, weight in release.manifest.joint])
        gap = balanced.decision_function(X) - plain.decision_function(X) + np.log(prior)
        np.testing.assert_allclose(gap, gap[:, :1] + np.zeros(CLASSES), atol=1e-4)
        test, truth, _ = records(1000, seed=9)
        rare = truth == 0
        found, before = ((head.predict(test[rare]) == 0).mean() for head in (balanced, plain))
        assert found > before

    def test_wrong_settings_are_one_sentence_before_anything_is_paid(self, tmp_path: Path) -> None:
        X, y, _ = records()
        for setting, words in (
            ({"mechanism": "median"}, "head, means, covariance"),
            ({"separation": 0}, "separation"),
            ({"space": "unit"}, "raw"),
        ):
            model = ClassGaussian(
                privacy=DP(1.0, 1e-6), classes=range(CLASSES), ledger=tmp_path / "l.sqlite", **setting
            )
            with pytest.raises(ConfigError, match=words):
                model.fit(X, y)
        assert not (tmp_path / "l.sqlite").exists()

    @pytest.mark.parametrize("extra", [0.5, -1, "x", 10**25])
    def test_one_subject_more_changes_no_other_subject(self, extra: object) -> None:
        """Ids of mixed types in one array would become floating-point numbers, in which long ones are equal."""
        X, y, _ = records(101)
        ids: list[object] = [10**17 + i for i in range(100)]
        model = ClassGaussian(privacy=DP(1.0, 1e-6, unit="subject"), classes=range(CLASSES), insecure_seed=0)
        units = []
        for n, who in ((100, ids), (101, [*ids, extra])):
            checked = model._check(X[:n], y[:n], who, {})
            units.append(len(np.unique(model._subjects(checked.subject))))
        assert units == [100, 101]

    def test_floating_point_subjects_are_refused(self) -> None:
        X, y, _ = records(20)
        model = ClassGaussian(privacy=DP(1.0, 1e-6, unit="subject"), classes=range(CLASSES), insecure_seed=0)
        with pytest.raises(PrivacyError, match="floating-point"):
            model.fit(X, y, np.arange(20) / 2)


def test_real_patients(real_data: Path) -> None:
    """On real X-rays the head beats class means by far, per image and per patient, at the same epsilon."""
    file = real_data / "nih_cxr14_efflite0.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in LOCUM_DATA")
    train, held = read_embeddings(file, "train"), read_embeddings(file, "val")
    for unit in ("record", "subject"):
        found = {}
        for mechanism in ("head", "means"):
            model = ClassGaussian(
                privacy=DP(1.0, 1e-5, unit=unit),  # type: ignore[arg-type]
                classes=[0, 1],
                reference="efflite0",
                mechanism=mechanism,
                insecure_seed=0,
            ).fit(train.X, train.y, train.subject)
            proba = bayes_head(model.release()).predict_proba(held.X)
            found[mechanism] = auc_macro(held.y, proba, np.arange(2))
        assert found["head"] > found["means"] + 0.02, found
