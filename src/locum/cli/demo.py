"""`locum demo`: all steps, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.embed import show_embed
from locum.cli.evaluate import show_evaluation
from locum.cli.fit import show_fit
from locum.cli.options import Json
from locum.cli.receiver import show_predictions


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Output folder.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """Run all steps on images that ship with scikit-learn: embed, fit, verify, train, predict, evaluate, report."""
    from locum.recipes import run_demo

    number = 0

    def begins(title: str, command: str) -> None:
        nonlocal number
        number += 1
        if not as_json:
            output.say()
            output.say(f"{number}. {title}", "bold")
            if command:
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
    elif name == "train":
        output.say(f"{result.head} was made from the release alone")
    elif name == "predict":
        show_predictions(result)
    elif name == "evaluate":
        show_evaluation(result)
    else:
        output.say(
            f"{out / 'report.html'} (internal: it shows real points; `report --share` makes a page that can be sent)"
        )


def _close(results: dict[str, Any], out: Path) -> None:
    """Print a summary for a newcomer."""
    from locum.report import verdict_text

    ours, real = results["evaluate"].rows[:2]
    right = [f"{100 * row.scores['accuracy'].value:.1f} %" for row in (ours, real)]
    size = results["fit"].megabytes
    output.say()
    output.say("What happened", "bold")
    output.say(
        f"A data holder turned {results['fit'].records} images into a release of {size:.1f} MB; no image is in it."
    )
    output.say(
        f"A classifier that never saw a real digit is right on {right[0]} of the test digits; one trained on the"
    )
    output.say(f"real digits is right on {right[1]} (linear heads, mean of {results['evaluate'].seeds} seeds).")
    output.say()
    output.say("What it protects, and what it does not", "bold")
    output.say("The release holds no record. Nothing is proven beyond that: its claim is `none`, and the lines")
    output.say("`not covered` say what may still be learned; see docs/explain/limitations.md.")
    verdict = results["fit"].membership.verdict
    output.say(f"One simple attack was run on it. {verdict_text(verdict).title}. {verdict_text(verdict).attack}")
    if verdict == "leak":
        output.say("With real patients you would stop here and fit with differential privacy: without --no-dp.")
    output.say()
    output.say("Your own folder of images, with one folder per class", "bold")
    output.say("   $ locum embed your-images -o vectors.npz")
    output.say("   $ locum fit vectors.npz -o my-release")
    output.say("   $ locum report my-release --train vectors.npz --test your-other-images")
    output.say()
    output.say(f"The report of this demo: {out / 'report.html'}")
