"""What a release claims never decides which attacks are run on it, and an attack that could not run is not a pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Gaussian, Ledger, attack_limit, epsilon_of, events_to_json
from locum.data import write_embeddings
from locum.errors import PrivacyError
from locum.generate import ClassGaussian, KSame
from locum.recipes import audit_data
from locum.release import entry_of
from locum.release.card import render_card
from locum.release.manifest import parse_manifest


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Members and non-members, a release without a guarantee, and the same with a forged claim."""
    folder = tmp_path_factory.mktemp("forged")
    rng = np.random.default_rng(0)
    y = np.arange(160) % 2
    for name in ("members", "others"):
        X = (rng.normal(size=(160, 24)) + y[:, None]).astype(np.float32)
        write_embeddings(folder / f"{name}.npz", EmbeddingSet(X, y))
        if name == "members":
            for forged in ("honest", "forged", "loud"):
                ClassGaussian(random_state=0).fit(X, y).release(no_dp=True).save(folder / forged)
            KSame(k=2).fit(X, y).release(no_dp=True).save(folder / "table")
    claim(folder / "forged", 50.0)
    claim(folder / "loud", 0.2)
    return folder


def claim(release: Path, noise: float) -> None:
    """Rewrite the claim to differential privacy, with every hash in place."""
    body = json.loads((release / "manifest.json").read_text())
    events = [Gaussian(noise)]
    body["claim"] = {
        **body["claim"],
        "kind": "dp",
        "dp": {
            "epsilon": epsilon_of(events, 1e-5, "add-or-remove"),
            "delta": 1e-5,
            "relation": "add-or-remove",
            "events": events_to_json(events),
            "ledger": "f" * 64,
        },
    }
    (release / "README.md").write_text(render_card(parse_manifest(json.dumps(body).encode())))
    body["files"] = {name: entry_of((release / name).read_bytes()).model_dump() for name in body["files"]}
    (release / "manifest.json").write_text(json.dumps(body))


def audited(files: Path, release: str, **asked: object) -> object:
    sets = (str(files / "members.npz"), str(files / "others.npz"))
    return audit_data(files / release, *sets, seed=0, policy="internal", **asked).report  # type: ignore[arg-type]


def test_a_forged_claim_switches_no_attack_off(files: Path) -> None:
    honest, forged = (audited(files, name, shadows=16) for name in ("honest", "forged"))
    names = [result.name for result in forged.results]
    assert {"LiRA", "RMIA"} <= set(names)
    assert names == [result.name for result in honest.results]
    assert [r.attack for r in forged.results] == [r.attack for r in honest.results]
    assert forged.verdict == "leak"
    assert not forged.may_leave


def test_an_attack_that_was_asked_for_and_could_not_run_fails_the_policy(files: Path) -> None:
    for asked in ({"shadows": 16}, {"attacks": ["LiRA"]}, {"attacks": ["latent search"]}):
        report = audited(files, "table", **asked)
        (finding,) = (f for f in report.findings if f.rule == "every attack that was asked for was run")
        assert not finding.met
        assert "not run: " in finding.found
        assert not report.may_leave


def test_one_that_nobody_asked_for_is_no_fault(files: Path) -> None:
    report = audited(files, "table")
    assert report.skipped
    assert not any(f.rule == "every attack that was asked for was run" for f in report.findings)


def test_a_forged_claim_softens_no_verdict(files: Path) -> None:
    """By the events that it claims any attack would stay below the limit; only a ledger can show that."""
    assert attack_limit([Gaussian(0.2)]) > 0.99
    report = audited(files, "loud", attacks=["likelihood ratio"])
    assert (report.verdict, report.outcome, report.limit) == ("leak", "leak", None)
    Ledger(files / "empty.sqlite").set_budget("default", epsilon=1.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="does not have the charge"):
        audited(files, "loud", ledger=files / "empty.sqlite")
