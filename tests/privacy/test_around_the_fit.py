"""What happens around a private fit: who is held out, what a charge can buy, what a release may say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from locum import EmbeddingInfo, EmbeddingSet
from locum.accounting import Ledger, SGDPlan
from locum.data import Reference, hash_split, write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.generate.private import query_sums
from locum.recipes import fit_release, rebalance_to_file, verify_release
from locum.train import RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP, DPClaim, PrivacyClaim

Blobs = tuple[np.ndarray, np.ndarray]
BUDGET = DP(1.0, 1e-4, n_public=200)


@given(st.integers(0, 209), st.integers(0, 5), st.sampled_from(["none", "one", "many"]))
def test_the_draw_of_a_unit_does_not_depend_on_the_others(gone: int, seed: int, subjects: str) -> None:
    """Without one record, or one subject, all others stay where they are; the sums move by at most 1."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(210, 4)).astype(np.float32), np.repeat([0, 1], 105)
    subject = {"none": None, "one": np.arange(210), "many": np.arange(210) // 4}[subjects]
    data = EmbeddingSet.from_arrays(X, y, subject=subject)
    left = np.arange(210) != gone if subject is None else subject != subject[gone]
    held, after = hash_split(data, 0.3, seed), hash_split(data.take(left), 0.3, seed)
    np.testing.assert_array_equal(held[left], after)
    rows, rest = np.flatnonzero(~held), np.flatnonzero(left)[~after]
    sums = [
        query_sums(X[i], y[i], None if subject is None else subject[i], 2, Reference.plain(4)) for i in (rows, rest)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) <= 1 + 1e-9


def test_about_the_wanted_share_is_held_out_and_people_stay_together(rng: np.random.Generator) -> None:
    X = rng.normal(size=(3000, 3)).astype(np.float32)
    alone = EmbeddingSet.from_arrays(X, np.zeros(3000, dtype=int))
    assert abs(hash_split(alone, 0.1, 0).mean() - 0.1) < 0.03
    assert (hash_split(alone, 0.1, 0) != hash_split(alone, 0.1, 1)).any()
    together = EmbeddingSet.from_arrays(X, np.zeros(3000, dtype=int), subject=np.arange(3000) // 5)
    held = hash_split(together, 0.1, 0).reshape(-1, 5)
    assert (held.all(axis=1) | ~held.any(axis=1)).all()


@pytest.fixture
def file(blob_set: EmbeddingSet, tmp_path: Path) -> str:
    write_embeddings(tmp_path / "train.npz", blob_set)
    return str(tmp_path / "train.npz")


def fitted(file: str, out: Path, **options: object) -> object:
    given = {"privacy": BUDGET, "classes": ("ant", "bee", "cat"), **options}
    return fit_release(file, out, **given)


def test_records_do_not_decide_whether_a_release_is_written(file: str, tmp_path: Path, blobs: Blobs) -> None:
    with pytest.raises(PrivacyError, match="--fail-on-leak"):
        fitted(file, tmp_path / "a", refuse_leak=True)
    assert not (tmp_path / ".locum").exists()
    # Every record three times, and the same records as non-members: no check is possible, and yet it is written.
    same = fitted(file, tmp_path / "b", non_members=file)
    assert same.membership is None
    assert "equal a member" in same.problem
    assert (tmp_path / "b" / "manifest.json").exists()


def test_a_class_of_one_record_is_no_reason_to_refuse(blobs: Blobs, tmp_path: Path) -> None:
    X, y = blobs
    keep = np.concatenate([np.flatnonzero(y < 2), np.flatnonzero(y == 2)[:1]])
    lone = EmbeddingSet.from_arrays(X[keep], np.array(["ant", "bee", "cat"])[y[keep]])
    write_embeddings(tmp_path / "lone.npz", lone)
    assert fitted(str(tmp_path / "lone.npz"), tmp_path / "r").claim.kind == "dp"


def test_verify_computes_the_epsilon_anew(file: str, tmp_path: Path) -> None:
    fitted(file, tmp_path / "r")
    ledger = tmp_path / ".locum" / "ledger.sqlite"
    assert "the claimed epsilon covers what its events cost" in verify_release(tmp_path / "r").checks
    assert "the ledger has the charge of this release" in verify_release(tmp_path / "r", ledger=ledger).checks
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    for change, words in (
        ({"epsilon": 0.01}, "costs"),
        ({"epsilon": 1.5}, "altered"),
        ({"relation": "replace-one", "epsilon": 5.0}, "altered"),
    ):
        shutil.copytree(tmp_path / "r", tmp_path / "forged")
        forged = {**manifest, "claim": {**manifest["claim"], "dp": {**manifest["claim"]["dp"], **change}}}
        (tmp_path / "forged" / "manifest.json").write_text(json.dumps(forged))
        with pytest.raises(PrivacyError, match=words):
            verify_release(tmp_path / "forged", ledger=ledger)
        shutil.rmtree(tmp_path / "forged")


def test_a_charge_buys_one_result(tmp_path: Path) -> None:
    """Two copies of a checkpoint: who finishes second is refused."""
    rows = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    plan = SGDPlan(DP(100.0, 1e-5, n_public=60), 0.2, 12, 20, 1.0, 1.0)
    loss = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, :1]).sum(dim=1))

    def stop(done: int, total: int, note: str = "") -> None:
        raise KeyboardInterrupt

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_budget("scans", epsilon=1000.0, delta=1e-3)

        def run(checkpoint: Path, **options: object) -> PrivateRun:
            torch.manual_seed(0)
            return PrivateRun(nn.Linear(3, 1), rows, loss, plan, ledger, "scans", checkpoint=checkpoint, **options)

        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "a", checkpoint_seconds=0.0, progress=stop).run()
        shutil.copy(tmp_path / "a", tmp_path / "b")
        run(tmp_path / "a").run()
        # The finished one again gives the same weights: nothing new is bought.
        run(tmp_path / "a").run()
        with pytest.raises(PrivacyError, match="another result already"):
            run(tmp_path / "b").run()
        assert len(ledger.holding("scans").charges) == 1


def test_class_names_of_the_records_stay_at_home(blobs: Blobs) -> None:
    model = ClassGaussian(privacy=BUDGET, classes=[0, 1, 2], insecure_seed=0).fit(*blobs)
    info = EmbeddingInfo(class_names=("benign", "malignant", "rare"))
    assert model.release(info).manifest.class_names == ("0", "1", "2")
    assert model.release(info, class_names=("x", "y", "z")).manifest.class_names == ("x", "y", "z")
    with pytest.raises(ConfigError, match="3 names"):
        model.release(class_names=("x",))


@pytest.mark.parametrize("missing", [None, float("nan"), "", " "])
@pytest.mark.parametrize("kind", [ClassGaussian, CVAEGenerator])
def test_a_missing_subject_is_refused_before_anything_is_paid(
    kind: type, missing: object, blobs: Blobs, tmp_path: Path
) -> None:
    subjects = np.array([f"p{i}" for i in range(210)], dtype=object)
    subjects[[3, 5]] = missing
    budget = DP(1.0, 1e-4, unit="subject", n_public=200)
    with pytest.raises(PrivacyError, match="one is missing"):
        kind(privacy=budget, classes=[0, 1, 2], ledger=tmp_path / "l.sqlite").fit(*blobs, subjects)
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert not any(h.charges for h in ledger.holdings().values())


def test_a_claim_is_rounded_up() -> None:
    events = ({"kind": "gaussian", "noise_multiplier": 3.7},)
    dp = DPClaim(1.00001, 1.00001e-5, "add-or-remove", events, "0" * 64)
    claim = PrivacyClaim("dp", ("x",), dp=dp)
    assert "epsilon = 1.001, delta = 1.001e-05" in claim.title
    assert "exp(1.001)" in claim.sentence()


def test_labels_of_a_private_cvae_in_any_order(blobs: Blobs) -> None:
    X, y = blobs
    names = np.array(["ant", "bee", "cat"])[y]
    given = {"privacy": BUDGET, "insecure_seed": 0, "random_state": 0, "max_epochs": 1, "hidden": (4,), "latent": 2}
    model = CVAEGenerator(classes=["cat", "ant", "bee"], **given).fit(X, names)
    assert model._codes(np.array(["ant", "bee", "cat"])).ravel().tolist() == [1, 2, 0]


def test_generated_records_are_no_records(file: str, tmp_path: Path) -> None:
    """Each of them depends on many records: a guarantee per record would not cover a subject."""
    rebalance_to_file(file, tmp_path / "balanced.npz")
    for options in ({}, {"privacy": None, "classes": None}):
        with pytest.raises(DataError, match="generated records"):
            fitted(str(tmp_path / "balanced.npz"), tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()
