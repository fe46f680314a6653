"""Whether conclusions of the replica paper, the thesis and the private fits depend on the backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bb_methods import THESIS, THESIS_K, cells

from locum.metrics import compare, paired_difference
from locum.recipes import Study, StudyResults
from locum.recipes.study import markdown_table
from locum.recipes.study_sets import backbone_label
from locum.types import Estimate

TITLES = {"breastmnist": "BreastMNIST", "pneumoniamnist": "PneumoniaMNIST", "cifar10_12k": "CIFAR-10"}
NAMES = {
    "real": "real data",
    "gaussian": "ClassGaussian",
    "cvae-replica": "CVAE of the replica paper",
    "cvae-thesis": "CVAE of the thesis",
    "cvae": "CVAE, our defaults",
}
WORDS = {"better": "above", "worse": "below", "tie": "tie", "not decided": "not decided"}


@dataclass(frozen=True)
class Conclusion:
    """One comparison that a conclusion rests on: `a` minus `b`, of one figure."""

    a: str
    b: str
    metric: str
    what: str


def conclusions(config: Mapping[str, Any]) -> dict[str, list[Conclusion]]:
    """By study: the comparisons that decide what it concludes."""
    least, most = f"{min(config['ks'])}-Same", f"{max(config['ks'])}-Same"
    noise, same = max(config["noise"]), f"{THESIS_K}-Same"
    first = [
        *(Conclusion("cvae-replica", b, "auc0", "AUC") for b in ("real", least, most, "gaussian")),
        Conclusion("cvae", "real", "auc0", "AUC"),
        Conclusion("cvae", "gaussian", "auc0", "AUC"),
        Conclusion("gaussian", "real", "auc0", "AUC"),
        Conclusion(most, least, "auc0", "AUC"),
        *(
            Conclusion(a, b, f"auc{noise}", f"AUC at noise {noise}")
            for a in ("cvae-replica", "gaussian")
            for b in (least, most)
        ),
        *(Conclusion("cvae-replica", b, "D", "distance D") for b in (least, most)),
        Conclusion("gaussian", most, "D", "distance D"),
        Conclusion(most, least, "D", "distance D"),
        *(Conclusion(a, b, "dispersion", "dispersion") for a, b in (("cvae-replica", least), (least, "real"))),
    ]
    second = [
        Conclusion(a, b, metric, words)
        for a, b in (("cvae-thesis", "real"), (same, "real"), ("gaussian", "real"), ("gaussian", "cvae-thesis"))
        for metric, words in THESIS.items()
    ]
    third = [
        Conclusion(f"head-{e:g}", b, metric, words)
        for e in config["epsilons"]
        for b in (f"means-{e:g}", "gaussian")
        for metric, words in (("private/rule_auc", "AUC, own rule"), ("private/auc", "AUC, probe"))
    ]
    return {
        "Table 1 and Figure 2 of the replica paper": first,
        "Table 9 of the thesis": second,
        "Private fits": third,
    }


def called(method: str) -> str:
    kind, dash, epsilon = method.partition("-")
    return f"private {kind}, epsilon {epsilon}" if dash and kind in ("head", "means") else NAMES.get(method, method)


def has(results: StudyResults, cell: str, metric: str) -> bool:
    return cell in results.raw and metric in next(iter(results.raw[cell].values()))


def shown(difference: Estimate, metric: str) -> str:
    digits = 2 if metric in ("D", "dispersion") else 3
    return f"{format(difference, f'+.{digits}f')} {WORDS[compare(difference)]}"


def verdict(found: list[Estimate]) -> str:
    """What all backbones together say of one comparison."""
    kinds = {WORDS[compare(d)] for d in found}
    if kinds == {"tie"}:
        return "tie on all"
    if len(kinds) == 1:
        return f"{kinds.pop()} on all"
    if {"above", "below"} <= kinds:
        return "REVERSED"
    return f"{(kinds - {'tie'}).pop()} or tie"


def render(results: StudyResults, out: Path) -> str:
    config = results.config
    backbones = [backbone_label(b) for b in config["backbones"]]
    text = [summary(results, backbones)]
    for name in sorted(config["sets"]):
        text.append(f"## {TITLES.get(name, name)}")
        text += [figures(results, backbones, name, what) for what in ("table1", "table9", "private")]
        for what, pairs in conclusions(config).items():
            rows = []
            for pair in pairs:
                if found := differences(results, backbones, name, pair):
                    changes = changed(results, backbones, name, pair)
                    rows.append(
                        [
                            f"{called(pair.a)} minus {called(pair.b)}, {pair.what}",
                            *(shown(d, pair.metric) for d in found),
                            verdict(found),
                            ", ".join(changes) or "-",
                        ]
                    )
            header = [what, *backbones, "all backbones", f"size differs from {backbones[0]}"]
            if rows:
                text.append("Differences, paired by seed:\n\n" + markdown_table(header, rows))
    draw(results, backbones, out)
    text.append("![AUC against distance](backbones.svg)")
    text.append(
        f'{len(config["seeds"])} seeds, 95 % intervals over them: they say nothing of other test records. "Tie" '
        "means that the interval holds 0, which does not prove equality. The last column names backbones on which a "
        f"difference is larger or smaller than on {backbones[0]}, paired by seed, beyond a tie. Replicas are drawn "
        "once (offline) with variance 1. Distances are of z-scored vectors, and grow with the number of features: "
        "compare them within a backbone."
    )
    return "\n\n".join(text)


def differences(results: StudyResults, backbones: list[str], name: str, pair: Conclusion) -> list[Estimate]:
    """One per backbone; none if a method was not run on this set."""
    cells = [(f"{b}/{name}/{pair.a}", f"{b}/{name}/{pair.b}") for b in backbones]
    if not all(has(results, cell, pair.metric) for both in cells for cell in both):
        return []
    return [results.difference(a, b, pair.metric) for a, b in cells]


def changed(results: StudyResults, backbones: list[str], name: str, pair: Conclusion) -> list[str]:
    """Backbones whose difference is not that of the first one, beyond a tie."""

    def gaps(backbone: str) -> list[float]:
        mine, other = (results.runs(f"{backbone}/{name}/{m}", pair.metric) for m in (pair.a, pair.b))
        return [x - y for x, y in zip(mine, other, strict=True)]

    first = gaps(backbones[0])
    return [b for b in backbones[1:] if compare(paired_difference(gaps(b), first)) in ("better", "worse")]


def summary(results: StudyResults, backbones: list[str]) -> str:
    """How many comparisons agree over all backbones, and those that are reversed."""
    rows: list[list[object]] = []
    reversed_: list[str] = []
    for what, pairs in conclusions(results.config).items():
        counts = {"same direction on all": 0, "tie on all": 0, "one direction or tie": 0, "reversed": 0}
        for name in sorted(results.config["sets"]):
            for pair in pairs:
                if not (found := differences(results, backbones, name, pair)):
                    continue
                said = verdict(found)
                if said == "not decided on all":
                    continue
                if said == "REVERSED":
                    counts["reversed"] += 1
                    title = TITLES.get(name, name)
                    reversed_.append(f"- {title}: {called(pair.a)} minus {called(pair.b)}, {pair.what}")
                elif said == "tie on all":
                    counts["tie on all"] += 1
                else:
                    counts["one direction or tie" if said.endswith("tie") else "same direction on all"] += 1
        rows.append([what, sum(counts.values()), *counts.values()])
    header = ["comparisons of", "all", "same direction on all", "tie on all", "one direction or tie", "reversed"]
    listed = "\n".join(reversed_) if reversed_ else "None."
    return (
        f"Backbones: {', '.join(backbones)}.\n\n"
        + markdown_table(header, rows)
        + f"\n\nReversed (above on one backbone and below on another):\n\n{listed}"
    )


def figures(results: StudyResults, backbones: list[str], name: str, what: str) -> str:
    """The figures behind the differences: rows are methods, columns backbones."""
    config = results.config
    noise = max(config["noise"])
    metrics = {
        "table1": {"auc0": "AUC", f"auc{noise}": f"AUC, noise {noise}", "D": "D", "dispersion": "dispersion"},
        "table9": THESIS,
        "private": {"private/rule_auc": "AUC, own rule", "private/auc": "AUC, probe"},
    }[what]
    methods = ["real", *(f"{k}-Same" for k in config["ks"]), "gaussian", "cvae-replica", "cvae-thesis", "cvae"]
    methods += [f"{mechanism}-{e:g}" for mechanism in config["mechanisms"] for e in config["epsilons"]]
    rows = []
    for metric, words in metrics.items():
        digits = 1 if metric in ("D", "dispersion") else 3
        for method in methods:
            places = [f"{b}/{name}/{method}" for b in backbones]
            if all(has(results, place, metric) for place in places):
                found = [format(results.estimate(place, metric), f".{digits}f") for place in places]
                rows.append([words, called(method), *found])
    return markdown_table(["figure", "trained on", *backbones], rows)


def draw(results: StudyResults, backbones: list[str], out: Path) -> None:
    """AUC against D, as in Figure 2 of the replica paper: one row per set, one column per backbone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    config, names = results.config, sorted(results.config["sets"])
    methods = [*(f"{k}-Same" for k in config["ks"]), "gaussian", "cvae-replica", "cvae"]
    # A fixed salt: the same figures give the same file.
    with plt.rc_context({"svg.hashsalt": "backbones"}):
        size = (3.4 * len(backbones), 3.1 * len(names))
        figure, axes = plt.subplots(len(names), len(backbones), figsize=size, squeeze=False)
        for i, name in enumerate(names):
            for j, backbone in enumerate(backbones):
                axis, at = axes[i][j], f"{backbone}/{name}"
                axis.axvline(results.estimate(f"{at}/real", "auc0").value, color="0.5", ls="--", label="real data")
                for n, method in enumerate(methods):
                    if has(results, f"{at}/{method}", "D"):
                        auc, distance = (results.estimate(f"{at}/{method}", m).value for m in ("auc0", "D"))
                        marker = "o" if method.endswith("Same") else "*"
                        axis.plot(
                            auc, distance, marker, ms=6 if marker == "o" else 11, color=f"C{n}", label=called(method)
                        )
                axis.set_title(f"{TITLES.get(name, name)}, {backbone}", fontsize=9)
                if i == len(names) - 1:
                    axis.set_xlabel("AUC")
            axes[i][0].set_ylabel("D")
        axes[0][0].legend(fontsize=6)
        figure.tight_layout()
        figure.savefig(out / "backbones.svg", metadata={"Date": None})
        plt.close(figure)


def minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core, once the vectors are there: nearly all of it trains CVAEs."""
    epochs = sum(n for by_set in config["epochs"].values() for n in by_set.values())
    return len(config["seeds"]) * len(config["backbones"]) * (0.1 * len(config["sets"]) + epochs / 1500)


OWN = "It embeds the images of the sets that it names; the setting `backbones` gives it other backbones."
STUDIES = {
    "backbones": Study(
        "Which conclusions depend on the backbone", cells, render, minutes, sets=OWN, names={"backbones": None}
    )
}
