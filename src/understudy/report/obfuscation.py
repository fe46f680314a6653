"""A trade-off of obfuscation as a plain dict, and as Markdown: for the holder's own eyes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from understudy._version import __version__
from understudy.obfuscate import Judgement, TradeOff
from understudy.report.words import plain
from understudy.types import Estimate, PrivacyClaim

__all__ = ["BLIND", "judges_see", "obfuscation_markdown", "obfuscation_report"]

ROLES = ("weak", "strong", "averaged")

BLIND = (
    "The attackers find no more in original records than the utility label alone tells: either there is nothing to "
    "hide, or they learnt too little to judge by. Give more records or epochs."
)
_BANNER = (
    "Holds figures that were measured on real records, and for images real images: do not send it. The curve was "
    "measured; nothing is proven."
)
_READING = {
    "curve": "Each mark is one setting of the knobs. To the right: how often the strongest attacker names the "
    "private attribute. Upwards: how often a receiver, who learnt from obfuscated records alone, names the utility "
    "attribute of real ones. The best place is up and to the left, down to the dashed line: a release carries the "
    "utility label, and that label alone gives an attacker so much. Bars are 95 % intervals over test records; they "
    "do not cover other trainings, other attackers or other data.",
    "points": "Weak: learnt on original records. Strong: learnt on records that it obfuscated itself. Averaged: "
    "holds several releases of each record and takes their mean. An attacker that was not tried may find more.",
    "grid": "Test images and what comes out at each setting: noise to the right, lambda downwards. The first column "
    "holds real images.",
    "claim": "A claim is what the method promises, whoever attacks. What is not covered lies outside of it.",
}
_GLOSSARY = {
    "attacker": "whoever has released records and wants to find the private attribute of each.",
    "hull AUC": "area under the curve of this kind, the seed's measure; more is better. It compares methods on the "
    "same data and judges only.",
    "lambda": "how plainly the utility label is written: 0 not at all, -50 surely.",
    "most frequent": "always naming what is most frequent.",
    "noise": "how much of a record is hidden: 0 hides least.",
    "receiver": "whoever trains on released records, and uses the result on real ones.",
    "utility label alone": "an attacker who sees nothing but the utility label: what obfuscation cannot hide.",
}


def obfuscation_report(
    found: TradeOff,
    *,
    obfuscator: Mapping[str, Any],
    claim: PrivacyClaim,
    measured: Mapping[str, Any],
    target: float | None = None,
    picked: str | None = None,
    problem: str = "",
    grid: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All that a trade-off found. It depends on records, and with `grid` shows some: it stays in the building.

    `obfuscator` and `measured` are facts to print: what it is, and on which records it was judged. `picked` names
    the point that meets `target`, or `problem` says why none does. `grid` has `originals` and `cells` (a row for each
    lambda) as PNG bytes, with `noises` and `lambdas`.
    """
    first = found.points[0].judgement
    private, utility = found.original()
    report: dict[str, Any] = {
        "format": "understudy-trade-off",
        "version": 1,
        "audience": "internal",
        "banner": _BANNER,
        "written_on": datetime.now(UTC).date().isoformat(),
        "written_by": f"understudy {__version__}",
        "obfuscator": dict(obfuscator),
        "measured": dict(measured),
        "claim": {"title": claim.title, "sentence": claim.sentence(), "not_covered": list(claim.not_covered)},
        "points": [_point(p.name, p.knobs, p.judgement, picked) for p in found.points],
        "baselines": {
            "original attacker": private.to_dict(),
            "original utility": utility.to_dict(),
            "label alone": first.label_only.to_dict(),
            "most frequent": first.majority.to_dict(),
            "most frequent utility": first.utility_majority.to_dict(),
        },
        "hull_auc": _hull(found),
        "target": None if target is None else {"attacker_at_most": target, "picked": picked, "problem": problem},
        "caution": "" if judges_see(found) else BLIND,
        "reading": dict(_READING),
        "glossary": dict(_GLOSSARY),
    }
    report["summary"] = _summary(report)
    return {**plain(report), "grid": None if grid is None else dict(grid)}


def obfuscation_markdown(report: Mapping[str, Any], table: str) -> str:
    """The same for a mail inside the house; `table` is `TradeOff.to_markdown()`."""
    from understudy.report.markdown import _table, _text

    parts = [
        "# Understudy trade-off of an obfuscator",
        f"**{report['audience'].upper()}.** {_text(report['banner'])}",
        *(f"**{_text(card['title'])}** {_text(card['text'])}" for card in report["summary"]),
        "## What attackers and receivers reach",
        table,
        _text(report["reading"]["points"]),
        "## What is claimed, and what is not",
        f"Claim: **{_text(report['claim']['title'])}**. {_text(report['claim']['sentence'])}",
        "\n".join(f"- {_text(item)}" for item in report["claim"]["not_covered"]),
        "## How it was measured",
        _table(["what", "value"], [*report["obfuscator"].items(), *report["measured"].items()]),
    ]
    return "\n\n".join(parts) + "\n"


def judges_see(found: TradeOff) -> bool:
    """Attackers that are blind on originals say nothing of releases."""
    return found.original()[0].low > found.points[0].judgement.label_only.value


def _point(name: str, knobs: Mapping[str, float], judgement: Judgement, picked: str | None) -> dict[str, Any]:
    return {
        "name": name,
        # JSON has no infinity.
        "knobs": {k.strip("_"): v if math.isfinite(v) else "infinity" for k, v in knobs.items()},
        "picked": name == picked,
        "attacker": judgement.attacker.to_dict(),
        "attacker_name": judgement.attacker_name,
        "utility": judgement.utility.to_dict(),
        "utility_released": _best(judgement.utility_released).to_dict(),
        **{role: _best(getattr(judgement, role)).to_dict() for role in ROLES},
        "figures": {k: e.to_dict() for k, e in judgement.figures().items()},
    }


def _summary(report: Mapping[str, Any]) -> list[dict[str, str]]:
    obfuscator, measured, baselines = report["obfuscator"], report["measured"], report["baselines"]
    ceiling, floor = baselines["original attacker"]["value"], baselines["label alone"]["value"]
    least = min(report["points"], key=lambda p: p["attacker"]["value"])
    return [
        {
            "title": "What this is",
            "text": f"Obfuscated {obfuscator['kind']}s keep {obfuscator['utility']} for whoever receives them. This "
            f"page asks what they still tell of {measured['private']}; settings of the knobs that were tried: "
            f"{len(report['points'])}.",
        },
        {
            "title": "What was found",
            "text": f"Where nothing is hidden an attacker names it in {ceiling:.1%} of test records, from the "
            f"utility label alone in {floor:.1%}. The least was {least['attacker']['value']:.1%}, at "
            f"{least['name']}; a receiver then reaches {least['utility']['value']:.1%}, and "
            f"{baselines['original utility']['value']:.1%} where nothing is hidden. {report['caution']}",
        },
        {"title": "Which setting", "text": _chosen(report)},
        {"title": "Tested on", "text": measured["tested on"]},
    ]


def _chosen(report: Mapping[str, Any]) -> str:
    target = report["target"]
    if target is None:
        return "None was asked for. --attacker-at-most picks the least noise that keeps the attacker below a figure."
    if target["picked"] is None:
        return str(target["problem"])
    return (
        f"{target['picked']}: the least noise that keeps the upper end of the strongest attacker's interval at "
        f"{target['attacker_at_most']:g} or below. It was chosen on these test records: measure it again on others."
    )


def _hull(found: TradeOff) -> dict[str, float] | None:
    kinds: Sequence[str] = tuple(found.points[0].judgement.strong)
    judge = "network" if "network" in kinds else kinds[0]
    return {
        "origin 0, 0": found.hull_auc(judge=judge),
        "origin 0.5, 0.5": found.hull_auc(origin=(0.5, 0.5), judge=judge),
    }


def _best(by_kind: Mapping[str, Estimate]) -> Estimate:
    return max(by_kind.values(), key=lambda e: e.value)
