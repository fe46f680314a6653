from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError, DataError
from locum.generate import ClassGaussian, KSame, replica
from locum.metrics import nearest

Blobs = tuple[np.ndarray, np.ndarray]


def test_a_replica_is_a_fixed_table(blobs: Blobs) -> None:
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    table = replica(release, 50, random_state=0)
    assert table.manifest.kind == "data"
    assert len(table.sample()[0]) == 50
    again = replica(release, 50, random_state=0)
    np.testing.assert_array_equal(table.tensors["X"], again.tensors["X"])


def test_samples_keep_their_distance_and_their_labels(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    plain = replica(release, per_class={0: 60, 1: 40}, random_state=0)
    limit = float(np.quantile(nearest(plain.tensors["X"], X)[0], 0.3))
    table = replica(release, per_class={0: 60, 1: 40}, min_distance=limit, real=X, random_state=0)
    assert nearest(table.tensors["X"], X)[0].min() >= limit
    assert np.bincount(table.tensors["codes"][:, 0]).tolist() == [60, 40]
    # Rows that were far enough are the same draw as before; only near ones were drawn again.
    far = nearest(plain.tensors["X"], X)[0] >= limit
    assert 0 < far.sum() < len(far)
    np.testing.assert_array_equal(table.tensors["X"][far], plain.tensors["X"][far])


def test_the_claim_names_the_holes_and_no_count_leaves(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    table = replica(release, 30, min_distance=0.5, real=X, random_state=0)
    assert any("holes of radius 0.5" in item for item in table.claim.not_covered)
    assert set(table.manifest.settings) - set(release.manifest.settings) == {"min_distance"}


def test_impossible_requests(blobs: Blobs) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True)
    with pytest.raises(ConfigError, match="belong together"):
        replica(release, 5, min_distance=1.0)
    with pytest.raises(ConfigError, match="above 0"):
        replica(release, 5, min_distance=-1.0, real=X)
    with pytest.raises(DataError, match="Lower it"):
        replica(release, 5, min_distance=1e6, real=X)
    with pytest.raises(ConfigError, match="fixed table"):
        replica(KSame(k=2).fit(X, y).release(no_dp=True), min_distance=1.0, real=X)
