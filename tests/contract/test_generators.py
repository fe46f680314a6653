"""What every generator must do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

import locum
from locum import EmbeddingInfo
from locum.errors import ConfigError, NotFittedError, PrivacyError
from locum.generate import BaseGenerator, CGANGenerator, ClassGaussian, CVAEGenerator, KSame, VAEGenerator
from locum.types import DP

QUICK = {"max_epochs": 3, "random_state": 0}
GENERATORS: dict[str, BaseGenerator] = {
    "cvae": CVAEGenerator(**QUICK),
    "cvae-authors": CVAEGenerator(authors_compat=True, **QUICK),
    "cvae-small": CVAEGenerator("small", **QUICK),
    "cvae-large": CVAEGenerator("large", **QUICK),
    "cvae-federated": CVAEGenerator("federated", **QUICK),
    "vae": VAEGenerator(**QUICK),
    "cgan": CGANGenerator(generator_hidden=(16,), critic_hidden=(16,), **QUICK),
    "gaussian": ClassGaussian(random_state=0),
    "ksame": KSame(k=3, random_state=0),
    "ksame-per-class": KSame(k=3, per_class=True, random_state=0),
}


@pytest.fixture(params=GENERATORS)
def generator(request: pytest.FixtureRequest) -> BaseGenerator:
    from sklearn.base import clone

    return clone(GENERATORS[request.param])


@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize("name", ["cvae", "gaussian", "ksame", "vae", "cgan"])
def test_scikit_learn_conventions(name: str) -> None:
    check_estimator(GENERATORS[name])


def labels_of(generator: BaseGenerator, y: np.ndarray) -> np.ndarray:
    return np.full(len(y), "unlabeled") if isinstance(generator, VAEGenerator) else y


def test_nothing_is_released_without_a_guarantee_by_default(
    generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    with pytest.raises(PrivacyError, match=r"set `privacy=DP\(\.\.\.\)`, or pass `no_dp=True`"):
        generator.fit(*blobs).release()
    assert generator.release(no_dp=True).claim.kind != "dp"


def test_a_test_with_an_insecure_seed_needs_no_further_word(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    budget = DP(1.0, 1e-5, n_public=200)
    private = ClassGaussian(privacy=budget, classes=[0, 1, 2], insecure_seed=0).fit(*blobs)
    assert private.release().claim.test
    with pytest.raises(ConfigError, match="contradict"):
        private.release(no_dp=True)


def test_samples_look_like_the_data(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    Xs, ys = generator.fit(X, y).sample(150)
    assert Xs.shape == (150, 8)
    assert Xs.dtype == np.float32
    assert np.isfinite(Xs).all()
    assert set(np.unique(ys)) <= set(np.unique(labels_of(generator, y)))


def test_release_samples_what_the_generator_samples(
    generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    generator.fit(*blobs).release(no_dp=True).save(tmp_path / "r")
    loaded = locum.load(tmp_path / "r")
    for mine, theirs in zip(generator.sample(50, random_state=3), loaded.sample(50, random_state=3), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_same_seed_same_release(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    from sklearn.base import clone

    first, second = (clone(generator).fit(*blobs).release(no_dp=True) for _ in range(2))
    assert first.manifest == second.manifest
    assert all(np.array_equal(first.tensors[k], second.tensors[k]) for k in first.tensors)


def test_calls_do_not_repeat_each_other(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    generator.fit(*blobs)
    if generator.release(no_dp=True).manifest.kind == "data":
        pytest.skip("a fixed table gives its rows again")
    first, second = generator.sample(20)[0], generator.sample(20)[0]
    assert not (first[:, None] == second[None]).all(axis=2).any()


def test_text_labels_come_back(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    names = np.array(["ant", "bee", "cat"])[y]
    assert set(generator.fit(X, names).sample(100)[1]) <= set(labels_of(generator, names))


def test_nothing_about_coins_or_paths_leaves(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    text = generator.fit(*blobs).release(EmbeddingInfo(backbone="b"), no_dp=True).manifest.dumps()
    assert "random_state" not in text
    assert "checkpoint" not in text
    assert str(len(blobs[1])) not in text.replace("0.", "")


def test_claims_admit_what_they_leave_out(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    claim = generator.fit(*blobs).claim_
    assert claim.kind in ("none", "k-anonymity")
    assert any("membership" in item for item in claim.not_covered)


def test_privacy_is_supported_or_refused(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """No generator takes `privacy` and ignores it; those that support it ask for what must be public."""
    with pytest.raises(ConfigError, match="DP"):
        clone(generator).set_params(privacy=object()).fit(*blobs)
    budget = DP(epsilon=1.0, delta=1e-5)
    if not generator._SUPPORTS_DP:
        with pytest.raises(PrivacyError, match="does not support"):
            clone(generator).set_params(privacy=budget).fit(*blobs)
        return
    if not isinstance(generator, ClassGaussian):
        with pytest.raises(PrivacyError, match="n_public"):
            clone(generator).set_params(privacy=budget).fit(*blobs)
    with pytest.raises(PrivacyError, match="classes"):
        clone(generator).set_params(privacy=replace(budget, n_public=200)).fit(*blobs)
    by_subject = replace(budget, n_public=200, unit="subject")
    with pytest.raises(PrivacyError, match="subject"):
        clone(generator).set_params(privacy=by_subject, classes=[0, 1, 2]).fit(*blobs)


def test_unfitted_generators_say_so(generator: BaseGenerator) -> None:
    for call in (lambda: generator.sample(3), generator.release, lambda: generator.claim_):
        with pytest.raises(NotFittedError, match="not fitted"):
            call()


def test_a_fit_that_fails_leaves_the_release_of_the_last_one(
    generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(generator)
    before = generator.fit(*blobs).release(no_dp=True)
    check_is_fitted(generator)
    # A setting that is changed after the fit must not change what was fitted.
    generator.set_params(space="unit")
    assert generator.release(no_dp=True).manifest == before.manifest
    with pytest.raises(ConfigError, match="space"):
        generator.set_params(space="whitened").fit(*blobs)
    assert generator.release(no_dp=True).manifest == before.manifest


def test_unit_space_gives_unit_vectors(generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    generator.set_params(space="unit").fit(*blobs)
    release = generator.release(no_dp=True)
    real = release.transform(blobs[0])
    np.testing.assert_allclose(np.linalg.norm(real, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(release.sample(20)[0], axis=1), 1, rtol=1e-5)
    with pytest.raises(ConfigError, match="space"):
        generator.set_params(space="whitened").fit(*blobs)


@pytest.mark.parametrize("kind", [float, bool])
def test_whole_numbers_of_any_type_come_back_as_whole_numbers(
    generator: BaseGenerator, blobs: tuple[np.ndarray, np.ndarray], kind: type
) -> None:
    if isinstance(generator, VAEGenerator):
        pytest.skip("ignores labels")
    X, y = blobs
    labels = (y > 0).astype(kind)
    generator.fit(X, labels)
    assert set(generator.sample(60)[1]) == {0, 1}
    assert len(generator.sample(per_class={1: 4})[0]) == 4
