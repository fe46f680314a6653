"""UCI Diabetes 130: readmission kept, sex and age hidden from two attackers, by method and strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from diab_rows import AGES, dealt

from locum.obfuscate import ATTACKERS, Masking, TableObfuscator, hull_auc
from locum.obfuscate.baselines import BASELINES, strengths
from locum.obfuscate.evaluation import Originals
from locum.obfuscate.judges import label_only, majority_guess
from locum.recipes import Study, StudyResults
from locum.recipes.study import Cell, markdown_table
from locum.types import Estimate

Config = Mapping[str, Any]
LAMBDA = -50.0
PRIVATE = ("sex", "age")
NAMES = {
    "ours": "ours, calibrated",
    "paper": "the paper's preset",
    "gaussian": "Gaussian noise",
    "learned-noise": "learned noise",
    "beta-vae-pupet": "beta-VAE-PUPET",
    "lmifr": "LMIFR",
}
PRESETS = {"ours": "calibrated", "paper": "paper"}


@cache
def originals(seed: int, rows: int, test_rows: int, judge_rows: int, private: str) -> Originals:
    """What trees who learn from `judge_rows` encounters find where nothing is hidden."""
    train, test = dealt(seed, rows, test_rows).labeled(private)
    return Originals.learn(train.take(range(min(judge_rows, len(train)))), test, ["trees"], seed)


def found(config: Config, seed: int, private: str) -> Originals:
    """The same, by the settings."""
    return originals(seed, config["rows"], config["test_rows"], config["judge_rows"], private)


def maskings(method: str, seed: int, config: Config) -> Iterator[tuple[float, Masking]]:
    """Strengths, and what is released at each. Baselines that learn what to hide learn sex and age group as one."""
    rows = dealt(seed, config["rows"], config["test_rows"])
    train, _ = rows.labeled("sex and age")
    if method in PRESETS:
        model = TableObfuscator(PRESETS[method], max_epochs=config[f"{method}_epochs"], random_state=seed)
        model.fit(rows.train_frame, train.utility, codec=rows.codec)
        for noise in config[f"{method}_noises"]:
            yield noise, model.masking(noise=noise, lambda_=LAMBDA)
        return
    for strength in strengths(method, "table"):
        baseline = BASELINES[method](strength)
        blocks, epochs = rows.codec.blocks, config["baseline_epochs"]
        baseline.fit(train.X, train.utility, train.private, blocks=blocks, seed=seed, epochs=epochs)
        yield strength, baseline.masking()


def method_cell(config: Config, method: str, seed: int) -> Mapping[str, float]:
    """All strengths: every attacker of sex and of age, and the receiver."""
    out: dict[str, float] = {}
    for strength, masking in maskings(method, seed, config):
        for private in PRIVATE:
            seen = found(config, seed, private).judge(masking, copies=config["copies"])
            out |= {f"{strength:g}/{private} {role}": getattr(seen, role)["trees"].value for role in ATTACKERS}
        out |= {
            f"{strength:g}/utility": seen.utility_original["trees"].value,
            f"{strength:g}/released": seen.utility_released["trees"].value,
        }
    return out


def original_cell(config: Config, seed: int) -> Mapping[str, float]:
    """Where nothing is hidden, by the label alone, and by a guess."""
    out: dict[str, float] = {}
    for private in PRIVATE:
        seen = found(config, seed, private)
        out |= {
            private: seen.private["trees"].value,
            f"{private} informed": seen.informed["trees"].value,
            f"{private} label only": label_only(seen.train, seen.test).value,
            f"{private} majority": majority_guess(seen.train.private, seen.test.private).value,
        }
    guess = majority_guess(seen.train.utility, seen.test.utility).value
    return out | {"utility": seen.utility["trees"].value, "utility majority": guess}


def cells(config: Config) -> dict[str, Cell]:
    """One cell per method, with all its strengths; and one for the encounters as they are."""
    made: dict[str, Cell] = {"original": partial(original_cell, config)}
    return made | {name: partial(method_cell, config, name) for name in config["methods"]}


# What is written about them.


def knobs(results: StudyResults, method: str) -> list[str]:
    """Strengths, ascending."""
    some = results.raw[method][str(results.config["seeds"][0])]
    return sorted({m.split("/")[0] for m in some}, key=float)


def roles(results: StudyResults) -> list[str]:
    """The attackers that the figures are of."""
    some = results.raw[results.config["methods"][0]][str(results.config["seeds"][0])]
    return [role for role in ATTACKERS if any(m.endswith(f"/sex {role}") for m in some)]


def strongest(results: StudyResults, method: str, knob: str, private: str) -> list[float]:
    """The best of all attackers, one figure per seed; never below the label alone, which anyone has."""
    tried = [results.runs(method, f"{knob}/{private} {role}") for role in roles(results)]
    return [max(run) for run in zip(*tried, results.runs("original", f"{private} label only"), strict=True)]


def unhidden(results: StudyResults, private: str) -> list[float]:
    """The best attacker where nothing is hidden, one figure per seed."""
    both = (results.runs("original", name) for name in (private, f"{private} informed"))
    return [max(run) for run in zip(*both, strict=True)]


def advantage(results: StudyResults, method: str, knob: str, private: str) -> list[float]:
    """Share of what an attacker gains over the label alone that is left, one figure per seed."""
    alone, whole = results.runs("original", f"{private} label only"), unhidden(results, private)
    attack = strongest(results, method, knob, private)
    return [(a - b) / (w - b) for a, b, w in zip(attack, alone, whole, strict=True)]


def kept(results: StudyResults, method: str, most: float) -> Estimate | None:
    """The best receiver where both attackers keep at most this share of their advantage; none if a seed has none."""
    best: list[list[float]] = [[] for _ in results.config["seeds"]]
    for knob in knobs(results, method):
        left = zip(*(advantage(results, method, knob, p) for p in PRIVATE), strict=True)
        for i, (shares, utility) in enumerate(zip(left, results.runs(method, f"{knob}/utility"), strict=True)):
            if max(shares) <= most:
                best[i].append(utility)
    return Estimate.from_runs([max(run) for run in best]) if all(best) else None


def areas(results: StudyResults, method: str, private: str) -> list[float]:
    """Hull AUC with the point of the encounters as they are, origin 0, one figure per seed."""
    columns = [
        list(zip(strongest(results, method, k, private), results.runs(method, f"{k}/utility"), strict=True))
        for k in knobs(results, method)
    ]
    corners = zip(unhidden(results, private), results.runs("original", "utility"), strict=True)
    return [hull_auc([c[i] for c in columns], corner=corner) for i, corner in enumerate(corners)]


def shown(one: Estimate | None, digits: str = ".3f") -> str:
    """With its interval where there is one."""
    if one is None:
        return "never"
    return format(one.value, digits) if one.n == 1 else format(one, digits)


def render(results: StudyResults, out: Path) -> str:
    """What is there to hide, what each method reaches, all points."""
    c = results.config

    def whole(name: str) -> str:
        return shown(results.estimate("original", name))

    limits = (0.5, 0.2)
    summary = [
        [
            NAMES[m],
            *(shown(kept(results, m, most)) for most in limits),
            *(shown(Estimate.from_runs(areas(results, m, p)), ".4f") for p in PRIVATE),
        ]
        for m in c["methods"]
    ]
    points = []
    for m in c["methods"]:
        for k in knobs(results, m):
            attacks = [results.estimate(m, f"{k}/{p} {role}").value for p in PRIVATE for role in roles(results)]
            left = [Estimate.from_runs(advantage(results, m, k, p)).value for p in PRIVATE]
            users = [results.estimate(m, f"{k}/{side}").value for side in ("utility", "released")]
            points.append([NAMES[m], k, *(f"{x:.3f}" for x in (*attacks, *users)), *(f"{x:.2f}" for x in left)])
    header = [f"{p}, {role}" for p in PRIVATE for role in roles(results)]
    return "\n\n".join(
        [
            f"Trees find sex with {whole('sex')} where nothing is hidden ({whole('sex label only')} by the label "
            f"alone, {whole('sex majority')} by a guess), age ({', '.join(AGES)}) with {whole('age')} "
            f"({whole('age label only')}, {whole('age majority')}), and readmission with {whole('utility')} "
            f"({whole('utility majority')} by a guess).",
            "## Summary",
            "The receiver's accuracy on encounters as they are, where the strongest attackers of sex and of age both "
            "keep at most half, or a fifth, of what they gain over the label alone; hull AUC (origin 0) with the "
            "point of the encounters as they are in every curve.",
            markdown_table(
                ["method", "receiver, half", "receiver, a fifth", "hull AUC, sex", "hull AUC, age"], summary
            ),
            "## All points",
            markdown_table(
                ["method", "strength", *header, "receiver", "receiver, released", "sex kept", "age kept"], points
            ),
            f"{len(c['seeds'])} seed(s), each of which deals the patients out anew; intervals are over seeds. "
            f"Obfuscators learn from {c['rows']:,} encounters, trees from {c['judge_rows']:,}, and are tried on "
            f"{c['test_rows']:,} of other patients: by the choice of these alone an accuracy is good to "
            f"{1.96 * (0.25 / c['test_rows']) ** 0.5:.3f}. Averaging attackers hold {c['copies']} releases of each "
            f"encounter. Epochs: ours {c['ours_epochs']}, the paper's {c['paper_epochs']}, baselines "
            f"{c['baseline_epochs']} for each strength. Lambda is {LAMBDA:g}.",
        ]
    )


OWN = "It keeps the readmission and hides sex and age; `locum obfuscate trade-off` measures other tables."

STUDIES = {
    "diabetes-curves": Study(
        "UCI Diabetes 130: readmission kept, sex and age hidden", cells, render, sets=OWN, names={"methods": NAMES}
    ),
}
