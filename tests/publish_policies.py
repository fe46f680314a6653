"""Policies whose outcome the noise of a release does not decide, for tests of `publish`."""

from __future__ import annotations

NEVER = """
name = "never"
[claim]
kinds = ["none"]
reason = "No release with a guarantee meets it."
"""
# Few records are held out, and noise differs: the default policy would now and then find the attacks inconclusive.
PROVEN = """
name = "proven"
[claim]
kinds = ["dp"]
reason = "A guarantee is enough here."
"""
