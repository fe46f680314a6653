"""From sums to a release: checked by hand, and with the claim that the terms allow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum.accounting import Gaussian, epsilon_of, events_to_json
from locum.data import Reference
from locum.errors import PrivacyError
from locum.federated import FederationSettings
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.certificates import _pair
from locum.federated.claims import epsilon_against, run_claim
from locum.federated.result import TOGETHER, Learned, build_result, pooled, site_counts
from locum.federated.terms import Terms, plan_site, read_terms
from locum.generate.private import COUNTS_ONLY, LOOKED, MEANS, query_sums
from locum.types import DP, at_least

Make = Callable[..., FederationSettings]
# Five sites with a key each.
KEYS = {name: _pair(name)[f"{name}.pub"].decode().strip() for name in "abcde"}


def terms(noise: float, ledger: str = "a", **more: Any) -> Terms:
    paid = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "unit": "record",
        "relation": "add-or-remove",
        "events": events_to_json([Gaussian(noise)]),
        "ledger": ledger * 64,
        **more,
    }
    return read_terms({"noise": noise, "size": 50, "terms": paid})


def a_test(noise: float = 0.0) -> Terms:
    return read_terms({"noise": noise, "size": 50, "terms": None})


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 4 == 0).astype(np.int64)
    return (rng.normal(size=(n, 4)) + 2 * np.eye(4)[y]).astype(np.float32), y


def sums_of(X: np.ndarray, y: np.ndarray, shares: Any = MEANS) -> np.ndarray:
    return query_sums(X, y, None, 2, Reference.plain(4), shares)


def test_separate_sums_add_up_to_the_sums_of_all_records(little: Make) -> None:
    (a, ya), (b, yb) = data(80, 0), data(120, 1)
    settings = little(mode="sums")
    whole = sums_of(np.concatenate([a, b]), np.concatenate([ya, yb]))
    found = pooled(settings, {"a": a_test(), "b": a_test()}, {"a": sums_of(a, ya), "b": sums_of(b, yb)})
    np.testing.assert_allclose(found.total, whole)
    np.testing.assert_allclose(found.found.counts, np.bincount(np.concatenate([ya, yb])), rtol=1e-6)


def test_noise_adds_up_in_squares(little: Make) -> None:
    zero = np.zeros(MEANS.size(2, 4))
    sites = {"a": terms(3.0), "b": terms(4.0, "b")}
    assert pooled(little(mode="sums"), sites, dict.fromkeys(sites, zero)).noise == pytest.approx(5.0)
    # Masked: of five sites three add up to the planned noise, since one may collude and one may stay away.
    secure = little(mode="sums", secure=True, sites=KEYS, absent=1)
    five = {name: terms(4.0, name) for name in KEYS}
    assert pooled(secure, five, {TOGETHER: zero}).noise == pytest.approx(4.0 * np.sqrt(5 / 3))


def test_weights_are_the_counts_that_were_paid_for(little: Make) -> None:
    for settings, shares in ((little(), MEANS), (little(initial_query="public"), COUNTS_ONLY)):
        told = {"a": sums_of(*data(80, 0), shares), "b": sums_of(*data(120, 1), shares)}
        found = site_counts(settings, told)
        assert found == pytest.approx({"a": 80, "b": 120}, rel=1e-6)
        # Noise can make a count negative; a weight never is.
        low = site_counts(settings, {"a": -told["a"]})["a"]
        assert 0 < low < 80


@pytest.mark.parametrize("mode", ["sums", "decoder"])
def test_a_release_names_no_site_and_no_count(mode: str, little: Make) -> None:
    settings = little(mode=mode)
    sites = {"St. Anne": terms(3.0), "Bethel": terms(4.0, "b")}
    sums = {name: sums_of(*data(77, i)) for i, name in enumerate(sites)}
    release = build_result(settings, "run", Learned(sites, sums, decoder_tensors(initial_network(settings))))
    text = release.manifest.dumps()
    assert "Anne" not in text
    assert "Bethel" not in text
    # 77 records each, 154 together.
    assert not re.search(r"\b(77|154)\b", text)
    # Each cost with the tip of its ledger, so that a site finds itself; no names.
    assert release.manifest.settings["sites"] == [
        {
            "epsilon": epsilon_of([Gaussian(noise)], 1e-5),
            "delta": 1e-5,
            "unit": "record",
            "relation": "add-or-remove",
            "events": [{"kind": "gaussian", "noise_multiplier": noise}],
            "ledger": head * 64,
        }
        for noise, head in ((3.0, "a"), (4.0, "b"))
    ]
    X, _ = release.sample(30, random_state=0)
    assert X.shape == (30, 4)
    assert np.isfinite(X).all()


def test_without_noise_the_class_means_come_out(little: Make) -> None:
    X, y = data(4000, 0)
    release = build_result(
        little(mode="sums"), "run", Learned({"a": a_test(), "b": a_test()}, {"a": sums_of(X, y)}, {})
    )
    for c in (0, 1):
        true = X[y == c].mean(axis=0)
        found = release.tensors["means"][c]
        assert np.corrcoef(true, found)[0, 1] > 0.95
    shares = dict(release.manifest.joint)
    assert shares[(0,)] == pytest.approx(0.75, abs=0.01)


class TestClaims:
    def claim(self, settings: FederationSettings, sites: dict[str, Terms]) -> Any:
        return run_claim(settings, [site.claim for site in sites.values()])

    def test_one_test_site_makes_the_result_a_test(self, little: Make) -> None:
        claim = self.claim(little(mode="sums"), {"a": terms(3.0), "b": a_test()})
        assert claim.kind == "none"
        assert claim.test

    def test_disjoint_subjects_pay_once(self, little: Make) -> None:
        sites = {"a": terms(3.0), "b": terms(4.0, "b"), "c": terms(4.0, "c")}
        one = self.claim(little(mode="sums", max_sites_per_subject=1), sites).dp
        assert one.epsilon == epsilon_of([Gaussian(3.0)], 1e-5)
        every = self.claim(little(mode="sums"), sites).dp
        assert every.delta == pytest.approx(3e-5)
        together = epsilon_of([Gaussian(3.0), Gaussian(4.0), Gaussian(4.0)], 3e-5)
        assert every.epsilon == pytest.approx(together, rel=1e-3)

    def masked(self, little: Make, **more: Any) -> FederationSettings:
        return little(**{"mode": "sums", "secure": True, "sites": KEYS, "delta": 1e-5, **more})

    def test_shared_noise_is_one_mechanism(self, little: Make) -> None:
        for k in (1, 2, 5):
            settings = self.masked(little, max_sites_per_subject=k)
            noise = plan_site(settings, settings.privacy).events[0].noise_multiplier
            claim = self.claim(settings, {name: terms(noise, name) for name in KEYS})
            assert claim.dp.epsilon == pytest.approx(1.0, abs=1e-4)
            assert claim.dp.epsilon <= 1.0
            # All sites together have so much more noise.
            assert plan_site(settings, settings.privacy).sums_noise == pytest.approx(k * noise)
            assert any("a record that is at" in told for told in claim.not_covered) == (k < 5)

    def test_it_says_what_more_colluding_sites_cost(self, little: Make) -> None:
        settings = self.masked(little, absent=1)
        noise = plan_site(settings, settings.privacy).events[0].noise_multiplier
        claim = self.claim(settings, {name: terms(noise, name) for name in KEYS})
        assert "at least 3 of the 5 pinned sites are honest" in claim.assumptions[0]
        # Three of five colluding can open the sums of one site, whose noise is one of three parts.
        alone = epsilon_of([Gaussian(noise / np.sqrt(3))], 1e-5)
        assert f"then epsilon is {at_least(alone)} against 3 and {at_least(alone)} against 4" in " ".join(
            claim.not_covered
        )
        # If nobody may stay away, masks hold: the two honest sites' noise is left.
        settings = self.masked(little)
        both = epsilon_of([Gaussian(noise * np.sqrt(2 / 4))], 1e-5)
        assert epsilon_against(settings, 3) == pytest.approx(both)
        assert epsilon_against(settings, 1) == pytest.approx(1.0, abs=1e-4)

    @pytest.mark.parametrize("secure", [False, True])
    def test_a_look_at_one_site_is_named(self, little: Make, secure: bool) -> None:
        settings = self.masked(little) if secure else little(mode="sums")
        noise = plan_site(settings, DP(1.0, 1e-5, n_public=100)).sums_noise
        sites = {name: terms(noise, name, **({"looked": True} if name == "c" else {})) for name in KEYS}
        assert LOOKED in self.claim(settings, sites).not_covered

    def test_sites_with_different_guarantees_are_refused(self, little: Make) -> None:
        sites = {"a": terms(4.0), "b": terms(4.0, "b", unit="subject")}
        with pytest.raises(PrivacyError, match="guarantee different things"):
            self.claim(little(mode="sums"), sites)
        with pytest.raises(PrivacyError, match="something other than the terms"):
            self.claim(self.masked(little), {name: terms(4.0, name) for name in KEYS})
