"""Generators against attacks, on embeddings of images: which claims of the papers survive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from locum.accounting import attack_limit, plan_query
from locum.audit import ATTACKS, SAMPLE_ATTACKS, SHADOW_ATTACKS, EncoderELBO, LatentSearch, Search, audit
from locum.errors import ConfigError, DataError
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.recipes import SetNeeds, Study, StudyResults, study_set, study_splits
from locum.recipes.audit import rows_release, shared_shadows
from locum.recipes.study import Cell, markdown_table
from locum.release import Release
from locum.types import DP, EmbeddingSet

LEVEL = 0.01
NAMES = {
    "identity": "the members themselves",
    "smote": "SMOTE between members",
    "2-same": "k-Same, k = 2",
    "5-same": "k-Same, k = 5",
    "10-same": "k-Same, k = 10",
    "15-same": "k-Same, k = 15",
    "gaussian": "ClassGaussian",
    "cvae-paper": "CVAE as in the replica paper",
    "thesis-small": "small CVAE as in the thesis",
    "thesis-large": "large CVAE as in the thesis",
    "cvae": "CVAE, our defaults",
    "cvae-small": "CVAE of the thesis' small size, our defaults",
    "cvae-federated": "CVAE of the federated paper's size, our defaults",
    "cvae-large": "CVAE of the thesis' large size, our defaults",
    "gaussian-dp": "ClassGaussian, DP, class means",
    "gaussian-head": "ClassGaussian, DP, head (default)",
    "cvae-dp": "CVAE, DP",
}
# Methods that the papers say preserve privacy.
CLAIMED = ("2-same", "5-same", "10-same", "15-same", "cvae-paper", "thesis-small", "thesis-large")
# Of a set that the settings do not name, at most so many members.
MEMBERS = 1000
MARKS = {
    "leak": "**leak**",
    "inconclusive": "open",
    "within the proven limit": "within the limit",
    "no excess risk found": "none found",
}


def train_split(name: str) -> EmbeddingSet:
    """The training records; classes go by their codes, as in a release of plain arrays."""
    data = study_splits(name)["train"]
    codes = tuple(str(c) for c in range(len(data.info.class_names)))
    return replace(data, info=replace(data.info, class_names=codes))


def drawn(config: Mapping[str, Any], name: str, seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Members and others, random parts of one split; all records of a subject are in one of them."""
    data, size = train_split(name), config["members"][name]
    order = np.random.default_rng(seed).permutation(len(data))
    if study_set(name).given and data.subject is not None:
        # Whole subjects, in random order, until there are enough records.
        code = np.unique(data.subject, return_inverse=True)[1]
        order = order[np.argsort(np.random.default_rng(seed).permutation(code.max() + 1)[code[order]], kind="stable")]
        cut = size + int((code[order[size:]] == code[order[size - 1]]).sum())
        return data.take(np.sort(order[:cut])), data.take(np.sort(order[cut:][:size]))
    members, others = (data.take(np.sort(order[i * size : (i + 1) * size])) for i in (0, 1))
    return members, others


def generated(config: Mapping[str, Any], name: str, method: str, members: EmbeddingSet, seed: int) -> Release:
    """The release of one generator, fitted on the members."""
    X, y = members.X, members.y
    if method == "identity":
        return rows_release(members)
    if method == "smote":
        from imblearn.over_sampling import SMOTE

        wanted = {c: 2 * n for c, n in zip(*np.unique(y, return_counts=True), strict=True)}
        found, labels = SMOTE(sampling_strategy=wanted, random_state=seed).fit_resample(X, y)
        # SMOTE returns the given records first: leave them out.
        return rows_release(EmbeddingSet(found[len(X) :].astype(np.float32), labels[len(X) :], info=members.info))
    kind, _, rest = method.partition("-")
    if rest == "same":
        return KSame(int(kind), random_state=seed).fit(X, y).release(no_dp=True)
    model: Any = ClassGaussian if kind == "gaussian" else CVAEGenerator
    if rest in ("dp", "head"):
        size = len(members) // 50 * 50
        given = {"privacy": DP(config["epsilon"], 0.01 / size, n_public=size), "reference": reference_of(name)}
        if kind == "gaussian":
            given["mechanism"] = "head" if rest == "head" else "means"
        # Seeded, so that the figures are reproducible. Such a release has no claim, but the same noise.
        classes = range(len(members.info.class_names))
        return model(**given, classes=classes, insecure_seed=seed, random_state=seed).fit(X, y).release()
    if kind in ("cvae", "thesis"):
        preset = rest if rest not in ("", "paper") else "replica"
        paper = kind == "thesis" or rest == "paper"
        # The papers' epochs unless the settings cut them.
        epochs = config.get("epochs", {}).get(preset)
        model = CVAEGenerator(preset, authors_compat=paper, max_epochs=epochs, random_state=seed)
        return model.fit(X, y).release(no_dp=True)
    return model(random_state=seed).fit(X, y).release(no_dp=True)


def row(config: Mapping[str, Any], name: str, method: str, seed: int) -> Mapping[str, float | str]:
    """All attacks on one generator; members and others are random parts of one split."""
    members, others = drawn(config, name, seed)
    release = generated(config, name, method, members, seed)
    # No shadows are trained for private fits, where LiRA on sums draws its own; those of the preset large would take
    # one fit each.
    shadows = (
        0 if method.endswith(("dp", "head", "large")) or release.manifest.kind == "data" else config["shadows"][name]
    )
    steps = config["steps"]
    search = Search(restarts=steps["restarts"], steps=steps["search"])
    wanted = [*SAMPLE_ATTACKS, LatentSearch(search), EncoderELBO(steps=steps["encoder"]), "LiRA on sums"]
    with shared_shadows([*wanted, *(SHADOW_ATTACKS if shadows else ())], shadows, seed=seed) as attacks:
        report = audit(release, members, others, attacks=attacks, random_state=seed)
    out: dict[str, float | str] = {"verdict": report.verdict, "problems": "; ".join(p.words for p in report.problems)}
    for r in report.results:
        out |= {f"{r.name}/attack": r.attack.value, f"{r.name}/control": r.control.value}
        out |= {f"{r.name}/verdict": r.verdict, f"{r.name}/measure": r.measure}
    return out


def table_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each generator on each set."""
    return {f"{s}/{g}": partial(row, config, s, g) for s in config["sets"] for g in config["generators"][s]}


def render_table(results: StudyResults, out: Path) -> str:
    """Rows are generators, columns are attacks; then one sentence per generator."""
    config, text = results.config, []
    seeds = len(config["seeds"])
    for name in config["sets"]:
        cells = {g: f"{name}/{g}" for g in config["generators"][name]}
        metrics = [m for c in cells.values() for m in next(iter(results.raw[c].values()))]
        found = {m.removesuffix("/attack") for m in metrics if m.endswith("/attack")}
        attacks = sorted(found, key=lambda attack: list(ATTACKS).index(attack.partition(":")[0]))
        rows = [[NAMES[g], *(_shown(results, cell, a) for a in attacks)] for g, cell in cells.items()]
        size = config["members"][name]
        text += [
            f"## {study_set(name).title}: {size} members, {size} non-members",
            markdown_table(["generator", *attacks], rows),
        ]
        if seeds > 1:
            text.append(
                markdown_table(
                    ["generator", "strongest attack with an AUC", "mean over seeds (95 %)"],
                    [[NAMES[g], *_strongest(results, cell, attacks)] for g, cell in cells.items()],
                )
            )
        text.append("\n".join(f"- {_sentence(results, g, cell, attacks)}" for g, cell in cells.items()))
    text.append(
        f"Means over {seeds} seed{'s' * (seeds > 1)}, each with its own members. AUC, or the share of members hit "
        "(that of non-members in brackets). Verdicts are after Holm over all attacks of a row, "
        f'at {LEVEL:.0%}; "open" is inconclusive. An attack that finds nothing proves nothing about a better one.'
    )
    return "\n\n".join(text)


def _limit(config: Mapping[str, Any], cell: str) -> float | None:
    """The AUC that the plan of a private Gaussian proves no attack to exceed; None where there is no such plan."""
    name, _, method = cell.partition("/")
    if method not in ("gaussian-dp", "gaussian-head"):
        return None
    size = config["members"][name] // 50 * 50
    return attack_limit(plan_query(DP(config["epsilon"], 0.01 / size, n_public=size)).events)


def _verdicts(results: StudyResults, cell: str, attack: str) -> list[str]:
    """One per seed, as an audit that knows the plan gives them: seeded releases carry no claim.

    What lies above the limit in one fit may do so by chance; the mean over fits decides.
    """
    found, limit = results.texts(cell, f"{attack}/verdict"), _limit(results.config, cell)
    if limit is None or "auc" not in results.texts(cell, f"{attack}/measure"):
        return found
    if results.estimate(cell, f"{attack}/attack").low > limit:
        return found
    return ["within the proven limit" if v in ("leak", "inconclusive") else v for v in found]


def _strongest(results: StudyResults, cell: str, attacks: Sequence[str]) -> tuple[str, str]:
    """The attack with the largest mean AUC, and that mean."""
    run = next(iter(results.raw[cell].values()))
    found = {a: results.estimate(cell, f"{a}/attack") for a in attacks if run.get(f"{a}/measure") == "auc"}
    name = max(found, key=lambda a: found[a].value)
    return name, f"{found[name]:.3f}"


def _shown(results: StudyResults, cell: str, attack: str) -> str:
    if f"{attack}/attack" not in next(iter(results.raw[cell].values())):
        return "-"
    value = float(np.mean(results.runs(cell, f"{attack}/attack")))
    control = float(np.mean(results.runs(cell, f"{attack}/control")))
    number = f"{value:.3f}" if "auc" in results.texts(cell, f"{attack}/measure") else f"{value:.3f} ({control:.3f})"
    verdicts = _verdicts(results, cell, attack)
    marks = [
        f"{MARKS[v]}{f' {verdicts.count(v)}/{len(verdicts)}' * (len(set(verdicts)) > 1)}"
        for v in dict.fromkeys(verdicts)
    ]
    return f"{number} {', '.join(marks)}"


def _sentence(results: StudyResults, method: str, cell: str, attacks: list[str]) -> str:
    """What was found for a generator, and whether the claim about it survives."""
    run = next(iter(results.raw[cell].values()))
    by_attack = {a: _verdicts(results, cell, a) for a in attacks if f"{a}/verdict" in run}
    # What the audit said, unless all that it called a leak is within the limit.
    verdicts = [
        "within the proven limit" if v == "leak" and all(by[i] != "leak" for by in by_attack.values()) else v
        for i, v in enumerate(results.texts(cell, "verdict"))
    ]
    leaks = verdicts.count("leak")
    found = [a for a, by in by_attack.items() if by[0] == "leak"]
    if leaks:
        found_text = f"a leak in {leaks} of {len(verdicts)} seeds (first seed: {', '.join(found) or 'none'})"
    else:
        found_text = f"a leak in 0 of {len(verdicts)} seeds, inconclusive in {verdicts.count('inconclusive')}"
    if within := verdicts.count("within the proven limit"):
        found_text += f", within the proven limit in {within}"
    if method not in CLAIMED:
        return f"**{NAMES[method]}**: {found_text}."
    ends = (
        'the claim "preserves privacy" does not survive' if leaks else "the claim is not refuted here, and not proven"
    )
    return f"**{NAMES[method]}**: {found_text}; {ends}."


def render_gaussians(results: StudyResults, out: Path) -> str:
    """The table, and each private row's attack on sums as a mean over fits beside the limit that its plan proves."""
    config, rows = results.config, []
    for name in config["sets"]:
        for method in config["generators"][name]:
            limit = _limit(config, f"{name}/{method}")
            if limit is not None:
                found = results.estimate(f"{name}/{method}", "LiRA on sums/attack")
                above = "yes" if found.low > limit else "no"
                rows.append([study_set(name).title, NAMES[method], f"{found:.3f}", f"{limit:.3f}", above])
    header = ["set", "generator", "LiRA on sums, mean over fits (95 %)", "proven limit", "above it beyond chance"]
    return (
        f"{render_table(results, out)}\n\n## The private Gaussian against its limit\n\n{markdown_table(header, rows)}"
    )


def render_cvaes(results: StudyResults, out: Path) -> str:
    """The table, then what the loss of each CVAE was: a leak is explained by what was run."""
    rows = []
    for method in dict.fromkeys(g for s in results.config["sets"] for g in results.config["generators"][s]):
        kind, _, rest = method.partition("-")
        preset = rest if rest not in ("", "paper") else "replica"
        model = CVAEGenerator(preset, authors_compat=kind == "thesis" or rest == "paper")
        used = model.settings_
        epochs = results.config.get("epochs", {}).get(preset, used.max_epochs)
        stops = f"stops early after {used.patience}" if used.patience else "no early stopping"
        rows.append([NAMES[method], f"{used.beta:g}", used.scaling, used.decoder_noise, f"{epochs}, {stops}"])
    header = ["generator", "beta", "scaling", "decoder noise", "epochs"]
    return f"{render_table(results, out)}\n\n## What was trained\n\n{markdown_table(header, rows)}"


def reference_of(name: str) -> str:
    """Public statistics that whiten a set."""
    return study_set(name).reference_of(train_split(name))


def other_sets(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Half of the records are members, and all generators and shadows are run that every set of the settings has."""
    shared = [config["generators"][name] for name in config["sets"]]
    generators = [g for g in shared[0] if all(g in others for others in shared)]
    least = min(config["shadows"][name] for name in config["sets"])
    return {
        "sets": list(names),
        "members": {name: min(MEMBERS, len(train_split(name)) // 2) for name in names},
        "shadows": dict.fromkeys(names, least),
        "generators": {name: list(generators) for name in names},
    }


def check_table(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` or `DataError` where a set has no settings, or too few members of a class."""
    for name in config["sets"]:
        for key in ("members", "shadows", "generators"):
            if name not in config[key]:
                raise ConfigError(
                    f"`{key}` has no entry for {name!r}: add it in config.toml, or use --set NAME=PATH."
                )
        if unknown := [g for g in config["generators"][name] if g not in NAMES]:
            raise ConfigError(f"There is no generator {unknown[0]!r}; there are {', '.join(NAMES)}.")
        size, there = config["members"][name], len(train_split(name))
        if size < 50 or 2 * size > there:
            raise DataError(
                f"The set {name!r} has {there} training records: {size} members and as many others need 50 each or "
                f"more, and {2 * size} in all."
            )
        # SMOTE looks at six records of a class.
        ks = [int(g.removesuffix("-same")) for g in config["generators"][name] if g.endswith("-same")]
        least = max([*ks, 7])
        for seed in config["seeds"]:
            members = drawn(config, name, seed)[0]
            smallest = int(np.argmin(members.counts))
            if members.counts[smallest] < least:
                label = study_splits(name)["train"].info.class_names[smallest]
                raise DataError(
                    f"Class {label!r} of the set {name!r} has {members.counts[smallest]} members with seed {seed}, "
                    f"and these generators need {least}: add records, leave the class out, or take generators out of "
                    "`generators`."
                )


NEEDS = SetNeeds("sets", parts=("train",), choose=other_sets)


def cvaes_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core; on sets that are not known, as if they were the larger one."""
    total = 0.0
    for name in config["sets"]:
        # Minutes that the attacks on a CVAE take without its shadows, and each shadow more.
        attacks, shadow = study_set(name).more.get("audit_minutes", (4.0, 0.8))
        for method in config["generators"][name]:
            total += attacks + (0 if method.endswith("large") else shadow * config["shadows"][name])
    return total * len(config["seeds"])


STUDIES = {
    "audit-table": Study(
        "k-Same and SMOTE against every attack on samples, by seeds",
        table_cells,
        render_table,
        sets=NEEDS,
        check=check_table,
        names={"generators": None},
    ),
    "audit-cvaes": Study(
        "The CVAEs of the papers and ours, by seeds",
        table_cells,
        render_cvaes,
        cvaes_minutes,
        sets=NEEDS,
        check=check_table,
        names={"generators": None},
    ),
    "audit-gaussians": Study(
        "Gaussian and private generators, by seeds",
        table_cells,
        render_gaussians,
        sets=NEEDS,
        check=check_table,
        names={"generators": None},
    ),
}
