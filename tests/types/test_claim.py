"""The only schema of a claim: what cannot be claimed, one JSON shape, and limits on text that an attacker wrote."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ValidationError

from locum import PrivacyClaim
from locum.errors import FormatError, PrivacyError
from locum.types import DPClaim

EVENT = {"kind": "gaussian", "noise_multiplier": 4.0}
NUMBERS = DPClaim(1.0, 1e-5, "add-or-remove", (EVENT,), "0" * 64)
CLAIMS = (
    PrivacyClaim("none", ("all",)),
    PrivacyClaim("none", ("all",), test=True),
    PrivacyClaim("k-anonymity", ("labels",), 5, "subject", assumptions=("groups are distinct",)),
    PrivacyClaim("dp", ("x", "y"), unit="subject", dp=NUMBERS),
)
KEYS = {"kind", "k", "unit", "dp", "test", "assumptions", "not_covered"}


class Holder(BaseModel):
    """A document that embeds a claim, as manifest and passport do."""

    claim: PrivacyClaim


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"kind": "dp", "not_covered": ("x",)}, "ledger"),
        ({"kind": "k-anonymity", "not_covered": ("x",)}, "belongs"),
        ({"kind": "none", "k": 5, "not_covered": ("x",)}, "belongs"),
        ({"kind": "k-anonymity", "k": 1, "not_covered": ("x",)}, "2 or more"),
        ({"kind": "none", "not_covered": ()}, "does not cover"),
        ({"kind": "perfect", "not_covered": ("x",)}, "perfect"),
        ({"kind": "none", "unit": "hospital", "not_covered": ("x",)}, "hospital"),
        ({"kind": "dp", "not_covered": ("x",), "dp": NUMBERS, "test": True}, "insecure seed"),
        ({"kind": "none", "not_covered": ("x" * 2001,)}, "2000 characters"),
        ({"kind": "none", "not_covered": ("x",) * 111}, "110 lines"),
        ({"kind": "none", "not_covered": ("x",), "assumptions": ("x" * 2001,)}, "`assumptions`"),
    ],
)
def test_false_claims_cannot_be_made(arguments: dict, word: str) -> None:
    with pytest.raises(PrivacyError, match=word):
        PrivacyClaim(**arguments)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"relation": "swap"}, "swap"),
        ({"events": ()}, "events"),
        ({"events": (EVENT,) * 1001}, "1000"),
        ({"events": ({"kind": "x" * 201},)}, "200 characters"),
        ({"events": ({"k" * 201: 1},)}, "200 characters"),
        ({"ledger": "0" * 63}, "ledger"),
    ],
)
def test_false_numbers_cannot_be_claimed(change: dict, word: str) -> None:
    good = {"epsilon": 1.0, "delta": 1e-5, "relation": "add-or-remove", "events": (EVENT,), "ledger": "0" * 64}
    with pytest.raises(PrivacyError, match=word):
        DPClaim(**{**good, **change})


@pytest.mark.parametrize("claim", CLAIMS)
def test_one_json_shape_alone_and_embedded(claim: PrivacyClaim) -> None:
    data = json.loads(json.dumps(claim.to_dict()))
    assert set(data) == KEYS
    assert PrivacyClaim.from_dict(data) == claim
    assert Holder(claim=claim).model_dump(mode="json")["claim"] == data
    assert Holder.model_validate({"claim": data}).claim == claim


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"kind": "perfect"},
        {"kind": []},
        {"k": "five"},
        {"kind": "k-anonymity", "dp": None, "k": 2.5},
        {"unit": None},
        {"test": "perhaps"},
        {"not_covered": "all"},
        {"not_covered": [1]},
        {"not_covered": []},
        {"not_covered": ["x" * 2001]},
        {"assumptions": [None]},
        {"dp": {}},
        {"dp": {"surprise": 1, **CLAIMS[-1].to_dict()["dp"]}},
        {"dp": {**CLAIMS[-1].to_dict()["dp"], "epsilon": "much"}},
        {"dp": {**CLAIMS[-1].to_dict()["dp"], "events": [1]}},
        {"test": True},
    ],
)
def test_malformed_claims_are_refused_alone_and_embedded(change: dict[str, Any]) -> None:
    data = {**CLAIMS[-1].to_dict(), **change}
    with pytest.raises(FormatError, match="claim") as found:
        PrivacyClaim.from_dict(data)
    assert "\n" not in str(found.value)
    with pytest.raises((ValidationError, PrivacyError)):
        Holder.model_validate({"claim": data})


@given(st.dictionaries(st.sampled_from(sorted(KEYS)), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_whatever_json_is_read_nothing_but_a_format_error_is_raised(data: dict[str, Any]) -> None:
    try:
        claim = PrivacyClaim.from_dict({**CLAIMS[0].to_dict(), **data})
    except FormatError:
        return
    assert PrivacyClaim.from_dict(claim.to_dict()) == claim


def test_words() -> None:
    none, test, groups, private = CLAIMS
    assert "at least 5 subjects" in groups.sentence()
    assert none.sentence().startswith("No formal guarantee")
    assert "exp(1)" in private.sentence()
    assert "test" in test.title
    assert test.sentence().startswith("This is a test")
    assert "No formal guarantee" in test.sentence()
    assert not any("test" in claim.title + claim.sentence() for claim in (none, groups, private))


def test_the_type_needs_no_pydantic() -> None:
    import subprocess

    code = "import sys, locum.types.claim; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
