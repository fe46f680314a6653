"""How `understudy obfuscate` shows its results to people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli import output

if TYPE_CHECKING:
    from understudy.recipes.obfuscate import ObfuscatorSummary
    from understudy.recipes.obfuscate_apply import AppliedSummary
    from understudy.recipes.obfuscate_trade_off import TradeOffSummary

__all__ = ["show_applied", "show_obfuscator", "show_trade_off"]


def show_obfuscator(summary: ObfuscatorSummary) -> None:
    """What the data holder reads after a fit."""
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
    output.say(f"records     {summary.records} used{trained} (this stays with you)")
    output.show_claim(summary.claim)


def show_applied(summary: AppliedSummary) -> None:
    """Where the records are, and what they promise."""
    knobs = summary.about["knobs"]
    output.say(f"obfuscated  {summary.records} records in {summary.file}", "bold")
    output.say(
        f"knobs       noise {knobs['noise']:g}" if isinstance(knobs["noise"], float) else "knobs       noise inf"
    )
    output.say(f"            lambda {knobs['lambda']}, {knobs['labels']} labels")
    if summary.left_out:
        output.say(f"left out    {', '.join(summary.left_out)}")
    output.say(f"claim       {summary.claim.title}, in {summary.claim_file}", "bold")
    output._indented("Measured, not proven: send it only if what `obfuscate trade-off` found is acceptable.")
    for item in summary.claim.not_covered:
        output._indented(f"not covered: {item}")


def show_trade_off(summary: TradeOffSummary) -> None:
    """The table, what it is measured against, and where the report is."""
    report, found = summary.report, summary.found
    rows = [
        [p.name, output.short_estimate(p.judgement.attacker), p.judgement.attacker_name,
         output.short_estimate(p.judgement.utility), "picked" if shown["picked"] else ""]
        for p, shown in zip(found.points, report["points"], strict=True)
    ]  # fmt: skip
    first, (private, utility) = found.points[0].judgement, found.original()
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
        output.say(f"caution     {report['caution']}", "bold red")
    if summary.problem:
        output.say(f"not met     {summary.problem}", "bold red")
    elif report["target"] is not None:
        output.say(f"picked      {report['target']['picked']}: measure it again on other records", "bold")
    output.say(f"report      {Path(summary.folder) / 'report.html'}", "bold")
    output.say(f"            INTERNAL. {report['banner']}")
