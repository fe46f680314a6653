"""Entries tied together by hashes: each holds the hash of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.errors import PrivacyError

__all__ = ["FIRST", "check_chain", "link"]

FIRST = "0" * 64


def link(number: int, previous: str, body: Mapping[str, Any]) -> tuple[int, str, str, str]:
    """One entry: its number, the hash before it, its body as text, and its own hash over the three."""
    text = json.dumps(body, sort_keys=True, allow_nan=False)
    return number, previous, text, hashlib.sha256(f"{number}\n{previous}\n{text}".encode()).hexdigest()


def check_chain(entries: Sequence[Mapping[str, Any]], whose: str = "copy") -> str:
    """The head of entries as `Ledger.export` gives them; an error at the first that was altered, moved or left out.

    It cannot see what was cut off at the end: compare the head with the one in the newest release.

    >>> check_chain([]) == "0" * 64
    True
    """
    head = FIRST
    for place, entry in enumerate(entries, start=1):
        try:
            expected = link(place, head, entry["body"])[3]
            whole = (entry["number"], entry["previous"], entry["hash"]) == (place, head, expected)
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise PrivacyError(
                f"Entry {place} of the ledger {whose} was altered or is missing, so nobody knows what was spent: put "
                "the file back from a copy whose head is in the latest release."
            )
        head = expected
    return head
