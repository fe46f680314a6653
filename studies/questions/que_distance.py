"""A smallest distance from records (`min_distance`): what it costs, and what the hole attack finds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from que_sets import NAMES, PLAIN, check_lone, found_by, probed, records

from locum.audit import Attack, DensityRatio, Hole, NearestDistance
from locum.errors import DataError
from locum.generate import replica
from locum.metrics import nearest
from locum.recipes import SetNeeds, StudyResults, study_set
from locum.recipes.study import Cell, markdown_table
from locum.recipes.study_sets import set_key
from locum.release import Release
from locum.types import EmbeddingSet

# Members of each class.
FEWEST = 2
# Metrics by the words of the table.
ATTACKS = {
    "nearest distance": "nearest distance",
    "density ratio": "density ratio",
    "hole, table": "hole, with the table alone",
    "hole, decoder": "hole, with the decoder",
}


def halves(name: str, most: int, seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Members, and as many others of the same split."""
    data = records(name, "train")
    count = min(most, len(data) // 2)
    order = np.random.default_rng(seed).permutation(len(data))
    members, others = (data.take(np.sort(order[i * count : (i + 1) * count])) for i in (0, 1))
    return members, others


def fitted(name: str, method: str, most: int, seed: int) -> tuple[EmbeddingSet, EmbeddingSet, Release]:
    """Members, others, and the decoder that all tables are drawn from."""
    return _fitted(*set_key(name), name, method, most, seed)


@lru_cache(maxsize=16)
def _fitted(
    path: str, changed: int, name: str, method: str, most: int, seed: int
) -> tuple[EmbeddingSet, EmbeddingSet, Release]:
    members, others = halves(name, most, seed)
    return members, others, PLAIN[method](seed).fit(members.X, members.y).release(members.info, no_dp=True)


DISTANCE_NEEDS = SetNeeds("sets")


def check_distance(config: Mapping[str, Any]) -> None:
    """Raise `DataError` for sets with subjects, and if the members, drawn at random, lack records of a class."""
    check_lone(config["sets"])
    for name in config["sets"]:
        present = np.flatnonzero(records(name, "train").counts)
        for seed in config["seeds"]:
            members, _ = halves(name, config["members"], seed)
            rarest = present[np.argmin(members.counts[present])]
            if members.counts[rarest] < FEWEST:
                raise DataError(
                    f"With seed {seed}, {members.counts[rarest]} of the {len(members)} members of the set {name!r} "
                    f"are of class {members.info.class_names[rarest]!r}, and this study needs {FEWEST}: raise "
                    "`members`, add records, or leave the class out."
                )


def kept_away(
    config: Mapping[str, Any], name: str, method: str, size: int, share: float, seed: int
) -> Mapping[str, float]:
    """A table that redraws the nearest `share` of its samples: its usefulness, and attacks on it.

    The smallest distance is the quantile `share` of the distances of samples from their nearest record.
    """
    members, others, decoder = fitted(name, method, config["members"], seed)
    count = len(members)
    far = nearest(decoder.sample(config["drawn"], random_state=seed + 1)[0], members.X)[0]
    # Without a smallest distance the attacker must guess a radius: that of the smallest share.
    radius = float(np.quantile(far, share or min(s for s in config["shares"] if s)))
    given: dict[str, Any] = {"min_distance": radius, "real": members.X} if share else {}
    try:
        table = replica(decoder, size * count, random_state=seed, **given)
    except DataError:
        # Too many samples of some class are too close, even after fifty rounds.
        return {"made": 0.0}
    out = {"made": 1.0, "auc": probed(*table.sample(), records(name, "test")), "radius": radius}
    out["D"] = float(nearest(table.sample()[0], members.X)[0].mean())
    attacks: dict[str, Attack] = {
        "nearest distance": NearestDistance(),
        "density ratio": DensityRatio(),
        "hole, table": Hole(radius=radius),
        "hole, decoder": Hole(radius=radius, decoder=decoder, samples=config["drawn"]),
    }
    for words, attack in attacks.items():
        out[words] = found_by(attack, table, members, others, seed)
    # Below 0 is the proof that a record was not used.
    scores = Hole(radius=radius).score(table, members, others, np.random.default_rng(seed))
    out["cleared"] = float((scores.outside < 0).mean())
    return out


def distance_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each generator and size of the table, by the share of samples that is drawn again."""
    return {
        f"{name}/{method}/{size}/{share:g}": partial(kept_away, config, name, method, size, share)
        for name in config["sets"]
        for method in config["methods"]
        for size in config["sizes"]
        for share in config["shares"]
    }


def render_distance(results: StudyResults, out: Path) -> str:
    """One table per set."""
    config, text = results.config, []
    for name in config["sets"]:
        rows: list[list[object]] = []
        for method in config["methods"]:
            for size in config["sizes"]:
                for share in config["shares"]:
                    cell = f"{name}/{method}/{size}/{share:g}"
                    row: list[object] = [NAMES[method], f"{size} x", f"{share:.0%}" if share else "none"]
                    if min(results.runs(cell, "made")) < 1:
                        rows.append([*row, *["cannot be drawn"] + ["-"] * (2 + len(ATTACKS))])
                        continue
                    row += [f"{results.estimate(cell, 'D').value:.2f}", f"{results.estimate(cell, 'auc'):.3f}"]
                    row += [f"{results.estimate(cell, attack):.3f}" for attack in ATTACKS]
                    rows.append([*row, f"{results.estimate(cell, 'cleared').value:.0%}"])
        header = [
            "generator",
            "rows per record",
            "drawn again",
            "mean distance D",
            "AUC of a probe",
            *ATTACKS.values(),
        ]
        text += [f"## {study_set(name).title}", markdown_table([*header, "non-members proven absent"], rows)]
    text.append(
        "The smallest distance is the quantile of the distances of samples from their nearest record: the nearest so "
        f"many percent are drawn again. At most {config['members']} members and as many others, of one split. AUCs "
        f"of attacks; means over {len(config['seeds'])} seeds, 95 % intervals over seeds. A non-member is proven "
        "absent if a row of the table lies closer to it than the smallest distance."
    )
    return "\n\n".join(text)


def distance_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    cells = len(config["sets"]) * len(config["methods"]) * len(config["sizes"]) * len(config["shares"])
    return 0.2 * len(config["seeds"]) * cells
