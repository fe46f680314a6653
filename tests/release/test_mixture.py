"""A mixture of decoders, and noisy sums that travel with a Gaussian: drawn by their weights and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import locum
from locum.errors import ConfigError, FormatError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.release import (
    EmbeddingEntry,
    GaussianSpec,
    MixturePart,
    MixtureSpec,
    Release,
    StatisticsSpec,
    build_release,
    verify,
)
from locum.types import DP, PrivacyClaim

WEIGHTS = np.array([[0.5, 0.9, 0.0], [0.5, 0.1, 1.0]], dtype=np.float32)
CLAIM = PrivacyClaim("none", ("all of it",))


def cloud(at: float) -> dict[str, np.ndarray]:
    """Class c lies at `at` + c in every feature, very narrow."""
    means = at + np.repeat(np.arange(3.0)[:, None], 4, axis=1)
    return {"means": means, "factor": np.zeros((0, 4)), "scale": np.full(4, 0.01)}


def mixture(weights: np.ndarray = WEIGHTS, **changes: Any) -> Release:
    """Part 0 at 0, part 1 at 100, which knows the classes in reverse."""
    parts = (MixturePart(decoder=GaussianSpec()), MixturePart(decoder=GaussianSpec(), order=(2, 1, 0)))
    numbers = [cloud(0.0), cloud(100.0)]
    tensors = {f"part{i}.{name}": value for i, own in enumerate(numbers) for name, value in own.items()}
    given: dict[str, Any] = {
        "generator": "test", "settings": {}, "embedding": EmbeddingEntry(backbone="b", dim=4),
        "classes": [0, 1, 2], "class_names": ["ant", "bee", "cat"], "joint": (((0,), 0.5), ((1,), 0.3), ((2,), 0.2)),
        "space": "raw", "decoder": MixtureSpec(parts=parts), "tensors": {**tensors, "weights": weights},
        "claim": CLAIM,
    }  # fmt: skip
    return build_release(**{**given, **changes})


def test_parts_are_drawn_by_the_weights_of_the_class() -> None:
    for c, share in enumerate(WEIGHTS[1]):
        X, _ = mixture().sample(per_class={c: 20_000}, random_state=0)
        far = X[:, 0] > 50
        # Four standard errors of 20,000 draws.
        assert abs(far.mean() - share) < 0.015
        if (~far).any():
            np.testing.assert_allclose(X[~far].mean(axis=0), c, atol=1e-3)
        # The second part calls class c its class 2 - c.
        np.testing.assert_allclose(X[far].mean(axis=0), 100 + 2 - c, atol=1e-3)


def test_a_weight_of_zero_is_never_drawn() -> None:
    X, _ = mixture().sample(per_class={2: 50_000}, random_state=1)
    assert (X > 50).all()


def test_seeds_repeat_and_labels_stay_with_their_rows() -> None:
    release = mixture()
    (X, y), (again, _) = (release.sample(500, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(X, again)
    near = X[:, 0] < 50
    np.testing.assert_allclose(X[:, 0], np.where(near, y, 102 - y), atol=0.1)
    assert not np.array_equal(X, release.sample(500, random_state=4)[0])


def test_variance_overrides_all_parts() -> None:
    X, _ = mixture().sample(200, variance=0.0, random_state=0)
    assert set(np.unique(X)) <= {0.0, 1.0, 2.0, 100.0, 101.0, 102.0}
    assert mixture().manifest.decoder.variance == 1.0
    wide = mixture().sample(per_class={2: 5000}, variance=4.0, random_state=0)[0]
    assert wide.std(axis=0) == pytest.approx(0.02, rel=0.1)


def test_networks_mix_with_gaussians_and_survive_the_disk(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    network = CVAEGenerator(max_epochs=2, random_state=0).fit(*blobs).release(no_dp=True)
    gaussian = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    parts = tuple(MixturePart(decoder=r.manifest.decoder) for r in (network, gaussian))  # type: ignore[arg-type]
    tensors = {f"part{i}.{k}": v for i, r in enumerate((network, gaussian)) for k, v in r.tensors.items()}
    weights = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    made = mixture(
        decoder=MixtureSpec(parts=parts),
        tensors={**tensors, "weights": weights},
        embedding=network.manifest.embedding,
    )
    saved = locum.load(made.save(tmp_path / "mixture"))
    assert len(verify(tmp_path / "mixture").checks) == 6
    assert "decoders of several sites" in (tmp_path / "mixture" / "README.md").read_text()
    for c, alone in ((0, network), (1, gaussian)):
        drawn, expected = (r.sample(per_class={c: 4000}, random_state=0)[0] for r in (saved, alone))
        np.testing.assert_allclose(drawn.mean(axis=0), expected.mean(axis=0), atol=0.3)
        np.testing.assert_allclose(drawn.std(axis=0), expected.std(axis=0), rtol=0.1)
    assert saved.sample_set(9, random_state=0).dim == 8
    x, codes = next(iter(saved.stream(16, random_state=0)))
    assert x.shape == (16, 8)
    assert codes.dtype == torch.int64


def test_a_report_can_be_made(tmp_path: Path) -> None:
    from locum.recipes import make_report

    mixture().save(tmp_path / "release")
    report = make_report(tmp_path / "release", tmp_path / "page.json", share=True, map="pca")
    assert report["release"]["holds"] == "mixture"


def altered(weights: Any = None, drop: str = "", **more: np.ndarray) -> dict[str, np.ndarray]:
    good = {**mixture().tensors, **more}
    if weights is not None:
        good["weights"] = np.asarray(weights, dtype=np.float32)
    return {k: v for k, v in good.items() if k != drop}


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        (altered(np.ones((2, 3))), "sum to 1"),
        (altered([[2.0, 0.9, 0.0], [-1.0, 0.1, 1.0]]), "0 or more"),
        (altered(np.ones((1, 3))), "shape"),
        (altered(np.full((2, 3), np.nan)), "NaN"),
        (altered(drop="weights"), "lacks"),
        (altered(drop="part1.means"), "lacks"),
        (altered(**{"part2.means": np.zeros((3, 4), np.float32)}), "nothing uses"),
        (altered(**{"means": np.zeros((3, 4), np.float32)}), "nothing uses"),
        (altered(**{"part0.means": np.zeros((2, 4), np.float32)}), "shape"),
        (altered(**{"part0.scale": np.full(4, np.inf, np.float32)}), "NaN or infinity"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(tensors: dict[str, np.ndarray], word: str) -> None:
    with pytest.raises(FormatError, match=word):
        Release(mixture().manifest, tensors)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"space": "unit"}, "space is 'raw'"),
        ({"decoder": MixtureSpec(parts=(MixturePart(decoder=GaussianSpec(), order=(0, 0, 1)),) * 2)}, "order"),
        ({"decoder": MixtureSpec(parts=(MixturePart(decoder=GaussianSpec(), order=(0, 1)),) * 2)}, "order"),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        mixture(**changes)


def test_parts_share_one_variance() -> None:
    parts = tuple(MixturePart(decoder=GaussianSpec(variance=v)) for v in (1.0, 2.0))
    with pytest.raises(ValueError, match="one sampling variance"):
        MixtureSpec(parts=parts)


@pytest.fixture
def private(blobs: tuple[np.ndarray, np.ndarray]) -> Release:
    budget = DP(1.0, 1e-5, n_public=200)
    return ClassGaussian(privacy=budget, classes=[0, 1, 2], mechanism="means", insecure_seed=0).fit(*blobs).release()


def test_sums_are_checked_like_all_numbers(private: Release) -> None:
    good = dict(private.tensors)
    assert good["statistics"].dtype == np.float32
    for bad, word in (
        ({**good, "statistics": good["statistics"][:-1]}, "shape"),
        ({**good, "statistics": good["statistics"] * np.nan}, "NaN"),
        ({k: v for k, v in good.items() if k != "statistics"}, "lacks"),
    ):
        with pytest.raises(FormatError, match=word):
            Release(private.manifest, bad)


def test_a_release_without_sums_opens(gaussian: Release, private: Release, tmp_path: Path) -> None:
    """What was written before there were sums has no such field, and a new release without sums has none either."""
    assert '"statistics"' not in gaussian.manifest.dumps()
    loaded = locum.load(private.save(tmp_path / "with"))
    assert loaded.manifest.decoder == private.manifest.decoder
    plain = private.manifest.model_copy(update={"decoder": GaussianSpec()})
    rest = {k: v for k, v in private.tensors.items() if k != "statistics"}
    assert locum.load(Release(plain, rest).save(tmp_path / "without")).manifest.decoder == GaussianSpec()


@pytest.mark.parametrize(
    "shares", [(0.9, 0.05, 0.04, 0.0), (0.0, 0.5, 0.5, 0.0), (0.98, 0.0, 0.02, 0.0), (1.2, 0.02, 0.02, -0.24)]
)
def test_shares_that_cannot_be_read_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError):
        StatisticsSpec(noise=1.0, shares=shares, reference="none", reference_sha256="0" * 64)
