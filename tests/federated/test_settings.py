"""Public terms: valid ones come back the same, others are refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from locum.errors import ConfigError
from locum.federated import FederationSettings
from locum.federated.certificates import _pair
from locum.federated.mask_terms import check_sites

# Three sites with a key each.
KEYS = {name: _pair(name)[f"{name}.pub"].decode().strip() for name in "abc"}
TWO = {"classes": ["a", "b"], "dim": 3}

good = st.fixed_dictionaries(
    {
        "classes": st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=4, unique=True),
        "dim": st.integers(1, 2000),
    },
    optional={
        "mode": st.sampled_from(["head", "sums", "decoder"]),
        "epsilon": st.floats(0.1, 10),
        "unit": st.sampled_from(["record", "subject"]),
        "absent": st.integers(0, 2),
        "initial_query": st.sampled_from(["class", "public"]),
        "hidden": st.lists(st.integers(1, 300), min_size=1, max_size=3),
        "rounds": st.integers(1, 100),
        "trim": st.floats(0, 0.49),
        "average": st.sampled_from(["mean", "median", "trimmed-mean"]),
        "max_sites_per_subject": st.none() | st.integers(1, 9),
        "reference": st.sampled_from(["none", "efflite0"]),
        "balanced": st.booleans(),
    },
)


@given(good)
def test_terms_survive_json(told: dict[str, Any]) -> None:
    settings = FederationSettings.from_dict(told)
    assert FederationSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["a"]},
        {"classes": ["a", "a"]},
        {"classes": "ant,bee"},
        {"dim": 0},
        {"dim": 2.5},
        {"dim": True},
        {"dim": "3"},
        {"hidden": []},
        {"hidden": [0]},
        {"hidden": [True]},
        {"hidden": 5},
        {"latent": 0},
        {"rounds": 0},
        {"batch": -1},
        {"beta": 0},
        {"beta": float("nan")},
        {"clip": float("inf")},
        {"learning_rate": -1e-3},
        {"trim": 0.5},
        {"trim": "much"},
        {"colluding": 0},
        {"colluding": 0.5},
        {"absent": -1},
        {"absent": 0.5},
        {"epsilon": 0},
        {"epsilon": "1"},
        {"delta": 1.0},
        {"unit": "patient"},
        {"relation": "none"},
        {"sites": ["a", "b"]},
        {"sites": {"a": 5}},
        {"sites": {"a": "ssh-rsa AAAA"}},
        {"sites": {"../a": KEYS["a"]}},
        {"sites": {**KEYS, "d": KEYS["a"]}},
        {"sites": {k: KEYS[k] for k in "ab"}},
        {"sites": KEYS, "absent": 1},
        {"sites": KEYS, "max_size": 10**8},
        {"min_sites": 0},
        {"max_sites_per_subject": 0},
        {"max_sites_per_subject": 1.5},
        {"seed": -1},
        {"mode": "gossip"},
        {"initial_query": "own"},
        {"weights": "lies"},
        {"average": "mode"},
        {"secure": True, "mode": "decoder"},
        {"secure": "false", "mode": "sums"},
        {"balanced": "false"},
        {"reference": "/home/records.safetensors"},
        {"reference": "records.safetensors"},
        {"reference": "own"},
        {"reference": "own", "reference_sha256": "../records.safetensors"},
        {"reference_sha256": 7},
        {"data": "records.npz"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    FederationSettings.from_dict(TWO)
    with pytest.raises(ConfigError) as told:
        FederationSettings.from_dict({**TWO, **change})
    assert "\n" not in str(told.value)


def test_a_file_without_its_classes_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="classes"):
        FederationSettings.from_dict({"dim": 3})


@pytest.mark.parametrize(
    ("more", "least"),
    [
        ({"min_sites": 5}, 5),
        ({"min_sites": 1}, 1),
        ({"average": "trimmed-mean"}, 3),
        ({"mode": "sums", "average": "trimmed-mean"}, 2),
        ({"mode": "sums", "secure": True}, 3),
        ({"mode": "head", "colluding": 2}, 4),
        ({"mode": "head", "absent": 3}, 5),
        ({"mode": "head", "sites": KEYS}, 3),
    ],
    ids=str,
)
def test_sites_needed(more: dict[str, Any], least: int, little: Callable[..., FederationSettings]) -> None:
    settings = little(**more)
    assert settings.least_sites == least
    if settings.masked and not settings.sites:
        check_sites(least + settings.absent, settings.absent, settings.colluding)
        with pytest.raises(ConfigError):
            check_sites(least + settings.absent - 1, settings.absent, settings.colluding)


def test_the_terms_hold_nothing_about_a_site(little: Callable[..., FederationSettings]) -> None:
    private = {"n_public", "data", "ledger", "holding", "path", "insecure_seed"}
    assert not private & little().to_dict().keys()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"classes = [0, 1]\ndim = 4\nround = 3\n", "no setting 'round'"),
        (b"classes = [", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (b"dim = 4\n", "cannot be read"),
        (b"dim = 4\nclasses = 3\n", "`classes` must be a list of names or numbers; got a int"),
        (b"dim = 4\nclasses = 'ab'\n", "`classes` must be a list of names or numbers; got a str"),
        (b"dim = 4\nclasses = [['a'], 'b']\n", "`classes` must be a list of names or numbers; got one with a list"),
        (b"dim = 4\nclasses = [0, 1]\nhidden = {a = 1}\n", "`hidden` must be a list"),
        (b"dim = " + b"[" * 10_000, "nested too deeply"),
        (b"a." * 20_000 + b"a = 1", "more than 8000 dots"),
        (None, "no terms file"),
    ],
)
def test_terms_that_cannot_be_read_stop_the_run(tmp_path: Path, text: bytes | None, word: str) -> None:
    file = tmp_path / "federation.toml"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(ConfigError, match=word):
        FederationSettings.read(file)
