"""Few records: where a generator stops being useful, and where it gives its records away."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from que_sets import NAMES, PLAIN, check_lone, found_by, probed, records

from locum.audit import Attack, DensityRatio, LikelihoodRatio, LiRA, NearestDistance, SumLiRA
from locum.errors import ConfigError, NotApplicableError
from locum.generate import ClassGaussian
from locum.recipes import SetNeeds, StudyResults, study_set
from locum.recipes.study import Cell, markdown_table
from locum.release import Release
from locum.types import DP, EmbeddingSet


def drawn(name: str, count: int, seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    """As many members and others of each class, from one split."""
    data, rng = records(name, "train"), np.random.default_rng([seed, count])
    rows = [rng.permutation(np.flatnonzero(data.y == c))[: 2 * count] for c in range(len(data.info.class_names))]
    first, second = (np.sort(np.concatenate([part[i * count : (i + 1) * count] for part in rows])) for i in (0, 1))
    return data.take(first), data.take(second)


def fitted(config: Mapping[str, Any], name: str, method: str, members: EmbeddingSet, seed: int) -> Release:
    """One generator on the members. Insecure seeds: the noise is distributed the same."""
    kind, _, epsilon = method.partition("-")
    if kind != "head":
        return PLAIN[method](seed).fit(members.X, members.y).release(members.info, no_dp=True)
    model = ClassGaussian(
        privacy=DP(float(epsilon), config["delta"]),
        classes=range(len(members.info.class_names)),
        reference=study_set(name).reference_of(members),
        insecure_seed=seed,
        random_state=seed,
    )
    return model.fit(members.X, members.y).release(class_names=members.info.class_names)


def attacks_on(config: Mapping[str, Any], method: str, count: int, seed: int) -> list[Attack]:
    """From samples, in closed form, and with shadows where they can be had in the time."""
    found: list[Attack] = [NearestDistance(), DensityRatio(), LikelihoodRatio()]
    shadows = config["cvae_shadows"] if method == "cvae-paper" else config["shadows"]
    if method.startswith("head"):
        found.append(SumLiRA(shadows=config["shadows"], seed=seed))
    elif not method.endswith("same") and not (method == "cvae-paper" and count > config["most_shadowed"]):
        found.append(LiRA(shadows=shadows, seed=seed))
    return found


def few(config: Mapping[str, Any], name: str, method: str, count: int, seed: int) -> Mapping[str, float]:
    """The probe on what a release of few records gives, and each attack on it."""
    members, others = drawn(name, count, seed)
    test = records(name, "test")
    if method == "real":
        return {"auc": probed(members.X, members.y, test)}
    release = fitted(config, name, method, members, seed)
    classes = len(members.info.class_names)
    if release.manifest.kind == "data":
        X, y = release.sample()
    else:
        X, y = release.sample(
            per_class=dict.fromkeys(range(classes), config["samples"] // classes), random_state=seed
        )
    out = {"auc": probed(X, y, test)}
    for attack in attacks_on(config, method, count, seed):
        try:
            out[f"attack/{attack.name}"] = found_by(attack, release, members, others, seed)
        except NotApplicableError:
            continue
    return out


# Members and as many others, for the largest count.
FEW_NEEDS = SetNeeds("sets", per_class=lambda config: 2 * max(config["counts"]))


def check_few(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for counts that a method cannot work with, `DataError` for sets with subjects."""
    check_lone(config["sets"])
    ks = [int(method.partition("-")[0]) for method in config["methods"] if method.endswith("same")]
    least = max(2, *ks) if ks else 2
    if not config["counts"] or min(config["counts"]) < least:
        raise ConfigError(
            f"`counts` must hold numbers of records per class, {least} or more with these methods; got "
            f"{config['counts']!r}."
        )


def few_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Real records and each generator, by records per class."""
    return {
        f"{name}/{method}/{count}": partial(few, config, name, method, count)
        for name in config["sets"]
        for method in ("real", *config["methods"])
        for count in config["counts"]
    }


def strongest(results: StudyResults, cell: str) -> str:
    """The attack with the highest mean over seeds."""
    runs = results.raw[cell].values()
    names = [key for key in next(iter(runs)) if key.startswith("attack/") and all(key in figures for figures in runs)]
    return max(names, key=lambda key: results.estimate(cell, key).value)


def render_few(results: StudyResults, out: Path) -> str:
    """Usefulness and the strongest attack, by records per class."""
    config, text = results.config, []
    for name in config["sets"]:
        rows, leaks = [], []
        for method in ("real", *config["methods"]):
            cells = [f"{name}/{method}/{count}" for count in config["counts"]]
            row: list[object] = [NAMES[method], *(f"{results.estimate(cell, 'auc'):.3f}" for cell in cells)]
            real = [f"{name}/real/{count}" for count in config["counts"]]
            gaps = [results.difference(a, b, "auc") for a, b in zip(cells, real, strict=True)]
            rows.append([*row, *("-" if method == "real" else f"{gap:+.3f}" for gap in gaps)])
            if method != "real":
                best = [strongest(results, cell) for cell in cells]
                shown = [
                    f"{results.estimate(cell, key):.3f} ({key.removeprefix('attack/')})"
                    for cell, key in zip(cells, best, strict=True)
                ]
                leaks.append([NAMES[method], *shown])
        counts = [f"{count} per class" for count in config["counts"]]
        text += [
            f"## {study_set(name).title}",
            "Usefulness: AUC of a linear probe on test records\n\n"
            + markdown_table(["learned from", *counts, *(f"minus real, {c}" for c in counts)], rows),
            "Strongest membership attack: AUC\n\n" + markdown_table(["release", *counts], leaks),
        ]
    text.append(
        f"Means over {len(config['seeds'])} seeds, each with its own records, 95 % intervals over seeds. As many "
        "others as members. The strongest attack is the one with the highest mean of three or four: with ten records "
        "per class the largest of several means lies above 0.5 by chance, too, so look at the interval. LiRA has "
        f"{config['shadows']} shadows, {config['cvae_shadows']} for the CVAE, which has none above "
        f"{config['most_shadowed']} records per class."
    )
    return "\n\n".join(text)


def few_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    shadowed = [c for c in config["counts"] if c <= config["most_shadowed"]]
    networks = 0.02 * sum(config["counts"]) / 10 + 0.01 * config["cvae_shadows"] * sum(shadowed) / 10
    others = 0.05 * len(config["counts"]) * len(config["methods"])
    return float(
        len(config["seeds"]) * len(config["sets"]) * (others + networks * ("cvae-paper" in config["methods"]))
    )
