"""What happens around a private fit: who is held out, what a charge can buy, what a release may say."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from locum import EmbeddingInfo, EmbeddingSet
from locum.accounting import Ledger, SGDPlan
from locum.data import write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.generate.private import HeadQuery
from locum.recipes import fit_release, rebalance_to_file, verify_release
from locum.train import RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP, DPClaim, PrivacyClaim

Blobs = tuple[np.ndarray, np.ndarray]
BUDGET = DP(1.0, 1e-4, n_public=200)


def fitted_on(file: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> np.ndarray:
    """The first sums without noise of a private fit through the program's own path; others depend on noise."""
    seen = []
    first = HeadQuery.first
    monkeypatch.setattr(HeadQuery, "first", lambda *given: seen.append(first(*given)) or seen[-1])
    budget = DP(1.0, 1e-6, options.pop("unit", "record"), 300)
    options["settings"] = {"reference": "none"}
    fit_release(str(file), file.with_suffix(".release"), generator="gaussian", privacy=budget, **options)
    (sums,) = seen
    monkeypatch.undo()
    return sums.to_array()


def write_table(file: Path, rows: list[dict[str, object]]) -> Path:
    with file.open("w", newline="") as stream:
        out = csv.DictWriter(stream, rows[0])
        out.writeheader()
        out.writerows(rows)
    return file


def table(n: int = 200, **columns: Any) -> list[dict[str, object]]:
    X = np.random.default_rng(0).normal(size=(n, 3)).round(4)
    rows = [{"x0": a, "x1": b, "x2": c, "label": "ab"[i % 2]} for i, (a, b, c) in enumerate(X.tolist())]
    return [row | {name: make(i) for name, make in columns.items()} for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("columns", "odd", "unit", "more"),
    [
        # One entry of another kind used to change how all were read: 18 digits through a float are no name any more.
        ({"subject": lambda i: 10**17 + i}, {"subject": "7.0"}, "subject", {}),
        ({"subject": lambda i: ("7", "7.0")[i % 2] if i < 100 else str(i)}, {"subject": "p1"}, "subject", {}),
        # One record of another split used to switch the held-out share off.
        ({"split": lambda i: "train"}, {"split": "test"}, "record", {}),
        # An attribute used to decide what is a copy.
        ({"attr_age": lambda i: ("60", "60.0")[i % 2]}, {"attr_age": "unknown"}, "record", {"drop_duplicates": True}),
    ],
    ids=["long names", "names with zeros", "another split", "attributes"],
)
def test_what_one_record_holds_changes_nothing_about_the_others(
    columns: dict[str, Any],
    odd: dict[str, object],
    unit: str,
    more: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = table(**columns)
    if "drop_duplicates" in more:
        rows = [row | {"x0": i // 2, "x1": 1, "x2": 2, "label": "ab"[i // 2 % 2]} for i, row in enumerate(rows)]
    extra = {**rows[0], "x0": 9.0, **odd}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    whole = fitted_on(
        write_table(tmp_path / "one" / "t.csv", [*rows, extra]), monkeypatch, unit=unit, classes=["a", "b"], **more
    )
    without = fitted_on(
        write_table(tmp_path / "two" / "t.csv", rows), monkeypatch, unit=unit, classes=["a", "b"], **more
    )
    assert np.linalg.norm(whole - without) <= 1 + 1e-9


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
    for options in ({}, {"privacy": None, "classes": None, "no_dp": True}):
        with pytest.raises(DataError, match="generated records"):
            fitted(str(tmp_path / "balanced.npz"), tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()
