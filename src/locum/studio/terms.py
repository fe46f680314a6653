"""The words of the help drawer: those of the reports, and the studio's own."""

from __future__ import annotations

from locum.report import AUDIT_GLOSSARY, GLOSSARY

_OWN = {
    "budget": "the epsilon and delta that all releases of one data holding may cost together. What is spent is never "
    "given back.",
    "class names": "the names of the categories in your data. They leave with a release, so they must be public.",
    "data holding": "a named body of data with one budget, such as the scans of one hospital.",
    "delta": "a small probability with which epsilon may not hold. It must be far below 1 divided by the number of "
    "people.",
    "epsilon": "how much one unit, a record or a subject, may change what anyone can conclude from a release. Lower "
    "is more private; 1 is usual and strong: the odds of any conclusion change at most by a factor of 2.7 (exp(1)).",
    "Five Safes": "five questions to ask before data leave: about projects, people, settings, data, outputs.",
    "forecast": "what a release is expected to be good for, from releases of other data that were measured. It reads "
    "none of your records.",
    "k-Same": "each record is replaced by the mean of a group of k. Nobody stands alone in a group, but nothing is "
    "proven about what else an attacker knows.",
    "lambda": "how clearly an obfuscator writes what you keep into each copy: 0 not at all, -50 fully.",
    "ledger": "the file next to your data that remembers every charge. It cannot be overspent, and nothing is ever "
    "removed from it.",
    "LiRA": "a strong attack: it trains many generators with and without a record, and compares.",
    "look": "a preview on your own records. It costs nothing, but settings that were chosen after it are not covered "
    "by the guarantee, so the ledger and the release say so.",
    "map": "vectors drawn in two dimensions. Similar ones lie close together; most of what they hold is not shown.",
    "noise": "how much of a record an obfuscator hides: 0 hides least.",
    "passport": "the file in a release that says what it protects, what attackers found, and what was decided.",
    "policy": "what you require of a release before it may leave. The more people may get it, the stricter: "
    "internal, then research-sharing, then public.",
    "proven limit": "the AUC that no attack on who was used exceeds, however clever, averaged over the noise of one "
    "release. Several releases of the same data have a higher one together.",
    "signature": "shows that the owner of a key vouches for exactly these files.",
    "subject": "one person with all their records.",
    "unit": "what the guarantee is about: one record, or one subject with all their records.",
}

TERMS = dict(sorted({**GLOSSARY, **AUDIT_GLOSSARY, **_OWN}.items(), key=lambda term: term[0].casefold()))
