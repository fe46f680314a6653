from __future__ import annotations

import pytest

from locum import PrivacyClaim
from locum.errors import PrivacyError


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"kind": "dp", "not_covered": ("x",)}, "ledger"),
        ({"kind": "k-anonymity", "not_covered": ("x",)}, "belongs"),
        ({"kind": "none", "k": 5, "not_covered": ("x",)}, "belongs"),
        ({"kind": "k-anonymity", "k": 1, "not_covered": ("x",)}, "2 or more"),
        ({"kind": "none", "not_covered": ()}, "does not cover"),
    ],
)
def test_false_claims_cannot_be_made(arguments: dict, word: str) -> None:
    with pytest.raises(PrivacyError, match=word):
        PrivacyClaim(**arguments)


def test_round_trip_and_words() -> None:
    claim = PrivacyClaim("k-anonymity", ("labels",), 5, "subject")
    assert PrivacyClaim.from_dict(claim.to_dict()) == claim
    assert "at least 5 subjects" in claim.sentence()
    assert "No formal guarantee" in PrivacyClaim("none", ("x",)).sentence()
