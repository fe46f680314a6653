"""Policies whose outcome the noise of a release does not decide, for tests of `publish`."""

from __future__ import annotations

NEVER = """
name = "never"
[auc]
at_most = 0.01
reason = "No attack is ever this bad."
"""
# Few records are held out, and noise differs: the default policy would now and then find the attacks inconclusive.
PROVEN = """
name = "proven"
[claim]
kinds = ["dp"]
reason = "A guarantee is enough here."
"""
