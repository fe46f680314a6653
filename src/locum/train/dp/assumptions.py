"""What a claim about DP-SGD must name in its `assumptions`; apart, because who reads claims needs no torch."""

from __future__ import annotations

ASSUMPTIONS = (
    "batch invariance: a record's gradient is computed to the same bits whichever other records are in its batch",
)
