"""One space, one scale, one record per subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit.view import make_view, one_per_subject, principal_axes
from locum.errors import DataError
from locum.generate import ClassGaussian
from locum.metrics import feature_scale

RNG = np.random.default_rng


def test_all_three_lie_in_the_release_s_space_on_one_scale(subjects: Callable[..., Any]) -> None:
    members, others, non_members = subjects(0)
    release = ClassGaussian(space="unit", random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
    view = make_view(release, members, others, 500, RNG(0))
    for part in (view.inside, view.outside, view.samples):
        assert np.allclose(np.linalg.norm(part * view.scale, axis=1), 1, atol=1e-5)
    assert len(view.samples) == 500
    assert np.allclose(view.records.std(axis=0), 1, atol=0.05)
    swapped = make_view(release, others, members, 500, RNG(0))
    assert np.allclose(view.scale, swapped.scale, rtol=1e-5)


def test_a_copy_stays_a_copy(subjects: Callable[..., Any], planted: Any) -> None:
    members, others, _ = subjects(0)
    view = make_view(planted(members, None), members, others, 10, RNG(0))
    assert {row.tobytes() for row in view.inside} == {row.tobytes() for row in view.samples}


def test_sets_that_overlap_are_refused(subjects: Callable[..., Any], planted: Any) -> None:
    members, others, _ = subjects(0)
    release = planted(members, None)
    with pytest.raises(DataError, match="200 of 200 non-members equal a member"):
        make_view(release, members, members, 10, RNG(0))
    who = np.arange(200)
    with pytest.raises(DataError, match="200 subjects are both"):
        make_view(release, EmbeddingSet(members.X, members.y, who), EmbeddingSet(others.X, others.y, who), 10, RNG(0))


def test_a_feature_that_hardly_varies_does_not_decide() -> None:
    X = RNG(0).normal(size=(100, 4)) * [1, 1, 1, 1e-6]
    assert feature_scale(X)[3] > 0.05
    assert feature_scale(np.ones((5, 2))).tolist() == [1, 1]


def test_one_random_record_per_subject() -> None:
    data = EmbeddingSet(np.zeros((9, 1), np.float32), np.zeros(9, dtype=int), np.repeat([7, 8, 9], 3))
    drawn = {tuple(one_per_subject(data, RNG(seed))) for seed in range(60)}
    assert all(data.subject[list(rows)].tolist() == [7, 8, 9] for rows in drawn)
    assert len(drawn) > 15
    assert one_per_subject(EmbeddingSet(data.X, data.y), RNG(0)).tolist() == list(range(9))


def test_principal_axes_whiten() -> None:
    rng = RNG(0)
    X = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 20)) + 5
    mean, axes = principal_axes(X, 8, rng)
    assert axes.shape == (20, 3)
    assert np.allclose(np.cov((X - mean) @ axes, rowvar=False), np.eye(3), atol=1e-6)
    assert not principal_axes(np.ones((5, 4)), 2, rng)[1].any()
