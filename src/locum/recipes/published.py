"""A paper's figures beside ours: which of its orders are reversed, and the reasons that a study gives.

Absolute figures rarely compare, because papers use other backbones and data; orders of methods do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from locum.recipes.study import markdown_table
from locum.types import Estimate

NOT_EXPLAINED = "not explained"


def reversed_pairs(
    published: Mapping[str, float], runs: Mapping[str, Sequence[float]], least: float = 0.0
) -> Iterator[tuple[str, str, Estimate]]:
    """Pairs (a, b) where the paper has a above b and ours has it below, beyond the 95 % interval over seeds.

    Pairs that the paper has less than `least` apart count as ties.

    Parameters
    ----------
    published
        The paper's figure of each row.
    runs
        Ours, one per seed, in one order of seeds; rows that are not in both are ignored.
    least
        The smallest difference of the paper that counts.

    Yields
    ------
    tuple
        The names a and b, and ours, a minus b, paired by seed.

    Examples
    --------
    >>> from locum.recipes.published import reversed_pairs
    >>> paper = {"x": 0.9, "y": 0.8, "z": 0.1}
    >>> ours = {"x": [0.60, 0.61, 0.62], "y": [0.70, 0.72, 0.71], "z": [0.2, 0.9, 0.5]}
    >>> [(a, b, round(gap.value, 2)) for a, b, gap in reversed_pairs(paper, ours)]
    [('x', 'y', -0.1)]
    """
    for a, b in permutations([name for name in published if name in runs], 2):
        if published[a] > published[b] and published[a] - published[b] >= least:
            gap = Estimate.from_runs([x - y for x, y in zip(runs[a], runs[b], strict=True)])
            if gap.high < 0:
                yield a, b, gap


def reversed_table(
    published: Mapping[str, float],
    runs: Mapping[str, Sequence[float]],
    why: Mapping[str, str],
    *,
    what: str,
    least: float = 0.0,
    digits: int = 1,
) -> str:
    """The reversed pairs as Markdown, each with its reason in `why`, or "not explained".

    `why` has reasons by pair ("a > b") or by the name of either row. `what` names what is compared, such as
    "orders of the thesis (overall)".
    """
    rows = [
        [
            a,
            b,
            f"{published[a] - published[b]:+.{digits + 1}f}",
            f"{gap:+.{digits}f}",
            why.get(f"{a} > {b}") or why.get(a) or why.get(b) or NOT_EXPLAINED,
        ]
        for a, b, gap in reversed_pairs(published, runs, least)
    ]
    if all(len(figures) == 1 for figures in runs.values()):
        return f"One run: whether {what} are reversed here is not decided."
    if not rows:
        return f"None of the {what} is reversed here beyond the interval over seeds."
    header = ["above in the paper", "below", "paper", "here, paired by seed", "why"]
    return f"Reversed {what}:\n\n{markdown_table(header, rows)}"
