"""`locum demo`: all steps, one after the other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.embed import show_embed
from locum.cli.fit import show_fit
from locum.cli.options import Json
from locum.cli.receiver import show_predictions


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Output folder.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """Run all steps on images that ship with scikit-learn: embed, fit, verify, train, predict, audit, and compare."""
    from locum.recipes import run_demo

    number = 0

    def begins(title: str, commands: Sequence[str]) -> None:
        nonlocal number
        number += 1
        if not as_json:
            output.say()
            output.say(f"{number}. {title}", "bold")
            for command in commands:
                output.say(f"   $ {command}", "dim")

    def ends(name: str, result: Any) -> None:
        if not as_json:
            _show(name, result, out)

    with output.progress_bar("demo") as progress:
        results = run_demo(
            out, begins=begins, ends=ends, verbose=not (as_json or output.is_quiet()), progress=progress
        )
    if as_json:
        output.print_json({k: v if isinstance(v, dict) else v.to_dict() for k, v in results.items()})
    else:
        _close(results, out)


def _show(name: str, result: Any, out: Path) -> None:
    if name == "images":
        output.say(
            f"{result['train']} records, {result['val']} not used, {result['test']} for testing: {out / 'images'}"
        )
    elif name == "embed":
        show_embed(result)
    elif name == "fit":
        show_fit(result)
    elif name == "verify":
        output.say(f"{len(result.checks)} checks passed; fingerprint {result.fingerprint}")
        for line in result.not_checked:
            output.say(f"--  {line}")
    elif name == "train":
        how = "the rule is in the release, so nothing was trained" if result.kind == "bayes" else result.kind
        output.say(f"{result.head} was made from the release alone: {how}")
    elif name == "predict":
        show_predictions(result)
    elif name == "audit":
        _show_audit(result.report, out)
    else:
        _show_comparison(result)


def _show_audit(report: Any, out: Path) -> None:
    from locum.audit import VERDICT_TONES

    met = "met" if report.may_leave else "NOT met"
    style = output.TONE_STYLES[VERDICT_TONES[report.verdict]]
    output.say(f"{report.outcome}: {len(report.results)} attacks were run. Policy {report.policy}: {met}.", style)
    output.say(f"page        {out / 'audit.html'} (internal: it depends on the records)")


def _show_comparison(found: Mapping[str, Any]) -> None:
    """Three releases and the real data, side by side; then how to read the columns."""
    rows = [[*_scores(row), *_risk(row)] for row in found["rows"]]
    rows.append([*_scores({"name": "real data", **found["real"]}), "-", "-", "not shared"])
    output.show_table(["", "accuracy", "AUC", "attack", "limit", "verdict"], rows)
    attacks = list(dict.fromkeys(name for row in found["rows"] for name in row["attacks"]))
    _paragraph(
        f"accuracy, AUC: of the classifier that `train` makes from each release, on {found['test_records']} test "
        "images; on real data, of a logistic regression whose penalty was chosen by cross-validation."
    )
    _paragraph(
        f"attack: AUC for telling the {found['members']} images that were used from {found['non_members']} others; "
        f"the strongest of {', '.join(attacks)}. 0.5 is a coin flip. limit: what no attack exceeds on average over "
        "the noise, proven. ±: half of a 95 % interval."
    )
    _paragraph(
        f"Releases of the same data add up: anyone who gets both private ones has epsilon {_sum(found)} in total. A "
        "holder chooses one row; `--holding` gave the second one a budget of its own, for this comparison only."
    )


def _scores(row: Mapping[str, Any]) -> list[str]:
    return [row["name"], *(output.short_estimate(_estimate(row[name])) for name in ("accuracy", "auc"))]


def _risk(row: Mapping[str, Any]) -> list[str]:
    limit = "none" if row["limit"] is None else _limit(row)
    return [output.short_estimate(_estimate(row["attack"]["auc"])), limit, row["attack"]["verdict"]]


def _close(results: Mapping[str, Any], out: Path) -> None:
    """Print a summary for a newcomer."""
    fit, found = results["fit"], results["compare"]
    private, larger, unprotected = found["rows"]
    classes, records = len(results["train"].classes), found["members"]
    strongest = output.estimate(_estimate(private["attack"]["auc"]))
    right = {row["name"]: _percent(row["accuracy"]) for row in (private, larger, unprotected)}
    output.say()
    output.say("What was shared", "bold")
    _paragraph(
        f"{private['release']}: {fit.megabytes:.1f} MB, made from {records} images. It holds noisy sums over all of "
        "them and what follows from those; no image, and no vector of one."
    )
    output.say()
    output.say("What it protects", "bold")
    _paragraph(
        "Whether a given image was used. Any attack, even one that knows all other images, has an AUC of at most "
        f"{_limit(private)} on average over the noise; 0.5 is a coin flip. That is proven. The strongest attack "
        f"tried here reached {strongest}. What the guarantee does not cover is in "
        f"{Path(private['release']) / 'README.md'}."
    )
    output.say()
    output.say("What it costs", "bold")
    _paragraph(
        f"The receiver's classifier is right on {right[private['name']]} of the test images, one that was trained on "
        f"the real images on {_percent(found['real']['accuracy'])}. With {larger['name']} it would be "
        f"{right[larger['name']]}, and the proven limit {_limit(larger)}. Without a guarantee it would be "
        f"{right[unprotected['name']]}, and {_without(unprotected)}."
    )
    _paragraph(
        f"There are about {round(records / classes)} images per class here. Noise of the same size matters less in "
        "sums over more of them: larger data sets lose less (docs/explain/results.md)."
    )
    output.say()
    output.say("Your own folder of images, with one folder per class", "bold")
    output.say("   $ locum fit your-images -o my-release --classes-public")
    output.say("   $ locum train my-release -o head.safetensors")
    output.say("   $ locum predict head.safetensors your-other-images -o predictions.csv")
    output.say()
    output.say(f"The page about this release: {out / 'audit.html'}")


def _without(row: Mapping[str, Any]) -> str:
    """What the attacks on the release without a guarantee found."""
    attack = row["attack"]
    reached = f"{attack['name']} reached an AUC of {output.estimate(_estimate(attack['auc']))}"
    if attack["verdict"] == "leak":
        return f"images that were used can be told from others ({reached}): that release should not leave"
    return f"nothing is proven ({reached}: {attack['verdict']})"


def _estimate(value: Mapping[str, Any]) -> Any:
    from locum.types import Estimate

    return Estimate.from_dict(value)


def _percent(value: Mapping[str, Any]) -> str:
    return f"{100 * value['value']:.0f} %"


def _limit(row: Mapping[str, Any]) -> str:
    """Three digits, rounded up: a limit must not look lower than it is."""
    import math

    return f"{math.ceil(row['limit'] * 1000 - 1e-9) / 1000:.3f}"


def _sum(found: Mapping[str, Any]) -> str:
    from locum.types import at_least

    return at_least(found["epsilon_together"])


def _paragraph(text: str) -> None:
    for line in textwrap.wrap(output.plain(text), width=min(100, output.width()), break_on_hyphens=False):
        output.say(line)
