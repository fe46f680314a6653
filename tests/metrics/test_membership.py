"""A check of membership must catch a planted leak and stay silent on fresh data."""

from __future__ import annotations

import numpy as np
import pytest

from locum.errors import DataError
from locum.metrics import membership_auc, nearest


def attack(release: np.ndarray, members: np.ndarray, others: np.ndarray):
    return membership_auc(nearest(members, release)[0], nearest(others, release)[0])


def test_an_identity_copy_is_caught(rng) -> None:
    members, others = rng.standard_normal((200, 16)), rng.standard_normal((200, 16))
    e = attack(members, members, others)
    assert e.value == 1
    assert e.low > 0.97


def test_a_copy_with_little_noise_is_caught(rng) -> None:
    members, others = rng.standard_normal((200, 16)), rng.standard_normal((200, 16))
    assert attack(members + 0.5 * rng.standard_normal((200, 16)), members, others).low > 0.8


def test_a_copy_of_every_fifth_record_is_caught(rng) -> None:
    members, others = rng.standard_normal((500, 16)), rng.standard_normal((500, 16))
    release = rng.standard_normal((500, 16))
    release[::5] = members[::5]
    e = attack(release, members, others)
    assert e.low > 0.5
    assert e.value == pytest.approx(0.2 + 0.8 * 0.5, abs=0.06)


def test_fresh_data_covers_chance_in_about_95_percent_of_seeds() -> None:
    """Distances to one release share its records, yet members and others are on a par."""
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        release, members, others = (rng.standard_normal((80, 4)) for _ in range(3))
        e = attack(release, members, others)
        hits += e.low <= 0.5 <= e.high
    # 190 expected, deviation 3.
    assert 180 <= hits <= 199


def test_needs_two_records_a_side() -> None:
    with pytest.raises(DataError, match="member_distances"):
        membership_auc([0.1], [0.2, 0.3])


def test_real_embeddings(breast) -> None:
    train, fresh = breast["train_x"].astype(np.float32), breast["test_x"].astype(np.float32)
    members, release = train[:150], train[273:]
    assert attack(members, members, fresh).low > 0.95
    silent = attack(release, members, fresh)
    assert silent.low < 0.55
    assert silent.high > 0.45
