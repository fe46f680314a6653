"""A chain breaks at the first entry that was altered, moved or left out."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from locum.accounting import check_chain
from locum.accounting.store import FIRST, link
from locum.errors import PrivacyError


def chain(length: int = 4) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for number in range(1, length + 1):
        previous = out[-1]["hash"] if out else FIRST
        body = {"kind": "charge", "epsilon": 0.1 * number, "purpose": f"fit {number}"}
        out.append(dict(zip(("number", "previous", "body", "hash"), link(number, previous, body), strict=True)))
        out[-1]["body"] = body
    return out


def test_a_whole_chain_gives_its_head_also_after_a_trip_through_json() -> None:
    entries = chain()
    assert check_chain(entries) == entries[-1]["hash"] == check_chain(json.loads(json.dumps(entries)))


@given(st.integers(0, 3), st.sampled_from(["number", "previous", "body", "hash"]))
def test_any_edit_is_seen_at_its_place(place: int, part: str) -> None:
    entries = deepcopy(chain())
    if part == "body":
        entries[place]["body"]["epsilon"] *= 0.5
    else:
        entries[place][part] = 99 if part == "number" else "f" * 64
    with pytest.raises(PrivacyError, match=f"Entry {place + 1} "):
        check_chain(entries)


@given(st.integers(0, 2))
def test_what_is_left_out_or_moved_is_seen(place: int) -> None:
    entries = chain()
    with pytest.raises(PrivacyError, match="altered or is missing"):
        check_chain(entries[:place] + entries[place + 1 :])
    entries[place], entries[place + 1] = entries[place + 1], entries[place]
    with pytest.raises(PrivacyError, match="altered or is missing"):
        check_chain(entries)


def test_what_is_cut_off_at_the_end_is_seen_by_the_head_alone() -> None:
    entries = chain()
    assert check_chain(entries[:-1]) != check_chain(entries)


@pytest.mark.parametrize("nonsense", [{}, {"number": 1}, {"number": 1, "previous": FIRST, "body": None, "hash": "0"}])
def test_nonsense_is_no_chain(nonsense: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError, match="Entry 1 "):
        check_chain([nonsense])
