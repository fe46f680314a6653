"""Merged releases: sums are added, other decoders become a mixture, what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locum
from locum import EmbeddingInfo
from locum.accounting import Ledger, epsilon_of, events_from_json, plan_head
from locum.data import Reference, load_reference
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.federated import merge_releases
from locum.generate import CGANGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.generate.private import MEANS, MEANS_AND_PRODUCTS, from_sums, query_sums, reference_hash
from locum.release import GaussianSpec, Release
from locum.types import DP

Blobs = tuple[np.ndarray, np.ndarray]
# A budget so large that the noise is a twentieth of a record.
RICH = DP(epsilon=3000.0, delta=1e-5, n_public=200)
BUDGET = DP(epsilon=2.0, delta=1e-4, n_public=200)


def quarters(blobs: Blobs) -> list[Blobs]:
    """Four sites with different sizes and class shares."""
    X, y = blobs
    site = np.random.default_rng(5).choice(4, size=len(y), p=[0.4, 0.3, 0.2, 0.1])
    site[y == 2] = np.arange((y == 2).sum()) % 2
    return [(X[site == s], y[site == s]) for s in range(4)]


def gaussian(X: np.ndarray, y: np.ndarray, seed: int = 0, **options: Any) -> Release:
    info = options.pop("info", EmbeddingInfo("b"))
    names = options.pop("class_names", None)
    given = {"privacy": RICH, "classes": [0, 1, 2], "mechanism": "means", "insecure_seed": seed, **options}
    return ClassGaussian(**given).fit(X, y).release(info, class_names=names)


@pytest.mark.parametrize(("mechanism", "shares"), [("means", MEANS), ("covariance", MEANS_AND_PRODUCTS)])
def test_added_sums_equal_one_fit_on_all_records(blobs: Blobs, mechanism: str, shares: Any) -> None:
    """With hardly any noise; the twin fits all records at once, without noise."""
    blobs = np.tile(blobs[0], (40, 1)), np.tile(blobs[1], 40)
    sites = [gaussian(*part, seed=i, mechanism=mechanism) for i, part in enumerate(quarters(blobs))]
    merged = merge_releases(sites)
    plain = Reference.plain(8)
    noise = 2 * sites[0].manifest.decoder.statistics.noise
    expected = from_sums(query_sums(*blobs, None, 3, plain, shares), noise, 3, 8, shares, plain)
    size = np.linalg.norm(expected.means)
    assert np.linalg.norm(merged.tensors["means"] - expected.means) < 2e-3 * size
    spread = [
        np.square(f).sum(axis=0) + np.square(s)
        for f, s in ((merged.tensors["factor"], merged.tensors["scale"]), (expected.factor, expected.scale))
    ]
    np.testing.assert_allclose(*spread, rtol=5e-3)
    prior = [p for _, p in merged.manifest.joint]
    np.testing.assert_allclose(prior, [120 / 210, 60 / 210, 30 / 210], atol=0.002)
    assert merged.manifest.settings["how"] == "sums"
    assert isinstance(merged.manifest.decoder, GaussianSpec)
    assert "statistics" not in merged.tensors


def test_noise_of_sites_adds_in_squares(blobs: Blobs) -> None:
    """The merged release shrinks its means as one with that much noise does, and by no more."""
    parts = quarters(blobs)
    sites = [gaussian(*part, seed=i, privacy=BUDGET, mechanism="means") for i, part in enumerate(parts)]
    total = sum(site.tensors["statistics"].astype(np.float64) for site in sites)
    noise = sites[0].manifest.decoder.statistics.noise * 2
    by_hand = from_sums(total, noise, 3, 8, MEANS, Reference.plain(8))
    np.testing.assert_allclose(merge_releases(sites).tensors["means"], by_hand.means, rtol=1e-4, atol=1e-5)


def test_classes_are_matched_by_name(blobs: Blobs) -> None:
    """A site that lists its classes in another order, under other numbers, changes nothing."""
    parts = quarters(blobs)
    names = ["ant", "bee", "cat"]
    straight = [gaussian(*part, seed=i, class_names=names) for i, part in enumerate(parts)]
    X, y = parts[1]
    turned = gaussian(X, 2 - y, seed=1, class_names=names[::-1])
    one, two = merge_releases(straight), merge_releases([straight[0], turned, *straight[2:]])
    np.testing.assert_allclose(one.tensors["means"], two.tensors["means"], atol=0.2)
    for weights in ("counts", "equal"):
        mixed = merge_releases([_bare(straight[0]), _bare(turned)], weights=weights)  # type: ignore[arg-type]
        assert mixed.manifest.decoder.parts[1].order == (2, 1, 0)
        for c in range(3):
            X, y = mixed.sample(per_class={c: 2000}, variance=0.0, random_state=0)
            places = [straight[0].tensors["means"][c], turned.tensors["means"][2 - c]]
            near = np.stack([np.linalg.norm(X - place, axis=1) for place in places]).min(axis=0)
            assert near.max() < 1e-3


def _bare(release: Release) -> Release:
    """The same without its sums, as releases used to be."""
    manifest = release.manifest.model_copy(update={"decoder": GaussianSpec()})
    return Release(manifest, {k: v for k, v in release.tensors.items() if k != "statistics"})


def test_a_mixture_weights_sites_by_paid_counts(blobs: Blobs) -> None:
    """With other budget shares the sums cannot be added, but their counts still give the weights."""
    X, y = blobs
    first = (y != 2) & (np.arange(len(y)) % 4 != 0)
    # Site 2 has all of class 2, and a quarter of the others.
    sites = [
        gaussian(X[first], y[first], 0, mechanism="means"),
        gaussian(X[~first], y[~first], 1, mechanism="covariance"),
    ]
    merged = merge_releases(sites)
    assert merged.manifest.settings["how"] == "mixture"
    expected = np.array([[90 / 120, 45 / 60, 5 / 35], [30 / 120, 15 / 60, 30 / 35]])
    # A class counts as at least five.
    np.testing.assert_allclose(merged.tensors["weights"], expected, atol=0.02)
    drawn, _ = merged.sample(per_class={0: 20_000}, variance=0.0, random_state=0)
    mine = np.linalg.norm(drawn - sites[0].tensors["means"][0], axis=1) < 1e-3
    assert abs(mine.mean() - 0.75) < 0.03
    assert not any("statistics" in name for name in merged.tensors)


def test_public_sizes_give_the_weights_without_sums(blobs: Blobs) -> None:
    large = _bare(gaussian(*blobs, 0, privacy=DP(3000.0, 1e-5, n_public=900)))
    small = _bare(gaussian(*blobs, 1, privacy=DP(3000.0, 1e-5, n_public=100)))
    weights = merge_releases([large, small]).tensors["weights"]
    np.testing.assert_allclose(weights, [[0.9] * 3, [0.1] * 3], atol=0.02)
    np.testing.assert_allclose(merge_releases([large, small], weights="equal").tensors["weights"], 0.5)
    # An unknown size: all sites count as equally large, and only class shares matter.
    settings = {k: v for k, v in small.manifest.settings.items() if k != "n_public"}
    silent = Release(small.manifest.model_copy(update={"settings": settings}), small.tensors)
    np.testing.assert_allclose(merge_releases([large, silent]).tensors["weights"], 0.5, atol=0.02)


def test_equal_weights_add_nothing_up(blobs: Blobs) -> None:
    sites = [gaussian(*part, seed=i) for i, part in enumerate(quarters(blobs))]
    merged = merge_releases(sites, weights="equal")
    assert merged.manifest.settings["how"] == "mixture"
    np.testing.assert_allclose(merged.tensors["weights"], 0.25)


def test_a_reference_of_another_version_is_not_read_with_ours(blobs: Blobs) -> None:
    sites = []
    for seed in (0, 1):
        release = gaussian(*blobs, seed)
        told = release.manifest.decoder.statistics.model_copy(update={"reference_sha256": "0" * 64})
        spec = GaussianSpec(statistics=told)
        sites.append(Release(release.manifest.model_copy(update={"decoder": spec}), release.tensors))
    assert merge_releases(sites).manifest.settings["how"] == "mixture"


def test_a_reference_is_never_a_file(blobs: Blobs, tmp_path: Path, rng: np.random.Generator) -> None:
    """The name comes with a release, that is, from outside."""
    file = Reference.from_vectors(rng.normal(size=(50, 8)), source="made up", rank=2).save(tmp_path / "r.safetensors")
    named = {"reference": str(file), "reference_sha256": reference_hash(load_reference(file, 8))}
    sites = []
    for seed in (0, 1):
        release = gaussian(*blobs, seed)
        told = release.manifest.decoder.statistics.model_copy(update=named)
        spec = GaussianSpec(statistics=told)
        sites.append(Release(release.manifest.model_copy(update={"decoder": spec}), release.tensors))
    assert merge_releases(sites).manifest.settings["how"] == "mixture"


def test_sums_whitened_with_a_file_are_added_with_that_file(
    blobs: Blobs, tmp_path: Path, rng: np.random.Generator
) -> None:
    file, other = (
        Reference.from_vectors(rng.normal(size=(50, 8)), source="made up", rank=2).save(tmp_path / name)
        for name in ("r.safetensors", "other.safetensors")
    )
    sites = [
        ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], reference=str(file), mechanism="means", insecure_seed=i)
        .fit(*part)
        .release()
        for i, part in enumerate(quarters(blobs))
    ]
    assert merge_releases(sites).manifest.settings["how"] == "mixture"
    merged = merge_releases(sites, reference=file)
    assert (merged.manifest.settings["how"], merged.manifest.settings["reference"]) == ("sums", "own")
    with pytest.raises(DataError, match="not those of the release"):
        merge_releases(sites, reference=other)
    with pytest.raises(ConfigError, match="cannot be added"):
        merge_releases(sites, weights="equal", reference=file)


def test_tests_stay_tests(blobs: Blobs) -> None:
    sites = [gaussian(*part, seed=i) for i, part in enumerate(quarters(blobs))]
    claim = merge_releases(sites, 1).claim
    assert claim.kind == "none"
    assert claim.test


Change = Callable[[Blobs], list[Release]]
REFUSED: list[tuple[str, Change, type[LocumError], str]] = [
    ("one", lambda b: [gaussian(*b)], ConfigError, "two or more sites; got 1"),
    ("twice", lambda b: [gaussian(*b), gaussian(*b, 1), gaussian(*b)], ConfigError, "Release 3 was given twice"),
    ("rows", lambda b: [KSame(k=3).fit(*b).release(no_dp=True), gaussian(*b)], ConfigError, "fixed rows"),
    (
        "backbone",
        lambda b: [gaussian(*b), gaussian(*b, 1, info=EmbeddingInfo("c"))],
        DataError,
        "Release 2 has vectors of 'c'",
    ),
    ("dim", lambda b: [gaussian(*b), gaussian(b[0][:, :7], b[1], 1)], DataError, "7 features, release 1 has 8"),
    ("classes", lambda b: [gaussian(*b), gaussian(*b, 1, classes=[0, 1, 2, 3])], DataError, "let all sites name"),
    (
        "names",
        lambda b: [gaussian(*b, class_names=["a", "b", "b"]), gaussian(*b, 1)],
        DataError,
        "two classes with the same name",
    ),
    (
        "space",
        lambda b: [
            ClassGaussian(space="unit").fit(*b).release(no_dp=True),
            ClassGaussian(space="unit").fit(*b).release(no_dp=True),
        ],
        DataError,
        "the space 'unit'",
    ),
    ("variance", lambda b: [gaussian(*b), gaussian(*b, 1, variance=2.0)], ConfigError, "sampling variances"),
    ("merged", lambda b: [merge_releases([gaussian(*b), gaussian(*b, 1)]), gaussian(*b)], ConfigError, "already"),
    (
        "mixture",
        lambda b: [gaussian(*b), merge_releases([gaussian(*b), gaussian(*b, 1)], weights="equal")],
        ConfigError,
        "Release 2 was already made from several sites",
    ),
    (
        "test",
        lambda b: [ClassGaussian().fit(*b).release(no_dp=True), gaussian(*b)],
        PrivacyError,
        "Release 2 was made with an insecure seed",
    ),
]


@pytest.mark.parametrize(("case", "error", "word"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_does_not_fit_is_refused(blobs: Blobs, case: Change, error: type[LocumError], word: str) -> None:
    with pytest.raises(error, match=word):
        merge_releases(case(blobs))


def test_further_conditions_are_refused(blobs: Blobs) -> None:
    X, y = blobs
    sex = {"sex": np.array(["f", "m"])[np.arange(len(y)) % 2]}
    fit = CVAEGenerator(condition_on=["sex"], max_epochs=1, random_state=0).fit(X, y, attributes=sex)
    with pytest.raises(ConfigError, match="more than the class"):
        merge_releases([gaussian(X, y), fit.release(no_dp=True)])


@pytest.mark.parametrize("weights", ["count", "", None])
def test_a_typo_in_weights_is_refused(blobs: Blobs, weights: Any) -> None:
    with pytest.raises(ConfigError, match="`weights` must be one of counts, equal"):
        merge_releases([gaussian(*blobs), gaussian(*blobs, 1)], weights=weights)


def test_releases_without_a_guarantee_merge_without_one(blobs: Blobs) -> None:
    sites = [
        ClassGaussian(rank=r).fit(*part).release(no_dp=True) for r, part in zip((2, 3), quarters(blobs), strict=False)
    ]
    merged = merge_releases(sites)
    assert merged.claim.kind == "none"
    assert "have no differential privacy" in merged.claim.not_covered[0]
    assert merged.manifest.settings["sites"] == [{"generator": "ClassGaussian", "claim": "none"}] * 2


def small(kind: type, folder: Path, **options: Any) -> Any:
    given = {"privacy": BUDGET, "classes": [0, 1, 2], "ledger": folder / "ledger.sqlite", "random_state": 0}
    return kind(**given, **options)


def test_networks_are_never_averaged(blobs: Blobs, tmp_path: Path) -> None:
    """Real ledgers, real steps: each network stays as it was, and its size follows from its batches."""
    parts = quarters(blobs)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    cvae = small(CVAEGenerator, tmp_path / "a", max_epochs=1, batch_size=50, hidden=(8,), latent=4)
    cgan = small(
        CGANGenerator, tmp_path / "b", max_epochs=1, batch_size=50, generator_hidden=(8,), critic_hidden=(8,)
    )
    sites = [m.fit(*part).release() for m, part in zip((cvae, cgan), parts[:2], strict=True)]
    merged = merge_releases(sites, 1)
    for number, site in enumerate(sites):
        for name, value in site.tensors.items():
            np.testing.assert_array_equal(merged.tensors[f"part{number}.{name}"], value)
    shares = np.array([[p for _, p in site.manifest.joint] for site in sites])
    # Both have the public size 200.
    np.testing.assert_allclose(merged.tensors["weights"], shares / shares.sum(axis=0), atol=1e-3)
    assert merged.sample(100, random_state=0)[0].shape == (100, 8)
    claim = merged.claim
    assert claim.dp is not None
    assert claim.dp.epsilon <= BUDGET.epsilon
    assert claim.dp.epsilon >= max(s.claim.dp.epsilon for s in sites)  # type: ignore[union-attr]


def test_the_claim_is_what_three_ledgers_say(blobs: Blobs, tmp_path: Path) -> None:
    releases, tips = [], []
    for i, part in enumerate(quarters(blobs)[:3]):
        folder = tmp_path / str(i)
        folder.mkdir()
        saved = small(ClassGaussian, folder).fit(*part).release().save(folder / "release")
        releases.append(locum.load(saved))
        with Ledger(folder / "ledger.sqlite") as ledger:
            (holding,) = ledger.holdings().values()
            tips.append(holding.charges[0].tip)
    merged = merge_releases(releases)
    assert merged.claim.dp is not None
    cost = epsilon_of(events_from_json(merged.claim.dp.events), 3 * BUDGET.delta)
    # Each of the sums of three sites is on a grid of its own, and all of them are charged.
    assert merged.claim.dp.events[0]["sums"] == 3 * plan_head(BUDGET).sums
    assert merged.claim.dp.epsilon == cost
    assert BUDGET.epsilon < merged.claim.dp.epsilon < 3 * BUDGET.epsilon
    told = merged.manifest.settings["sites"]
    assert [site["ledger"] for site in told] == tips
    assert all(site["epsilon"] <= BUDGET.epsilon and site["delta"] == BUDGET.delta for site in told)
    # No count of a site's records, not even its public size.
    assert {key for site in told for key in site} <= {
        "generator", "claim", "epsilon", "delta", "ledger", "fingerprint"
    }  # fmt: skip
    assert merge_releases(releases, 1).claim.dp.epsilon <= BUDGET.epsilon  # type: ignore[union-attr]
