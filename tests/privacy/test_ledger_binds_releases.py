"""A ledger knows which releases it paid for: a forged one under a paid claim is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from locum.accounting import Ledger, joint_ledger
from locum.errors import LocumError, PrivacyError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.recipes import verify_release
from locum.release import load
from locum.types import DP

Forge = Callable[..., None]


def records(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(400) % 2
    return (rng.normal(size=(400, 4)) + y[:, None]).astype(np.float32), y


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    """A paid release, and the ledger that paid."""
    X, y = records()
    ledger = tmp_path / "ledger.sqlite"
    model = ClassGaussian(privacy=DP(8.0, 1e-5, n_public=400), classes=[0, 1], ledger=ledger)
    model.fit(X, y).release().save(tmp_path / "release")
    return tmp_path / "release", ledger


def kinds(ledger: Path) -> list[str]:
    """Kinds of entries in their order; the results of several noisy sums count as one."""
    return [kind for kind, _ in itertools.groupby(entry["body"]["kind"] for entry in Ledger(ledger).export())]


def test_an_honest_release_passes_and_says_what_was_checked(made: tuple[Path, Path]) -> None:
    release, ledger = made
    assert kinds(ledger) == ["budget", "charge", "result", "release"]
    found = verify_release(release, ledger=ledger)
    said = "\n".join(found.checks)
    assert "the ledger knows this release by its fingerprint" in said
    assert "the noisy sums are the ones that the ledger knows" in said
    assert "the decoder follows from the noisy sums" in said
    assert any("noise was drawn" in item for item in found.not_checked)


def test_exact_means_under_a_paid_claim(forge: Forge, made: tuple[Path, Path]) -> None:
    release, ledger = made
    X, y = records()
    tensors = load_file(release / "decoder.safetensors")
    tensors["means"] = np.stack([X[y == c].mean(axis=0) for c in (0, 1)])
    forge(release, lambda body: None, tensors)
    load(release)
    with pytest.raises(PrivacyError, match="does not know this release"):
        verify_release(release, ledger=ledger)


def test_a_decoder_that_does_not_follow_from_the_sums_is_found_even_if_the_ledger_was_made_to_know_it(
    forge: Forge,
    made: tuple[Path, Path],
) -> None:
    release, ledger = made
    tensors = load_file(release / "decoder.safetensors")
    tensors["means"] = tensors["means"] + 0.01
    forge(release, lambda body: None, tensors)
    book = Ledger(ledger)
    (charge,) = book.holding("default").charges
    book.bind(charge, str(load(release).fingerprint))
    with pytest.raises(PrivacyError, match="does not follow from"):
        verify_release(release, ledger=ledger)


def test_other_sums_are_found_even_if_the_ledger_was_made_to_know_them(forge: Forge, made: tuple[Path, Path]) -> None:
    release, ledger = made
    tensors = load_file(release / "decoder.safetensors")
    tensors["transcript"] = tensors["transcript"] + 1
    forge(release, lambda body: None, tensors)
    book = Ledger(ledger)
    (charge,) = book.holding("default").charges
    book.bind(charge, str(load(release).fingerprint))
    with pytest.raises(PrivacyError, match="other noisy sums"):
        verify_release(release, ledger=ledger)


def test_a_second_release_on_one_charge(forge: Forge, made: tuple[Path, Path], tmp_path: Path) -> None:
    release, ledger = made
    X, y = records(1)
    other = ClassGaussian(privacy=DP(8.0, 1e-5, n_public=400), classes=[0, 1], insecure_seed=1).fit(X, y).release()
    other.save(tmp_path / "second")
    paid = json.loads((release / "manifest.json").read_text())["claim"]
    forge(tmp_path / "second", lambda body: body.update(claim=paid))
    with pytest.raises(PrivacyError, match="does not know this release"):
        verify_release(tmp_path / "second", ledger=ledger)


def test_an_emptied_not_covered(forge: Forge, made: tuple[Path, Path]) -> None:
    release, ledger = made
    forge(release, lambda body: body["claim"].update(not_covered=["nothing"]))
    with pytest.raises(PrivacyError, match="does not know this release"):
        verify_release(release, ledger=ledger)


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "subject"},
        {"epsilon": 0.1},
        {"delta": 1e-9},
        {"relation": "replace-one"},
    ],
    ids=str,
)
def test_a_claim_rewritten_by_adding_sites(forge: Forge, change: dict[str, Any], made: tuple[Path, Path]) -> None:
    release, ledger = made
    (charge,) = Ledger(ledger).holding("default").charges

    def rewrite(body: dict[str, Any]) -> None:
        own = {"ledger": charge.tip, "epsilon": charge.epsilon, "delta": charge.delta}
        body["settings"]["sites"] = [own, {**own, "ledger": "f" * 64}]
        body["claim"]["dp"]["ledger"] = joint_ledger([charge.tip, "f" * 64])
        for name, value in change.items():
            (body["claim"] if name == "unit" else body["claim"]["dp"])[name] = value
        if change.get("epsilon") or change.get("delta") or change.get("relation"):
            body["claim"]["dp"]["events"] = [{"kind": "gaussian", "noise_multiplier": 1000.0}]

    forge(release, rewrite)
    with pytest.raises(LocumError) as told:
        verify_release(release, ledger=ledger)
    assert isinstance(told.value, PrivacyError)


def test_a_single_site_is_no_joint_release(forge: Forge, made: tuple[Path, Path]) -> None:
    release, ledger = made
    forge(release, lambda body: body["settings"].update(sites=[{"ledger": body["claim"]["dp"]["ledger"]}]))
    with pytest.raises(PrivacyError, match="not the joint claim"):
        verify_release(release, ledger=ledger)


def test_the_ledger_knows_the_release_before_it_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    X, y = records()
    ledger = tmp_path / "ledger.sqlite"
    release = ClassGaussian(privacy=DP(1.0, 1e-5, n_public=400), classes=[0, 1], ledger=ledger).fit(X, y).release()
    assert kinds(ledger) == ["budget", "charge", "result"]

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, fails)
    with pytest.raises((OSError, LocumError)):
        release.save(tmp_path / "release")
    monkeypatch.undo()
    assert kinds(ledger) == ["budget", "charge", "result", "release"]
    assert not (tmp_path / "release").exists()


def test_a_place_that_cannot_be_written_binds_nothing(made: tuple[Path, Path], tmp_path: Path) -> None:
    X, y = records()
    ledger = tmp_path / "other.sqlite"
    model = ClassGaussian(privacy=DP(1.0, 1e-5, n_public=400), classes=[0, 1], ledger=ledger).fit(X, y)
    with pytest.raises(LocumError, match="already exists"):
        model.release().save(made[0])
    assert kinds(ledger) == ["budget", "charge", "result"]


def test_a_network_s_release_is_known_too(forge: Forge, tmp_path: Path) -> None:
    X, y = records()
    ledger = tmp_path / "ledger.sqlite"
    model = CVAEGenerator(
        "private", privacy=DP(2.0, 1e-5, n_public=400), classes=[0, 1], ledger=ledger, max_epochs=1, batch_size=100
    )
    model.fit(X, y).release().save(tmp_path / "release")
    assert kinds(ledger) == ["budget", "charge", "result", "release"]
    found = verify_release(tmp_path / "release", ledger=ledger)
    assert "fingerprint" in "\n".join(found.checks)
    assert any("cannot be computed again" in item for item in found.not_checked)
    forge(tmp_path / "release", lambda body: body["claim"].update(not_covered=["nothing"]))
    with pytest.raises(PrivacyError, match="does not know this release"):
        verify_release(tmp_path / "release", ledger=ledger)
