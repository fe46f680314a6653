"""Why attacks are inconclusive, as one sentence about all of them."""

from __future__ import annotations

from collections.abc import Iterable

from locum.io import listed
from locum.types import AttackResult


def doubts_in_words(results: Iterable[AttackResult]) -> str:
    """Why attacks are inconclusive, each reason once, after the attacks that it is about.

    Parameters
    ----------
    results
        Results of attacks, also of those that are not inconclusive.

    Returns
    -------
    str
        Clauses; empty if no attack is inconclusive.

    Examples
    --------
    >>> from locum.audit import doubts_in_words
    >>> from locum.types import AttackResult, Estimate
    >>> chance, wide = Estimate.exact(0.5), Estimate(0.5, 0.4, 0.6, 90)
    >>> both = [AttackResult(name, "auc", wide, chance, chance) for name in ("hole", "LiRA")]
    >>> doubts_in_words(both).rpartition(",")[0]
    'for hole and LiRA, the interval reaches too high to show no excess risk'
    """
    about: dict[str, list[str]] = {}
    for result in results:
        if result.doubt:
            about.setdefault(result.doubt, []).append(result.name)
    return "; ".join(f"for {listed(names, 'and')}, {why}" for why, names in about.items())
