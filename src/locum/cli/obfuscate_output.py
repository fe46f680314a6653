"""What the verbs of `locum obfuscate` print."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from locum.cli import output

if TYPE_CHECKING:
    from locum.recipes import (
        AppliedSummary,
        ObfuscatorSummary,
        PrivateTableSummary,
        SampledSummary,
        TradeOffSummary,
    )

# Less epsilon than this is what rounding leaves.
_NOTHING = 1e-4


def show_obfuscator(summary: ObfuscatorSummary) -> None:
    """Print the summary of a fit."""
    size = f"{summary.parameters:,} parameters, {summary.megabytes:.2f} MB, {summary.seconds:.0f} s"
    output.say(f"obfuscator  {summary.obfuscator} ({summary.preset}, {size})", "bold")
    output.say(f"fingerprint {summary.fingerprint}")
    for name, values in summary.utility.items():
        shown = ", ".join(map(str, values[:12])) + (", ..." if len(values) > 12 else "")
        output.say(f"keeps       {name}: {shown}")
    takes = " x ".join(summary.takes) if summary.kind == "image" else ", ".join(summary.takes)
    output.say(f"takes       {takes}")
    if summary.left_out:
        output.say(f"left out    {', '.join(summary.left_out)}")
    trained = f", best epoch {summary.epochs}" if summary.epochs else ""
    output.say(f"records     {summary.records} used{trained} (do not share this number)")
    output.show_claim(summary.claim)


def show_domain(facts: Mapping[str, str]) -> None:
    """Print where the draft of a domain is, and what to do with it."""
    output.say(f"domain      {facts['file']}, for your eyes only", "bold")
    output.say_indented("Read it, remove what must not be public, widen ranges to round numbers; then pass --domain.")


def show_private_table(summary: PrivateTableSummary) -> None:
    """Print the summary of a private table: its guarantee, and what is left of the budget."""
    from locum.types import at_most

    output.say(f"table       {summary.table} ({summary.megabytes:.2f} MB, {summary.seconds:.0f} s)", "bold")
    output.say(f"fingerprint {summary.fingerprint}")
    output.say(f"keeps       {summary.utility}")
    shown = (name if parent is None else f"{name} (by {parent})" for name, parent in summary.tree.items())
    output.say(f"columns     {', '.join(shown)}")
    if summary.left_out:
        output.say(f"left out    {', '.join(summary.left_out)}")
    output.say(f"records     {summary.records} used (do not share this number)")
    output.show_guarantee(summary.claim)
    output.say_indented(f"What it does not cover: {Path(summary.table) / 'README.md'}")
    output.say("limit       what that means for any attack")
    output.say_indented(summary.limit.sentence)
    if summary.left[0] < _NOTHING:
        output.say(f"budget      nothing is left for {summary.holding!r}: another fit needs a larger budget")
    else:
        epsilon, delta = (at_most(value) for value in summary.left)
        output.say(f"budget      epsilon {epsilon} and delta {delta} are left for {summary.holding!r}")


def show_sampled(summary: SampledSummary) -> None:
    """Print where the rows are, and their claim."""
    output.say(f"sampled     {summary.rows} rows in {summary.file}", "bold")
    output.say(f"claim       {summary.claim.title}, in {summary.claim_file}", "red" if summary.claim.test else "bold")
    for line in summary.claim.assumed():
        output.say_indented(line)
    output.say_indented(summary.claim.sentence())


def show_applied(summary: AppliedSummary) -> None:
    """Print where the records are, and their claim."""
    knobs = summary.about.get("knobs")
    output.say(f"obfuscated  {summary.records} records in {summary.file}", "bold")
    if knobs is not None:
        noise = f"{knobs['noise']:g}" if isinstance(knobs["noise"], float) else "inf"
        output.say(f"knobs       noise {noise}")
        output.say(f"            lambda {knobs['lambda']}, {knobs['labels']} labels")
    if summary.left_out:
        output.say(f"left out    {', '.join(summary.left_out)}")
    output.say(f"claim       {summary.claim.title}, in {summary.claim_file}", "bold")
    if knobs is None:
        output.say_indented("No guarantee: for rows with the guarantee of the private table use `obfuscate sample`.")
    else:
        output.say_indented("Measured, not proven: send it only if what `obfuscate trade-off` found is acceptable.")
    for item in summary.claim.not_covered:
        output.say_indented(f"not covered: {item}")


def show_trade_off(summary: TradeOffSummary) -> None:
    """Print the table with its baselines, and where the report is."""
    report, found = summary.report, summary.found
    rows = [
        [p.name, output.short_estimate(p.judgment.attacker), p.judgment.attacker_name,
         output.short_estimate(p.judgment.utility), "picked" if shown["picked"] else ""]
        for p, shown in zip(found.points, report["points"], strict=True)
    ]  # fmt: skip
    first, (private, utility) = found.points[0].judgment, found.original()
    rows.append(["original records", output.short_estimate(private), "", output.short_estimate(utility), ""])
    rows.append(["utility label alone", output.short_estimate(first.label_only), "", "", ""])
    guesses = [output.short_estimate(e) for e in (first.majority, first.utility_majority)]
    rows.append(["most frequent", guesses[0], "", guesses[1], ""])
    measured = report["measured"]
    output.show_table(
        ["setting", f"attacker on {measured['private']}", "who", f"utility {report['obfuscator']['utility']}", ""],
        rows,
    )
    output.say(f"tested on   {measured['test records']} records. {measured['tested on']}")
    if report["caution"] and report["caution"] != summary.problem:
        output.say(f"caution     {report['caution']}", "red")
    if summary.problem:
        output.say(f"not met     {summary.problem}", "red")
    elif report["target"] is not None:
        output.say(f"picked      {report['target']['picked']}: measure it again on other records", "bold")
    output.say(f"report      {Path(summary.folder) / 'report.html'}", "bold")
    output.say(f"            INTERNAL. {report['banner']}")
