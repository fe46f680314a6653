"""`fit --condition-on` through the CLI, with and without a guarantee, to a head and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet, load
from locum.data import read_embeddings, write_embeddings
from locum.errors import PrivacyError
from locum.recipes import FitSummary, fit_release

LEDGER = Path(".locum") / "ledger.sqlite"
CLASSES = ("--classes", "ant,bee,cat")
VALUES = ("--condition-values", "sex=F,M")


@pytest.fixture
def data(tmp_path: Path, blob_set: EmbeddingSet) -> Path:
    sex = np.array(["F", "M"])[np.arange(len(blob_set)) % 2]
    # An odd value that a few records have.
    site = np.where(np.arange(len(blob_set)) < 3, "rare", "usual")
    X = blob_set.X + 5 * (sex == "M")[:, None].astype(np.float32)
    path = tmp_path / "d.npz"
    made = EmbeddingSet(X, blob_set.y, attributes={"sex": sex, "site": site}, info=blob_set.info)
    write_embeddings(path, made)
    return path


def test_from_declared_values_to_a_head(program, data: Path, tmp_path: Path) -> None:
    ran = program("fit", "d.npz", "-o", "r", *CLASSES, "--epsilon", "8", "--condition-on", "sex", *VALUES)
    assert ran.code == 0, ran.err
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["conditions"] == [{"name": "sex", "values": ["F", "M"]}]
    assert manifest["claim"]["assumptions"] == []
    told = program("verify", "r", "--ledger", LEDGER)
    assert told.code == 0, told.err
    assert "the decoder follows from the noisy sums" in told.out
    release = load(tmp_path / "r")
    men, women = (release.sample(500, attributes={"sex": s}, random_state=0)[0].mean() for s in "MF")
    assert men > women
    trained = program("train", "r", "-o", "h.safetensors", "--json")
    assert trained.code == 0, trained.err
    assert trained.json["kind"] == "linear"
    refused = program("train", "r", "-o", "b.safetensors", "--head", "bayes")
    assert refused.code == 2
    assert "--head linear" in refused.err
    assert program("sample", "r", "-n", "50", "-o", "s.npz").code == 0
    assert set(read_embeddings(tmp_path / "s.npz").attributes["sex"].tolist()) == {"F", "M"}


def test_values_in_the_data_are_confirmed_as_public(program, data: Path, tmp_path: Path) -> None:
    ran = program("fit", "d.npz", "-o", "r", "--classes-public", "--condition-on", "sex", "--json")
    assert ran.code == 0, ran.err
    first = ran.json["claim"]["assumptions"][0]
    assert first.startswith("given that these class names and values of sex are public: they were read from the data")
    assert ran.json["limit"]["open_assumptions"] == []
    assert load(tmp_path / "r").manifest.conditions[0].values == ("F", "M")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*CLASSES, "--condition-on", "sex"), "--condition-values sex=A,B"),
        ((*CLASSES, "--condition-on", "sex", "--condition-values", "sex=F"), "is not among `condition_values`"),
        ((*CLASSES, "--condition-on", "sex", "--condition-values", "F,M"), "such as sex=F,M"),
        ((*CLASSES, "--condition-on", "sex", *VALUES, *VALUES), "once for each attribute"),
        ((*CLASSES, *VALUES), "`condition_on` does not name"),
        ((*CLASSES, "--condition-on", "age", "--condition-values", "age=1"), "'age'"),
        (("--classes-public", "--condition-on", "age"), "the data have sex, site"),
        (
            ("--classes-public", "--condition-on", "site"),
            "1 of the 2 values of 'site' in the data have fewer than 20",
        ),
        ((*CLASSES, "--generator", "cvae", "--n-public", "200", "--condition-on", "sex", *VALUES), "'gaussian'"),
        (("--no-dp", "--condition-on", "sex", *VALUES), "--condition-values belongs to a guarantee"),
    ],
)
def test_what_is_refused_costs_nothing(
    program, data: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    ran = program("fit", "d.npz", "-o", "r", *words)
    assert ran.code == 2, ran.out
    assert told in ran.err
    assert "rare" not in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / LEDGER).exists()


def test_without_a_guarantee(program, data: Path, tmp_path: Path) -> None:
    ran = program("fit", "d.npz", "-o", "r", "--no-dp", "--condition-on", "sex", "--rank", "0")
    assert ran.code == 0, ran.err
    assert load(tmp_path / "r").tensors["means"].shape[0] == 6
    again = program("fit", "d.npz", "-o", "r2", "--no-dp", "--condition-on", "sex", "--rank", "1", "--seed", "1")
    assert again.code == 0, again.err
    merged = program("federate", "merge", "r", "r2", "-o", "m")
    assert merged.code == 2
    assert "conditioned on more than the class" in merged.err


def test_the_holder_is_asked_about_values_too(data: Path, tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def confirm(names: Sequence[str]) -> bool:
        asked.append(tuple(names))
        return "sex=F" not in names or len(asked) > 2

    def fit() -> FitSummary:
        return fit_release(str(data), tmp_path / "r", settings={"condition_on": "sex"}, confirm_classes=confirm)

    with pytest.raises(PrivacyError, match=r"Values of 'sex' that are not public .* nothing was spent"):
        fit()
    assert not (tmp_path / LEDGER).exists()
    assert fit().claim.assumptions[0].startswith("given that these class names and values of sex are public")
    assert asked == 2 * [("ant", "bee", "cat"), ("sex=F", "sex=M")]
