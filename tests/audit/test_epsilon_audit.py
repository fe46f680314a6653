from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from locum.accounting import Gaussian, Laplace, QueryPlan, SGDPlan, events_to_json
from locum.audit import audit_epsilon
from locum.audit.epsilon.canaries import run_canaries
from locum.errors import ConfigError, PrivacyError
from locum.generate import CGANGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.generate.private import Schedule, gradients, noisy_sums, paid_sums, query, query_sums, unit_vectors
from locum.mechanisms import SecureRandom
from locum.train.dp import ClippedNetwork
from locum.types import DP, DPClaim, PrivacyClaim

# A few large batches: quick, and as private as any others of this epsilon.
QUICK = {"batch_size": 2500, "max_epochs": 2, "classes": [0, 1]}


def guaranteed(kind: str, epsilon: float, unit: str = "record") -> Any:
    budget = DP(epsilon, 1e-5, unit, n_public=5000)
    if kind in ("head", "means"):
        return ClassGaussian(privacy=budget, classes=[0, 1], mechanism=kind)
    return (CVAEGenerator if kind == "cvae" else CGANGenerator)(privacy=budget, **QUICK)


def change_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """A faulty generator: noise of the wrong size."""
    honest = SecureRandom.__init__

    def faulty(self: SecureRandom, counts: Any, rate: float, values: int, std: float, **rest: Any) -> None:
        honest(self, counts, rate, values, factor * std, **rest)

    monkeypatch.setattr(SecureRandom, "__init__", faulty)


KINDS = ["head", "means", "cvae", "cgan"]


@pytest.mark.parametrize("kind", KINDS)
def test_noise_switched_off_breaks_a_claim_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change_noise(monkeypatch, 0.0)
    found = audit_epsilon(guaranteed(kind, 1.0), canaries=1000, records=500, seed=0)
    assert found.lower.epsilon > 2 > found.upper
    assert found.verdict == "broken guarantee"
    with pytest.raises(PrivacyError, match="Broken guarantee"):
        found.require()


@pytest.mark.parametrize("kind", KINDS)
def test_noise_halved_breaks_a_claim_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses alone refute about 0.5 with 1000 canaries, and need 20,000."""
    change_noise(monkeypatch, 0.5)
    for seed in range(3):
        found = audit_epsilon(guaranteed(kind, 1.0), canaries=1000, records=200, seed=seed)
        assert found.lower.epsilon > 1.3 > 1 >= found.upper
        assert not found.ok


@pytest.mark.parametrize("part", ["counts", "lengths", "products"])
def test_a_part_of_the_query_without_noise_is_caught(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries that were only in the class sums saw nothing of it."""
    which = ["sums", "counts", "lengths", "products"].index(part)

    def faulty(X: Any, codes: Any, subject: Any, classes: int, reference: Any, shares: Any, *rest: Any) -> Any:
        noisy = noisy_sums(X, codes, subject, classes, reference, shares, *rest)
        clean = query_sums(X, codes, subject, classes, reference, shares)
        shares.parts(noisy, classes, X.shape[1])[which][:] = shares.parts(clean, classes, X.shape[1])[which]
        return noisy

    monkeypatch.setattr("locum.audit.epsilon.canaries.noisy_sums", faulty)
    found = audit_epsilon(guaranteed("means", 1.0), canaries=1000, records=100, seed=0)
    assert not found.ok
    assert {test.name.split(",")[0] for test in found.lower.exact if test.epsilon > 1} == {f"noise of {part}"}


@pytest.mark.parametrize("kind", ["head", "means", "cvae"])
def test_subjects_that_are_no_longer_clipped_are_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries of two records at most saw nothing of it: some have 20 or 40 now."""
    audited = guaranteed(kind, 1.0, "subject")
    assert audit_epsilon(audited, canaries=1000, records=100, seed=0).ok
    if kind == "means":
        monkeypatch.setattr(query, "_of_subject", query._of_records)
    elif kind == "head":
        # Gradients and class sums alone; those of the first query are a part of "means".
        monkeypatch.setattr(gradients._Pairs, "cut", lambda self, residuals: gradients._cut(residuals))
    else:
        honest = ClippedNetwork.clipped_sum
        monkeypatch.setattr(ClippedNetwork, "clipped_sum", lambda self, clip, blocks=None: honest(self, clip))
    assert not audit_epsilon(audited, canaries=1000, records=100, seed=0).ok


def test_vectors_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check of each contribution in whole numbers, or by canaries, whose vectors are far too long."""

    def loose(X: Any, reference: Any) -> Any:
        unit, relative = unit_vectors(X, reference)
        return unit * np.maximum(1.0, np.linalg.norm(X, axis=1) / np.sqrt(X.shape[1]))[:, None], relative

    monkeypatch.setattr(query, "unit_vectors", loose)
    with pytest.raises(PrivacyError):
        audit_epsilon(guaranteed("means", 1.0), canaries=200, records=20, seed=0).require()


def faulty_noise(monkeypatch: pytest.MonkeyPatch, stage: slice, factor: float) -> None:
    """Some draws of a head get noise of the wrong size."""
    honest = paid_sums.noisy

    def faulty(sums: Any, noise: float, *, insecure_seed: int, step: int) -> Any:
        size = factor if step in range(34)[stage] else 1.0
        return honest(sums, size * noise, insecure_seed=insecure_seed, step=step)

    monkeypatch.setattr(paid_sums, "noisy", faulty)


STAGES = {"the first query": slice(0, 1), "class sums": slice(1, 2), "steps": slice(2, None)}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
def test_halved_noise_in_one_stage_of_a_head_is_caught(stage: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each draw by itself still has noise to spare."""
    faulty_noise(monkeypatch, stage, 0.5)
    for seed in range(3):
        found = audit_epsilon(guaranteed("head", 1.0), canaries=1000, records=200, seed=seed)
        assert not found.ok
        assert "noise and lengths of all draws" in found.words


def test_counts_without_noise_in_the_first_query_of_a_head_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = paid_sums.noisy

    def faulty(sums: Any, noise: float, *, insecure_seed: int, step: int) -> Any:
        out = honest(sums, noise, insecure_seed=insecure_seed, step=step)
        if step == 0:
            d = len(sums.integers) - 5
            out.integers[d : d + 4] = sums.integers[d : d + 4]
        return out

    monkeypatch.setattr(paid_sums, "noisy", faulty)
    found = audit_epsilon(guaranteed("head", 1.0), canaries=1000, records=100, seed=0)
    assert not found.ok
    assert {test.name for test in found.lower.exact if test.epsilon > 1} == {"noise of counts"}


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_precision_that_is_spent_twice_is_caught(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step gets twice its share, and nobody adds shares up."""
    honest = Schedule.share.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Schedule, "share", property(lambda self: 2 * honest(self)))
    with pytest.raises(PrivacyError, match="not paid for"):
        audit_epsilon(guaranteed("head", 1.0, unit), canaries=100, records=20, seed=0)
    monkeypatch.setattr(paid_sums, "math", SimpleNamespace(fsum=lambda shares: 0.0, sqrt=np.sqrt))
    assert not audit_epsilon(guaranteed("head", 1.0, unit), canaries=1000, records=200, seed=0).ok


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_gradients_that_are_no_longer_clipped_are_caught(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps alone: class sums have length 1 by construction."""
    for name in ("_cut", "_cut_subjects"):
        monkeypatch.setattr(gradients, name, lambda residuals, *rest: np.trunc(residuals * gradients._FULL))
    found = audit_epsilon(guaranteed("head", 1.0, unit), canaries=1000, records=200, seed=0)
    assert not found.ok
    assert "noise and lengths of all draws" in found.words


def test_the_first_query_of_a_head_clips_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_of_subject", query._of_records)
    assert not audit_epsilon(guaranteed("head", 1.0, "subject"), canaries=1000, records=100, seed=0).ok


def test_the_usual_audit_is_of_what_a_fit_does_by_default(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((60, 4)), np.arange(60) % 2
    for mechanism, said in (("auto", "private head"), ("means", "noisy sums"), ("covariance", "noisy sums")):
        place = tmp_path / f"{mechanism}.sqlite"
        made = ClassGaussian(privacy=DP(1.0, 1e-5), classes=[0, 1], mechanism=mechanism, ledger=place)
        assert audit_epsilon(made, canaries=50, records=50, seed=0).mechanism == said
        assert audit_epsilon(made.fit(X, y).release(), canaries=50, records=50, seed=0).mechanism == said


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_eight_is_bounded_from_both_sides(kind: str) -> None:
    found = audit_epsilon(guaranteed(kind, 8.0), canaries=1000, seed=0)
    assert found.records == 5000
    assert 1 <= found.lower.epsilon < found.upper <= 8
    assert found.verdict == "no contradiction found"
    found.require()


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_one_is_not_contradicted(kind: str) -> None:
    found = audit_epsilon(guaranteed(kind, 1.0), canaries=1000, records=500, seed=0)
    assert found.ok
    assert found.lower.epsilon < 1


@pytest.mark.parametrize("kind", ["head", "means"])
def test_a_guarantee_that_holds_is_not_called_broken_over_seeds(kind: str) -> None:
    """Guesses hardly ever raise an alarm under normal noise; the exact tests may, in one run of forty."""
    plan = guaranteed(kind, 1.0).plan()
    found = [audit_epsilon(plan, canaries=200, records=20, seed=seed, claimed=1.0) for seed in range(40)]
    assert sum(not one.ok for one in found) <= 4
    assert all(one.lower.error == pytest.approx(0.05) for one in found)


def test_a_plan_with_less_noise_than_the_claim_needs_is_caught() -> None:
    plan = guaranteed("head", 1.0).plan()
    found = audit_epsilon(replace(plan, noise_multiplier=plan.noise_multiplier / 8), records=100, claimed=1.0, seed=0)
    assert found.upper == 1.0
    assert not found.ok


def test_the_claim_of_a_release_is_audited(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((60, 4)), np.arange(60) % 2
    budget = DP(6.0, 1e-4, "subject", n_public=50, relation="replace-one")
    fitted = ClassGaussian(privacy=budget, classes=[0, 1], ledger=tmp_path / "ledger.sqlite")
    claim = fitted.fit(X, y, subject=np.arange(60) // 2).release().claim
    before = sorted(tmp_path.iterdir()), (tmp_path / "ledger.sqlite").read_bytes()
    found = audit_epsilon(claim, seed=0)
    assert (found.unit, found.relation, found.mechanism) == ("subject", "replace-one", "private head")
    assert claim.dp is not None
    assert found.upper == claim.dp.epsilon
    assert 1 < found.lower.epsilon < found.upper
    # The audit pays nothing and writes nothing.
    assert before == (sorted(tmp_path.iterdir()), (tmp_path / "ledger.sqlite").read_bytes())


def test_a_release_is_audited_by_the_networks_that_made_it(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    def watched(*args: Any, network: str, **rest: Any) -> Any:
        used.append(network)
        return run_canaries(*args, network=network, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("locum.audit.epsilon.epsilon_audit.run_canaries", watched)
    X, y = rng.standard_normal((60, 4)), np.arange(60) % 2
    budget = DP(6.0, 1e-4, n_public=60)
    settings = {"privacy": budget, "classes": [0, 1], "batch_size": 30, "max_epochs": 1}
    for kind, network in ((CVAEGenerator, "cvae"), (CGANGenerator, "critic")):
        made = kind(**settings, ledger=tmp_path / f"{network}.sqlite").fit(X, y).release()  # type: ignore[operator]
        found = audit_epsilon(made, canaries=50, records=50, seed=0)
        assert used[-1] == network
        assert made.claim.dp is not None
        assert found.upper == made.claim.dp.epsilon
        assert found.ok


def claim_of(*events: Any) -> PrivacyClaim:
    paid = DPClaim(6.0, 1e-5, "add-or-remove", tuple(events_to_json(events)), "0" * 64)
    return PrivacyClaim("dp", ("much",), dp=paid)


def test_the_claim_of_noisy_steps_has_their_plan() -> None:
    plan = SGDPlan(DP(6.0, 1e-5), 0.5, 500, 4, 1.0, 1.2, (Gaussian(1.1),))
    by_claim = audit_epsilon(claim_of(*plan.events), canaries=300, records=100, seed=0)
    by_plan = audit_epsilon(plan, canaries=300, records=100, seed=0)
    assert by_claim.mechanism == "noisy steps"
    # Only the clip and the divisor differ, and they do not count.
    assert by_claim.lower == by_plan.lower
    assert by_claim.upper == 6.0


def test_the_finding_in_words_and_as_json() -> None:
    found = audit_epsilon(QueryPlan(DP(6.0, 1e-5), 1.0, 0.8), canaries=200, records=20, seed=0)
    told = found.to_dict()
    assert told["verdict"] == "no contradiction found"
    assert told["is_test"] is True
    assert told["lower"]["canaries"] == 200
    assert "200 canaries" in found.words
    assert "no proof" in found.words
    assert "95% confidence" in found.words
    broken = replace(found, upper=0.1)
    assert broken.words.startswith("Broken guarantee")
    assert broken.to_dict()["verdict"] == "broken guarantee"


@pytest.mark.parametrize(
    ("audited", "options", "said"),
    [
        (ClassGaussian(), {}, "needs a budget"),
        (KSame(), {}, "has no plan"),
        (PrivacyClaim("none", ("all",)), {}, "no epsilon"),
        (claim_of(Laplace(1.0)), {}, "no single run repeats"),
        (claim_of(Gaussian(1.0), Gaussian(2.0)), {}, "no single run repeats"),
        (claim_of(Gaussian(1.0)), {"canaries": 3}, "`canaries` must be"),
        (claim_of(Gaussian(1.0)), {"records": 0}, "`records` must be"),
        (claim_of(Gaussian(1.0)), {"claimed": 0.0}, "`claimed` must be"),
        (claim_of(Gaussian(1.0)), {"error": 1.0}, "`error` must"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_sentence(audited: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        audit_epsilon(audited, **options)
