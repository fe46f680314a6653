"""`verify --ledger` of a private head: the decoder follows from what the ledger knows, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Ledger
from locum.data import Reference
from locum.errors import FormatError, PrivacyError
from locum.generate import ClassGaussian
from locum.recipes import verify_release
from locum.release import HeadSpec, Release
from locum.types import DP

FOLLOWS = "the decoder follows from the noisy sums"


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A release of features with scales from 0.01 to 1000, whitened by declared ranges."""
    folder = tmp_path_factory.mktemp("paid")
    rng = np.random.default_rng(0)
    scale = np.geomspace(1000, 0.01, 12)
    y = np.arange(2000) % 2
    X = ((rng.normal(size=(2000, 12)) + 0.5 * y[:, None]) * scale).astype(np.float32)
    reference = Reference.from_ranges(-3 * scale, 3 * scale, source="declared").save(folder / "r.safetensors")
    model = ClassGaussian(
        privacy=DP(1.0, 1e-6), classes=[0, 1], reference=str(reference), ledger=folder / "ledger.sqlite"
    ).fit(X, y)
    release = model.release()
    return {
        "X": X,
        "release": release,
        "folder": folder,
        "reference": reference,
        "ledger": folder / "ledger.sqlite",
        "saved": release.save(folder / "release"),
    }


def checked(paid: dict[str, Any], release: Release, tmp_path: Path) -> Any:
    """The holder noted the release, whatever it is: what `verify` says of it then."""
    book = Ledger(paid["ledger"])
    (charge,) = book.holding("default").charges
    saved = replace(release, bind=lambda fingerprint: book.bind(charge, fingerprint)).save(tmp_path / "forged")
    return verify_release(saved, ledger=paid["ledger"], reference=paid["reference"])


def with_tensors(release: Release, **changes: Any) -> Release:
    return replace(release, tensors={**release.tensors, **changes}, fingerprint=None)


def with_spec(release: Release, **changes: Any) -> Release:
    decoder = release.manifest.decoder
    head = decoder.head.model_copy(update=changes)
    manifest = release.manifest.model_copy(update={"decoder": decoder.model_copy(update={"head": head})})
    return replace(release, manifest=manifest, fingerprint=None)


def test_an_honest_release_follows_from_its_transcript(paid: dict[str, Any], tmp_path: Path) -> None:
    found = verify_release(paid["saved"], ledger=paid["ledger"], reference=paid["reference"])
    assert FOLLOWS in found.checks
    assert not any("gradient steps" in line for line in found.not_checked)
    assert FOLLOWS in checked(paid, replace(paid["release"], fingerprint=None), tmp_path).checks


def records_in_small_features(paid: dict[str, Any]) -> Release:
    """Features of small scale hold two records: far below a tolerance that goes by the largest number."""
    means = paid["release"].tensors["means"].copy()
    means[:, -4:] = paid["X"][:2, -4:]
    return with_tensors(paid["release"], means=means)


def no_spread_in_small_features(paid: dict[str, Any]) -> Release:
    scale, factor = (paid["release"].tensors[name].copy() for name in ("scale", "factor"))
    scale[-6:] = 0
    factor[:, -6:] = 0
    return with_tensors(paid["release"], scale=scale, factor=factor)


def other_frequencies(paid: dict[str, Any]) -> Release:
    manifest = paid["release"].manifest
    return replace(
        paid["release"], manifest=manifest.model_copy(update={"joint": (((0,), 0.9), ((1,), 0.1))}), fingerprint=None
    )


def other_transcript(paid: dict[str, Any]) -> Release:
    transcript = paid["release"].tensors["transcript"].copy()
    transcript[0] += 1
    return with_tensors(paid["release"], transcript=transcript)


@pytest.mark.parametrize(
    "forge",
    [
        records_in_small_features,
        no_spread_in_small_features,
        other_frequencies,
        other_transcript,
        lambda paid: with_spec(paid["release"], sharpness=123.0),
        lambda paid: with_spec(paid["release"], noise=paid["release"].manifest.decoder.head.noise / 10),
        lambda paid: with_spec(paid["release"], separation=9.0),
        lambda paid: with_spec(paid["release"], learning_rate=3.21),
    ],
)
def test_forged_releases_are_refused(
    paid: dict[str, Any], forge: Callable[[dict[str, Any]], Release], tmp_path: Path
) -> None:
    with pytest.raises(PrivacyError, match="altered"):
        checked(paid, forge(paid), tmp_path)


def test_another_schedule_is_named_as_not_checked(paid: dict[str, Any], tmp_path: Path) -> None:
    """A decoder that was made from the same transcript with other settings: they could be chosen for the records."""
    from locum.data import load_reference
    from locum.generate.private import place_means, read_head

    other = with_spec(paid["release"], learning_rate=3.21)
    spec = other.manifest.decoder.head
    head = read_head(spec, other.tensors["transcript"], 2, 12)
    found, sharpness = place_means(head, load_reference(paid["reference"], 12), spec.separation)
    forged = with_tensors(with_spec(other, sharpness=sharpness), **found.tensors())
    told = checked(paid, forged, tmp_path)
    assert any("gradient steps" in line for line in told.not_checked)


@pytest.mark.parametrize(
    "change", [{"start": 1.0}, {"start": 0.88, "steps": 3}, {"noise": float("nan")}, {"steps": -1}]
)
def test_impossible_schedules_are_no_releases(paid: dict[str, Any], change: dict[str, Any]) -> None:
    given = {**paid["release"].manifest.decoder.head.model_dump(), **change}
    with pytest.raises((ValueError, FormatError)):
        HeadSpec(**given)
